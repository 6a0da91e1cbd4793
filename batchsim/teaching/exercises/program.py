"""Exercises whose answer is code that the learner wrote: it is run on hidden cases, the smallest first."""

import dis
import sys
import sysconfig
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from io import StringIO
from types import FrameType, FunctionType
from typing import Any, NamedTuple, Protocol

from batchsim.teaching.exercises.exercise import Exercise, Verdict

# More than any case needs by far: what goes on for longer does not come to an end.
LINES = 20_000
SECONDS = 3.0
GAP_S = 0.5  # more than this between two lines is not counted: a laptop may have slept
ALL_CASES_S = 10.0
ASLEEP = 0.02  # code that computes for a smaller part of so long a time sleeps: no machine is that busy
PRINTED_LINES = 5
LIBRARIES = *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")), "<frozen"
NOTHING = {"RESUME", "NOP", "LOAD_CONST", "RETURN_CONST", "RETURN_VALUE"}


class Endless(BaseException):
    """Code that does not come to an end. Not an Exception, which the learner's code may well catch."""


class Attempt(NamedTuple):
    """What a call of the learner's code returned, or raised."""

    value: Any
    error: BaseException | None = None


def attempt(function: Callable[..., Any], *args: Any) -> Attempt:
    """Call the learner's code, and stop it if it does not come to an end.

    It is watched line by line, in this thread: another one that never ends could not be stopped. Libraries
    are not watched: they may be called back at any line, as when garbage is collected, and what is raised
    there is lost, and the watch with it.
    """
    lines, spent_s, last_s = 0, 0.0, time.monotonic()

    def watch(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal lines, spent_s, last_s
        if frame.f_code.co_filename.startswith(LIBRARIES):
            return None
        lines += event == "line"
        now_s = time.monotonic()
        spent_s, last_s = spent_s + min(now_s - last_s, GAP_S), now_s
        if lines > LINES or spent_s > SECONDS:
            raise Endless
        return watch

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        return Attempt(function(*args))
    except (Exception, Endless) as error:
        return Attempt(None, error)
    finally:
        sys.settrace(before)


def fault(error: BaseException, answer: Any) -> str:
    """Say what an attempt raised, and in which line of the learner's code."""
    what = f"raised {type(error).__name__}: {error}"
    if isinstance(error, Endless):
        what = "did not come to an end"
    own = {function.__code__.co_filename for function in functions_of(answer)}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in own]
    if not frames:
        return what
    line = f": {frames[-1].line}" if frames[-1].line else ""
    return f"{what}\n  in line {frames[-1].lineno} of your cell{line}"


def functions_of(answer: Any) -> list[FunctionType]:
    """Return a function, or those of a class and of what it is built on."""
    if isinstance(answer, FunctionType):
        return [answer]
    members = [member for part in answer.__mro__ for member in vars(part).values()]
    return [member for member in members if isinstance(member, FunctionType)]


def blank(function: Any) -> bool:
    """Return whether a function does nothing yet: its body is `...`, after a docstring or without."""
    if not isinstance(function, FunctionType):
        return False
    does = list(dis.get_instructions(function))
    kept = [step.argval for step in does if step.opname in ("LOAD_CONST", "RETURN_CONST")]
    return {step.opname for step in does} <= NOTHING and kept == [None]


def plain(value: Any) -> Any:
    """Return a value as Python's own lists and numbers, to compare it and to show it."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple, deque)):
        return [plain(part) for part in value]
    return value


class Case(Protocol):
    """A hidden case."""

    def missed(self, answer: Any) -> str:
        """Run the learner's code; return what went wrong, told whole, or ""."""


class Program(Exercise):
    """A class or a function to write, which is run on hidden cases until it misses one.

    `cases` yields them, the smallest first. So the first that is missed is the smallest; it is told whole.
    """

    after: Exercise | None = None  # the exercise that this one builds on
    after_name = ""

    def named(self, answer: Any) -> dict[str, Any]:
        """Return what is to be written, by name; None: it is missing. TypeError for another type."""
        raise NotImplementedError

    def cases(self, written: Iterable[str]) -> Iterable[Case]:
        """Yield the cases that need only those of the functions which are written."""
        raise NotImplementedError

    def because(self, count: int) -> str:
        raise NotImplementedError

    def is_open(self, answer: Any) -> bool:
        if answer is ...:
            return True
        try:
            return all(blank(function) for function in self.named(answer).values())
        except TypeError:
            return False

    def judge(self, answer: Any) -> Verdict:
        named = self.named(answer)
        for name, function in named.items():
            if function is None:
                return Verdict(False, f"{answer.__name__} has no method {name}.")
        if self.after is not None:
            first = self.after.judge(answer)
            if not first.right:
                return Verdict(False, f"exercise {self.after_name} comes first. There, {first.text}")
        empty = [name for name, function in named.items() if blank(function)]
        count, begin_s, computed_s = 0, time.monotonic(), time.thread_time()
        talked = False
        for case in self.cases([name for name in named if name not in empty]):
            said = StringIO()
            with redirect_stdout(said):
                missed = case.missed(answer)
            if missed:
                return Verdict(False, missed + _shown(said))
            talked = talked or bool(said.getvalue())
            took_s = time.monotonic() - begin_s
            if took_s > ALL_CASES_S and time.thread_time() - computed_s < ASLEEP * took_s:
                slow = f"right in {count} cases, but they took {took_s:.0f} s. Does your code sleep?"
                return Verdict(False, f"{slow} It is only asked whether it is time: nobody has to wait.")
            count += 1
        if empty:
            done = f" What you wrote is right in {count:,} cases." if count else ""
            return Verdict(False, f"{empty[0]} is still empty.{done}")
        hidden = " What your code printed meanwhile is not shown." if talked else ""
        return Verdict(True, self.because(count) + hidden)


class Function(Program):
    """A function to write."""

    signature: str

    @property
    def asks(self) -> str:
        return f"a function, {self.signature}"

    def named(self, answer: Any) -> dict[str, Any]:
        if not isinstance(answer, FunctionType):
            kind = "a class" if isinstance(answer, type) else f"an object of type {type(answer).__name__}"
            raise TypeError(f"the answer must be the function itself, without brackets, got {kind}")
        return {answer.__name__: answer}


def _shown(said: StringIO) -> str:
    lines = said.getvalue().splitlines()
    if not lines:
        return ""
    shown = [f"  {line}" for line in lines[:PRINTED_LINES]]
    if len(lines) > PRINTED_LINES:
        shown.append(f"  ... and {len(lines) - PRINTED_LINES:,} lines more")
    return "\n".join(["\nMeanwhile your code printed:", *shown])
