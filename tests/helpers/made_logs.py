"""Logs drawn from a seed: a coding agent's, the same calls in every format, and one cause of misses planted.

A planted log has calls of one agent in two or three conversations. Without a cause its prompts only ever grow
at their end; a cause changes one thing in front of what stays, from one call to the next.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

WORDS = (
    "amber anchor basket beacon bridge canvas castle cedar cellar chapel cinder cliff copper coral cotton cradle "
    "crater desert dragon ember engine fable falcon feather fiddle flint forest garden garnet glacier granite "
    "hammer harbour hollow island ivory jasper kettle lantern ledger lemon linen lumber magnet marble meadow "
    "mirror mortar needle nickel oasis orchard otter paddle parrot pebble pepper pillar pocket quarry rabbit "
    "raven ribbon river saddle salmon shadow shelter silver sparrow spruce stable summer tailor temple thistle "
    "timber tunnel turtle valley velvet violet walnut willow winter"
).split()
START = datetime(2025, 3, 4, 9, 30, tzinfo=UTC)
Made = dict[str, Any]  # a call: agent, session, time, tools, messages, output


def prose(rng: random.Random, words: int) -> str:
    """Sentences of drawn words."""
    drawn = [rng.choice(WORDS) for _ in range(words)]
    return " ".join(w.capitalize() + "." if n % 9 == 8 else w for n, w in enumerate(drawn)) + "."


def paragraphs(rng: random.Random, count: int, words: int = 40) -> list[str]:
    return [prose(rng, words) for _ in range(count)]


def made_tool(rng: random.Random, name: str) -> Made:
    fields = {n: {"type": "string", "description": prose(rng, 5)} for n in rng.sample(WORDS, 3)}
    shape = {"type": "object", "properties": fields, "required": [], "additionalProperties": False}
    return {"name": name, "description": prose(rng, 12), "parameters": shape}


def conversation(
    rng: random.Random,
    agent: str,
    session: str,
    system: list[str],
    tools: list[Made],
    turns: int,
    start: datetime,
) -> list[Made]:
    """Calls whose prompts grow at the end alone: a request, then calls of tools and their results."""
    messages: list[Made] = [
        {"role": "system", "content": "\n\n".join(system)},
        {"role": "user", "content": "\n\n".join(paragraphs(rng, 2))},
    ]
    out = []
    for turn in range(turns):
        asked = {"name": rng.choice(tools)["name"], "arguments": {rng.choice(WORDS): prose(rng, 3)}}
        answer = {"role": "assistant", "content": prose(rng, 15), "tool_calls": [asked]}
        out.append(
            {
                "agent": agent, "session": session, "time": start + timedelta(seconds=20 * turn), "tools": tools,
                "messages": deepcopy(messages), "output": answer,
            }
        )  # fmt: skip
        messages += [answer, {"role": "tool", "content": "\n\n".join(paragraphs(rng, 2))}]
    return out


def coding_agent(seed: int = 0, calls: int = 175) -> list[Made]:
    """The shape of a coding agent's run: one main conversation, and sub-agents that share its tools and part of
    its system prompt."""
    rng = random.Random(seed)
    common = paragraphs(rng, 8)
    tools = [made_tool(rng, f"{w}_tool") for w in rng.sample(WORDS, 9)]
    out = conversation(rng, "main", "s0", [prose(rng, 20), *common], tools, calls * 2 // 5, START)
    while len(out) < calls:
        number = len(out)
        name = rng.choice(["searcher", "tester", "writer"])
        head = f"You are the {name}. {name.capitalize()}s work alone."
        turns = min(calls - number, rng.randint(4, 14))
        start = START + timedelta(seconds=7 + 11 * number)
        out += conversation(rng, name, f"s{number}", [head, *common], tools, turns, start)
    return sorted(out, key=lambda c: c["time"])


# -- formats -------------------------------------------------------------------------------------------------


def openai_line(call: Made) -> Made:
    def message(m: Made) -> Made:
        asked = [
            {"id": "call_1", "type": "function", "function": {"name": c["name"], "arguments": json.dumps(c["arguments"])}}
            for c in m.get("tool_calls", ())
        ]  # fmt: skip
        return {"role": m["role"], "content": m["content"], **({"tool_calls": asked} if asked else {})}

    return {
        "agent": call["agent"], "session_id": call["session"], "timestamp": call["time"].isoformat(),
        "request": {
            "model": "m", "messages": [message(m) for m in call["messages"]],
            "tools": [{"type": "function", "function": tool} for tool in call["tools"]],
        },
        "response": {"choices": [{"message": message(call["output"])}]},
    }  # fmt: skip


def anthropic_line(call: Made) -> Made:
    def message(m: Made) -> Made:
        if m["role"] == "tool":
            return {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "1", "content": m["content"]}],
            }
        asked = [
            {"type": "tool_use", "id": "1", "name": c["name"], "input": c["arguments"]}
            for c in m.get("tool_calls", ())
        ]
        return {"role": m["role"], "content": [{"type": "text", "text": m["content"]}, *asked]}

    return {
        "agent": call["agent"], "session_id": call["session"], "timestamp": call["time"].timestamp(),
        "request": {
            "model": "claude", "system": [{"type": "text", "text": call["messages"][0]["content"]}],
            "messages": [message(m) for m in call["messages"][1:]],
            "tools": [{"name": t["name"], "description": t["description"], "input_schema": t["parameters"]}
                      for t in call["tools"]],
        },
        "response": {"type": "message", **message(call["output"])},
    }  # fmt: skip


def _span(call: Made, attributes: Made, number: int) -> Made:
    nanos = int(call["time"].timestamp()) * 10**9 + call["time"].microsecond * 1000
    listed = [{"key": k, "value": {"stringValue": v}} for k, v in attributes.items()]
    span = {"name": "chat", "spanId": f"{number:016x}", "startTimeUnixNano": str(nanos), "attributes": listed}
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


def genai_line(call: Made, number: int = 0) -> Made:
    def message(m: Made) -> Made:
        if m["role"] == "tool":
            return {
                "role": "tool",
                "parts": [{"type": "tool_call_response", "id": "1", "response": m["content"]}],
            }
        asked = [{"type": "tool_call", "id": "1", **c} for c in m.get("tool_calls", ())]
        return {"role": m["role"], "parts": [{"type": "text", "content": m["content"]}, *asked]}

    return _span(call, {
        "gen_ai.operation.name": "chat", "gen_ai.agent.name": call["agent"],
        "gen_ai.conversation.id": call["session"],
        "gen_ai.system_instructions": json.dumps([{"type": "text", "content": call["messages"][0]["content"]}]),
        "gen_ai.input.messages": json.dumps([message(m) for m in call["messages"][1:]]),
        "gen_ai.output.messages": json.dumps([message(call["output"])]),
        "gen_ai.tool.definitions": json.dumps([{"type": "function", **tool} for tool in call["tools"]]),
    }, number)  # fmt: skip


def openinference_line(call: Made, number: int = 0) -> Made:
    found = {"session.id": call["session"], "agent.name": call["agent"], "openinference.span.kind": "LLM"}

    def put(prefix: str, m: Made) -> None:
        found[f"{prefix}.message.role"], found[f"{prefix}.message.content"] = m["role"], m["content"]
        for n, c in enumerate(m.get("tool_calls", ())):
            at = f"{prefix}.message.tool_calls.{n}.tool_call.function"
            found[f"{at}.name"], found[f"{at}.arguments"] = c["name"], json.dumps(c["arguments"])

    for n, m in enumerate(call["messages"]):
        put(f"llm.input_messages.{n}", m)
    put("llm.output_messages.0", call["output"])
    for n, t in enumerate(call["tools"]):
        found[f"llm.tools.{n}.tool.json_schema"] = json.dumps({"type": "function", "function": t})
    return _span(call, found, number)


FORMATS: dict[str, Callable[[Made], Made]] = {
    "OpenAI": openai_line, "Anthropic": anthropic_line, "GenAI spans": genai_line,
    "OpenInference spans": openinference_line,
}  # fmt: skip


def write_log(path: Path, calls: list[Made], line: Callable[[Made], Made] = openai_line) -> Path:
    path.write_text("".join(json.dumps(line(call)) + "\n" for call in calls), encoding="utf-8")
    return path


# -- planted causes ------------------------------------------------------------------------------------------

Change = Callable[[random.Random, Made, int], None]  # changes a call in place; the number of the call


def _in_system(said: Callable[[random.Random, int], str], wrap: str | None = None) -> Change:
    """A sentence in the system prompt's second paragraph, whose value changes from call to call."""

    def change(rng: random.Random, call: Made, number: int) -> None:
        parts = call["messages"][0]["content"].split("\n\n")
        lead = "Known facts:" if wrap is None else wrap
        parts.insert(1, f"{lead} {said(rng, number)}")
        call["messages"][0]["content"] = "\n\n".join(parts)

    return change


def _system(edit: Callable[[random.Random, list[str], int], list[str]]) -> Change:
    """The system prompt's paragraphs, changed in every other call."""

    def change(rng: random.Random, call: Made, number: int) -> None:
        if number % 2:
            parts = edit(rng, call["messages"][0]["content"].split("\n\n"), number)
            call["messages"][0]["content"] = "\n\n".join(parts)

    return change


def _tools(edit: Callable[[random.Random, list[Made]], list[Made]]) -> Change:
    def change(rng: random.Random, call: Made, number: int) -> None:
        if number % 2:
            call["tools"] = edit(rng, deepcopy(call["tools"]))

    return change


def _history(edit: Callable[[random.Random, list[Made]], list[Made]]) -> Change:
    """The messages behind the first request, changed once there are enough."""

    def change(rng: random.Random, call: Made, number: int) -> None:
        if len(call["messages"]) > 7:
            call["messages"] = [*call["messages"][:2], *edit(rng, deepcopy(call["messages"][2:]))]

    return change


def _moment(rng: random.Random, number: int) -> datetime:
    return START + timedelta(days=rng.randrange(900), seconds=rng.randrange(86_400))


def _later(number: int) -> datetime:
    return START + timedelta(seconds=61 * number)


def _moved(rng: random.Random, parts: list[str], number: int) -> list[str]:
    return [parts[0], parts[3], *parts[1:3], *parts[4:]]


def _edited(rng: random.Random, parts: list[str], number: int) -> list[str]:
    words = parts[1].split()
    words[rng.randrange(5, 30)] = f"{rng.choice(WORDS)}ish"
    return [parts[0], " ".join(words), *parts[2:]]


def _json_facts(rng: random.Random, number: int) -> str:
    rows = [("colour", "red"), ("size", "large"), ("shape", "round"), ("weight", "light")]
    return json.dumps(dict(rng.sample(rows, 4)))


def _reordered(rng: random.Random, tools: list[Made]) -> list[Made]:
    return [*tools[1:], tools[0]]


def _described(rng: random.Random, tools: list[Made]) -> list[Made]:
    return [{**tools[0], "description": tools[0]["description"] + " " + prose(rng, 4)}, *tools[1:]]


def _keys(rng: random.Random, tools: list[Made]) -> list[Made]:
    shape = tools[0]["parameters"]
    return [{**tools[0], "parameters": dict(reversed(shape.items()))}, *tools[1:]]


def _cleared(rng: random.Random, messages: list[Made]) -> list[Made]:
    return [messages[0], {**messages[1], "content": "[old result cleared]"}, *messages[2:]]


def _first_message(edit: Callable[[random.Random, list[str], int], list[str]]) -> Change:
    """A first message of fixed documents, changed in every call."""

    def change(rng: random.Random, call: Made, number: int) -> None:
        documents = paragraphs(random.Random(7), 6)
        call["messages"] = deepcopy(call["messages"][:2])
        call["messages"][1]["content"] = "\n\n".join(edit(rng, documents, number))

    return change


def _summarised(rng: random.Random, messages: list[Made]) -> list[Made]:
    return [{"role": "user", "content": f"Summary so far: {prose(rng, 25)}"}, *messages[-4:]]


#: Name: (how it is planted, the kinds that name it rightly).
PLANTED: dict[str, tuple[Change, set[str]]] = {
    "ISO time stamp": (_in_system(lambda r, n: f"the time is {_later(n).isoformat()}."), {"time stamp"}),
    "clock": (_in_system(lambda r, n: f"the clock shows {_later(n):%H:%M}."), {"time stamp"}),
    "clock in words": (_in_system(lambda r, n: f"it is {_later(n):%B %d, %Y at %I:%M %p}."), {"time stamp"}),
    "epoch": (_in_system(lambda r, n: f"now={int(_later(n).timestamp())} in seconds."), {"time stamp"}),
    "log line": (_in_system(lambda r, n: f"[{_later(n):%Y-%m-%d %H:%M:%S},123] INFO start"), {"time stamp"}),
    "ISO date": (_in_system(lambda r, n: f"today is {_moment(r, n):%Y-%m-%d}."), {"date"}),
    "date in words": (_in_system(lambda r, n: f"today is {_moment(r, n):%A, %B %d, %Y}."), {"date"}),
    "uuid": (_in_system(lambda r, n: f"this run is {uuid.UUID(int=r.getrandbits(128), version=4)}."), {"uuid"}),
    "hex id": (_in_system(lambda r, n: f"at commit {r.getrandbits(160):040x} of main."), {"id"}),
    "request id": (_in_system(lambda r, n: f"request req_{r.getrandbits(60):015x}z was accepted."), {"id"}),
    "step counter": (_in_system(lambda r, n: f"this is step {n + 1} of 40."), {"counter"}),
    "attempt": (_in_system(lambda r, n: f"Attempt #{r.randrange(1, 900)} begins."), {"counter"}),
    "budget": (_in_system(lambda r, n: f"{r.randrange(9_000, 99_000)} tokens are left."), {"number"}),
    "measure": (_in_system(lambda r, n: f"the load is {r.random():.3f} and stays below one."), {"number"}),
    "percentage": (_in_system(lambda r, n: f"the disk is {r.randrange(10, 99)}.{n % 10}% full today."), {"number"}),
    "folder": (_in_system(lambda r, n: f"work in /tmp/run-{r.getrandbits(40):x}/work only."), {"path"}),
    "port": (_in_system(lambda r, n: f"the server is http://localhost:{r.randrange(2000, 60000)}/v1 now."),
             {"address"}),
    "host": (_in_system(lambda r, n: f"this host is 10.0.{r.randrange(255)}.{n % 250 + 1} alone."), {"address"}),
    "user's name": (_in_system(lambda r, n: f"the person is called {r.choice(WORDS)}{'aeiou'[n % 5]} here, and "
                               "has asked for help with this before."), {"paragraph edited"}),
    "order of keys": (_in_system(_json_facts), {"order of keys"}),
    "order of lines": (_in_system(lambda r, n: "\n" + "\n".join(f"- {w}" for w in r.sample(WORDS[:8], 8))),
                       {"order of lines"}),
    "order of tools": (_tools(_reordered), {"order of tools"}),
    "tool added": (_tools(lambda r, t: [made_tool(r, "new_one"), *t]), {"tool added", "tool removed"}),
    "tool removed": (_tools(lambda r, t: t[1:]), {"tool added", "tool removed"}),
    "tool described anew": (_tools(_described), {"tool's declaration changed"}),
    "tool's keys": (_tools(_keys), {"order of keys"}),
    "paragraph moved": (_system(_moved), {"paragraph moved"}),
    "paragraph edited": (_system(_edited), {"paragraph edited"}),
    "paragraph inserted": (_system(lambda r, p, n: [p[0], prose(r, 30), *p[1:]]),
                           {"paragraph inserted", "paragraph removed"}),
    "paragraph removed": (_system(lambda r, p, n: [p[0], *p[2:]]), {"paragraph inserted", "paragraph removed"}),
    "another system prompt": (_system(lambda r, p, n: paragraphs(r, 6)), {"system prompt replaced"}),
    "white space": (_system(lambda r, p, n: [p[0], p[1].replace(". ", ".  "), *p[2:]]), {"white space"}),
    "line ends": (_system(lambda r, p, n: [p[0], p[1].replace(". ", ".\r\n"), *p[2:]]), {"white space"}),
    "letter case": (_system(lambda r, p, n: [p[0], p[1].upper(), *p[2:]]), {"letter case"}),
    "quotes": (_in_system(lambda r, n: "say \u201cyes\u201d or \u2018no\u2019 \u2013 never both." if n % 2 else
                          "say \"yes\" or 'no' - never both."), {"form of characters"}),
    "history truncated": (_history(lambda r, m: m[2:]), {"history truncated"}),
    "history summarised": (_history(_summarised), {"history summarised"}),
    "old result cleared": (_history(_cleared), {"earlier message edited"}),
    "message inserted": (_history(lambda r, m: [{"role": "user", "content": prose(random.Random(1), 20)}, *m]),
                         {"message inserted"}),
    "documents in another order": (_first_message(lambda r, p, n: [*r.sample(p, 6), prose(r, 12)]),
                                   {"paragraph moved"}),
    "question in front": (_first_message(lambda r, p, n: [prose(r, 12), *p]), {"other text in front"}),
    "time stamp in the request": (_first_message(lambda r, p, n: [f"Sent at {_later(n):%H:%M:%S}.", *p]),
                                  {"time stamp"}),
    "messages swapped": (_history(lambda r, m: [*m[2:4], *m[:2], *m[4:]]), {"order of messages"}),
}  # fmt: skip


def plain_run(rng: random.Random) -> list[Made]:
    """Two conversations of one agent; nothing is planted."""
    tools = [made_tool(rng, f"{w}_tool") for w in rng.sample(WORDS, 4)]
    system = paragraphs(rng, rng.randint(5, 7), 30)
    out: list[Made] = []
    for session in range(2):
        start = START + timedelta(hours=session)
        out += conversation(rng, "worker", f"s{session}", system, tools, rng.randint(5, 8), start)
    return out


def planted(name: str, seed: int) -> list[Made]:
    """A run with one cause."""
    rng = random.Random(f"{name} {seed}")
    calls = plain_run(rng)
    for number, call in enumerate(calls):
        call["tools"] = list(call["tools"])
        PLANTED[name][0](rng, call, number)
    return calls


# -- damage --------------------------------------------------------------------------------------------------

JUNK: list[Any] = [
    None, True, 0, -1, 1e308, 10**30, "", "x", "\x00", "\ud800", [], {}, [[]], [None], [1, "a", {}], {"a": None},
    {"text": 5}, {"type": "tool_use"}, {"function": {}}, "{", '["a"]', "not json", "9" * 400, {"": {"": []}},
]  # fmt: skip


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every container of a structure with every key or index in it."""
    inner = list(
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else []
    )
    return [(value, key) for key, _ in inner] + [place for _, one in inner for place in _places(one)]


def damaged(seed: int) -> bytes:
    """A short log of any format with damage to values, keys, lines or bytes."""
    rng = random.Random(f"damage {seed}")
    line = rng.choice(list(FORMATS.values()))
    rows: list[Any] = [line(call) for call in plain_run(rng)[: rng.randint(1, 4)]]
    rows.append({"prompt": prose(rng, 20), "agent": "x"})
    for _ in range(rng.choice([0, 1, 1, 2, 8])):
        places = _places(rows)
        if not places:  # everything was deleted
            break
        where, key = rng.choice(places)
        if rng.random() < 0.2:
            del where[key]
        else:
            where[key] = deepcopy(rng.choice(JUNK))
    indent = rng.choice([None, None, None, 1])
    text = (
        json.dumps(rows, indent=indent)
        if rng.random() < 0.1
        else "\n".join(json.dumps(r, indent=indent) for r in rows)
    )
    content = bytearray(text.encode())
    for _ in range(rng.choice([0, 0, 1, 5])):
        at = rng.randrange(len(content) + 1)
        content[at : at + rng.choice([0, 1, 30])] = rng.choice(
            [b"", b"\xff", b"\x00", b"[" * 300, b'"', b"\n", b"{}"]
        )
    if rng.random() < 0.1:
        content = bytearray(b"PK\x03\x04") + content
    return bytes(content[: rng.randrange(len(content) + 1)] if rng.random() < 0.1 else content)


def write_inspect(path: Path, calls: list[Made]) -> Path:
    """The calls as an Inspect log, a sample a session, by its own package."""
    import inspect_ai.log as logs
    import inspect_ai.model as models
    from inspect_ai.event import ModelEvent, SpanBeginEvent
    from inspect_ai.tool import ToolCall, ToolInfo

    def message(m: Made) -> Any:
        kind = {
            "system": models.ChatMessageSystem, "user": models.ChatMessageUser, "tool": models.ChatMessageTool,
            "assistant": models.ChatMessageAssistant,
        }[m["role"]]  # fmt: skip
        asked = [
            ToolCall(id="1", function=c["name"], arguments=c["arguments"]) for c in m.get("tool_calls", ())
        ]
        return kind(content=m["content"], **({"tool_calls": asked} if asked else {}))

    samples = []
    for number, session in enumerate(dict.fromkeys(c["session"] for c in calls), 1):
        mine = [c for c in calls if c["session"] == session]
        events: list[Any] = [SpanBeginEvent(id="span", name=mine[0]["agent"], type="agent", span_id="span")]
        for c in mine:
            events.append(
                ModelEvent(
                    model="m", input=[message(m) for m in c["messages"]], tool_choice="auto", span_id="span",
                    tools=[ToolInfo(**t) for t in c["tools"]], config=models.GenerateConfig(), timestamp=c["time"],
                    output=models.ModelOutput(model="m", choices=[models.ChatCompletionChoice(message=message(c["output"]))]),
                )
            )  # fmt: skip
        samples.append(logs.EvalSample(id=session, epoch=number, input="x", target="", events=events))
    spec = logs.EvalSpec(
        created=START.isoformat(), task="t", dataset=logs.EvalDataset(), model="m", config=logs.EvalConfig()
    )
    logs.write_eval_log(logs.EvalLog(eval=spec, samples=samples, status="success"), str(path))
    return path
