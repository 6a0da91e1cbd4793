"""What a notebook's cell shows until its explorer is there: a line, and the picture that the file has."""

import html
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from batchsim._files import SCENARIO_BYTES, bytes_of, json_of

PNG = "image/png"
LONGEST_S = 10.0  # until a page shows an explorer that is there


def announce(text: str) -> Callable[[Any], None]:
    """Show a text above the cell's last picture, in a notebook; return what takes both away.

    Given an explorer's screen, it waits until a page has that.
    """
    ipython: Any = sys.modules.get("IPython")
    shell: Any = ipython and ipython.get_ipython()
    if not hasattr(shell, "kernel") or "JPY_SESSION_NAME" not in os.environ:  # as in a terminal, or the app
        return lambda screen: None
    from IPython.display import display

    words = f'<div role="status">{html.escape(text)}</div>'
    shown = {"text/plain": text, "text/html": words + last_picture(shell.get_parent()["content"]["code"])}
    show: Any = display
    handle = show(shown, raw=True, display_id=True)

    def end(screen: Any) -> None:
        if screen is None:
            handle.update({"text/plain": "", "text/html": ""}, raw=True)
            return
        timer = threading.Timer(LONGEST_S, end, [None])
        timer.daemon = True
        timer.start()

        def seen(_: Any) -> None:
            timer.cancel()
            screen.unobserve(seen, "width_px")
            end(None)
            screen.send({"appear": True})  # what is below the line moves up

        screen.observe(seen, "width_px")

    return end


def last_picture(code: str) -> str:
    """Return the dimmed picture that the kernel's notebook stores for a cell, as HTML; "" without one."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        path = os.environ["JPY_SESSION_NAME"]
        for cell in json_of(bytes_of(path, SCENARIO_BYTES), path)["cells"]:
            if "".join(cell["source"]) == code:
                stored = [each["data"][PNG] for each in cell["outputs"] if PNG in each.get("data", {})]
                source = html.escape("".join(stored[-1]).replace("\n", ""), quote=True)
                return f'<img alt="" style="opacity: 0.35" src="data:{PNG};base64,{source}">'
    return ""
