"""From text to token ids and back: the only owner of token boundaries.

Every segment of a prompt is tokenised by itself, so no token crosses a boundary, and the ids of a
segment are the same wherever it stands. An agent's response enters its readers' prompts as the very
ids that were generated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from backend.prompts.filled_results import ENDS, result_after
from backend.prompts.pipeline import Pipeline
from backend.prompts.template import Placeholder
from backend.records.run import Prompt, Span, TokenizedPrompt

SENTINEL = "\u2063kv-reuse-lab\u2063"
LONGEST_CHARACTER = (
    12  # tokens to wait for the end of a character; a multiple of a replacement character's three
)

LONGEST_CALCULATION = 24  # tokens of an expression and its equals sign


def _ending_in(tokenizer: Any, ends: tuple[str, ...]) -> frozenset[int]:
    """The tokens whose text is one of these, with or without a space before it."""
    return frozenset(at for at in range(len(tokenizer)) if str(tokenizer.decode([at])).strip() in ends)


class Tokens:
    """A tokenizer with the model's chat wrapping, if it has one.

    Args:
        fills_results: whether results of calculations are filled in while the model writes
            (:mod:`backend.prompts.filled_results`), as its config's ``fills_results`` says.
    """

    def __init__(self, tokenizer: Any, *, fills_results: bool = False) -> None:
        self.tokenizer = tokenizer
        self._before_results = _ending_in(tokenizer, ENDS) if fills_results else frozenset()
        bos = tokenizer.bos_token_id
        self.bos: tuple[int, ...] = (bos,) if bos is not None else ()
        self.opening, self.closing = self._wrapping()

    def _wrapping(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Ids before and after a prompt: from the chat template, else just the begin-of-sequence token."""
        if not getattr(self.tokenizer, "chat_template", None):
            return self.bos, ()
        text = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": SENTINEL}], tokenize=False, add_generation_prompt=True
        )
        before, _, after = text.partition(SENTINEL)
        return self._control(before), self._control(after)

    def _control(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(text, add_special_tokens=False)) if text else ()

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of a person's or a model's text; control tokens in it stay text."""
        if not text:
            return ()
        # Not verbose: whether a text fits is checked elsewhere, and said in better words.
        found = self.tokenizer(text, add_special_tokens=False, split_special_tokens=True, verbose=False)
        return tuple(found["input_ids"])

    def decode(self, ids: Sequence[int]) -> str:
        """Text of generated ids; control tokens are left out."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def filled_after(self, ids: Sequence[int]) -> tuple[int, ...]:
        """Ids of the result that is filled in behind what was written; none where there is none."""
        if not ids or ids[-1] not in self._before_results:
            return ()
        result = result_after(self.decode(ids[-LONGEST_CALCULATION:]))
        return self.encode(result) if result else ()

    def texts(self, ids: Sequence[int]) -> tuple[str, ...]:
        """What each token adds to the text; a character of several tokens goes to its last one."""
        out: list[str] = []
        waiting: list[int] = []
        for token in ids:
            waiting.append(int(token))
            text = str(self.tokenizer.decode(waiting, skip_special_tokens=False))
            if text.endswith("\ufffd") and len(waiting) < LONGEST_CHARACTER:
                out.append("")
                continue
            piece = self.tokenizer.convert_ids_to_tokens(waiting[0])
            if isinstance(piece, str) and piece.startswith("\u2581") and not text.startswith(" "):
                text = " " + text
            out.append(text)
            waiting = []
        if waiting:  # the ids end within a character, or with a replacement character of the text's own
            out[-1] = str(self.tokenizer.decode(waiting, skip_special_tokens=False))
        return tuple(out)

    def prompt(self, pipeline: Pipeline, agent: int, values: Mapping[str, Sequence[int]]) -> TokenizedPrompt:
        """Lay out one agent's prompt; ``values`` maps every placeholder's name to its token ids."""
        ids: list[int] = []
        spans: list[Span] = []
        opening, closing = (self.opening, self.closing) if pipeline.chat else (self.bos, ())
        pending: list[int] = list(opening)
        number = 0

        def close() -> None:
            nonlocal number
            if pending:
                spans.append(Span("prefix", f"prefix {number}", len(ids), len(ids) + len(pending)))
                ids.extend(pending)
                pending.clear()
            number += 1

        for part in pipeline.template(agent).parts:
            if isinstance(part, Placeholder):
                close()
                content = values[part.name]
                spans.append(Span("placeholder", part.name, len(ids), len(ids) + len(content)))
                ids.extend(content)
            else:
                pending.extend(self.encode(part))
        pending.extend(closing)
        close()
        return TokenizedPrompt(agent, tuple(ids), tuple(spans))

    def lead_in(self, pipeline: Pipeline, name: str) -> tuple[int, ...]:
        """What a placeholder's text is led in by: the beginning of a prompt (the user header), then the words
        before it on its line in the first template that reads it ("The task is: ")."""
        opening = self.opening if pipeline.chat else self.bos
        for agent in pipeline.agents:
            before = ""
            for part in pipeline.template(agent.id).parts:
                if isinstance(part, Placeholder) and part.name == name:
                    return (*opening, *self.encode(before.rpartition("\n")[2]))
                before = part if isinstance(part, str) else ""
        return opening

    def as_record(self, prompt: TokenizedPrompt) -> Prompt:
        """The prompt as a record keeps it."""
        return Prompt(
            prompt.agent, np.array(prompt.ids, dtype=np.int64), self.texts(prompt.ids), prompt.spans
        )
