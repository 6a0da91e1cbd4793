"""What a notebook's cell shows beside a widget: a line before it is there, and a picture once it is gone."""

import html
import os
import re
import sys
import threading
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from batchsim._files import SCENARIO_BYTES, bytes_of, json_of

PNG = "image/png"
LONGEST_S = 10.0  # until a cell shows an explorer that is there
# JupyterLab shows an error in place of a widget whose kernel is gone, whatever else the output holds.
STYLE = """<style>
.jp-OutputArea-child:has(.batchsim-stored):has(+ * > .jp-OutputArea-output > .lm-Widget),
.jp-OutputArea-child:has(.batchsim-stored) + :has(> .jp-OutputArea-output.jupyter-widgets) { display: none; }
</style>"""
STORED = r'class="batchsim-stored"[^>]*base64,([^"]*)"'
Bundle = dict[str, Any]  # by its types


def notebook() -> Any:
    """Return IPython's shell in a notebook; None elsewhere, as in a terminal, nbconvert or the app."""
    ipython: Any = sys.modules.get("IPython")
    shell: Any = ipython and ipython.get_ipython()
    return shell if hasattr(shell, "kernel") and "JPY_SESSION_NAME" in os.environ else None


def announce(text: str) -> Callable[..., None]:
    """Show a text above the cell's last picture, in a notebook; return what takes both away, now or later."""
    shell = notebook()
    if shell is None:
        return lambda after_s=0.0: None
    from IPython.display import display

    words = f'<div role="status">{html.escape(text)}</div>'
    shown = {"text/plain": text, "text/html": words + last_picture(shell.get_parent()["content"]["code"])}
    show: Any = display
    handle = show(shown, raw=True, display_id=True)

    def end(after_s: float = 0.0) -> None:
        if after_s:
            timer = threading.Timer(after_s, end)
            timer.daemon = True
            timer.start()
        else:
            handle.update({"text/plain": "", "text/html": ""}, raw=True)

    return end


def with_picture(shown: Any, png: bytes, words: str) -> tuple[Bundle, Bundle]:
    """Return what a cell shows of a widget, with a picture for readers without its kernel.

    A notebook that is open gets the picture as an output of its own: it is hidden while the widget is there.
    """
    bundle, stored = shown[0] if isinstance(shown, tuple) else shown or {}, b64encode(png).decode()
    if notebook() is None:
        return bundle | {PNG: stored}, {PNG: {"alt": words}}
    from IPython.display import display

    show: Any = display
    show({"text/plain": words, "text/html": STYLE + element(stored, words, "max-width: 100%")}, raw=True)
    return bundle, {}


def element(stored: str, words: str, style: str) -> str:
    """Return a stored picture as HTML."""
    alt = html.escape(words)
    return f'<img class="batchsim-stored" alt="{alt}" style="{style}" src="data:{PNG};base64,{stored}">'


def last_picture(code: str) -> str:
    """Return the dimmed picture that the kernel's notebook stores for a cell, as HTML; "" without one."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        path = os.environ["JPY_SESSION_NAME"]
        for cell in json_of(bytes_of(path, SCENARIO_BYTES), path)["cells"]:
            if "".join(cell["source"]) == code:
                data = [each.get("data", {}) for each in cell["outputs"]]
                shown = "".join("".join(each.get("text/html", "")) for each in data)
                stored = [*re.findall(STORED, shown), *("".join(each[PNG]) for each in data if PNG in each)]
                return element(stored[-1].replace("\n", ""), "", "opacity: 0.35")
    return ""
