"""What a visitor's edit does to the embedded model: a preset with one thing changed, read densely.

Each kind of edit is drawn from words and patterns that training never shows. The word problems' kinds go
through a whole pipeline, every agent reading what the model wrote before; the other families are one prompt
each, with other words throughout. Only the final answer is marked.

Two files hold questions that no generator wrote, so they show what the generators lack. Failures on
``presets/typed_questions.jsonl`` led to new patterns; ``presets/fresh_questions.jsonl`` was written later by
somebody outside who knew one example, and was not looked at before the weights were chosen.
"""

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from backend.model.load import EMBEDDED, LoadedModel
from backend.prompts.pipeline import Pipeline
from backend.prompts.presets import load_preset
from backend.prompts.resize import team
from backend.prompts.tasks import Style, make_document
from backend.prompts.tasks.arithmetic import draw_problem
from backend.prompts.tasks.judge_words import role_text as judge_role
from backend.prompts.tasks.roles import role_text
from backend.records.events import RunDone
from backend.records.request import MethodChoice, RunRequest
from backend.session.session import LabSession
from backend.training.evaluate import answers, marks, share

QUESTIONS = ("typed", "fresh")
PRESET, LARGEST_TEAM = "math-3", "math-5"
DENSE = (MethodChoice("dense"),)
# kind of edit: how many answers should be right, in percent
PIPELINES = {
    "names": 95, "extra": 92, "words": 85, "numbers": 90, "ratios": 88, "bare": 95, "roles": 92, "agents": 92,
    "space": 95,
}  # fmt: skip
FAMILIES = {"documents": 85, "judge": 85, "prefix": 85, "tools": 85, "program": 85}
AGENT_KINDS = {
    "Math Solver": "solver", "Inspector": "inspector", "Checker": "inspector", "Analyst": "analyst",
    "Programming Expert": "analyst",
}  # fmt: skip


def edited_request(rng: random.Random, kind: str) -> RunRequest:
    """A request of the preset with one edit; its problem is on the held-out side."""
    style = Style("stock", edit=kind if kind not in ("roles", "agents", "space") else None)
    problem = draw_problem(rng, True, 3, None, style)
    pipeline = load_preset(PRESET).pipeline
    if kind == "roles":
        pipeline = _with_templates(pipeline, lambda agent: _other_role(rng, agent.name, agent.template))
    elif kind == "space":
        pipeline = _with_templates(pipeline, lambda agent: _other_space(rng, agent.template))
    elif kind == "agents":
        pipeline = team(load_preset(LARGEST_TEAM).pipeline, rng.randint(2, 5))
    return _request(pipeline, problem.question, str(problem.answer))


def _request(pipeline: Pipeline, question: str, answer: str) -> RunRequest:
    return RunRequest(pipeline, {"user_question": question}, DENSE, expected=answer, probe_offsets=False)


def _with_templates(pipeline: Pipeline, change: Any) -> Pipeline:
    agents = tuple(replace(agent, template=change(agent)) for agent in pipeline.agents)
    return replace(pipeline, agents=agents)


def _other_role(rng: random.Random, name: str, template: str) -> str:
    """The template with another instruction in the place of its first line."""
    _, _, body = template.partition("\n")
    d = Style("unseen").draw(rng)
    if name == "Judge":
        return f"{judge_role(d, 'right', ('candidate 1',), 1.0)}\n{body}"
    return f"{role_text(d, AGENT_KINDS.get(name, 'analyst'))}\n{body}"


def _other_space(rng: random.Random, template: str) -> str:
    """The template with other white space: no newline at the end, or two, an open line, or a joined one."""
    lines = template.rstrip("\n").split("\n")
    kind = rng.randrange(4)
    if kind == 1:
        lines.insert(rng.randrange(1, len(lines)), "")
    elif kind == 2:
        lines = [f"{line} " if rng.random() < 0.3 else line for line in lines]
    elif kind == 3:
        lines = [lines[0] + " " + lines[1], *lines[2:]]
    return "\n".join(lines) + rng.choice(("", "\n", "\n\n"))


def edits(
    model: LoadedModel, count: int = 200, seed: int = 0, kinds: Sequence[str] = (*PIPELINES, *FAMILIES)
) -> dict[str, Any]:
    """Shares of final answers that are right, by kind of edit, each beside the share to reach."""
    report: dict[str, Any] = {}
    for kind in kinds:
        rng = random.Random(f"edits:{seed}:{kind}")
        if kind in PIPELINES:
            requests = [edited_request(rng, kind) for _ in range(count)]
            good, expected = sum(_right(model, requests)), PIPELINES[kind]
        else:
            documents = [make_document(rng, kind, held_out=True, style=Style("unseen")) for _ in range(count)]
            mark = "selection" if kind == "judge" else "answer"
            texts = answers(model, documents)
            good = sum(marks(x, text)[mark] for x, text in zip(documents, texts, strict=True))
            expected = FAMILIES[kind]
        report[kind] = share(good, count) | {"asked": expected / 100}
    return report


def typed_shares(model: LoadedModel, name: str = "typed") -> dict[str, Any]:
    """Shares of right final answers to typed questions, by kind and of all; ``name``: of QUESTIONS."""
    pipeline = load_preset(PRESET).pipeline
    rows = typed_questions(name)
    requests = [_request(pipeline, row["question"], row["answer"]) for row in rows]
    right: dict[str, list[bool]] = {}
    for row, good in zip(rows, _right(model, requests), strict=True):
        right.setdefault(row["kind"], []).append(good)
    overall = [good for kind in right.values() for good in kind]
    return {kind: share(sum(goods), len(goods)) for kind, goods in (right | {"all": overall}).items()}


def typed_questions(name: str = "typed") -> list[dict[str, str]]:
    """``kind``, ``question`` and ``answer`` of each; ``name``: of QUESTIONS."""
    lines = (EMBEDDED.parent / f"{name}_questions.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def _right(model: LoadedModel, requests: Iterable[RunRequest]) -> Iterable[bool]:
    for request in requests:
        for event in LabSession(model).run(request):
            if isinstance(event, RunDone):
                final = event.record.outcome(request.pipeline.final, DENSE[0].label)
                yield bool(final.correct)
