"""Where runs are computed: here, or by an executor; and a progress bar of a search."""

import contextlib
import itertools
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, Self

from batchsim import _check, _compat

SHOWN_S = 2.0  # a search that takes less shows no bar
AHEAD = 64  # calls that an executor has at a time
SWITCH_S = 5e-4  # how long a thread that leaves compiled code waits while another holds Python's lock


Cancelled = ContextVar[threading.Event | None]  # in which a run finds the event that stops it


class Here(Executor):
    """Makes each call as it is submitted, where there are no threads.

    >>> Here().submit(pow, 2, 3).result()
    8
    """

    def submit(self, function: Callable[..., Any], /, *args: Any, **options: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(function(*args, **options))
        except BaseException as error:  # Ctrl-C, too: `result` raises it
            future.set_exception(error)
        return future


def threads(workers: int | None, name: str, begin: Callable[..., Any] | None = None, *args: Any) -> Executor:
    """Return threads of this name, each of which begins with a call."""
    return ThreadPoolExecutor(workers, name, begin, args) if not _compat.IN_BROWSER else Here()


@contextlib.contextmanager
def pool(workers: int | None, name: str, cancelled: Cancelled) -> Iterator[Executor]:
    """Yield threads whose runs find in a variable the event that stops them, as an error here does.

    If the calling thread has such an event, from which its own caller stops it, it is that one.
    """
    outer, before_s = cancelled.get(), sys.getswitchinterval()
    stop = outer or threading.Event()
    crew = threads(workers, name, cancelled.set, stop)
    sys.setswitchinterval(min(before_s, SWITCH_S))
    try:
        yield crew
    except BaseException:
        if outer is None:
            stop.set()  # the others stop at their next slice
        crew.shutdown(wait=False, cancel_futures=True)
        raise
    finally:
        sys.setswitchinterval(before_s)
    crew.shutdown()


def check_executor(executor: Any) -> None:
    """Raise TypeError unless it is None or has the `submit` of `concurrent.futures.Executor`."""
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise TypeError(f"executor must have submit(), as a concurrent.futures.Executor, got {executor!r}")


def result_of(future: "Future[Any]", function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, str]:
    """Return what a call returns, and the name of its executor's error: then it is called here."""
    try:
        return future.result(), ""
    except Exception as error:  # of a cluster that loses a node, nearly anything, or the call's own
        return function(*args), type(error).__name__


def progress_bar(shown: bool, **options: Any) -> Any:
    """Return a progress bar; without stderr, as in `pythonw`, nobody sees it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a notebook without widgets shows the bar as text
        from tqdm.auto import tqdm
    if _compat.IN_BROWSER:
        tqdm.monitor_interval = 0  # its monitor is a thread
    return tqdm(disable=not shown or sys.stderr is None, **options)


class Crew:
    """Calls functions on an executor, on threads, or here; counts them on a progress bar.

    `cancelled`: the variable in which a run finds the event that stops it. With it, and without an executor,
    threads make the calls. If an executor fails with any error, finished calls are kept, and the rest run
    here: the answers are the same.
    """

    def __init__(
        self, executor: Executor | None = None, progress: bool = False, about: str = "",
        cancelled: Cancelled | None = None,
    ) -> None:  # fmt: skip
        check_executor(executor)
        self.executor, self.about, self.cancelled = executor, about, cancelled
        self.threads = cancelled is not None and executor is None and (os.cpu_count() or 1) > 1
        self.bar = progress_bar(progress, desc=about, unit="run", delay=SHOWN_S, leave=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()

    def begin(self, what: str, calls: int) -> None:
        """Show on the bar what so many calls do."""
        self.bar.set_description(f"{self.about}: {what}", refresh=False)
        self.bar.n, self.bar.total = 0, calls

    def map(
        self, function: Callable[..., Any], calls: Iterable[tuple[Any, ...]], here: int = 1
    ) -> Iterator[Any]:
        """Yield what a function returns for each tuple of arguments, in order.

        Threads make none of the first calls, which compile what the others need.
        """
        calls = iter(calls)
        if not self.threads:
            yield from self._each(function, calls)
            return
        for args in itertools.islice(calls, here):
            yield function(*args)
            self.bar.update()
        assert self.cancelled is not None
        with pool(os.cpu_count(), "batchsim", self.cancelled) as self.executor:
            try:
                yield from self._each(function, calls)
            finally:
                self.executor = None

    def _each(self, function: Callable[..., Any], calls: Iterator[tuple[Any, ...]]) -> Iterator[Any]:
        waiting: list[tuple[Future[Any] | None, tuple[Any, ...]]] = []
        try:
            while True:
                ahead = max((AHEAD if self.executor else 1) - len(waiting), 0)
                for args in itertools.islice(calls, ahead):
                    waiting.append((self._submit(function, args), args))
                if not waiting:
                    return
                future, args = waiting.pop(0)
                yield function(*args) if future is None else self._result(future, function, args)
                self.bar.update()
        finally:
            for future, _ in waiting:
                if future is not None:
                    future.cancel()

    def _submit(self, function: Callable[..., Any], args: tuple[Any, ...]) -> "Future[Any] | None":
        try:
            return self.executor.submit(function, *args) if self.executor is not None else None
        except Exception as error:
            self._fail(type(error).__name__)
            return None

    def _result(self, future: "Future[Any]", function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        if self.threads:
            return future.result()
        if self.executor is None and not future.done():  # of an executor that failed: it may never be
            future.cancel()
            return function(*args)
        answer, lost = result_of(future, function, args)
        if lost:
            self._fail(lost)
        return answer

    def _fail(self, got: str) -> None:
        if self.executor is not None:
            self.executor = None
            _check.warn(f"the executor must run to the end, got {got}: the remaining runs are made here")
