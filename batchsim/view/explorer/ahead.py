"""What an explorer waits for, and compiling ahead: another process compiles what a state needs.

Until what is waited for comes, all that belongs to another setting is dimmed. Numba holds Python's lock while
it compiles, for up to a minute with token generation, so the kernel could not answer meanwhile. It loads the
compiled loops from the cache on disk.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

from batchsim import _compat
from batchsim._files import held
from batchsim.engines.compiled import instants, token_instants
from batchsim.engines.compiled.jit import is_kept
from batchsim.view.explorer.runs import Stored
from batchsim.view.explorer.state import DEFAULTS, State

LATE_S = 0.3  # what takes no longer dims nothing


class Wait:
    """What is waited for, in words: `text`, "" while everything shown belongs to the present setting.

    `busy`: whether something else will come. `tell` is called at each change, on any thread.
    """

    def __init__(self, tell: Callable[[], None]) -> None:
        self.text, self.busy = "", False
        self._tell, self._lock = tell, threading.Lock()
        self._timer: threading.Timer | None = None

    def begin(self, text: str) -> None:
        """Show the text after `LATE_S`, unless the wait has ended by then."""
        self._stop()
        if _compat.IN_BROWSER:  # nothing could be shown meanwhile
            return
        # Not itself: the thread of a stopped timer may end after whoever waited was closed.
        self._timer = threading.Timer(LATE_S, _late, [weakref.ref(self), text])
        self._timer.daemon = True
        self._timer.start()

    def show(self, text: str, busy: bool) -> None:
        """Show the text at once."""
        self._stop()
        self._set(text, busy)

    def end(self, text: str = "") -> None:
        """Show that nothing else will come; with a text, what is shown stays dimmed."""
        self.show(text, False)

    def _stop(self) -> None:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None

    def _set(self, text: str, busy: bool) -> None:
        if (text, busy) != (self.text, self.busy):
            self.text, self.busy = text, busy
            self._tell()


def _late(waiting: "weakref.ref[Wait]", text: str) -> None:
    if (wait := waiting()) is not None:
        with wait._lock:
            if wait._timer is threading.current_thread():  # else it was stopped as it fired
                wait._set(text, True)


# Compiling ahead.


POLL_S = 0.2
REQUESTS = 2000  # enough for every loop to run, and few enough to take no time
# What the next clicks need: the general loop, here for a limit of the queue, and token generation.
NEXT = {
    instants.pass_instants: DEFAULTS["requests"].replace(queue_limit=1000),
    token_instants.pass_steps: DEFAULTS["tokens"],
}


def missing() -> list[State]:
    """Return states of the next clicks whose loops are not compiled yet."""
    return [state for loop, state in NEXT.items() if not is_kept(loop)]


def begin(state: State, patient: bool) -> subprocess.Popen[bytes] | None:
    """Start a process of low priority that compiles what a state needs; None where there can be none.

    If another kernel's process compiles for a state of this kind, a `patient` one waits for its end, and
    loads most of it; another one ends.
    """
    patience = "wait" if patient else "leave"
    # -P: a student's file in the notebook's folder must not shadow a module of the same name.
    command = [sys.executable, "-P", "-m", __name__, state.mode, state.to_link(), patience]
    silent = subprocess.DEVNULL
    try:
        return subprocess.Popen(command, stdin=silent, stdout=silent, stderr=silent)
    except OSError:  # as in a browser
        return None


@contextlib.contextmanager
def turn(name: str, patient: bool) -> Iterator[None]:
    """Be this user's only process that compiles; BlockingIOError if there is one, for an impatient caller."""
    user = os.getuid() if hasattr(os, "getuid") else ""  # elsewhere each user has a folder of their own
    with Path(tempfile.gettempdir(), f"batchsim-compiles-{user}-{name}").open("ab") as file:
        while held(file):
            if not patient:
                raise BlockingIOError
            time.sleep(POLL_S)
        yield  # closing the file unlocks it


def main(mode: str, link: str, patience: str) -> None:
    """Run the state of a link."""
    if hasattr(os, "nice"):
        os.nice(10)
    # ValueError: the state makes no sense, and compiles nothing.
    with contextlib.suppress(BlockingIOError, ValueError), turn(mode, patience == "wait"):
        state = State.from_link(link)
        scenario = state.scenario()
        state.kind.run(state, scenario, state.kind.requests(scenario, REQUESTS), Stored(), moving=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
