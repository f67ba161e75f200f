"""The Documents page without a browser: cards, messages, a run, and what is known the second time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import tiny
from fake_session import FakeModel, FakeSession
from tiny import model

from backend.prompts.presets import load_preset
from backend.prompts.template import QUESTION
from backend.records.documents import DocumentStudy
from backend.records.run import RunRecord
from lab_app.pages.documents import page as documents
from lab_app.pages.documents import recompute_ratio as documents_ratio
from lab_app.pages.documents import trained_weights as documents_trained
from lab_app.pages.documents.page import CARDS, DocumentsState
from lab_app.ui.validation import Problems
from lab_app.visits.visits import Visit, VisitStore
from viz.pages.documents import finding, treatments

TEXTS = ["Nina works for Hugo.", "Hugo lives in Rome.", "Omar eats rice."]
QUESTION_TEXT = "Where does the boss of Nina live?"


def made(texts: list[str], **changes: Any) -> dict[str, Any]:
    """What the browser sends for cards with these texts."""
    return {"text": texts, "question": QUESTION_TEXT, "methods": ["naive"], "options": {}} | changes


@pytest.fixture
def lab() -> VisitStore:
    return VisitStore(FakeModel, FakeSession)


@pytest.fixture
def visit(lab: VisitStore) -> Visit:
    found = lab.open()
    found.pages[documents.KEY] = DocumentsState()
    return found


def merged(updates: Any) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for update in updates:
        out |= update
    return out


@pytest.mark.parametrize("name", ["documents-5", "documents-10"])
def test_the_prompt_is_the_presets(name: str) -> None:
    preset = load_preset(name).pipeline
    assert documents.pipeline_of(len(preset.declared)).agents == preset.agents


def test_an_example_fills_the_cards(visit: Visit) -> None:
    update = documents.choose(visit, {"preset": "documents-10"})
    assert len(update["text"]) == 10
    assert len(documents.choose(visit, {"preset": "documents-5"} | update)["text"]) == 5
    own = {"question": "Where?", "text": ["Here."]}
    assert documents.choose(visit, {"preset": "documents-10"} | own) == {}, "what somebody wrote stays"
    update = documents.next_example(visit, own)
    assert len(update["text"]) == 10
    sent = made(update["text"], question=update["question"])
    request = documents.read(visit, sent)
    assert request.expected == visit.pages[documents.KEY].example.answer
    # the answer does not depend on the order, and is unknown once a text is another
    swapped = sent["text"][::-1]
    assert documents.read(visit, made(swapped, question=update["question"])).expected == request.expected
    assert documents.read(visit, made(["Other.", *swapped[1:]], question=update["question"])).expected is None


def test_a_page_can_be_come_to_again(lab: VisitStore, visit: Visit) -> None:
    page: Any = SimpleNamespace(lab=lab)
    first = documents.arrive(page, visit)
    assert first["text"]
    assert documents.arrive(page, visit)["text"]


def test_a_card_holds_texts_and_no_more_than_fit() -> None:
    assert CARDS.read(TEXTS) == TEXTS
    assert CARDS.read(["x"] * 12) == ["x"] * 10
    assert CARDS.read([1, "x", None]) == ["", "x", ""]
    assert CARDS.read([]) == CARDS.read("text") == [""], "one card stays"


BAD = {
    "an empty card": (made(["a", " ", "c"]), "text_1", "Document 2 is empty"),
    "no question": (made(TEXTS, question=""), "question", "The question is empty"),
    "an odd character": (made(["a\x00", "b", "c"]), "text_0", "NUL"),
    "a megabyte": (made(["word " * 220_000, "b", "c"]), "text_0", "characters"),
    "no such method": (made(TEXTS, methods=["magic"]), "methods", "magic"),
    "an option": (
        made(TEXTS, methods=["kvcomm"], options={"kvcomm": {"gamma": 7}}), "methods", "allowed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in BAD if BAD[name][1]])
def test_bad_input_is_told_beside_its_card(name: str, lab: VisitStore, visit: Visit) -> None:
    given, slot, said = BAD[name]
    for update in (documents.refresh(visit, given), merged(documents.run(lab, visit, given))):
        assert said.lower() in update["errors"][slot].lower()
        assert not any(key in ("text", "question") for key in update), "typed text must stay"
    assert visit.engine.requests == []  # type: ignore[attr-defined]
    assert visit.cancel is None


def test_a_run_streams_and_ends(lab: VisitStore, visit: Visit) -> None:
    updates = list(documents.run(lab, visit, made(TEXTS)))
    assert any("kv-live" in update.get("comparison", "") for update in updates)
    last = merged(updates)
    assert last["run.visible"] is True
    assert "kv-verdict-sentence" in last["verdict"]
    assert "kv-band" in last["strip"]["html"]
    assert documents.refresh(visit, made(TEXTS))["status"] == ""
    assert "Edited" in documents.refresh(visit, made(TEXTS[::-1]))["status"]
    open_in_pipeline = documents.open_in_pipeline(visit, {})
    assert open_in_pipeline["results.visible"] is True
    assert visit.record is not None


def test_one_run_at_a_time_and_cancel(lab: VisitStore, visit: Visit) -> None:
    stream = documents.run(lab, visit, made(TEXTS))
    next(stream)
    [busy] = documents.run(lab, visit, made(TEXTS))
    assert "still going on" in busy["status"]
    assert "Stopping" in documents.cancelled(visit, {})["cancel"]
    last = merged(stream)
    assert "Stopped" in last["status"]
    assert last["run.visible"] is True
    assert visit.cancel is None


def test_a_failure_shows_no_traceback(lab: VisitStore, visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(visit.engine, "run", explode)
    last = merged(documents.run(lab, visit, made(TEXTS)))
    assert "did not expect" in last["status"]
    assert "secret detail" not in str(last)
    assert visit.cancel is None


# -- on a tiny model


@pytest.fixture(scope="module")
def real() -> VisitStore:
    return VisitStore(model, tiny.lab)


def record_of(lab: VisitStore, visit: Visit, given: dict[str, Any]) -> RunRecord:
    last = merged(documents.run(lab, visit, given))
    assert "kv-verdict-sentence" in last["verdict"], last
    return visit.records[visit.pages[documents.KEY].token]


@pytest.mark.slow
def test_documents_are_encoded_once(real: VisitStore) -> None:
    """Behind another question and in another order nothing is encoded again, and the result is the same as
    in a session that knows nothing."""
    visit = real.open()
    visit.pages[documents.KEY] = DocumentsState()
    first = record_of(real, visit, made(TEXTS))
    agent = first.agents[0]
    assert [t.known for t in treatments(first, agent, "naive")][:3] == [False] * 3
    assert first.outcome(agent, "naive").timing.parts_ms["base"] > 0
    assert "4 texts were encoded in this run" in finding(first)

    order, other = TEXTS[::-1], "What does Omar eat?"
    second = record_of(real, visit, made(order, question=other))
    known = {t.name: t.known for t in treatments(second, agent, "naive")}
    assert known == {"document_1": True, "document_2": True, "document_3": True, QUESTION: False}

    fresh = real.open()
    fresh.pages[documents.KEY] = DocumentsState()
    again = record_of(real, fresh, made(order, question=other))
    for label in ("dense", "naive"):
        a, b = second.outcome(agent, label), again.outcome(agent, label)
        assert a.token_ids.tolist() == b.token_ids.tolist()
        assert (a.actions == b.actions).all()

    third = record_of(real, visit, made(TEXTS, question=other))
    assert "were already known: nothing had to be encoded" in finding(third)
    visit.engine.forget()
    assert "were encoded in this run" in finding(record_of(real, visit, made(TEXTS)))


def test_a_new_text_is_encoded_and_the_others_are_not(real: VisitStore) -> None:
    visit = real.open()
    visit.pages[documents.KEY] = DocumentsState()
    agent = record_of(real, visit, made(TEXTS)).agents[0]
    record = record_of(real, visit, made(["Nina eats soup.", *TEXTS[1:]]))
    known = {t.name: t.known for t in treatments(record, agent, "naive")}
    assert known == {"document_1": False, "document_2": True, "document_3": True, QUESTION: True}


# -- what computing tokens again brings


def asked(**changes: Any) -> dict[str, Any]:
    return {"ratio_prompts": 3, "ratio_seed": 1, "ratio_source": "drawn"} | changes


def test_the_ratio_study_draws_prompts_of_the_kind_and_keeps_its_record(
    lab: VisitStore, visit: Visit
) -> None:
    request = documents_ratio.read(asked(), "documents-5", None)
    assert (len(request.values), len(request.pipeline.declared)) == (3, 5)
    found = merged(documents.RATIO.measure(lab, visit, made(TEXTS) | asked()))
    assert len(found["view_ratio"]["views"]) == 5
    token, record = visit.results["blend"]
    assert token in found["ratio_status"]
    assert lab.result("blend", token) == record
    assert lab.result("blend", "another") is None
    assert lab.result("other", token) is None
    assert found["status"] == "", "what is said of it stands beside it"


def test_the_ratio_study_of_the_pages_own_prompt(visit: Visit) -> None:
    page = documents.read(visit, made(TEXTS))
    request = documents_ratio.read(asked(ratio_source="page"), "documents-5", page)
    assert request.values == (page.values,)
    assert request.pipeline == page.pipeline


def questions(**changes: Any) -> dict[str, Any]:
    return {"trained_questions": 6, "trained_seed": 3, "trained_weights": ["kvlink5"]} | changes


def test_the_weights_trained_for_the_model_are_offered(visit: Visit) -> None:
    found = documents_trained.arrive(visit)
    assert found["trained_weights.choices"] == [("KVLink5", "kvlink5"), ("Block-Attention", "block")]
    assert found["trained_weights"] == ["kvlink5"]
    assert found["trained_none"] == ""


def test_without_such_weights_the_page_says_how_to_train_some(
    visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visit.engine, "trained_weights", dict)
    found = documents_trained.arrive(visit)
    assert found["trained_weights.visible"] is False
    assert "kvlab train-links" in found["trained_none"]


def test_questions_are_asked_under_trained_weights_too(lab: VisitStore, visit: Visit) -> None:
    asked = questions(trained_weights=["kvlink5", "block"])
    found = merged(documents_trained.SECTION.measure(lab, visit, asked))
    assert len(found["view_trained"]["views"]) == 1, "too few questions to tell places apart"
    token, record = visit.results["documents"]
    assert isinstance(record, DocumentStudy)
    assert record.labels == ("Dense", "PromptCache", "KVLink5", "Block-Attention")
    assert "6 questions in 4 ways" in found["trained_status"]
    assert lab.result("documents", token) is record
    assert found["status"] == "", "what is said of it stands beside it"


def test_many_questions_tell_places_apart(lab: VisitStore, visit: Visit) -> None:
    found = merged(documents_trained.SECTION.measure(lab, visit, questions(trained_questions=60)))
    assert len(found["view_trained"]["views"]) == 3


def test_wrong_numbers_of_questions_are_told_beside_their_places(visit: Visit) -> None:
    with pytest.raises(Problems) as caught:
        documents_trained.read(visit, questions(trained_questions=101, trained_seed=None))
    slots = documents_trained.SECTION.errors(caught.value)
    assert "allowed: 2 to 100" in slots["error_trained_questions"]
    assert "empty" in slots["error_trained_seed"]


def test_the_questions_stop_between_two(lab: VisitStore, visit: Visit) -> None:
    for update in documents_trained.SECTION.measure(lab, visit, questions()):
        if "question 1" in update.get("trained_status", ""):
            assert visit.cancel is not None
            visit.cancel.set()
    assert visit.results == {}


def test_weights_that_are_not_offered_are_refused(real: VisitStore) -> None:
    visit = real.open()
    found = merged(documents_trained.SECTION.measure(real, visit, questions(trained_weights=["../kvlink5"])))
    assert "there are: none" in str(found)
    assert visit.results == {}


def test_the_ratio_study_says_everything_that_is_wrong_beside_its_place() -> None:
    given = asked(ratio_prompts=41, ratio_seed=None, ratio_source="page")
    with pytest.raises(Problems) as caught:
        documents_ratio.read(given, "documents-5", None)
    slots = documents.RATIO.errors(caught.value)
    assert "allowed: 2 to 40" in slots["error_ratio_prompts"]
    assert "empty" in slots["error_ratio_seed"]
    assert "Mend what is marked" in slots["error_ratio_measure"]


def test_the_ratio_study_stops_between_prompts(lab: VisitStore, visit: Visit) -> None:
    updates = documents.RATIO.measure(lab, visit, made(TEXTS) | asked())
    for update in updates:
        if "Prompt 1" in update.get("ratio_status", ""):
            assert visit.cancel is not None
            visit.cancel.set()
    assert visit.results == {}
    assert visit.cancel is None
