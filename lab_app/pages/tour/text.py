"""The words around the tour's steps. The steps' own are in ``presets/tour/steps.yaml``."""

TOUR = "Tour"
STEPS = "Steps of the tour"
STEP = "Step {step} of {count}"
DONE = " (done)"
ASKED = "What is run"
PREDICT = "Predict first"
CHOOSE_FIRST = (
    "No prediction is chosen. Choose one of the answers above first: you learn more from a run that you have "
    "predicted."
)
NO_SUCH_CHOICE = "There is no answer {given!r} to this question. Choose one of the list."
RUN = "Commit and run"
AGAIN = "Run it again"
RECORDED_BUTTON = "Commit and show the recorded run"
RECORDED_AGAIN = "Show the recorded run"
BACK = "Back"
NEXT = "Next step"
WHAT_CAME_OUT = "What came out"
LIVE = "live run"
RECORDED = "recorded run"
RIGHT = "As you predicted: {choice}."
WRONG = "You predicted “{chosen}”. It came out as: {choice}."
CAME_OUT = "It came out as: {choice}."
UNDECIDED = "This run decides no prediction."
NO_EFFECT = (
    "The effect that this step is about does not show in this run. That happens, and is shown as it is."
)
TAKEAWAY = "Key point"
OTHER_WEIGHTS = "recorded with other weights than the ones loaded here"
OLD_WORDING = "recorded before the scenario’s wording changed"
PICKED = "the request was picked because the effect showed when it was recorded"
NO_RECORDED = "There is no recorded run of this step. Run it."
BUSY = "The model is busy, so this is the recorded run. Run it again to see it live."
FORGOTTEN = "The server no longer holds your run of this step. Run it again."
CLOSER_HELP = "All figures and the saved record of this run are on the Compare page."
FOR_TEACHERS = "For teachers: goals, timing, questions, and a class room"
LECTURE = "What each step is for"
LECTURE_HELP = (
    "With a class the tour takes about {minutes} minutes; each step has a prediction, a run and a question. "
    "Steps can be left out from the end: the first four stand by themselves."
)
LECTURE_HEADS = ("Step", "Afterwards a student can", "Minutes", "To ask")
ROOM_BUTTON = "Open a class room"
ROOM_CLOSE = "Close the class room"
ROOM_HELP = (
    "One link for everyone: all predict, you see the tally grow and reveal the run. Students follow your "
    "step. Nobody is asked for a name."
)
ROOM_OPEN = "Your class room is open."
ROOM_OPEN_HELP = "Give this link to the class; your own page leads it."
ROOM_RULES = (
    "The room ends two hours after its last use, or when you close it. You lead it in this tab alone; a "
    "reload is no "
    "harm, but with the tab closed nobody leads it any more."
)
ROOM_CLOSED = "The class room is closed. You can go on with the tour by yourself."
ROOM_GONE = (
    "There is no such class room, or it has ended. Ask for a new link, or go on with the tour by yourself."
)
QR = "QR code of the class room’s link"
PROJECTOR = "Projector view"
COPY = "Copy the link"
IN_ROOM = "You are in a class room."
IN_ROOM_HELP = (
    "Your teacher leads through the steps and reveals each run. Predictions are counted without names."
)
VOTE = "Commit my prediction"
TOO_LATE = "The run was revealed before, so this prediction was not counted."
WAIT_REVEAL = "Your teacher will reveal the run."
PREDICTED = "{count} of {members} have predicted."
TALLY = "Predictions of the class"
CAME_TRUE = "✓"
REVEAL = "Run and reveal"
REVEAL_RECORDED = "Reveal the recorded run"
LED = "Your teacher leads through the steps."
