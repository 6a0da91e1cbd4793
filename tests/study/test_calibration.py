"""How far a load is from those that a calibration was fitted to."""

from dataclasses import replace

import pytest

import batchsim as bs
from batchsim.measured.load_stages import Stage
from batchsim.measured.load_tests import LoadTest

SERVER = bs.Scenario(bs.Poisson(1), bs.SizeOrWait(16, 0), bs.Affine(4, 0.5))


@pytest.mark.parametrize("kind", ["asked_per_s", "concurrency"])
@pytest.mark.parametrize(("load", "doublings"), [(10, 0), (40, 0), (80, 1), (320, 3)])
def test_only_a_load_above_the_fitted_ones_is_away_from_them(kind, load, doublings):
    stages = [Stage(2000, {"mean": 5.0}, served_per_s=9.0, **{kind: each}) for each in (20.0, 40.0, 80.0)]
    found = replace(bs.predict(LoadTest("mine", "1", tuple(stages)), SERVER), fitted=(True, True, False))
    assert found.doublings(replace(stages[0], **{kind: float(load)})) == pytest.approx(doublings)
