"""Where runs are computed: here, or by an executor; and a progress bar of a search."""

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from typing import Any, Self

from batchsim import _check

SHOWN_S = 2.0  # a search that takes less shows no bar
AHEAD = 64  # calls that an executor has at a time


def check_executor(executor: Any) -> None:
    """Raise TypeError unless it is None or has the `submit` of `concurrent.futures.Executor`."""
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise TypeError(f"executor must have submit(), as a concurrent.futures.Executor, got {executor!r}")


class Crew:
    """Calls functions on an executor, or here without one; counts them on a progress bar.

    A worker that dies breaks the executor. Finished calls are kept, and the others run here: the answers are
    the same.
    """

    def __init__(self, executor: Executor | None = None, progress: bool = False, about: str = "") -> None:
        check_executor(executor)
        self.executor, self.about = executor, about
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a notebook without widgets shows the bar as text
            from tqdm.auto import tqdm
        self.bar = tqdm(desc=about, unit="run", disable=not progress, delay=SHOWN_S, leave=False)
        self.rounds = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()

    def round(self, requests: int, settings: int) -> None:
        """Begin a round of so many runs."""
        self.rounds += 1
        text = f"{self.about}: round {self.rounds}, {settings:,} left, runs of {requests:,}"
        self.bar.set_description(text, refresh=False)
        self.bar.n, self.bar.total = 0, settings

    def map(self, function: Callable[..., Any], calls: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """Yield what a function returns for each tuple of arguments, in order."""
        calls = iter(calls)
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
        except (BrokenExecutor, RuntimeError) as error:  # RuntimeError: it was shut down
            self._fail(error)
            return None

    def _result(self, future: "Future[Any]", function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        try:
            return future.result()
        except (BrokenExecutor, CancelledError) as error:
            self._fail(error)
            return function(*args)

    def _fail(self, error: BaseException) -> None:
        if self.executor is not None:
            self.executor = None
            got = type(error).__name__
            _check.warn(f"the executor must run to the end, got {got}: the remaining runs are made here")
