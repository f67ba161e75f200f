"""``kvlab xray``: what reuse would save of a log of other agents' calls, and why prefixes were missed."""

from functools import partial

from typer import Argument, Context, Option

from backend.base.errors import OptionError
from backend.logs.gather import gather
from backend.logs.layouts import Layouts
from backend.logs.pieces import EMBEDDED, load_tokenizer
from backend.logs.xray import BLOCK, CACHE_TOKENS, XRay, xray
from backend.records.hardware import saved_figures
from lab_app.cli.common import (
    Device,
    DeviceMap,
    Quantise,
    loading,
    named_file,
    path_of,
    print_table,
    progress,
    write_json,
)
from lab_app.cli.xray_engine import cache_of, compare_logs, say_beside, say_engine
from lab_app.cli.xray_model import check_reading, plain, read_log, say_reading

SHOWN = 12  # rows of a table; --json has all
LONGEST = 44  # characters of an agent's name

#: Sampled calls are read densely and under reuse methods, and their answers compared.
model_option = partial(Option, rich_help_panel="With a model")
engine_option = partial(Option, rich_help_panel="With an engine's own record")


def run_xray(
    context: Context,
    log: str = Argument(
        ..., metavar="FILE", help="JSON lines of calls or spans, or an Inspect log (docs/logs.md)"
    ),
    tokenizer: str | None = Option(
        None, help="folder, tokenizer.json or hub id (the model's; without one: embedded)"
    ),
    block: int | None = Option(None, help=f"tokens of an engine's block ({BLOCK})"),
    cache_tokens: int | None = Option(None, help=f"of the bounded cache ({CACHE_TOKENS})"),
    machine: str | None = Option(
        None, metavar="FILE.json", help="figures that kvlab break-even --json saved"
    ),
    hour_price: float = Option(3.0, help="dollars for an hour of that machine (3)"),
    skip_bad: bool = Option(False, "--skip-bad", help="leave out lines that hold no call, and say so"),
    json: str | None = Option(None, metavar="OUT", help="where everything is saved, call by call"),
    model: str | None = model_option(None, help="'embedded', a folder in hub layout, or a hub id"),
    methods: str | None = model_option(None, help="as in --methods of run (naive,kvcomm)"),
    sample: int | None = model_option(None, help="most calls that are read (50)"),
    most_tokens: int = model_option(10000000, help="of prompts, over all methods"),
    warmup: int = model_option(8, help="first calls of a template: they fill pools"),
    max_new_tokens: int = model_option(64, help="the longest answer"),
    same: str = model_option("none", help="what has to be equal: none (all of it), number, text, ..."),
    blame_passes: int = model_option(150, help="caches tried to find what changed an answer; 0: none"),
    advice: bool = model_option(
        False, "--advice", help="try the proposed layouts on the sampled calls, too: do answers stay?"
    ),
    seed: int = model_option(0),
    budget_mb: int = model_option(4096),
    device: Device = None,
    device_map: DeviceMap = None,
    quantise: Quantise = None,
    events: str | None = engine_option(
        None,
        metavar="FILE",
        help="vLLM's KV events, msgpack or JSON lines: they give --block and --cache-tokens",
    ),
    beside: str | None = engine_option(
        None, metavar="FILE", help="another engine's log of the same calls, to compare"
    ),
    near_tie: float | None = engine_option(
        None,
        metavar="NATS",
        help="where answers part: smaller gaps may be rounding (10 times the usual difference)",
    ),
) -> int:
    """What reuse would save of a log of model calls, and why prefixes missed."""
    if not 0 <= hour_price <= 1e6:
        raise OptionError(
            f"--hour-price is {hour_price:g}; 0 to 1,000,000 dollars are allowed. Change it.",
            field="hour-price",
        )
    check_reading(context.params)
    out = named_file("json", json, "xray.json") if json else None
    if near_tie is not None and not beside:
        raise OptionError("--near-tie is for --beside, which is not there. Add it.", field="near-tie")
    cache, options = cache_of(events, block, cache_tokens)
    with progress() as tell:
        name = tokenizer or model or EMBEDDED
        calls = gather(path_of(log), load_tokenizer(name), skip_bad=skip_bad, progress=tell)
        result = xray(
            path_of(log), tokenizer=name, log=calls, **options, hour_price=hour_price, progress=tell,
            machine=saved_figures(path_of(machine)).machine if machine else None,
        )  # fmt: skip
    say(result)
    report = result.plain()
    report["engine"] = say_engine(cache, result)
    if beside:
        comparison = compare_logs(log, beside, skip_bad, near_tie)
        say_beside(comparison)
        report["beside"] = comparison.plain()
    if model:
        xrayed = (Layouts(calls, result.block), result.advice) if advice else None
        reading = read_log(context.params, loading(device, device_map, quantise), xrayed)
        say_reading(reading)
        report["model"] = plain(reading)
    if out is not None:
        write_json(out, report)
        print(f"\nEvery call is in {out}")
    return 0


def say(result: XRay) -> None:
    """The tables."""
    total = max(1, result.totals["tokens"])
    print(
        f"{result.file}: {result.totals['tokens']:,} tokens in {len(result.calls):,} calls of "
        f"{len(result.agents)} agents ({', '.join(result.formats)}; tokenizer: {result.tokenizer})."
    )
    if result.tokenizer == "embedded":
        print("The lab's own tokenizer counts more tokens than a large model's; name yours with --tokenizer.")
    if result.by_prompt:
        print(
            "Where the log names no agent, calls with the same beginning of the system prompt are one agent."
        )
    if result.skipped:
        print(f"{result.skipped:,} bad lines were left out. The first: {result.bad[0]}")
    if result.cut_tax[1]:
        print(f"Cutting at paragraphs changes the count by {result.cut_tax[0] / result.cut_tax[1]:+.2%}.")
    rows = [("what a cache would find", "tokens", "share", "seconds", "dollars")]
    for name, key, cost in (
        ("nothing: every prompt is read in full", "tokens", "full"),
        (f"beginnings, a cache of {result.capacity:,} tokens", "bounded", "bounded cache"),
        (f"beginnings, in blocks of {result.block}", "blocks", "unlimited cache"),
        ("beginnings, to the token", "prefix", ""),
        ("text anywhere (needs a method)", "anywhere", "anywhere"),
        ("new, but twice in one prompt", "repeated", ""),
        ("new", "new", ""),
    ):
        count = result.totals[key]
        times = (f"{result.seconds[cost]:,.1f}", f"{result.dollars[cost]:,.2f}") if cost else ("", "")
        rows.append((name, f"{count:,}", "" if key == "tokens" else f"{count / total:.1%}", *times))
    print()
    print_table(rows, 1)
    print(f"Seconds of prefill by the break-even formula, on: {result.machine}.")
    if None not in result.logged:
        print(f"The server counted {result.logged[1]:,} cached of {result.logged[0]:,} input tokens.")
    _say_missed(result, total)
    _say_matrix(result)
    _say_templates(result)
    if result.advice:
        print("\nLayouts that would share more, tried on the log:")
        print_table(
            [("layout", "tokens saved", "share")]
            + [(a.layout, f"{a.saved:,}", f"{a.saved / max(1, a.of):.1%}") for a in result.advice], 1
        )  # fmt: skip


def _say_missed(result: XRay, total: int) -> None:
    if not result.missed:
        print("\nNo call missed text that an earlier one had sent.")
        return
    print("\nWhy text that was there before was missed:")
    rows = [("cause", "calls", "tokens missed", "share", "for example")]
    for row in result.missed[:SHOWN]:
        rows.append(
            (row.kind, f"{row.calls:,}", f"{row.tokens:,}", f"{row.tokens / total:.1%}", row.example.where)
        )
    print_table(rows, 1)
    for row in result.missed[:3]:
        if cause := row.example.cause:
            print(f"  {cause.kind}, {row.example.where} beside {row.example.against}, {cause.role}:")
            print(f"    then: {cause.before or '(nothing)'}\n    now:  {cause.after or '(nothing)'}")


def _say_matrix(result: XRay) -> None:
    names, size = [name[:LONGEST] for name in result.agents], min(SHOWN, len(result.agents))
    print(
        "\nPercent of an agent's tokens (line) that an earlier call of an agent (column) had sent, in whole"
    )
    print("paragraphs:")
    tokens: dict[str, int] = dict.fromkeys(result.agents, 0)
    for call in result.calls:
        tokens[call.agent if call.agent in tokens else result.agents[-1]] += call.tokens
    rows = [("", *(f"{n + 1}" for n in range(size)))]
    for n in range(size):
        whole = max(1, tokens[result.agents[n]])
        rows.append((f"{n + 1} {names[n]}", *(f"{result.matrix[n][m] / whole:.0%}" for m in range(size))))
    print_table(rows, 1)


def _say_templates(result: XRay) -> None:
    print("\nWhat stays and what changes in an agent's prompts:")
    for template in result.templates[:4]:
        print(f"  {template.agent[:LONGEST]}, {template.calls:,} calls:")
        for part in template.parts[:6]:
            print(f"    {'stays  ' if part.stays else 'changes'} {part.tokens:>6,} tokens  {part.excerpt}")
        if len(template.parts) > 6:
            print(f"    and {len(template.parts) - 6} more")
