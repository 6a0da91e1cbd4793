"""The figures of the lessons: a name at each line and bar, the answer highlighted."""

import itertools

import pandas
import pytest
from matplotlib import rc_context
from matplotlib.figure import Figure

from batchsim.view.pictures.figures import STYLE, draw_parts, draw_table, name_lines


@pytest.fixture
def ax():
    with rc_context(STYLE):
        return Figure(figsize=(8, 3), layout="constrained").add_subplot()


def texts(ax):
    return {text.get_text(): text for text in ax.texts if text.get_text()}


def test_each_line_has_its_name_at_its_end_in_its_colour(ax):
    lines = [ax.plot([0, 1], [0, end], label=name)[0] for name, end in (("high", 9), ("low", 1))]
    ax.plot([0, 0.3], [5, 5], label="short")
    ax.axvline(0.5, label="then")
    ax.axhline(4, label="limit")
    name_lines(ax, answer="high")
    named = texts(ax)
    assert set(named) == {"short", "then", "high", "low", "limit"}
    assert [named[line.get_label()].get_color() for line in lines] == [line.get_color() for line in lines]
    assert named["high"].get_weight() == "bold"
    assert lines[0].get_linewidth() > lines[1].get_linewidth()
    assert ax.get_legend() is None


def test_names_of_lines_that_end_together_do_not_overlap(ax):
    for number in range(5):
        ax.plot([0, 1], [0, 1 + number / 1000], label=f"line {number}")
    name_lines(ax)
    ax.figure.draw_without_rendering()
    boxes = sorted((text.get_window_extent() for text in ax.texts), key=lambda box: box.y0)
    assert all(below.y1 <= above.y0 + 1 for below, above in itertools.pairwise(boxes))


def test_parts_are_named_in_their_widest_place_and_sum_to_the_latency(ax):
    rows = {
        "alone": {"forming": 0, "queueing": 0, "computing": 2},
        "in batches": {"forming": 5, "queueing": 0.01, "computing": 3},
    }
    draw_parts(ax, rows, answer="in batches")
    assert set(texts(ax)) == {"forming", "computing", "2.00 ms", "8.01 ms"}, (
        "a narrow part has no room for its name"
    )
    assert [label.get_fontweight() for label in ax.get_yticklabels()] == ["normal", "bold"]


def test_a_table_is_drawn_by_column_with_the_answer_highlighted():
    table = pandas.DataFrame({"p99 (ms)": [34.1, 1919], "per s": [7, 8]}, index=["today", "small"])
    chart = draw_table(table, ["p99 (ms)", "per s"], answer="small")
    assert [ax.get_title("left") for ax in chart.axes] == ["p99\n(ms)", "per s"]
    assert {ax.get_xscale() for ax in chart.axes} == {"linear"}
    torn = [[bar.get_clip_path() is not None for bar in ax.patches] for ax in chart.axes]
    assert torn == [[False, True], [False, False]]
    assert [[text.get_text() for text in ax.texts] for ax in chart.axes] == [["34.1", "1,919.0"], ["7", "8"]]
    first, second = chart.axes[1].patches
    assert first.get_facecolor() != second.get_facecolor()
