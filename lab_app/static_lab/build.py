"""Render the static lab: tour, checked examples, one run under many settings, other pages' runs, tables."""

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from markupsafe import Markup
from plotly.io.json import to_json_plotly

from backend.base.errors import LabError
from backend.lab import Lab
from backend.model import browser_weights
from backend.model.load import load_model
from backend.prompts.presets import load_preset
from backend.prompts.template import QUESTION, Placeholder
from backend.records.events import RunDone
from backend.records.request import Decoding, MethodChoice, RunRequest
from backend.records.run import RunRecord
from backend.records.sharing.bundle import read_file
from backend.session.session import LabSession
from backend.studies.gallery import GALLERY, GalleryEntry, load_gallery
from lab_app.app import FIRST_RUN
from lab_app.pages.judge import page as judge
from lab_app.pages.sweeps import page as sweeps
from lab_app.pages.tour import html as tour_html
from lab_app.pages.tour.steps import recorded, steps
from lab_app.pages.tour.view import notes
from lab_app.static_lab.settings import METHOD, axes, revised, setting
from lab_app.static_lab.site import ASSETS, HERE, ROOT, Entry, Site, template
from lab_app.ui.first_runs import first_run
from viz.base.figure import card_html
from viz.base.format import clip
from viz.base.html import joined
from viz.judge.verdict_grid import baseline, grid_html, picks_html, remedy, sentence, tone
from viz.pages.tour import describe_step
from viz.run.comparison import comparison_html
from viz.run.report import data_script, report_html
from viz.run.token_strip import strip_html
from viz.run.verdict_card import verdict_card
from viz.studies.sweep import views as sweep_views

START, TOUR, RUNS, PAGES, ADDED, TEXTS = (
    "Start here", "The tour, step by step", "Checked examples: one of every scenario",
    "Documents, judge, agent loop, sweep", "Added runs", "Tables and findings",
)  # fmt: skip
ASKED = "documents-5"  # the scenario whose texts a visitor edits
COLUMNS = ("dense", "naive", METHOD)
DOCUMENTS = {
    "docs/reproductions.md": "The papers’ tables beside what this lab measured.",
    "FINDINGS.md": "What was learned, with every figure’s source.",
    "docs/methods.md": "Every method: what it copies, what it computes, and its source.",
    "docs/models.md": "Which kinds of models the lab accepts.",
    "docs/teaching.md": "A lesson plan.",
}


def build(
    out: Path, added: Sequence[Path] = (), examples: int = 20, say: Callable[[str], None] = print
) -> int:
    """Render the folder with the model that ships.

    Args:
        out: a folder that does not exist or is empty.
        added: saved runs, or folders of them.
        examples: how many of the checked examples are run.
        say: called with the name of each part.

    Returns:
        the folder's bytes.

    Raises:
        LabError: ``out`` holds something, or a saved run cannot be read.
    """
    site = Site(out)
    runs = list(_numbered_runs(added))  # first, since one of them may be damaged
    model = load_model("embedded")
    opening = RunRecord.load(FIRST_RUN)
    say("One run under many settings")
    add_settings(site, Lab(LabSession(model)), opening)
    add_run(site, "runs/first-run.html", START, opening)
    add_ask(site, model)
    say("The tour")
    add_tour(site)
    say("Checked examples")
    add_examples(site, model, examples)
    add_pages(site)
    for name, record in runs:
        add_run(site, f"runs/added-{name}.html", ADDED, record)
    add_documents(site)
    return site.finish()


def add_run(site: Site, href: str, group: str, record: RunRecord, title: str = "") -> None:
    """A run's report."""
    question = record.request.values.get(QUESTION) or next(iter(record.request.values.values()), "")
    words = " ".join([*record.labels, *record.request.values.values(), *(o.text for o in record.outcomes)])
    title = title or record.request.pipeline.title
    site.write(Entry(href, group, title, clip(question, 140), words), report_html(record, "../" + ASSETS))


def add_settings(site: Site, lab: Any, record: RunRecord) -> None:
    """The page with the controls: one list of all settings, and where each control's begin in it."""
    settings: list[dict[str, Any]] = []
    views: Sequence[Any] = ()
    for run in revised(lab, record):
        shown, figures = setting(run)
        settings.append(shown)
        views = views or figures
    controls = axes()
    begins = [0, *accumulate(len(axis.names) for axis in controls)]
    axis_data = [
        {"key": axis.key, "names": axis.names, "at": axis.at, "begins": begin}
        for axis, begin in zip(controls, begins, strict=False)
    ]
    content = to_json_plotly({"axes": axis_data, "settings": settings}).encode()
    body = template(
        "sliders.html", title=record.request.pipeline.title, axes=controls,
        cards=joined(map(card_html, views)), settings=browser_weights.packed(content),
    )  # fmt: skip
    about = "Turn gamma, pool size, steps and profile, and see the gate, the error and the answer move."
    entry = Entry("controls.html", START, "Turn KVCOMM’s controls", about, "gamma pool capacity profile")
    site.add(entry, body, views)


def add_ask(site: Site, model: Any) -> None:
    """The page on which the model itself answers, in the browser."""
    pipeline = load_preset(ASKED).pipeline
    _, rows = load_gallery(GALLERY)
    examples = [
        {"title": str(row.values[QUESTION]), "values": dict(row.values)}
        for row in rows
        if row.preset == ASKED
    ]
    parts = [
        {"name": part.name, "standIn": pipeline.stand_ins[part.name]}
        if isinstance(part, Placeholder)
        else part
        for part in pipeline.template(pipeline.order[0]).parts
    ]
    names = [part["name"] for part in parts if isinstance(part, dict)]
    body = template(
        "ask.html", names=names, question=QUESTION, examples=examples, assets=ASSETS,
        asked=data_script({"parts": parts, "examples": examples, "most": pipeline.longest_answer}),
    )  # fmt: skip
    about = "Write documents and a question; the model answers in this page, read in full and copied."
    site.add(Entry("ask.html", START, "Ask your own question", about, "own question browser model"), body)
    site.asset("weights.js", browser_weights.script(model.tokens))
    site.asset(
        "ask.js", "".join((HERE / name).read_text(encoding="utf-8") for name in ("model.js", "ask.js"))
    )


def add_tour(site: Site) -> None:
    """A page a step, and the runs behind them."""
    pairs = [(step, record) for step in steps() if (record := recorded(step.key)) is not None]
    for at, (step, record) in enumerate(pairs):
        description = describe_step(step.key, record)
        run_notes = notes(step, record, False)
        reveals = {
            key: Markup(tour_html.reveal(step, description, key, record, False, run_notes))
            for key in step.choices
        }
        texts = [comparison_html(record)] if description.texts else []
        if description.strip is not None:
            texts.append(strip_html(record, description.strip))
        body = template(
            "tour.html", step=step, at=at, count=len(pairs), reveals=reveals, texts=joined(texts),
            nav=Markup(tour_html.steps_nav([s for s, _ in pairs], at, (), False)),
            lesson=Markup(tour_html.lesson(step, at, len(pairs), record.request)),
            cards=joined(map(card_html, description.views)), takeaway=Markup(tour_html.takeaway(step)),
        )  # fmt: skip
        entry = Entry(f"tour/{at + 1}.html", TOUR, f"{at + 1}. {step.title}", step.short, " ".join(step.text))
        site.add(entry, body, description.views)
        add_run(site, f"runs/tour-{step.key}.html", "", record)


def add_examples(site: Site, model: Any, count: int) -> None:
    """Examples on which reuse changed the answer, and some on which it did no harm, run now."""
    if not GALLERY.is_file():
        return
    _, rows = load_gallery(GALLERY)
    first: dict[str, GalleryEntry] = {}
    for row in rows:  # flips stand first
        first.setdefault(row.preset, row)
    for row in list(first.values())[:count]:
        preset = load_preset(row.preset)
        request = RunRequest(
            preset.pipeline, dict(row.values), tuple(map(MethodChoice, COLUMNS)),
            decoding=Decoding(max_new_tokens=preset.pipeline.longest_answer), expected=row.expected,
        )  # fmt: skip
        [record] = [e.record for e in LabSession(model).run(request) if isinstance(e, RunDone)]
        add_run(site, f"runs/{row.name}.html", RUNS, record)


def add_pages(site: Site) -> None:
    """The finished runs of the other pages."""
    folder = FIRST_RUN.parent / "pages"
    for key in ("documents", "loop"):
        if (record := first_run(folder, key)) is not None:
            add_run(site, f"runs/{key}.html", PAGES, record)
    if (judged := first_run(folder, "judge")) is not None:
        row, request = judged.row, judged.request
        card = verdict_card(
            sentence(row, request), tone(row), row.notes, baseline(row), remedy(row, request),
            judge.factline(request),
        )  # fmt: skip
        body = joined([Markup(card), grid_html(row, request), picks_html(row, request)])
        question = request.problems[0].question
        entry = Entry(
            "judge.html", PAGES, "A judge before candidates", clip(question, 140), "judge candidates order"
        )
        site.add(entry, body)
        for at, record in enumerate(judged.records, 1):
            add_run(site, f"runs/judge-{at}.html", PAGES, record, f"The judge’s prompt, order {at}")
    if (swept := first_run(folder, "sweep")) is not None:
        views = sweep_views(swept.swept)
        body = joined([Markup(sweeps.verdict_of(swept.swept)), *map(card_html, views)])
        about = f"{swept.swept.title or swept.swept.name}: every method in every setting, with intervals."
        site.add(Entry("sweep.html", PAGES, "A sweep", about, "sweep"), body, views)


def add_documents(site: Site) -> None:
    """The papers' tables and other texts, which only a checkout of the repository has."""
    paths = [path for name in DOCUMENTS if (path := ROOT / name).is_file()]
    for path in paths:
        site.add_document(path, TEXTS, DOCUMENTS[path.relative_to(ROOT).as_posix()], paths)


def _numbered_runs(added: Iterable[Path]) -> Iterable[tuple[str, RunRecord]]:
    """Saved runs by a number each."""
    files = [
        file
        for path in added
        for file in (sorted(p for p in path.rglob("*.kv*") if p.is_file()) if path.is_dir() else [path])
    ]
    for at, file in enumerate(files, 1):
        record = read_file(file).record
        if record is None:
            raise LabError(f"{file.name} holds a bench and no run. Name saved runs.")
        yield str(at), record
