"""What an explorer waits for: until it comes, all that belongs to another setting is dimmed."""

import threading
import weakref
from collections.abc import Callable

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
