"""``kvlab methods``: the reuse methods with their options, for the terminal or as ``docs/methods.md``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typer import Option

if TYPE_CHECKING:
    from backend.methods.registry import OptionField


def methods(markdown: bool = Option(False, "--markdown", help="as the page docs/methods.md")) -> int:
    """List the reuse methods with their options."""
    from backend.methods.registry import METHODS, option_fields

    if markdown:
        print(methods_markdown(), end="")
        return 0
    for cls in METHODS:
        print(f"{cls.name:<10} {cls.title}: {cls.summary}")
        if cls.paper:
            print(f"{'':<10} source: {cls.paper}")
        for key, profile in cls.profiles.items():
            print(f"{'':<10} profile={key}: {profile.summary}")
        for f in option_fields(cls):
            print(f"{'':<10} {f.name} = {_plain(f.default)}{_allowed(f)}: {f.help}")
    return 0


def methods_markdown() -> str:
    """``docs/methods.md``: the registry as a page; a test holds the page to it."""
    from backend.methods.registry import METHODS, option_fields

    lines = ["# Methods", "", "Made by `kvlab methods --markdown` from the code; do not edit by hand.", ""]
    for cls in METHODS:
        lines += [f"## {cls.title} (`{cls.name}`)", "", cls.summary, ""]
        if cls.paper:
            lines += [f"Source: {cls.paper}.", ""]
        options = option_fields(cls)
        if options:
            lines += ["| option | default | allowed | what it does | source |", "|---|---|---|---|---|"]
            for f in options:
                allowed = _allowed(f).strip(" ()") or "true, false"
                lines.append(
                    f"| `{f.name}` | {_plain(f.default)} | {allowed} | **{f.label}.** {f.help} | {f.paper} |"
                )
            lines.append("")
        if cls.profiles:
            lines += ["| profile | sets | what it is |", "|---|---|---|"]
            for key, profile in cls.profiles.items():
                sets = ", ".join(f"`{name}={_plain(value)}`" for name, value in profile.options.items())
                lines.append(f"| `profile={key}` | {sets or 'the defaults'} | {profile.summary} |")
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _allowed(field: OptionField) -> str:
    if field.choices:
        return f" ({', '.join(field.choices)})"
    return f" ({field.minimum:g} to {field.maximum:g})" if field.minimum is not None else ""
