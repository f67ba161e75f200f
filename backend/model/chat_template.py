"""The text that a model's chat template puts before and behind a prompt."""

from typing import Any

from backend.base.errors import ModelError
from backend.base.text import show

SENTINEL = "\u2063kv-reuse-lab\u2063"


def wrapping(tokenizer: Any) -> tuple[str, str] | None:
    """Text before and behind a user's message, including the answer's beginning; None without a template.

    Thinking before the answer is turned off (``enable_thinking``, as in Qwen 3): agents' answers are short,
    and thoughts would fill them.

    Raises:
        ModelError: the template fails on a conversation of one user message, or does not give its text once.
    """
    if not getattr(tokenizer, "chat_template", None):
        return None
    try:
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": SENTINEL}],
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=False,
        )
    except Exception as error:  # a template is a program, and may fail in any way
        raise _refusal(f"{type(error).__name__}: {' '.join(str(error).split())[:160]}") from None
    before, sentinel, after = text.partition(SENTINEL)
    if not sentinel or SENTINEL in after:
        raise _refusal(f"the message appears {text.count(SENTINEL)} times in {show(text)}")
    return before, after


def _refusal(fault: str) -> ModelError:
    return ModelError(
        f"The tokenizer's chat template cannot be used ({fault}). It must take a conversation of one message "
        "of the role 'user' and give its text once. Correct chat_template in the model's folder, or remove "
        "it to use the model without one.",
        field="model.name",
    )
