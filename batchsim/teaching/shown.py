"""What a function prints and returns, as widgets.

Not an Output widget, which flickers, and which loses what is written to it before it is on the page.
"""

import html
import sys
from base64 import b64encode
from collections.abc import Callable
from contextlib import redirect_stdout
from io import BytesIO, StringIO
from typing import Any

import ipywidgets as widgets

SHARP = 2  # pixels of a picture to one of the page
PRE = (
    '<pre style="word-break: normal; overflow-wrap: anywhere">'  # JupyterLab would break a line within words
)


def shown(function: Callable[[], Any]) -> list[widgets.HTML]:
    r"""Call a function, and return its printed text, then its return value: one object, or a tuple of them.

    A figure becomes a picture, a table stays a table, and other objects become text. An exception is shown
    too: the notebook would hide it, because a button raised it.

    >>> [widget.value for widget in shown(lambda: print("p99 < 30 ms"))]
    ['<pre style="word-break: normal; overflow-wrap: anywhere">p99 &lt; 30 ms\n</pre>']
    """
    printed, problem = StringIO(), ""
    values: tuple[Any, ...] = ()
    try:
        with redirect_stdout(printed):
            returned = function()
        values = returned if isinstance(returned, tuple) else () if returned is None else (returned,)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}. Run the cells above, then this one again."
    parts = [f"{PRE}{html.escape(text, quote=False)}</pre>" for text in (printed.getvalue(), problem) if text]
    parts += [_html(value, printed.getvalue()) for value in values]
    return [widgets.HTML(part) for part in parts]


def _html(value: Any, printed: str) -> str:
    if hasattr(value, "savefig"):
        from batchsim.view.canvas.words import described  # and with it matplotlib, which drew the figure

        png, width = BytesIO(), round(value.get_figwidth() * value.dpi)
        value.savefig(png, format="png", dpi=SHARP * value.dpi)
        if "matplotlib.pyplot" in sys.modules:  # or the notebook would show the figure once more
            sys.modules["matplotlib.pyplot"].close(value)
        source = f"data:image/png;base64,{b64encode(png.getvalue()).decode()}"
        alt = html.escape(described(value) or printed.strip())
        return f'<img src="{source}" alt="{alt}" style="width: {width}px; max-width: 100%">'
    if hasattr(value, "_repr_html_"):
        return f'<div class="jp-RenderedHTMLCommon">{value._repr_html_()}</div>'
    return f"{PRE}{html.escape(repr(value), quote=False)}</pre>"
