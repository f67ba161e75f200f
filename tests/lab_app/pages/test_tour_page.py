"""The tour without a browser: predictions, runs, recorded runs, and a class room."""

from __future__ import annotations

import io
import json
import threading
from typing import Any

import pytest
import segno
from fake_session import FakeModel, FakeSession
from starlette.applications import Starlette
from starlette.testclient import TestClient

from backend.base.errors import LabError
from lab_app.pages.tour import html as tour_html
from lab_app.pages.tour import page as tour
from lab_app.pages.tour import text as words
from lab_app.pages.tour.steps import recorded, steps
from lab_app.server.downloads import routes
from lab_app.visits import classroom
from lab_app.visits.classroom import MOST_MEMBERS, MOST_ROOMS, Rooms
from lab_app.visits.visits import Visit, VisitStore

FIRST = steps()[0]
CHOICES = list(FIRST.choices)


@pytest.fixture
def lab() -> VisitStore:
    return VisitStore(FakeModel, FakeSession)


@pytest.fixture
def visit(lab: VisitStore) -> Visit:
    return lab.open()


def merged(updates: Any) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for update in updates:
        out |= update
    return out


def told_news(**news: Any) -> dict[str, Any]:
    return {"news": json.dumps(news)}


class Noted(FakeSession):
    """Notes how many requests had filled its pools when it was let go."""

    let_go = -1

    def forget(self) -> None:
        self.let_go = len(self.warmed)
        super().forget()


# -- alone


def test_no_run_before_a_prediction(lab: VisitStore, visit: Visit) -> None:
    for act in (
        lambda given: merged(tour.run(lab, visit, given)),
        lambda given: tour.replay(lab, visit, given),
    ):
        for guess, said in ((None, "No prediction"), ("<b>", "no answer '&lt;b&gt;'".replace("'", "&#x27;"))):
            update = act({"guess": guess})
            assert said in update["errors"]["guess"]
            assert not tour.state_of(visit).guesses
            assert "reveal" not in update


def test_a_prediction_stands_and_is_compared(lab: VisitStore, visit: Visit) -> None:
    """Both outcomes of a prediction, told from the same run."""
    runs = [merged(tour.run(lab, visit, {"guess": CHOICES[0]}))]
    again = merged(tour.run(lab, visit, {"guess": CHOICES[1]}))
    assert tour.state_of(visit).guesses == {FIRST.key: CHOICES[0]}, "the first prediction stands"
    assert again["guess"] == CHOICES[0]
    other = lab.open()
    runs += [merged(tour.run(lab, other, {"guess": choice})) for choice in CHOICES[1:2]]
    runs += [merged(tour.run(lab, lab.open(), {"guess": CHOICES[2]}))]
    right = [("kv-verdict-same" in run["reveal"]) for run in runs]
    assert sum(right) == 1
    assert all(words.LIVE in run["reveal"] for run in runs)
    assert all(run["guess.interactive"] is False for run in runs)


def test_a_run_finds_an_engine_that_knows_nothing(lab: VisitStore, visit: Visit) -> None:
    made: list[Noted] = []

    def engine(model: Any) -> Noted:
        made.append(Noted(model))
        return made[-1]

    lab._engine = engine
    index = next(i for i, s in enumerate(steps()) if s.run.warm)
    tour.go(lab, visit, index)
    merged(tour.run(lab, visit, {"guess": next(iter(steps()[index].choices))}))
    assert len(made) == 1
    assert made[0] is not visit.engine
    assert made[0].requests[0].pipeline == steps()[index].preset.pipeline.unrolled
    assert made[0].let_go == steps()[index].run.warm, "it was warmed up, and let go"
    assert visit.records, "the record belongs to the visit"


def test_while_the_model_is_busy_the_recorded_run_is_shown(
    lab: VisitStore, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lab.in_line() as wait, monkeypatch.context() as patch:  # somebody else has the model
        patch.setattr(tour, "PATIENCE_SECONDS", 0.0)
        assert wait(0) == 0
        update = merged(tour.run(lab, visit, {"guess": CHOICES[0]}))
        assert words.RECORDED in update["reveal"]
        assert "busy" in update["status"]
        assert visit.cancel is None
    with lab.in_line() as wait:
        assert wait(0) == 0, "the line was left"
    assert words.LIVE in merged(tour.run(lab, visit, {"guess": None}))["reveal"], "then it runs"


def test_a_recorded_run_says_so_and_whose_weights(lab: VisitStore, visit: Visit) -> None:
    update = tour.replay(lab, visit, {"guess": CHOICES[0]})
    assert words.RECORDED in update["reveal"]
    assert words.OTHER_WEIGHTS.capitalize() in update["status"], "the fake model is not the recorded one"
    record = recorded(FIRST.key)
    assert record is not None
    update = tour.open_in_pipeline(lab, visit, {})
    assert update["verdict"]
    assert visit.record is record


def test_steps_are_gone_through(lab: VisitStore, visit: Visit) -> None:
    back, forward = tour.moving(lab, -1), tour.moving(lab, 1)
    assert tour.arrive(lab, visit)["back.visible"] is False
    assert back(visit, {})["lesson"] == tour.arrive(lab, visit)["lesson"]
    for step in steps()[1:]:
        assert tour_html.escape(step.title) in forward(visit, {})["lesson"]
    assert tour.arrive(lab, visit)["next.visible"] is False


@pytest.mark.parametrize(
    "news", ["", "x" * 500, "[1]", "{", "null", '{"what":"go","step":99}', '{"what":"go","step":true}',
             '{"what":"enter","room":["a"]}', '{"what":"enter","room":{"a":1},"key":5}', "3"],
)  # fmt: skip
def test_odd_news_do_no_harm(news: str, lab: VisitStore, visit: Visit) -> None:
    update = tour.news(lab, visit, {"news": news})
    assert "lesson" in update
    assert tour.state_of(visit).room == ""


# -- a class


def member(number: int) -> str:
    return f"{number:032x}"


def test_its_own_run_holds_the_step_and_another_pages_does_not(lab: VisitStore, visit: Visit) -> None:
    forward = tour.moving(lab, 1)
    visit.cancel = threading.Event()  # another page's run goes on
    refused = merged(tour.run(lab, visit, {"guess": CHOICES[0]}))
    assert "still going on" in refused["status"]
    forward(visit, {})
    assert tour.state_of(visit).step == 1
    tour.go(lab, visit, 0)
    visit.cancel = None
    own = tour.run(lab, visit, {"guess": CHOICES[0]})
    next(own)
    assert "still going on" in forward(visit, {})["status"]
    merged(tour.run(lab, visit, {"guess": CHOICES[0]}))  # a second press changes nothing
    assert "still going on" in forward(visit, {})["status"]
    assert tour.state_of(visit).step == 0
    list(own)
    forward(visit, {})
    assert tour.state_of(visit).step == 1


def test_a_second_press_changes_no_button_of_the_run_that_goes_on(lab: VisitStore, visit: Visit) -> None:
    first = tour.run(lab, visit, {"guess": CHOICES[0]})
    next(first)
    update = merged(tour.run(lab, visit, {"guess": CHOICES[0]}))
    assert "busy" in update["status"]
    assert not {"back.visible", "next.visible", "replay.visible"} & update.keys()
    assert merged(first)["next.visible"] is True


def test_a_class_predicts_and_the_teacher_reveals(lab: VisitStore, visit: Visit) -> None:
    tour.open_room(lab, visit)
    room = tour.room_of(lab, visit)
    assert room is not None
    students = [lab.open() for _ in range(3)]
    for number, student in enumerate(students):
        update = tour.news(lab, student, told_news(what="enter", room=room.id, member=member(number)))
        assert update["vote.visible"] is True
        assert update["run.visible"] is False
        assert room.key not in str(update), "the key is the teacher's"
    for student, choice in zip(students, [CHOICES[0], CHOICES[0], CHOICES[1]], strict=True):
        update = tour.vote(lab, student, {"guess": choice})
        assert update["vote.visible"] is False
        assert "kv-tour-tally" not in update["tally"], "the tally is the teacher's until the reveal"
    seen = tour.news(lab, visit, told_news(what="look"))["tally"]
    assert "2 · 67" in seen
    assert "3 of 3 participants" in seen

    version = room.version
    merged(tour.run(lab, visit, {"guess": None}))
    assert room.version == version + 1
    for student, choice in zip(students, [CHOICES[0], CHOICES[0], CHOICES[1]], strict=True):
        update = tour.news(lab, student, told_news(what="look"))
        assert update["guess"] == choice
        assert words.LIVE in update["reveal"]
        assert "kv-tour-tally" in update["tally"]
        assert update["figures"]["views"]
    late = lab.open()
    tour.news(lab, late, told_news(what="enter", room=room.id, member=member(9)))
    assert words.TOO_LATE in tour.vote(lab, late, {"guess": CHOICES[0]})["status"]
    assert sum(room.tally().values()) == 3

    tour.moving(lab, 1)(visit, {})
    update = tour.news(lab, students[0], told_news(what="look"))
    assert tour_html.escape(steps()[1].title) in update["lesson"]
    assert update["reveal"] == ""
    assert update["vote.visible"] is True


def test_students_do_not_lead(lab: VisitStore, visit: Visit) -> None:
    tour.open_room(lab, visit)
    room = tour.room_of(lab, visit)
    assert room is not None
    student = lab.open()
    for key in ("", "guess", room.id, None, 3):
        tour.news(lab, student, told_news(what="enter", room=room.id, key=key, member=member(1)))
        assert tour.state_of(student).leads is False
        tour.go(lab, student, 3)
        tour.replay(lab, student, {"guess": CHOICES[0]})
        merged(tour.run(lab, student, {"guess": CHOICES[0]}))
        tour.close_room(lab, student)
        assert lab.rooms.find(room.id) is room
        assert (room.step, room.reveal) == (0, None)
    again = lab.open()
    tour.news(lab, again, told_news(what="enter", room=room.id, key=room.key))
    assert tour.state_of(again).leads is True, "after a reload the teacher still leads"
    update = tour.close_room(lab, again)
    assert lab.rooms.find(room.id) is None
    assert words.ROOM_CLOSED in update["status"]
    tour.news(lab, student, told_news(what="enter", room=room.id, member=member(1)))
    assert words.ROOM_GONE in tour.news(lab, student, told_news(what="enter", room=room.id))["status"]


def test_a_reload_neither_loses_nor_doubles_a_prediction(lab: VisitStore, visit: Visit) -> None:
    tour.open_room(lab, visit)
    room = tour.room_of(lab, visit)
    assert room is not None
    for number, choice in enumerate(CHOICES):
        student = lab.open()
        update = tour.news(lab, student, told_news(what="enter", room=room.id, member=member(1)))
        assert update.get("guess") == (CHOICES[0] if number else None)
        tour.vote(lab, student, {"guess": choice})
    assert room.tally() == {CHOICES[0]: 1}
    assert len(room.members) == 1


def test_a_choice_made_while_the_page_joins_is_kept(lab: VisitStore, visit: Visit) -> None:
    tour.open_room(lab, visit)
    room = tour.room_of(lab, visit)
    assert room is not None
    early, elsewhere = lab.open(), lab.open()
    tour.arrive(lab, early)
    update = tour.news(lab, early, told_news(what="enter", room=room.id, member=member(1)))
    assert "guess" not in update, "what is chosen on the screen would be taken away"
    assert update["guess.interactive"] is True
    tour.go(lab, elsewhere, 2)
    update = tour.news(lab, elsewhere, told_news(what="enter", room=room.id, member=member(2)))
    assert update["guess"] is None, "an answer to another question"


def test_rooms_are_bounded_and_end() -> None:
    now = [0.0]
    rooms = Rooms(lambda: now[0])
    made = [rooms.open() for _ in range(MOST_ROOMS)]
    assert len({r.id for r in made}) == len({r.key for r in made}) == MOST_ROOMS
    assert all(len(r.id) >= 16 and len(r.key) >= 24 for r in made)
    with pytest.raises(LabError, match="class rooms are open"):
        rooms.open()
    for number in range(MOST_MEMBERS):
        rooms.join(made[0], member(number))
    rooms.join(made[0], member(0))
    with pytest.raises(LabError, match="holds"):
        rooms.join(made[0], member(MOST_MEMBERS))
    now[0] = classroom.IDLE_SECONDS - 1
    rooms.join(made[0], member(0))
    now[0] = classroom.IDLE_SECONDS + 1
    assert rooms.find(made[0].id) is made[0]
    assert rooms.find(made[1].id) is None
    for _ in range(5):
        now[0] += classroom.IDLE_SECONDS - 1
        rooms.join(made[0], member(0))
    assert rooms.find(made[0].id) is None, "a room does not live for ever"


def test_news_of_a_room_tell_no_prediction(lab: VisitStore) -> None:
    room = lab.rooms.open()
    lab.rooms.join(room, member(1))
    lab.rooms.vote(room, member(1), CHOICES[0])
    assert lab.rooms.state(room.id) == {"version": 0, "predicted": 1, "members": 1}
    assert lab.rooms.state("nobody") is None


def test_the_qr_code_is_of_the_rooms_link_and_of_nothing_else(lab: VisitStore) -> None:
    client, room = TestClient(Starlette(routes=routes(lab, {}))), lab.rooms.open()
    answer = client.get(f"/lab/room/{room.id}/qr.svg", params={"at": "https://lab.example/kv/"})
    wanted = segno.make(f"https://lab.example/kv/?lesson=1&room={room.id}#tour", error="m")
    assert answer.headers["content-type"] == "image/svg+xml"
    wanted.save(drawn := io.BytesIO(), kind="svg", scale=6, border=3, dark="#14181d", light="#ffffff")
    assert answer.content == drawn.getvalue()
    assert room.key not in answer.text
    for at in ("", "javascript:alert(1)", "https://a/?room=x#", "https://" + "a" * 400):
        assert client.get(f"/lab/room/{room.id}/qr.svg", params={"at": at}).status_code == 400
    assert client.get("/lab/room/nobody/qr.svg", params={"at": "https://a/"}).status_code == 404
