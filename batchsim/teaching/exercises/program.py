"""Exercises whose answer is code that the learner wrote: it is run on hidden cases, the smallest first."""

import dis
import re
import reprlib
import signal
import sys
import sysconfig
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from types import FrameType, FunctionType
from typing import Any, NamedTuple, Protocol

import numpy as np

from batchsim.teaching.exercises.exercise import Exercise, Verdict

# Far more than any case needs: code that runs longer counts as endless.
LINES = 20_000
SECONDS = 3.0
GAP_S = 0.5  # counted between two lines at most: a laptop may have slept
AGAIN_S = 1e-4  # short enough to fall between a `try` and the next one
ALL_CASES_S = 10.0
ASLEEP = 0.02  # code with a smaller share of a processor sleeps: even a busy machine gives more
PRINTED_LINES = 5
LIBRARIES = *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")), "<frozen"
LONGEST, DEEPEST = 10_000, 5  # lists
LONGEST_ERROR = 300  # letters
NOTHING = {"RESUME", "NOP", "LOAD_CONST", "RETURN_CONST", "RETURN_VALUE"}


class Endless(BaseException):
    """Code that does not come to an end. Not an Exception, which the learner's code may well catch."""


class Attempt(NamedTuple):
    """What a call of the learner's code returned, or raised."""

    value: Any
    error: BaseException | None = None


def attempt(function: Callable[..., Any], *args: Any) -> Attempt:
    """Call the learner's code, and stop it if it does not come to an end.

    The code is watched line by line, in this thread: an endless second thread could not be stopped. Libraries
    are not watched, because a callback may run at any line, as in garbage collection. An exception raised
    there is lost, and the watch ends with it. An alarm stops a long call within one line, such as
    `time.sleep`, and code that catches every exception (Windows has no alarm: only loops are stopped there).
    """
    lines, spent_s, last_s = 0, 0.0, time.monotonic()

    def watch(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal lines, spent_s, last_s
        if frame.f_code.co_filename.startswith(LIBRARIES):
            return None
        frame.f_trace_opcodes = not alarmed  # a loop in one line is one line for ever
        lines += event == "line"
        now_s = time.monotonic()
        spent_s, last_s = spent_s + min(now_s - last_s, GAP_S), now_s
        if lines > LINES or spent_s > SECONDS:
            raise Endless
        return watch

    def call() -> Any:
        return function(*args)

    before = sys.gettrace()
    with _alarm(call) as alarmed:
        sys.settrace(watch)
        try:
            return Attempt(call())
        except (Exception, SystemExit, Endless) as error:
            return Attempt(None, error)
        finally:
            sys.settrace(before)


@contextmanager
def _alarm(call: Callable[[], Any]) -> Iterator[bool]:
    """Raise `Endless` repeatedly in the functions that `call` calls, some time after it should have ended.

    It yields whether it can: not on Windows, and not in another thread than the main one.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield False
        return

    def ring(_: int, frame: FrameType | None) -> None:
        while frame is not None and (frame := frame.f_back) is not None:
            if frame.f_code is call.__code__:
                raise Endless

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, SECONDS + 1, AGAIN_S)
    try:
        yield True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def fault(error: BaseException, answer: Any) -> str:
    """Describe the exception of an attempt, and its line in the learner's code."""
    try:
        what = f"raised {type(error).__name__}: {error!s:.{LONGEST_ERROR}}"
    except Exception:  # a student's own exception may have any __str__
        what = f"raised {type(error).__name__}"
    if isinstance(error, TypeError) and re.search("'(function|method)'", what):
        what += " (a function is called with brackets)"
    if isinstance(error, SystemExit):
        what = "wanted to end the program, and should return"
    if isinstance(error, Endless):
        what = "did not come to an end"
    own = {function.__code__.co_filename for function in functions_of(answer)}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in own]
    if not frames:
        return what
    line = f": {frames[-1].line}" if frames[-1].line else ""
    return f"{what}\n  in line {frames[-1].lineno} of your cell{line}"


def functions_of(answer: Any) -> list[FunctionType]:
    """Return a function, or the functions of a class and of its bases."""
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


def plain(value: Any, depth: int = 0) -> Any:
    """Return a value as Python's own lists and numbers, to compare it and to show it.

    What is longer or deeper than the value of any case is a text about it.
    """
    if isinstance(value, (dict, list, tuple, deque, np.ndarray)):
        if np.size(value) > LONGEST if isinstance(value, np.ndarray) else len(value) > LONGEST:
            return f"a {type(value).__name__} of {len(value):,}"
        if depth > DEEPEST:
            return "..."
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plain(part, depth + 1) for key, part in value.items()}
    if isinstance(value, (list, tuple, deque)):
        return [plain(part, depth + 1) for part in value]
    # A class of the learner's may be equal to everything, and have no text.
    known = value is None or type(value) in (bool, int, float, complex, str, bytes)
    return value if known else f"an object of type {type(value).__name__}"


_SHORT = reprlib.Repr()
_SHORT.maxlist = _SHORT.maxdict = 30
_SHORT.maxstring = _SHORT.maxother = 200


def shown(value: Any) -> str:
    """Return a value as text: whole if it is no longer than those of the cases."""
    return _SHORT.repr(plain(value))


class Case(Protocol):
    """A hidden case."""

    def missed(self, answer: Any) -> str:
        """Run the learner's code; return a full description of the error, or ""."""


class Program(Exercise):
    """A class or a function to write, which is run on hidden cases until it misses one.

    `cases` yields them, the smallest first. So the first failed case is the smallest; it is shown in full.
    """

    after: type[Exercise] | None = None  # the exercise that this one builds on
    done: str  # what was right in the hidden cases

    def named(self, answer: Any) -> dict[str, Any]:
        """Return the functions to write by name, None for a missing one. TypeError for another type."""
        raise NotImplementedError

    def cases(self, written: Iterable[str]) -> Iterable[Case]:
        """Yield the cases that need only those of the functions which are written."""
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
            first = self.after().judge(answer)
            if not first.right:
                return Verdict(False, f"exercise {self.after.name} comes first. There, {first.text}")
        empty = [name for name, function in named.items() if blank(function)]
        clock = getattr(time, "thread_time", time.monotonic)  # a browser's Python has no other
        count, begin_s, computed_s = 0, time.monotonic(), clock()
        talked = False
        for case in self.cases([name for name in named if name not in empty]):
            printed = StringIO()
            with redirect_stdout(printed):
                missed = case.missed(answer)
            if missed:
                return Verdict(False, missed + _shown(printed))
            talked = talked or bool(printed.getvalue())
            took_s = time.monotonic() - begin_s
            if took_s > ALL_CASES_S and clock() - computed_s < ASLEEP * took_s:
                slow = f"right in {count} cases, but they took {took_s:.0f} s. Does your code sleep?"
                return Verdict(False, f"{slow} Your code only has to decide: it must not wait.")
            count += 1
        if empty:
            done = f" The code that you wrote is right in {count:,} cases." if count else ""
            return Verdict(False, f"{empty[0]} is still empty.{done}")
        hidden = " The output of your code is not shown." if talked else ""
        return Verdict(True, f"in {count:,} hidden cases {self.done}.{hidden}")


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


def _shown(printed: StringIO) -> str:
    lines = printed.getvalue().splitlines()
    if not lines:
        return ""
    shown = [f"  {line}" for line in lines[:PRINTED_LINES]]
    if len(lines) > PRINTED_LINES:
        shown.append(f"  ... and {len(lines) - PRINTED_LINES:,} lines more")
    return "\n".join(["\nMeanwhile your code printed:", *shown])
