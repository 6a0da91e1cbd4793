"""A thousand moves leave nothing behind, neither in the kernel nor in the page."""

import pytest

pytestmark = pytest.mark.alone

PANEL = "import batchsim as bs\npanel = bs.explore(requests=2_000)\npanel"
MOVING = """
import gc, itertools, psutil
from ipywidgets.widgets.widget import _instances
from matplotlib.figure import Figure

turns = itertools.count()

def move(count):
    for turn in itertools.islice(turns, count):
        name, value = [
            ("rate_per_s", 300 + turn),
            ("max_wait_ms", 1 + turn / 50),
            ("max_batch_size", 1 + turn % 16),
        ][turn % 3]
        panel.controls[name].value = value

def left():
    gc.collect()
    return {
        "figures": sum(issubclass(type(it), Figure) for it in gc.get_objects()),
        "widgets": len(_instances),
        "mb": psutil.Process().memory_info().rss / 1e6,
        "frames": panel.screen.number,
        "width": panel.screen.width_px,
    }
"""


def test_1000_moves_leave_memory_and_the_number_of_figures_where_they_were(lab, opened):
    with opened(lab, PANEL, alone=True) as panel:
        before = panel.kernel.run(MOVING + "move(200)", "left()")
        panel.quiet(300)
        page_before = panel.heap()
        after = panel.kernel.run("move(800)", "left()", timeout_s=600)
        panel.quiet(300)
        page_after = panel.heap()
        print(before, after, page_before, page_after)
        assert after["frames"] - before["frames"] >= 800
        assert after["figures"] == before["figures"]
        assert after["widgets"] == before["widgets"]
        assert after["mb"] - before["mb"] < 10
        assert page_after["bytes"] - page_before["bytes"] < 5e6
        assert page_after["nodes"] - page_before["nodes"] < 100
        assert page_after["listeners"] - page_before["listeners"] < 100
