"""CONTRIBUTING's recipe for a film, followed literally in a copy of the package."""

import re

import pytest
from project_copies import CONTRIBUTING, NUMBERS, changed, copied, python

pytestmark = pytest.mark.rare("a copy compiles each loop again")

RECIPE = re.compile(
    r"\| a film \| (\w+) file: its own in `(\S+)`, a subclass of `Film` with (.*?)\. A `Clip` of these"
)

FILM = '''
"""The film of a run's slowest request."""

import numpy as np

from batchsim._format import counted
from batchsim.view.film.film import Film


class SlowestFilm(Film):
    """The slowest request: who is before it in the queue, and why it waits."""

    @property
    def instants(self) -> np.ndarray:
        slowest = int(np.nanargmax(self.done_s - self.arrival_s))
        return np.array([self.arrival_s[slowest], self.left_s[slowest], self.done_s[slowest]])

    def words(self, time_s: float, within_s: float = 0.0) -> str:
        arrived_s, left_s, _ = self.instants
        if not arrived_s <= time_s < left_s:
            return "It does not wait."
        before = np.count_nonzero(self.arrival_s[self.waiting(time_s)] < arrived_s)
        return f"{counted(before, 'request')} before it, {self.state(time_s, within_s)[0]}."

    def line(self, time_s: float, within_s: float = 0.0) -> int:
        return self.state(time_s, within_s)[1]
'''

CHECK = """
import batchsim as bs
from batchsim.view.explorer.player import Player
from batchsim.view.film.film import RequestFilm
from batchsim.view.film.slowest import SlowestFilm
from batchsim.view.film.clip import Clip, request_lane

scenario = bs.Scenario(bs.Trace([0.0, 0.001, 0.002]), bs.SizeOrWait(1, 0), bs.Affine(10, 0))
result = bs.simulate(scenario, engine="simpy")
film, requests = SlowestFilm.of(result), RequestFilm.of(result)
lanes = [request_lane(requests, requests.stretch())]
player = Player()
player.load(Clip(requests.stretch(), film.instants, lanes, film.words, film.line))
player.time_ms = 2.5
assert player.words == "1 request before it, waiting for a server.", player.words
assert film.lines[player.line].text.endswith("wait for a server")
player.next()
assert player.words == "It does not wait."
assert player.time_ms == 20
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The package, with the recipe followed."""
    project = copied(tmp_path_factory.mktemp("recipe"), "batchsim")
    ((files, folder, methods),) = RECIPE.findall(CONTRIBUTING)
    (project / "batchsim" / folder / "slowest.py").write_text(FILM)
    return project, NUMBERS[files], re.findall(r"`(\w+)", methods)


def test_a_film_is_one_class_with_the_three_methods_that_contributing_says(copy):
    project, files, methods = copy
    assert len(changed(project)) == files
    assert re.findall(r"    def (\w+)", FILM) == methods


def test_a_player_plays_it(copy):
    done = python(copy[0], "-c", CHECK)
    assert done.returncode == 0, done.stderr
