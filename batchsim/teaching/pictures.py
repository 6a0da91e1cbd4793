"""Text for the pictures of a lesson: a notebook stores it with each picture, for screen readers."""

from typing import Any

from IPython import get_ipython


def with_words(figure: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the data that IPython stores with a figure's picture: a description of it."""
    from batchsim.view.canvas.words import PNG, described  # and with it matplotlib, which drew the figure

    return {}, {PNG: {"alt": described(figure)}}


def describe_pictures() -> None:
    """Add a description to each figure that this notebook shows from now on; do nothing outside a notebook.

    The figure is still drawn by matplotlib's own formatter, or by ours.
    """
    shell = get_ipython()
    if shell is not None:
        formatter = shell.display_formatter.mimebundle_formatter
        formatter.for_type_by_name("matplotlib.figure", "Figure", with_words)
