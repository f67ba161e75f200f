"""What is measured beside runs on the pipeline's page, each in its tab of figures."""

from lab_app.pages.pipeline.sections import anchor_cost, blame, break_even, offset_study, proximity

SECTIONS = (
    blame.SECTION,
    offset_study.SECTION,
    anchor_cost.SECTION,
    proximity.SECTION,
    break_even.SECTION,
)
