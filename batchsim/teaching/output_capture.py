"""The output of a lesson's cells: of a function as widgets, words for pictures, and widgets that act."""

import html
import re
import sys
from base64 import b64encode
from collections.abc import Callable
from contextlib import redirect_stdout
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets as widgets
import traitlets
from IPython import get_ipython

from batchsim.view.cell import notebook
from batchsim.view.scripts import JS, widget
from batchsim.view.theme import looks

SHARP = 2  # pixels of a picture to one of the page
# A still is drawn once, on white, and the reader may change the theme. The class is JupyterLab's own, for an
# image that a cell returns and that says so. The style comes with a widget or the feedback on an exercise.
# ipywidgets gives each choice one line, and on a phone a choice takes several.
STYLE = """[data-jp-theme-light="false"] :is(.batchsim-still, .jp-needs-light-background) {
  filter: invert(0.93) hue-rotate(180deg);
}
.batchsim-prediction .widget-radio-box label { display: flex; height: auto; line-height: 1.6; }
.batchsim-prediction .widget-radio-box input { order: -1; flex: none; }
.batchsim-prediction .widget-html-content { overflow-x: auto; }
@media (max-width: 600px) {
  img:is(.batchsim-still, .jp-needs-light-background) { max-width: max(100%, 480px) !important; }
  .jp-OutputArea-output pre { word-break: normal !important; overflow-wrap: anywhere; }
}"""
# JupyterLab's own style breaks a line within words.
NO_BREAK = "\N{NO-BREAK SPACE}"
UNIT = re.compile(r"(?<=\d) (?=[a-z%])|(?<=per) (?=s\b)")  # the space before one, where no line ends
PRE = '<pre style="word-break: normal; overflow-wrap: anywhere">'


def bring_style() -> None:
    """Give a notebook's page the style of lessons, which a widget brings otherwise; do nothing elsewhere."""
    if (shell := notebook()) is not None:
        shell.display_pub.publish({"text/html": f"<style>{STYLE}</style>"})


class WholeText:
    """A widget that leaves its whole text to readers of a page without a kernel: ipywidgets cuts it."""

    def _repr_mimebundle_(self, **options: Any) -> Any:
        found = super()._repr_mimebundle_(**options)  # type: ignore[misc]
        whole = {"text/plain": repr(self)}
        return (found[0] | whole, found[1]) if isinstance(found, tuple) else found and found | whole


def shown(function: Callable[[], Any]) -> list[widgets.HTML]:
    r"""Call a function, and return what it prints and returns: one object, or a tuple of them.

    Pictures come first, and the numbers below them are folded. A table stays a table, other objects become
    text. An exception is shown too: the notebook would hide it, because a button raised it.

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
    pictures = [value for value in values if hasattr(value, "savefig")]
    parts += [_html(value, "") for value in values if not hasattr(value, "savefig")]
    if pictures and not problem:
        folded = f"<details><summary>Numbers</summary>{''.join(parts)}</details>" if parts else ""
        parts = [*(_html(value, printed.getvalue()) for value in pictures), *filter(None, [folded])]
    return [widgets.HTML(part) for part in parts]


def _html(value: Any, printed: str) -> str:
    if hasattr(value, "savefig"):
        from batchsim.view.pictures.picture import described  # and with it matplotlib, which drew the figure

        png, width = BytesIO(), round(value.get_figwidth() * value.dpi)
        value.savefig(png, format="png", dpi=SHARP * value.dpi)
        if "matplotlib.pyplot" in sys.modules:  # or the notebook would show the figure once more
            sys.modules["matplotlib.pyplot"].close(value)
        source = f"data:image/png;base64,{b64encode(png.getvalue()).decode()}"
        alt = html.escape(described(value) or printed.strip())
        shape = f"width: {width}px; max-width: 100%"
        return f'<img class="batchsim-still" src="{source}" alt="{alt}" style="{shape}">'
    if hasattr(value, "_repr_html_"):
        whole = re.sub(r">[^<]+<", lambda text: UNIT.sub(NO_BREAK, text[0]), value._repr_html_())
        return f'<div class="jp-RenderedHTMLCommon">{whole}</div>'
    return f"{PRE}{html.escape(repr(value), quote=False)}</pre>"


def with_words(figure: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what IPython tells a page of a figure's picture: a description of it, and if it is on white."""
    from batchsim.view.pictures.picture import told  # and with it matplotlib, which drew the figure

    return {}, told(figure)


def describe_pictures() -> None:
    """Add a description to each figure that this notebook shows from now on; do nothing outside a notebook.

    The figure is still drawn by matplotlib's own formatter, or by ours.
    """
    shell = get_ipython()
    if shell is not None:
        formatter = shell.display_formatter.mimebundle_formatter
        formatter.for_type_by_name("matplotlib.figure", "Figure", with_words)


class Act(anywidget.AnyWidget):
    """A widget in which a student acts: the page sets `done`, and shows the `answer` to it."""

    _esm = widget(Path(__file__).with_name("act.js"))
    _css = (JS / "play.css").read_text("utf-8") + STYLE
    part = traitlets.Unicode().tag(sync=True)
    given = traitlets.Dict().tag(sync=True)  # what the script needs
    looks = traitlets.Dict(looks()).tag(sync=True)
    done = traitlets.Dict().tag(sync=True)
    answered = traitlets.Dict().tag(sync=True)

    def __init__(self, part: str, given: dict[str, Any]) -> None:
        super().__init__(part=part, given=given)
        self.observe(self._answer, "done")

    def answer(self, done: dict[str, Any]) -> dict[str, Any]:
        """Return what the page shows; TypeError or ValueError for what it cannot have sent."""
        raise NotImplementedError

    def _answer(self, change: Any) -> None:
        # A turn makes each answer another one: the page hears of changes.
        self.answered = {**self.answer(change["new"]), "turn": change["new"].get("turn", 0)}
