"""One session of a log: its calls as bars, and two of them aligned."""

from markupsafe import Markup

from backend.logs.timeline import OpenLog, Row
from viz.base.format import clip
from viz.base.html import render

MOST_CALLS = 60
SAME_SHOWN = 160  # characters of a text that both calls share, on each side of the omission
OTHER_SHOWN = 1200


def session_html(log: OpenLog, session: str, selected: tuple[int, int] | None) -> Markup:
    """The bars, one for each call, and below them the two calls that were picked."""
    calls = log.of_session(session)
    longest = max((log.xray.calls[n].tokens for n in calls), default=1) or 1
    pair = log.pair(*selected) if selected else None
    return render(
        "logs/session.html", calls=calls[:MOST_CALLS], lines=log.xray.calls, runs=log.runs, longest=longest,
        more=max(0, len(calls) - MOST_CALLS), picked=selected or (), pair=pair,
        rows=[(row.same, *_shown(row)) for row in pair.rows] if pair else [], clip=clip,
        first=next((n for n, row in enumerate(pair.rows) if not row.same), -1) if pair else -1,
    )  # fmt: skip


def _shown(row: Row) -> tuple[str, str]:
    """A row's texts, shortened in the middle if long."""
    most = 2 * SAME_SHOWN if row.same else OTHER_SHOWN
    return _shorten(row.before, most), _shorten(row.after, most)


def _shorten(text: str, most: int) -> str:
    if len(text) <= most + 40:
        return text
    return f"{text[: most // 2]} … {len(text) - most:,} characters more … {text[-(most // 2) :]}"
