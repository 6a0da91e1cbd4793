import math
import os
import signal

import pytest
from pandas.testing import assert_frame_equal

import batchsim as bs
from batchsim.study import sweep as sweeping

distributed = pytest.importorskip("distributed", reason="the distributed extra is not installed")

BASE = bs.Scenario(bs.Gamma(800, cv=2), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25).with_noise(0.3))
OVER = {"max_batch_size": [4, 8, 16, 32], "max_wait_ms": range(10)}


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Workers may take long to load everything, and are not to be warned of."""
    monkeypatch.setattr(sweeping, "SILENT_S", math.inf)


@pytest.fixture(scope="module")
def client():
    """A scheduler here, and two worker processes that are started again when they end."""
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def local():
    return sweeping.sweep(BASE, OVER, 2000, progress=False)


def test_a_cluster_gives_the_same_table(client, local):
    away = sweeping.sweep(BASE, OVER, 2000, executor=client.get_executor(), workers=2, progress=False)
    assert_frame_equal(away, local, check_exact=True)


def test_a_cluster_tunes_and_finds_the_same_capacity(client):
    args = BASE, bs.SLO(p99_ms=60), {"max_batch_size": [16, 32], "max_wait_ms": [0, 5, 10]}
    both = None, client.get_executor()
    here, away = (bs.tune(*args, 2000, executor=each, progress=False) for each in both)
    assert here.explain() == away.explain()
    assert_frame_equal(here.candidates, away.candidates, check_exact=True)
    here, away = (bs.capacity(*args[:2], 2000, executor=each) for each in both)
    assert_frame_equal(here.to_frame(), away.to_frame(), check_exact=True)
    names = ["triton", "torchserve"]
    here, away = (bs.compare_servers(BASE, names, requests=2000, executor=each) for each in both)
    assert_frame_equal(here.to_frame(), away.to_frame(), check_exact=True)


def test_a_worker_killed_on_the_way_loses_nothing(client, local, tmp_path, monkeypatch):
    (victim, pid), _ = client.run(os.getpid).items()
    counted, taken_along = [], []

    class Bar:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def update(self, points):
            counted.append(points)
            if sum(counted) and not taken_along:
                taken_along.extend(client.processing()[victim])
                os.kill(pid, signal.SIGKILL)

    monkeypatch.setattr(sweeping, "progress_bar", lambda *_, **__: Bar())
    monkeypatch.setattr(sweeping, "SAVE_S", 0.1)
    monkeypatch.setattr(sweeping, "AWAY_S", (0.0, 2.0))  # more tasks than workers
    os.kill(pid, signal.SIGSTOP)  # so that it holds tasks when it is killed
    away = sweeping.sweep(
        BASE, OVER, 2000, executor=client.get_executor(), workers=2, out=tmp_path, progress=False
    )
    assert taken_along
    assert sum(counted) == len(away)
    assert_frame_equal(away, local, check_exact=True)
    assert pid not in client.run(os.getpid).values()
