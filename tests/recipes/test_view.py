"""CONTRIBUTING's recipe for a view of the explorer, followed literally in a copy of the package."""

import re

import pytest
from project_copies import CONTRIBUTING, NUMBERS, changed, copied, python

pytestmark = pytest.mark.plain  # a copy compiles each loop again

RECIPE = re.compile(
    r"\| a view of the explorer and of `bs.plot` \| (\w+) files: its own in `(\S+)`, a class with .*?; "
    r"its name in `(\w+)` \(`(\S+)` there\)"
)

VIEW = '''
"""How the gaps between arrivals are distributed."""

import numpy as np

from batchsim._format import number
from batchsim.view.pictures.data import ViewData
from batchsim.view.scales import nice
from batchsim.view.pictures.view import View


class GapsView(View):
    """The gaps between arrivals, by rank."""

    KEY, NAME, SHORT = "gaps", "Gaps between arrivals", "Gaps (s)"

    def make(self) -> None:
        self.ax.set(xlabel="requests", ylabel="gap (s)")

    def update(self, data: ViewData) -> None:
        gaps_s = np.sort(np.diff(data.result.arrival_s))
        self.plot("gaps", np.arange(gaps_s.size), gaps_s, **self.style("now"))
        self.limits(self.ax, x=(0, gaps_s.size), y=(0, nice(float(gaps_s[-1]))))

    def describe(self, data: ViewData) -> list[str]:
        return [f"The longest gap between arrivals is {number(np.diff(data.result.arrival_s).max())} s."]
'''

CHECK = """
from matplotlib.figure import Figure

import batchsim as bs
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.live import LivePicture

scenario = bs.Scenario(bs.Poisson(500), bs.SizeOrWait(8, 5), bs.Affine(5, 0.25))
result = bs.simulate(scenario, 300)
picture = bs.plot(result)
assert [*picture.views][-1] == "gaps", picture.views
assert "The longest gap" in picture.words
assert picture.png()

figure = Figure()
ax = figure.subplots()
assert bs.plot(result, "gaps", ax=ax) is ax
assert len(ax.lines[0].get_xdata()) == 299

live = LivePicture()
assert len(live.views) == 7
live.show(ViewData(result))
live.pixels()
assert sum(wide * high for _, _, wide, high in live.places().values()) > 0.999

panel = bs.explore(requests=300)
assert ("Gaps between arrivals", "gaps") in panel.large.options
panel.screen.appear()
before = panel.screen.frame
panel.large.value = "gaps"
assert panel.screen.frame != before
assert panel.status.value == ""
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The package, with the recipe followed."""
    project = copied(tmp_path_factory.mktemp("recipe"), "batchsim")
    folder = project / "batchsim"
    (found,) = RECIPE.findall(CONTRIBUTING)
    _, package, table, name = found
    (folder / package / "gaps.py").write_text(VIEW)
    file = folder / package / name
    views = re.compile(rf'^({table}\b.*?"requests": \(.*?),?\s*\),', re.DOTALL | re.MULTILINE)
    text, count = views.subn(r"\1, GapsView),", file.read_text())
    assert count == 1
    anchor = "from batchsim.view.pictures.heat_map"
    imported = f"from batchsim.view.pictures.gaps import GapsView\n{anchor}"
    file.write_text(text.replace(anchor, imported, 1))
    return project, NUMBERS[found[0]]


def test_a_view_is_as_many_files_as_contributing_says(copy):
    project, files = copy
    assert len(changed(project)) == files
    assert VIEW.count("\n") <= 80


def test_a_view_that_is_named_is_plotted_live_and_in_the_explorers_list(copy):
    done = python(copy[0], "-c", CHECK)
    assert done.returncode == 0, done.stderr
