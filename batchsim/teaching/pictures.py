"""Words for the pictures of a lesson: a notebook keeps them beside each, for readers who do not see it."""

from typing import Any

from IPython import get_ipython


def with_words(figure: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what IPython keeps beside a figure's picture: what it shows, in words."""
    from batchsim.view.canvas.words import PNG, described  # and with it matplotlib, which drew the figure

    return {}, {PNG: {"alt": described(figure)}}


def describe_pictures() -> None:
    """Give each figure that this notebook shows from now on its words; outside of a notebook, do nothing.

    The figure itself is drawn by whoever draws it: matplotlib's own formatter, or ours.
    """
    shell = get_ipython()
    if shell is not None:
        formatter = shell.display_formatter.mimebundle_formatter
        formatter.for_type_by_name("matplotlib.figure", "Figure", with_words)
