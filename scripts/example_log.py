"""The log that the page *Your logs* opens with: the lab's agents, as three frameworks would have logged them.

Usage: python scripts/example_log.py

Six requests through the scenario math-3 on the shipped model. As many frameworks do, each system prompt
begins with the time, which changes with every call. Two requests each are written as OpenAI chat, Anthropic
messages and OpenTelemetry GenAI spans.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

OUT = ROOT / "presets" / "logs" / "example.jsonl"
BEGAN = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)
REQUESTS = 6


def as_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def openai(system: str, user: str, output: str, about: dict[str, Any]) -> dict[str, Any]:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    answer = {"choices": [{"message": {"role": "assistant", "content": output}}]}
    return {**about, "request": {"model": "embedded", "messages": messages}, "response": answer}


def anthropic(system: str, user: str, output: str, about: dict[str, Any]) -> dict[str, Any]:
    request = {"model": "embedded", "system": system, "messages": [{"role": "user", "content": user}]}
    return {
        **about, "request": request,
        "response": {"type": "message", "content": [{"type": "text", "text": output}]},
    }  # fmt: skip


def otlp(system: str, user: str, output: str, about: dict[str, Any]) -> dict[str, Any]:
    def parts(role: str, text: str) -> dict[str, Any]:
        return {"role": role, "parts": [{"type": "text", "content": text}]}

    attributes = {
        "gen_ai.operation.name": "chat", "gen_ai.agent.name": about["agent"],
        "gen_ai.conversation.id": about["session_id"], "gen_ai.request.model": "embedded",
        "gen_ai.input.messages": as_text([parts("system", system), parts("user", user)]),
        "gen_ai.output.messages": as_text([parts("assistant", output)]),
    }  # fmt: skip
    span = {
        "spanId": hashlib.sha256(repr(about).encode()).hexdigest()[:16], "name": "chat",
        "startTimeUnixNano": str(int(datetime.fromisoformat(about["timestamp"]).timestamp()) * 10**9),
        "attributes": [{"key": key, "value": {"stringValue": text}} for key, text in attributes.items()],
    }  # fmt: skip
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


def main() -> None:
    """Run the scenario and write the log."""
    import kvlab

    lines = []
    for number in range(REQUESTS):
        record = kvlab.compare("math-3", methods=["dense"], seed=number).record
        writer = (openai, anthropic, otlp)[number // 2]
        for place, outcome in enumerate(record.outcomes):
            at = BEGAN + timedelta(seconds=100 * number + 7 * place)
            prompt = re.sub("<[a-z]>", "", "".join(record.prompts[outcome.prompt].texts)).strip()
            head, _, body = re.sub(r"\n(?=Agent |Candidate )", "\n\n", prompt).partition("\n")
            agent = record.request.pipeline.agent(outcome.agent).name
            about = {"agent": agent, "session_id": f"request-{number + 1}", "timestamp": at.isoformat()}
            lines.append(writer(f"Current time: {at:%Y-%m-%d %H:%M:%S}\n{head}", body, outcome.text, about))
    OUT.write_text("".join(as_text(line) + "\n" for line in lines), encoding="utf-8")
    print(f"{OUT.relative_to(ROOT)}: {len(lines)} calls")


if __name__ == "__main__":
    main()
