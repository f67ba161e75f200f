"""Opens a judged order on Compare: its run with all figures and, where Compare has this judge as a scenario,
its form, so that the cause of a changed choice can be searched and repaired there."""

from dataclasses import replace

from backend.prompts.presets import load_preset, preset_names
from backend.records.judge import JudgeRequest
from backend.records.run import RunRecord
from backend.records.sharing.bundle import Bundle
from lab_app.pages.pipeline.form_json import from_record
from lab_app.pages.pipeline.sharing.actions import show
from lab_app.ui import text
from lab_app.ui.types import Update
from lab_app.visits.visits import Visit


def open_judged(visit: Visit, request: JudgeRequest, record: RunRecord, method: str) -> Update:
    """Show an order's run on Compare, with a method chosen."""
    scenario_run = as_scenario(request, record)
    bench = from_record(scenario_run)
    message = text.OPENED if bench is None else text.JUDGE_OPENED
    return show(visit, Bundle(scenario_run, bench), message, (str(scenario_run.agents[-1]), method, None))


def as_scenario(request: JudgeRequest, record: RunRecord) -> RunRecord:
    """The record with the pipeline of the scenario on Compare that has the same judge and prompt; unchanged
    where there is none."""
    name = f"judge-{request.criterion}"
    if name not in preset_names() or request.slots_only:
        return record
    scenario = load_preset(name).pipeline.unrolled
    own, other = ((p.agents[0].template, p.inputs) for p in (record.request.pipeline, scenario))
    if own != other:
        return record
    return replace(record, request=replace(record.request, pipeline=scenario))
