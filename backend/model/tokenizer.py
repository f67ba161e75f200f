"""From text to token ids and back: the only owner of token boundaries.

Every segment of a prompt is tokenised separately, so no token crosses a boundary, and a segment has the same
ids in every prompt. It is tokenised as part of a text: without the space that SentencePiece-style tokenizers
put before a text. An agent's response enters its readers' prompts as the generated ids.
:meth:`Tokens.boundary_tokens` counts what the boundaries cost.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from backend.base.text import Tax
from backend.model.added_spaces import without_added_spaces
from backend.model.chat_template import wrapping
from backend.prompts.filled_results import ENDS, result_after
from backend.prompts.pipeline import Pipeline
from backend.prompts.template import Placeholder
from backend.records.prompt import Prompt, Span, TokenizedPrompt

LONGEST_CHARACTER = (
    12  # tokens to wait for the end of a character; a multiple of a replacement character's three
)

LONGEST_CALCULATION = 24  # tokens of an expression and its equals sign


def _ending_in(tokenizer: Any, ends: tuple[str, ...]) -> frozenset[int]:
    """The tokens whose text is one of ``ends``, with or without spaces around it."""
    return frozenset(
        number for number in range(len(tokenizer)) if str(tokenizer.decode([number])).strip() in ends
    )


class Wrapping(NamedTuple):
    """The ids before and behind a prompt's text, and the plain text in them that adjoins it. ``spaced``: the
    tokenizer would add its space between the opening and the text."""

    opening: tuple[int, ...]
    closing: tuple[int, ...] = ()
    tail: str = ""
    head: str = ""
    spaced: bool = False


class Tokens:
    """A tokenizer with the model's chat wrapping, if it has one.

    Args:
        fills_results: whether results of calculations are filled in while the model writes
            (:mod:`backend.prompts.filled_results`), as its config's ``fills_results`` says.
    """

    def __init__(self, tokenizer: Any, *, fills_results: bool = False) -> None:
        self.tokenizer = tokenizer
        self._before_results = _ending_in(tokenizer, ENDS) if fills_results else frozenset()
        self._inside = without_added_spaces(tokenizer)  # encodes a text as part of a longer one
        bos = tokenizer.bos_token_id
        self.bos: tuple[int, ...] = (bos,) if bos is not None else ()
        spaced = self._ids(tokenizer, "a") != self._ids(self._inside, "a")
        self._bare = Wrapping(self.bos, spaced=spaced)
        template = wrapping(tokenizer)
        self._chat = self._bare if template is None else self._split_template(*template)
        self.opening, self.closing = self._chat.opening, self._chat.closing

    def _split_template(self, before: str, after: str) -> Wrapping:
        """Split the template's text into control tokens and the plain text that adjoins the prompt's."""
        special = self._control_tokens(before)
        start, tail = (before[: special[-1][1]], before[special[-1][1] :]) if special else ("", before)
        special = self._control_tokens(after)
        head, end = (after[: special[0][0]], after[special[0][0] :]) if special else (after, "")
        spaced = self._bare.spaced and self._control(f"{start}a") == (
            *self._control(start), *self._ids(self.tokenizer, "a")
        )  # fmt: skip
        first = self._with_space(tail) if spaced and tail else tail
        return Wrapping(
            (*self._control(start), *self.encode(first)),
            (*self.encode(head), *self._control(end)),
            tail, head, spaced and not tail,
        )  # fmt: skip

    def _with_space(self, text: str) -> str:
        """A text with the space that the tokenizer adds at a prompt's beginning."""
        same = self._ids(self.tokenizer, " a") == self.encode(" a")
        return text if same and text.startswith(" ") else f" {text}"

    def _control_tokens(self, text: str) -> list[tuple[int, int]]:
        """Character ranges of the control tokens in a text of the template."""
        if not getattr(self.tokenizer, "is_fast", False):
            return [(0, len(text))]  # tokenised as a whole
        encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        special = {i for i, token in self.tokenizer.added_tokens_decoder.items() if token.special}
        pairs = zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
        return [place for token, place in pairs if token in special]

    def _control(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(text, add_special_tokens=False)) if text else ()

    def _ids(self, tokenizer: Any, text: str) -> tuple[int, ...]:
        if not text:
            return ()
        # Not verbose: length is checked elsewhere, with a better message.
        encoded = tokenizer(text, add_special_tokens=False, split_special_tokens=True, verbose=False)
        return tuple(encoded["input_ids"])

    def _text(self, ids: Sequence[int], *, control: bool = True) -> str:
        decoded = self._inside.decode(
            list(ids), skip_special_tokens=not control, clean_up_tokenization_spaces=False
        )
        return str(decoded)

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of a person's or a model's text; control tokens in it are encoded as text."""
        return self._ids(self._inside, text)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of generated ids; control tokens are left out."""
        return self._text(ids, control=False)

    def filled_after(self, ids: Sequence[int]) -> tuple[int, ...]:
        """Ids of the calculation's result to fill in behind ``ids``; empty if there is none."""
        if not ids or ids[-1] not in self._before_results:
            return ()
        result = result_after(self.decode(ids[-LONGEST_CALCULATION:]))
        return self.encode(result) if result else ()

    def texts(self, ids: Sequence[int]) -> tuple[str, ...]:
        """The text that each token adds; a character of several tokens belongs to the last one."""
        out: list[str] = []
        pending: list[int] = []
        for token in ids:
            pending.append(int(token))
            text = self._text(pending)
            if text.endswith("\ufffd") and len(pending) < LONGEST_CHARACTER:
                out.append("")
                continue
            piece = self.tokenizer.convert_ids_to_tokens(pending[0])
            if isinstance(piece, str) and piece.startswith("\u2581") and not text.startswith(" "):
                text = " " + text
            out.append(text)
            pending = []
        if pending:  # the ids end within a character, or the text ends with a replacement character
            out[-1] = self._text(pending)
        return tuple(out)

    def prompt(self, pipeline: Pipeline, agent: int, values: Mapping[str, Sequence[int]]) -> TokenizedPrompt:
        """Lay out one agent's prompt; ``values`` maps every placeholder's name to its token ids."""
        ids: list[int] = []
        spans: list[Span] = []
        around = self._chat if pipeline.chat else self._bare
        pending: list[int] = list(around.opening)
        number = 0

        def close() -> None:
            nonlocal number
            if pending:
                spans.append(Span("prefix", f"prefix {number}", len(ids), len(ids) + len(pending)))
                ids.extend(pending)
                pending.clear()
            number += 1

        for place, part in enumerate(pipeline.template(agent).parts):
            if isinstance(part, Placeholder):
                close()
                content = values[part.name]
                spans.append(Span("placeholder", part.name, len(ids), len(ids) + len(content)))
                ids.extend(content)
            elif place == 0 and around.spaced:
                pending.extend(self.encode(self._with_space(part)))
            else:
                pending.extend(self.encode(part))
        pending.extend(around.closing)
        close()
        return TokenizedPrompt(agent, tuple(ids), tuple(spans))

    def lead_in(self, pipeline: Pipeline, name: str) -> tuple[int, ...]:
        """A placeholder's lead-in: the opening of a prompt (the user header), then the words before the
        placeholder on its line in the first template that has it ("The task is: ")."""
        opening = self.opening if pipeline.chat else self.bos
        for agent in pipeline.agents:
            before = ""
            for part in pipeline.template(agent.id).parts:
                if isinstance(part, Placeholder) and part.name == name:
                    return (*opening, *self.encode(before.rpartition("\n")[2]))
                before = part if isinstance(part, str) else ""
        return opening

    def as_record(self, prompt: TokenizedPrompt) -> Prompt:
        """The prompt as stored in a record."""
        return Prompt(
            prompt.agent,
            np.array(prompt.ids, dtype=np.int64),
            self.texts(prompt.ids),
            prompt.spans,
            self.boundary_tokens(prompt.ids),
        )

    def boundary_tax(self, *prompts: Sequence[int]) -> Tax:
        """The boundary tax of several prompts, and their number of tokens."""
        return sum(map(self.boundary_tokens, prompts)), sum(map(len, prompts))

    def boundary_tokens(self, ids: Sequence[int]) -> int:
        """The boundary tax: how many of a prompt's tokens would not occur if its text were tokenised at
        once."""
        around, last = self._chat, len(ids) - len(self._chat.closing)
        if (tuple(ids[: len(around.opening)]), tuple(ids[last:])) != (around.opening, around.closing):
            around, last = self._bare, len(ids)  # a prompt without the chat template
        body = list(ids[len(around.opening) : last])
        text = around.tail + self._text(body) + around.head
        if around.spaced and not text.startswith(" "):
            text = f" {text}"
        edges = self.encode(around.tail) + self.encode(around.head)
        return (Counter(body) + Counter(edges) - Counter(self.encode(text))).total()
