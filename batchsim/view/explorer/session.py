"""An explorer's session: the state, the data on the picture, the picture's style, and its cover."""

import copy
import functools
import subprocess
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from batchsim._format import listed
from batchsim.engines.compiled import engine
from batchsim.engines.estimates import warn_if_large
from batchsim.result import Result
from batchsim.result.comparison import compare
from batchsim.scenario import Scenario
from batchsim.simulate import DEFAULT_REQUESTS
from batchsim.view.explorer import ahead
from batchsim.view.explorer.ahead import Wait
from batchsim.view.explorer.kinds import FIRST, as_typed, in_labels, relevant
from batchsim.view.explorer.rows import CONTROLS
from batchsim.view.explorer.runs import Stored
from batchsim.view.explorer.state import DEFAULTS, MORE, State, view_of
from batchsim.view.pictures.data import ViewData, parts_shown
from batchsim.view.pictures.views import NAMES, views_of


def nearest(state: State, run: Callable[[State], ViewData]) -> tuple[State, ViewData] | None:
    """Return a state near a refused one that can be run, and its data; None if there is none.

    It has the first value that helps if it is reset alone, or all of them reset.
    """
    first = DEFAULTS[state.mode].replace(seed=state.seed)
    changed = [name for name in state.differences(first) if relevant(name, vars(state))]
    for near in [*(state.replace(**{name: getattr(first, name)}) for name in changed), first]:
        with suppress(TypeError, ValueError):
            return near, run(near)
    return None


def in_place_of(refused: State, shown: State) -> str:
    """Return a sentence about the state that is shown instead of a refused one.

    >>> in_place_of(State(servers=2, max_wait_ms=5), State(servers=2))
    'The picture shows Max wait (ms) = 10 instead.'
    """
    differ = shown.differences(refused)
    if len(differ) != 1:
        return "The picture shows the default settings instead."
    return f"The picture shows {setting(*differ.popitem())} instead."


def setting(name: str, value: Any) -> str:
    """Return the value of a control as its page shows it.

    >>> setting("max_wait_ms", 10.0)
    'Max wait (ms) = 10'
    """
    control = CONTROLS[name]
    text = control.bounds["options"][value] if control.type == "choice" else as_typed(value)
    return f"{control.label} = {text or 'none'}"


Event = Literal["state", "run", "change", "release", "status", "wait"]


class Uncompiled(BaseException):
    """A run that needs a loop which is not compiled; no error, which `reporting` would report."""


class Style(NamedTuple):
    """The arguments of `LivePicture`; the size is a guess until a page reports its own."""

    width_px: int = 1000
    height_px: int = 640
    ratio: float = 1.0
    theme: str = "light"
    size: str = "page"
    large: str = "latency"
    alone: bool = False
    mode: str = FIRST
    server: int = 0  # the one of several whose steps are shown
    parts: tuple[str, ...] = ()  # what the run has of `PARTS`
    few: bool = False


class Session:
    """The state that the controls, the picture and the pages share: they subscribe to its events.

    The events, in the order in which a move brings them:

    - "state": `state` was set elsewhere (by a link, on the heat map), and every control must follow;
    - "run": `data` is new and not yet shown, so that a prediction may cover it;
    - "change": data, style or cover has changed: draw, if `visible`;
    - "release": a gesture is over, or the controls are reset, so axes may shrink;
    - "status": `status` has changed, (text, whether it is an alert);
    - "wait": `wait` has changed: what is shown belongs to another setting, or to this one again.
    """

    def __init__(self, state: State, requests: int) -> None:
        self.state = self.initial = state
        self.left: dict[str, State] = dict(DEFAULTS)  # the last state of each mode
        self.larges = {mode: next(iter(names)) for mode, names in NAMES.items()}  # the large views
        self.requests = requests  # of a run
        self.stored = Stored()  # what a move does not change
        self._scenario = functools.lru_cache(16)(State.scenario)
        scenario = self.scenario(state)  # an error comes before any widget is made
        self.data: ViewData | None = None  # of the last run that worked
        self.data_state = state  # the state of `data`
        self.data_coarse = False  # whether a run of more requests follows the gesture
        self.seen: ViewData | None = None  # shown last without a cover
        self.origin: ViewData | None = None  # shown when the present gesture began
        self.moved = False  # since the last release
        self.moving = False  # whether the present move is part of a gesture
        self.pinned: ViewData | None = None  # A, and its state
        self.pinned_state: State | None = None
        self.style = Style(mode=state.mode, large=self.larges[state.mode], parts=parts_shown(scenario))
        self.cover, self.status = "", ("", False)
        self.wait = Wait(lambda: self._notify("wait"))
        self.has_page = False  # whether a page shows it, so that a move may be answered later
        self.compiling: set[str] = set()  # the kinds of run for which a process compiles
        self.compiled: set[State] = set()  # what such a process has run
        self.before: ViewData | None = None  # of the move that waits for it
        self.theme = "auto"  # the reader's choice: the page's own colours, "light" or "dark"
        # One move at a time: callbacks may come on several threads, and matplotlib is not thread-safe.
        self.lock = threading.RLock()
        self.moves = 0
        self.followed: int | None = None  # the request that the film follows
        self._subscribers: dict[Event, list[Callable[[], None]]] = defaultdict(list)

    def subscribe(self, event: Event, callback: Callable[[], None]) -> None:
        """Call back at each such event, after earlier subscribers."""
        self._subscribers[event].append(callback)

    def _notify(self, event: Event) -> None:
        for callback in self._subscribers[event]:
            callback()

    @property
    def visible(self) -> bool:
        """Whether there is data, and no cover on it."""
        return self.data is not None and not self.cover

    def scenario(self, state: State) -> Scenario:
        """Return a state's scenario, built once; ValueError if it makes no sense."""
        return self._scenario(state)

    def simulate(self, state: State, pinned: ViewData | None = None, moving: bool = False) -> ViewData:
        """Run a state for a picture, roughly while it is `moving`. ValueError if it makes no sense."""
        scenario = self.scenario(state)
        requests = state.kind.requests(scenario, self.requests)
        if said := warn_if_large(scenario, requests):
            self.wait.begin(said)
        data = state.kind.run(state, scenario, requests, self.stored, moving)
        if pinned is None or pinned.result.scenario.kind != scenario.kind:
            return data
        comparison = None
        if not incomparable(pinned.result, data.result):
            # Silent, as the table shows which runs are too short.
            comparison = compare(pinned.result, data.result, state.kind.compared, silent=True)
        return replace(data, pinned=pinned, comparison=comparison)

    def python(self) -> str:
        requests = self.state.kind.requests(self.scenario(self.state), self.requests)
        return self.state.python(requests)

    def link(self) -> str:
        """Return the state and how it is shown as a line of text."""
        more = MORE if self.has_page and not self.style.few else ""
        return "&".join(filter(None, [self.state.to_link(), f"view={self.style.large}", more]))

    def explored(self, link: str) -> str:
        """Return Python that opens a link; the reader must supply what it cannot say."""
        outer = {path.partition(".")[0] for path in self.state.needs}
        given = ["workload=traffic" if outer == {"workload"} else "scenario"] if outer else []
        given += [f"requests={self.requests:_}"] if self.requests != DEFAULT_REQUESTS else []
        return f"import batchsim as bs; bs.explore({', '.join([*given, f'link={link!r}'])})"

    def open_link(self, link: str) -> None:
        """Move to a link's state and view; ValueError, without a move, if they make no sense."""
        state = State.from_link(link, self.state, *self.left.values())
        view = view_of(link, state.mode)
        self.move_to(state)
        if view in views_of(state.mode, self.style.parts):
            self.enlarge(view)

    # Moves.

    def move_to(self, state: State) -> None:
        """Set the state and every control; ValueError, without a move, if the state makes no sense."""
        self.scenario(state)
        self._move_to(state)

    def _move_to(self, state: State) -> None:
        if state.mode != self.state.mode:
            self.left[self.state.mode] = self.state
        self.state = state
        self._notify("state")
        self.move()

    def turn_to(self, mode: str) -> None:
        """Move to the last state of another kind of run, with the present seed, even if it was refused."""
        if mode != self.state.mode:
            self._move_to(self.left[mode].replace(seed=self.state.seed))

    def move(self, continuous: bool = False) -> None:
        """Run the state, which has changed; moves that come while one is drawn are dropped, except the last.

        The picture compares the state with the previous one. A gesture counts as one move if its moves are
        `continuous`, like a slider's.
        """
        self.moves += 1
        move = self.moves
        with self.lock:
            if move == self.moves:  # otherwise a later move is waiting, and draws for both
                before = self.origin if continuous else None
                if before is None and self.seen is not None:
                    before = alone(self.seen)
                self.moved, self.moving = True, continuous
                try:
                    self.refresh(before)
                finally:
                    self.moving = False

    def refresh(self, before: ViewData | None = None) -> None:
        """Run and show the state, compared with `before`; on failure keep the old data, and report why.

        If no data of its kind is shown yet, show the nearest state that can be run, and report the refusal.
        On a page, another process compiles what is not compiled yet, and the state is run again then.
        """
        with self.lock, self.reporting(), engine.announcing(self._hear):
            if before is None and self.data is not None:
                before = self.data.before
            self.wait.begin("Running")
            later = False
            try:
                self._run(before)
            except Uncompiled:
                later = self._compile(before)
            finally:
                if not later:
                    self.wait.end("" if self.data_state == self.state else "This is another setting")

    def _run(self, before: ViewData | None) -> None:
        state, data, said = self.state, None, ""
        try:
            data = self.simulate(state, self.pinned, self.moving)
        except ValueError as refusal:
            shown = self.data is not None and self.data_state.mode == state.mode
            found = None if shown else nearest(state, lambda near: self.simulate(near, self.pinned))
            if found is None:
                raise
            said = f"{in_labels(str(refusal)).rstrip('.')}. {in_place_of(state, found[0])}"
            state, data = found
        if before is not None:
            old, new = (
                (each.result.scenario, each.result.seed, each.result.arrival_s.size)
                for each in (before, data)
            )
            if old == new or old[0].kind != state.mode:  # equal where only an objective moves
                before = None
        self.data, self.data_state = replace(data, before=before, followed=self.followed), state
        self.data_coarse = self.moving and state.kind.shortens
        if self.style.server >= data.result.scenario.servers:
            self.style = self.style._replace(server=0)
        parts = self.data.parts
        if (self.style.mode, self.style.parts) != (state.mode, parts):
            self.larges[self.style.mode] = self.style.large
            views, large = views_of(state.mode, parts), self.larges[state.mode]
            large = large if large in views else next(iter(views))
            self.style = self.style._replace(mode=state.mode, parts=parts, large=large)
        self._notify("run")
        self._notify("change")
        # Last, as drawing the data may compile something, too, and announce it.
        unshown = f"As in the given scenario: {listed(state.unshown)}." if state.unshown else ""
        self.say(said or unshown, alert=bool(said))

    # What takes long.

    def open_page(self) -> None:
        """From now on, moves may be answered later; begin to compile what the next clicks need."""
        if not self.has_page:
            self.has_page = True
            for state in ahead.missing():
                self._begin(state, patient=False)

    def _hear(self, text: str) -> None:
        if self.has_page and self.state not in self.compiled:
            raise Uncompiled(text)
        self.say(text)

    def _compile(self, before: ViewData | None) -> bool:
        """Let another process compile what the state needs; without one, run it here and return False."""
        if self.state.mode not in self.compiling and not self._begin(self.state):
            self.compiled.add(self.state)
            self._run(before)
            return False
        self.before = before
        self.wait.show("Compiling the engine for this setting, once on this machine", busy=True)
        return True

    def _begin(self, state: State, patient: bool = True) -> bool:
        job = ahead.begin(state, patient)
        if job is None:
            return False
        self.compiling.add(state.mode)
        threading.Thread(target=self._finish, args=(job, state), daemon=True).start()
        return True

    def _finish(self, job: subprocess.Popen[bytes], state: State) -> None:
        """Run the state that waits for a process that has ended."""
        job.wait()
        with self.lock:
            self.compiling.remove(state.mode)
            self.compiled.add(state)
            if self.wait.busy and self.state.mode == state.mode:
                self.refresh(self.before)

    def press(self) -> None:
        """Begin a gesture, such as a drag."""
        with self.lock:
            self.origin = None if self.seen is None else alone(self.seen)

    def hold(self) -> None:
        """Continue the last move, as a key that is held down does."""
        with self.lock:
            self.origin = None if self.seen is None else self.seen.before

    def release(self) -> None:
        """End a gesture: axes may shrink again."""
        with self.lock, self.reporting():
            self.origin = None
            if self.moved:
                self.moved = False
                if self.data is not None and self.data_coarse:
                    self.refresh(self.data.before)
                self._notify("release")

    def reset(self) -> None:
        """Return to the initial state."""
        self.start(self.initial)

    def start(self, state: State) -> None:
        """Move to a state without a comparison, which would stretch the axes."""
        with self.lock:
            if self.data is not None and self.visible:
                self.seen, self.data = None, alone(self.data)
        self.move_to(state)
        self.release()

    def pin(self, refresh: bool = True) -> None:
        """Keep the data as A, and compare every later run with it."""
        if self.data is None or not self.visible:
            return
        self.pinned, self.pinned_state = alone(self.data), self.data_state
        if refresh:
            self.refresh()

    def unpin(self) -> None:
        self.pinned = self.pinned_state = None
        self.refresh()

    # How they are shown.

    def restyle(self, style: Style) -> None:
        with self.lock, self.reporting():
            if style != self.style:
                self.style = style
                self._notify("change")

    def enlarge(self, key: str) -> None:
        """Make a view the large one."""
        self.restyle(self.style._replace(large=key))

    def follow(self, request: int | None) -> None:
        """Frame a request in every view, or, with None, no request; later moves keep it."""
        with self.lock, self.reporting():
            self.followed = request
            if self.data is not None:
                self.data = copy.copy(self.data)  # with all derived values
                vars(self.data).update(followed=request)
                self._notify("change")

    def set_cover(self, text: str) -> None:
        """Cover the data with a text, or uncover it with ""."""
        with self.lock, self.reporting():
            self.cover = text
            self._notify("change")

    def say(self, text: str, alert: bool = False) -> None:
        """Put a line below the picture; screen readers read an alert immediately."""
        self.status = text, alert
        self._notify("status")

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Report errors below the picture: the page shows no exception of a callback."""
        try:
            yield
        except ValueError as error:  # a refusal: the sentence suffices
            self.say(in_labels(str(error)), alert=True)
        except Exception as error:
            self.say(f"{type(error).__name__}: {error}", alert=True)


def alone(data: ViewData) -> ViewData:
    """Return data without the data that it is compared with; derived values are kept."""
    single = copy.copy(data)
    vars(single).update(before=None, pinned=None, comparison=None)
    return single


def incomparable(a: Result, b: Result) -> str:
    """Return why two runs cannot be compared, "" if they can."""
    if a.scenario.kind != b.scenario.kind:
        return "Whole requests and tokens cannot be compared: turn back, or pin again."
    if not (a.metrics.served and b.metrics.served):
        return "A setting that serves no requests has no latency to compare."
    if not (a.scenario.stable and b.scenario.stable):
        return "An overloaded setting has no steady state to compare."
    if a.seed != b.seed:
        return f"Compared settings must share their traffic, got seeds {a.seed} and {b.seed}."
    sizes = f"{a.arrival_s.size:,} and {b.arrival_s.size:,}"
    same = a.arrival_s.size == b.arrival_s.size
    return "" if same else f"Compared settings must share their traffic, got {sizes} requests."
