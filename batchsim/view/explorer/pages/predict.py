"""Predict, then reveal: the picture is covered until the learner has predicted its change."""

import html
import re
import textwrap
import zlib
from typing import Any

import ipywidgets as widgets

from batchsim._format import listed
from batchsim.view import voting
from batchsim.view.explorer.kinds import KINDS, relevant
from batchsim.view.explorer.pages import Page
from batchsim.view.explorer.reasons import FALLS, RISES, STAYS, TOLERANCE, Outcome
from batchsim.view.explorer.rows import CONTROLS
from batchsim.view.explorer.session import Session, setting
from batchsim.view.explorer.state import DEFAULTS, State
from batchsim.view.explorer.widgets import button, label, line, plain, toggle
from batchsim.view.pictures.data import ViewData

HELP = (
    "Tick the box, move a control, and predict the change before you see it. "
    f"“Stays” is a change of less than {100 * TOLERANCE:.0f} %."
)
MOVE = "Move other controls if you like, then answer all three questions."
NEXT = "Move a control for the next question."
SENT = (
    "Your answers are on their way to the class's chart.\nChoose Reveal again when your teacher asks for it."
)
UNIT = re.compile(r" \((ms|s|per s|tokens|blocks|steps)\)$")  # in a control's label
RIGHT, WRONG, NEITHER = "\N{HEAVY CHECK MARK}", "\N{HEAVY BALLOT X}", "\N{EN DASH}"


class PredictPage(Page):
    """Questions about three numbers after each move, and a button that reveals the picture.

    It works without a browser: set `predicting.value`, move a control, set the answers' values, call
    `reveal.click()`, read `rows["p99"].value` and `verdict.value`. In a class, reveal twice.
    """

    title = "Predict"

    def __init__(self, session: Session) -> None:
        self.seen: ViewData | None = None  # seen last by the learner
        self.seen_state, self.sent = session.state, ""
        self.correct = self.answered = 0
        self.predicting = plain(widgets.Checkbox, description="Predict before seeing", indent=False)
        self.mode = session.state.mode
        self.questions = [
            (label(name), toggle([FALLS, STAYS, RISES], name, None, disabled=True), plain(widgets.HTML))
            for name in KINDS[self.mode].questions.values()
        ]
        self.reveal = button(
            "Reveal", "Commit to the three answers, and see the picture", self._reveal, disabled=True
        )
        self.told, self.verdict = plain(widgets.HTML, HELP), plain(widgets.HTML)
        self.predicting.observe(lambda _: self._begin(), names="value")
        for _, answer, _ in self.questions:
            answer.observe(lambda _: self._enable(), names="value")
        boxes = [plain(widgets.VBox, question) for question in self.questions]
        super().__init__(session, [self.predicting, self.told, *boxes, self.reveal, self.verdict])
        session.subscribe("run", self._ran)

    @property
    def answers(self) -> dict[str, widgets.ToggleButtons]:
        """The answers, by the keys of the present questions."""
        return {key: each[1] for key, each in zip(KINDS[self.mode].questions, self.questions, strict=True)}

    @property
    def rows(self) -> dict[str, widgets.HTML]:
        """The verdict on each answer."""
        return {key: each[2] for key, each in zip(KINDS[self.mode].questions, self.questions, strict=True)}

    def update(self) -> None:
        words_of = KINDS[self.mode].questions.values()
        for (name, answer, _), words in zip(self.questions, words_of, strict=True):
            if name.value != words:
                name.value, answer.tooltips = words, [f"{words}: {way}" for way in answer.options]

    def _turn(self, mode: str) -> None:
        """Ask the questions of another kind of run, and drop an open prediction."""
        self.mode = mode
        self._see()
        self._clear()
        self._disable()
        self.reveal.disabled, self.session.cover, self.told.value, self.verdict.value = True, "", HELP, ""

    def _begin(self) -> None:
        """Ask from the next move on, or stop asking and uncover the picture."""
        self.told.value, self.verdict.value = HELP, ""
        if not self.predicting.value and self.session.cover:
            self._uncover()

    def _ran(self) -> None:
        data = self.session.data
        assert data is not None
        if self.session.state.mode != self.mode:
            return self._turn(self.session.state.mode)
        old, new = (each and (each.result.scenario, each.result.seed) for each in (self.seen, data))
        if not self.predicting.value:
            self._see()
        elif not self.session.cover and old != new:
            self._clear()
            self._disable(False)
            self._cover()
        elif self.sent and self.sent != in_words(self.seen_state, self.session.data_state):
            self.sent = ""  # a new move is a new question
            self._disable(False)
            self._cover()

    def _cover(self) -> None:
        """Cover the picture before anything is drawn: the change is announced after this."""
        self.told.value, self.verdict.value, self.session.cover = MOVE, "", KINDS[self.mode].cover

    def _enable(self) -> None:
        self.reveal.disabled = any(answer.value is None for answer in self.answers.values())

    def _clear(self) -> None:
        """Clear the last answers and verdicts."""
        for _, answer, verdict in self.questions:
            answer.value, verdict.value = None, ""

    def _disable(self, disabled: bool = True) -> None:
        for _, answer, _ in self.questions:
            answer.disabled = disabled

    def _reveal(self) -> None:
        data, before = self.session.data, self.seen
        if not self.session.cover or self.reveal.disabled or data is None or before is None:
            return
        kind = KINDS[self.mode]
        outcomes = {key: kind.outcome(key, before.result, data.result) for key in self.answers}
        if voting.joined() and not self.sent:
            return self._cast(outcomes)
        for (key, answer), name in zip(self.answers.items(), kind.questions.values(), strict=True):
            found = outcomes[key]
            if found.way is not None:
                self.correct, self.answered = self.correct + (answer.value == found.way), self.answered + 1
            self.rows[key].value = row(name.partition(",")[0], answer.value, found)
        score = f"So far {self.correct} of {self.answered} are right." if self.answered else ""
        self._uncover()
        self.told.value, self.verdict.value = NEXT, line(score)

    def _cast(self, outcomes: dict[str, Outcome]) -> None:
        """Send the answers to the class's chart, and keep the cover until the class has seen it."""
        self.sent, self.told.value = in_words(self.seen_state, self.session.data_state), SENT
        votes = [
            voting.Vote(asked(self.sent, name), list(answer.options), answer.value, outcomes[key].way)
            for (key, answer), name in zip(
                self.answers.items(), KINDS[self.mode].questions.values(), strict=True
            )
        ]
        self._disable()
        self.session.set_cover(SENT)
        # The last one first: the chart lists the newest question at the top, and shows it.
        voting.send(votes[::-1], lambda sentence: self.session.say(sentence, alert=True))

    def _see(self) -> None:
        """Keep what the learner sees, to compare the next move with."""
        self.seen, self.seen_state, self.sent = self.session.data, self.session.data_state, ""

    def _uncover(self) -> None:
        self._see()
        self._disable()
        self.reveal.disabled = True
        self.session.set_cover("")


def row(key: str, answer: str, found: Outcome) -> str:
    """Return the answer, whether it is right, the number before and after, and why, as HTML."""
    if found.way is None:
        sign, verdict = NEITHER, ", which does not count"
    else:
        right = answer == found.way
        sign, verdict = (RIGHT, ": right") if right else (WRONG, f", but it {found.way}")
    said = f"{key}: you said it {answer}{verdict}."
    texts = (html.escape(text) for text in (sign, said, found.words, found.why))
    return '<div role="status"><b>{} {}</b> {}.<br>{}</div>'.format(*texts)


def asked(move: str, name: str) -> str:
    """Return the question about a number after a move.

    >>> asked("Max wait goes from 10 ms to 0 ms", "throughput")
    'Max wait goes from 10 ms to 0 ms. Throughput: falls, stays or rises?'
    """
    name = re.sub("^[a-z](?=[a-z])", lambda first: first[0].upper(), name)  # p99 stays p99
    return f"{move}. {name}: {FALLS}, {STAYS} or {RISES}?"


def _move(name: str, old: Any, new: Any) -> str:
    """Return what happens to a control, each value with its unit."""
    label = CONTROLS[name].label
    who, _, unit = UNIT.sub(r"\n\1", label).partition("\n")
    texts = [setting(name, value).removeprefix(f"{label} = ") for value in (old, new)]
    first, then = (text if text == "none" else f"{text} {unit}".strip() for text in texts)
    return f"{who} {'go' if who.endswith('s') and '_' not in who else 'goes'} from {first} to {then}"


def in_words(before: State, after: State) -> str:
    """Return a move, and the other settings that are not the first ones.

    >>> in_words(State(servers=2), State(servers=2, max_wait_ms=5))
    'Max wait goes from 10 ms to 5 ms, with Servers = 2'
    """
    first, names = DEFAULTS[after.mode], [name for name in CONTROLS if name != "mode"]
    used = [name for name in names if relevant(name, vars(before)) or relevant(name, vars(after))]
    moved = [name for name in used if getattr(before, name) != getattr(after, name)]
    others = [name for name in used if name not in moved and getattr(after, name) != getattr(first, name)]
    moves = [_move(name, getattr(before, name), getattr(after, name)) for name in moved]
    rest = ", ".join(setting(name, getattr(after, name)) for name in others)
    text = (listed(moves) if moves else "No control moves") + (f", with {rest}" if rest else "")
    short = textwrap.shorten(text, 300)
    # What is cut off still tells one move from another.
    return text if short == text else f"{short} ({zlib.crc32(text.encode()):x})"
