"""Predict, then reveal: the picture is covered until the learner has said what will happen to it."""

import math

import ipywidgets as widgets

from batchsim._format import number
from batchsim.result import Result
from batchsim.view.explorer.knob import button, label, line, toggle
from batchsim.view.explorer.pages import Page
from batchsim.view.explorer.session import Session
from batchsim.view.run.data import ViewData

TOLERANCE = 0.02  # a smaller change counts as none
FALLS, STAYS, RISES = "falls", "stays", "rises"
QUESTIONS = {
    "p50": "p50, the middle latency", "p99": "p99, the slowest in a hundred", "throughput": "throughput",
}  # fmt: skip
HELP = (
    "Tick the box, move a control, and say what will happen before you see it. "
    f"“Stays” is a change of less than {100 * TOLERANCE:.0f} %."
)
COVER = "Predict first: what happens to p50, p99 and throughput?\nThen choose Reveal."


class PredictPage(Page):
    """Questions about p50, p99 and throughput after each move, and a button that reveals the picture.

    It works without a browser: set `predicting.value`, move a control, set the answers' values, call
    `reveal.click()`, read `verdict.value`.
    """

    title = "Predict"

    def __init__(self, session: Session) -> None:
        self.seen: ViewData | None = None  # what the learner saw last
        self.correct = self.answered = 0
        self.predicting = widgets.Checkbox(description="Predict before seeing", indent=False)
        ways = [FALLS, STAYS, RISES]
        self.answers = {key: toggle(ways, name) for key, name in QUESTIONS.items()}
        rows = [each for key in QUESTIONS for each in (label(QUESTIONS[key]), self.answers[key])]
        self.reveal = button("Reveal", "Commit to the three answers, and see", self._reveal, disabled=True)
        self.verdict = widgets.HTML(HELP)
        self.predicting.observe(lambda _: self._begin(), names="value")
        for answer in self.answers.values():
            answer.value, answer.disabled = None, True
            answer.observe(lambda _: self._enable(), names="value")
        super().__init__(session, [self.predicting, *rows, self.reveal, self.verdict])
        session.subscribe("run", self._ran)

    def _begin(self) -> None:
        """Ask from the next move on, or stop asking and show what there is."""
        self.verdict.value = HELP
        if not self.predicting.value and self.session.cover:
            self._uncover()

    def _ran(self) -> None:
        data = self.session.data
        assert data is not None
        old, new = (each and (each.result.scenario, each.result.seed) for each in (self.seen, data))
        if not self.predicting.value:
            self.seen = data
        elif not self.session.cover and old != new:
            for answer in self.answers.values():
                answer.disabled = False
            self.verdict.value = "Move on if you like, then say what has happened to all three."
            self.session.cover = COVER  # before anything is drawn: the change is announced after this

    def _enable(self) -> None:
        self.reveal.disabled = any(answer.value is None for answer in self.answers.values())

    def _reveal(self) -> None:
        data, before = self.session.data, self.seen
        if not self.session.cover or self.reveal.disabled or data is None or before is None:
            return
        sentences = []
        for key, answer in self.answers.items():
            way, words = outcome(key, before.result, data.result)
            if way is None:
                sentences.append(f"{key}: {words}; that does not count.")
                continue
            correct = answer.value == way
            self.correct, self.answered = self.correct + correct, self.answered + 1
            verdict = "Right" if correct else "Not this time"
            sentences.append(f"{key}: you said it {answer.value}. {verdict}: {words}.")
        if self.answered:
            sentences.append(f"So far {self.correct} of {self.answered} are right.")
        self._uncover()
        self.verdict.value = line(" ".join(sentences))

    def _uncover(self) -> None:
        self.seen = self.session.data
        for answer in self.answers.values():
            answer.value, answer.disabled = None, True
        self.reveal.disabled = True
        self.session.set_cover("")


def outcome(key: str, before: Result, after: Result) -> tuple[str | None, str]:
    """Return which way a number went, None if there is no telling, and the same in words."""
    old, new = _value(key, before), _value(key, after)
    unit = "per s" if key == "throughput" else "ms"
    if math.isinf(old) and math.isinf(new):
        return None, "it has no steady state, before and after: both settings are overloaded"
    if math.isinf(new):
        return RISES, f"from {number(old)} {unit} it grows without end: the setting is overloaded"
    if math.isinf(old):
        return FALLS, f"it grew without end, and is {number(new)} {unit} now"
    if math.isnan(old) or math.isnan(new):
        return None, "it has no value where no requests are served"
    if old == 0:
        return (RISES if new > 0 else STAYS), f"it was 0 and is {number(new)} {unit}"
    change = new / old - 1
    way = STAYS if abs(change) < TOLERANCE else RISES if change > 0 else FALLS
    return way, f"it {way}, from {number(old)} to {number(new)} {unit}"


def _value(key: str, result: Result) -> float:
    if key == "throughput":
        return result.throughput_per_s
    return result.percentile(int(key[1:])) if result.scenario.stable else math.inf
