"""Results that are filled in while a model writes, instead of being its own."""

from __future__ import annotations

import pytest
import tiny
import torch

from backend.base.clock import Clock
from backend.engine.engine import Engine
from backend.methods.plan import Compute, Plan, Step
from backend.model.load import wrap_model
from backend.model.tokenizer import TokenizedPrompt, Tokens
from backend.prompts.filled_results import result_after, split_filled
from backend.records.prompt import Span
from backend.records.request import Decoding


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("46 - 6 =", " 40"),
        ("So 46 + 999 =", " 1045"),
        ("6 - 46 =", " -40"),
        ("12 * 12 =", " 144"),
        ("12 / 4 =", " 3"),
        ("10 / 4 =", " 2.5"),
        ("10 / 3 =", " 3.3333"),
        ("10 / 0 =", None),
        ("x = 4 + 5 =", " 9"),
        ("36 < 38 is", " True"),
        ("36 > 38 is", " False"),
        ("36 > 36 is", " False"),
        ("7 // 2 =", " 3"),
        ("7 % 4 =", " 3"),
        ("7 % 0 =", None),
        ("7 // 0 =", None),
        ("36 <= 36 is", " True"),
        ("36 >= 37 is", " False"),
        ("36 == 36 is", " True"),
        ("36 != 36 is", " False"),
        ("46 - 6", None),
        ("46-6 =", None),
        ("a = b =", None),
        ("The answer is", None),
        ("46 - 6 = ", None),
        ("", None),
    ],
)
def test_results(text: str, result: str | None) -> None:
    assert result_after(text) == result


def test_a_text_is_cut_where_results_are_filled_in() -> None:
    told = "46 - 6 = 40. 36 < 38 is True. The answer is 40"
    assert split_filled(told) == [
        ("46 - 6 =", False),
        (" 40", True),
        (". 36 < 38 is", False),
        (" True", True),
        (". The answer is 40", False),
    ]
    wrong = "46 - 6 = 41. The answer is 41"
    assert split_filled(wrong) == [(wrong, False)], "a slip is somebody's own"
    assert split_filled("46 - 6 = 40") == [("46 - 6 =", False), (" 40", True)]
    assert split_filled("46 - 6 = 401") == [("46 - 6 = 401", False)]


def test_tokens_say_what_is_filled_in() -> None:
    tokens = Tokens(tiny.tokenizer(), fills_results=True)
    assert tokens.filled_after(tokens.encode("46 - 6 =")) == tokens.encode(" 40")
    assert tokens.filled_after(tokens.encode("36 < 38 is")) == tokens.encode(" True")
    assert tokens.filled_after(tokens.encode("The answer is")) == ()
    assert tokens.filled_after(()) == ()
    assert Tokens(tiny.tokenizer()).filled_after(tokens.encode("46 - 6 =")) == ()


@pytest.mark.parametrize("fills", [True, False])
def test_a_result_is_filled_in_while_decoding(fills: bool) -> None:
    """Where a model asks for it, the right result stands where it would have written a wrong one."""
    module = tiny.llama()
    module.config.fills_results = fills
    model = wrap_model(module, tiny.tokenizer(), name="filled")
    tokens = model.tokens
    start, right, wrong, end = map(tokens.encode, ("46 - 6 =", " 40", " 41", ". Well"))
    assert len(right) == len(wrong)
    script = [*start, *wrong, *end, tiny.tokenizer().eos_token_id]
    calls = iter(script)

    def scripted(_module: object, _inputs: object, logits: torch.Tensor) -> torch.Tensor:
        made = torch.zeros_like(logits)
        made[..., next(calls)] = 9.0
        return made

    prompt = TokenizedPrompt(
        1, tokens.encode("Compute."), (Span("prefix", "prefix 0", 0, len(tokens.encode("Compute."))),)
    )
    plan = Plan((Step(0, len(prompt.ids), Compute("test")),), "dense", "")
    module.lm_head.register_forward_hook(scripted)
    engine = Engine(model)
    prefill = engine.execute(prompt, plan, Clock())
    [decoded] = engine.decode([prefill], Decoding(max_new_tokens=40))
    assert decoded.stopped
    assert decoded.ids == (*start, *(right if fills else wrong), *end)
    assert len(decoded.margins) == len(script)
