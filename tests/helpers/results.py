"""A run with losses, and how two results are compared."""

import dataclasses

import numpy as np

import batchsim as bs
from batchsim.result import Result

COLUMNS = [
    "arrival_s", "start_s", "finish_s", "batch_index", "status",
    "latency_ms", "forming_ms", "queueing_ms", "computing_ms",
]  # fmt: skip
BUSY = bs.Scenario(
    bs.Poisson(2500),
    bs.SizeOrWait(8, 5),
    bs.Affine(5, 0.5).with_noise(0.3),
    servers=2,
    queue_limit=20,
    timeout_ms=12,
    slowdown={1: 1.0, 2: 1.3},
)


def there_and_back(result, path):
    result.save(path)
    return Result.load(path)


def assert_same(one, other):
    """Two results are equal in all that they say."""
    np.testing.assert_equal(one.summary(), other.summary())
    np.testing.assert_equal(
        [one.percentile(q, unserved="inf") for q in (0, 3.3, 50, 99.9, 100)],
        [other.percentile(q, unserved="inf") for q in (0, 3.3, 50, 99.9, 100)],
    )
    assert one.attainment(11.0) == other.attainment(11.0)
    for name in ("scenario", "seed", "engine", "warmup"):
        assert getattr(one, name) == getattr(other, name)
        assert type(getattr(one, name)) is type(getattr(other, name))
    assert one.has_columns == other.has_columns
    assert len(one.runs) == len(other.runs)
    if one.has_columns:
        for left, right, names in [
            (one, other, COLUMNS),
            (one.batches, other.batches, [f.name for f in dataclasses.fields(bs.Batches)]),
        ]:
            for name in names:
                if getattr(left, name) is None:
                    assert getattr(right, name) is None
                    continue
                assert getattr(left, name).dtype == getattr(right, name).dtype
                assert np.array_equal(getattr(left, name), getattr(right, name), equal_nan=True), name
    if len(one.runs) > 1:
        for one_run, other_run in zip(one.replications, other.replications, strict=True):
            assert_same(one_run, other_run)
