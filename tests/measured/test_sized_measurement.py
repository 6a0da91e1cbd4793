import dataclasses
import re

import numpy as np
import pytest

import batchsim as bs
from batchsim.measured.measurement import Measurement
from batchsim.measured.samples import services
from batchsim.measured.sized_measurement import SizedMeasurement, load

TRUTH = bs.PaddedTime(2, 0.1, 0.004)
AROUND = np.random.default_rng(0).uniform(0.98, 1.02, 40)


def one(length, model="net", sizes=(1, 4), lasting=0.4):
    rows = [(1000 * TRUTH([length] * size) * AROUND).tolist() for size in sizes]
    lasts = (lasting,) * 6
    return Measurement(model, "a GPU", "gpu", "1", sizes, 40, rows, (), "2026-01-01", autocorrelation=lasts)


MEASURED = SizedMeasurement((16, 64), (one(16), one(64, lasting=0.2)))
TINY = bs.Scenario(bs.Poisson(100).with_sizes(bs.Uniform(1, 64)), bs.SizeOrWait(4, 0), MEASURED.service)


def refused(message, error=ValueError):
    return pytest.raises(error, match=re.escape(message))


def test_it_is_saved_and_loaded_as_it_was(tmp_path):
    path = tmp_path / "net.json"
    MEASURED.save(path)
    assert SizedMeasurement.load(path) == load(path) == MEASURED
    with refused("net.json is not a saved measurement: there is no key 'lengths'"):
        Measurement.load(path)
    path.write_text(path.read_text().replace('"repeats": 40', '"repeats": 41', 1))
    with refused("net.json is not a saved measurement: repeats must be the fewest samples of a size, 40"):
        load(path)
    MEASURED.measurements[0].save(path)
    assert load(path) == MEASURED.measurements[0]


def test_a_scenarios_file_may_name_a_saved_one(tmp_path):
    MEASURED.save(tmp_path / "net.json")
    named = f'[service]\nkind = "Measurement"\npath = "{(tmp_path / "net.json").as_posix()}"\n'
    text, found = re.subn(r"(?ms)^\[service\].*?(?=^\[\w|\Z)", named, TINY.to_toml())
    assert found == 1
    assert bs.Scenario.from_toml(text) == TINY


def test_its_parts_must_belong_together():
    with refused("measurements must hold 2 values, got 1"):
        SizedMeasurement((16, 64), (one(16),))
    with refused("measurements must have the same model, got 'net' and 'other'"):
        SizedMeasurement((16, 64), (one(16), one(64, model="other")))
    with refused("measurements must have the same served, got False and True"):
        SizedMeasurement((16, 64), (one(16), dataclasses.replace(one(64), served=True)))
    with refused("measurements must have a batch size in common, got none in 2"):
        SizedMeasurement((16, 64), (one(16, sizes=(1,)), one(64, sizes=(4,))))
    with refused("a measurement must be a Measurement, got 3", TypeError):
        SizedMeasurement((16,), (3,))
    with refused("joined measurements must have the same lengths, got (16, 64) and (16,)"):
        MEASURED.joined(SizedMeasurement((16,), (one(16),)))


def test_its_noise_is_that_of_all_shapes_and_lasts_as_measured():
    service = MEASURED.joined(MEASURED).service_with_noise()
    for size, length in MEASURED.median_ms:
        assert service([length] * size) == pytest.approx(TRUTH([length] * size), rel=0.01)
    assert service.noise.cv == pytest.approx(AROUND.std() / AROUND.mean(), rel=0.02)
    assert service.noise.correlation == pytest.approx(0.3, abs=0.01)
    drawn = np.array([each.times_ms for each in services(MEASURED, 200)])
    assert drawn.mean(axis=0) == pytest.approx(np.array(service.times_ms), rel=0.01)
    assert (drawn.std(axis=0) > 0).all()


def test_tune_says_how_much_a_measurement_by_length_matters():
    found = bs.tune(
        TINY, bs.SLO(p99_ms=50), over={"max_wait_ms": [0, 5]}, requests=2000, measurement=MEASURED, inputs=3,
        progress=False,
    )  # fmt: skip
    assert "service times" in found.explain()


@pytest.mark.parametrize(("factor", "side"), [(0.5, "above"), (2, "below")])
def test_the_worst_of_a_fit_is_the_farthest_to_either_side(factor, side):
    rows = {length: one(length, sizes=(1, 2, 4, 8)) for length in (16, 32, 64, 128)}
    off = [(ms * (factor if size == 4 else 1)).tolist() for size, ms in rows[64].times().items()]
    rows[64] = dataclasses.replace(rows[64], samples_ms=off)
    found = SizedMeasurement(tuple(rows), tuple(rows.values())).fit()
    assert found.worst == ((4, 64), found.residuals[4, 64])
    assert f"{side} the measured, for a batch of 4 of length 64" in repr(found)
