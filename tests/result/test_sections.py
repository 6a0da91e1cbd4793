"""The sections of a run."""

import itertools

import numpy as np
import pytest

import batchsim as bs
from batchsim.result.metrics import LATENCY
from batchsim.result.sections import FINE, Sections

BUSY = bs.Scenario(
    bs.Poisson(2500), bs.SizeOrWait(8, 5), bs.Affine(5, 0.5), servers=2, queue_limit=20, timeout_ms=12
)


@pytest.fixture(scope="module")
def run():
    return bs.simulate(BUSY, 5000, warmup=0.1).run


def test_the_sections_add_up_to_the_run(run):
    totals = run.sections.totals
    assert run.sections.size == FINE
    assert totals.requests.sum() == 4500
    statuses = [np.count_nonzero(run.log.status[500:] == state) for state in bs.Status]
    assert totals.statuses.sum(axis=0).tolist() == statuses
    assert totals.window_s.sum() == pytest.approx(run.log.batch_finish_s.max() - run.log.arrival_s[500])
    assert totals.triggers.sum() == totals.batches.sum()


def test_a_section_has_the_numbers_of_its_requests(run):
    cuts = np.linspace(500, 5000, FINE + 1).astype(int)
    numbers, within = run.sections.numbers, run.sections.within([12.0], LATENCY)[:, 0]
    for section, (first, last) in enumerate(itertools.pairwise(cuts)):
        latency_ms = run.latency_ms[first:last]
        assert numbers["requests"][section] == last - first
        assert numbers["mean_latency_ms"][section] == pytest.approx(np.nanmean(latency_ms))
        assert within[section] == np.count_nonzero(latency_ms <= 12)


def test_groups_of_sections_are_sums_of_neighbours(run):
    counts, fine = (FINE, 16, 8), run.sections
    grouped = fine.grouped(*counts)

    def sums(column):
        return np.concatenate([column.reshape(count, -1, *column.shape[1:]).sum(axis=1) for count in counts])

    for name in ("requests", "statuses", "parts_s", "triggers"):
        assert np.allclose(getattr(grouped.totals, name), sums(getattr(fine.totals, name)), rtol=1e-15)
    limits_ms = [15.0, 4.0]
    assert np.array_equal(grouped.within(limits_ms, LATENCY), sums(fine.within(limits_ms, LATENCY)))


@pytest.mark.parametrize("keep", ["all", "summary"])
def test_replications_are_sections_of_their_own(keep):
    result = bs.simulate(BUSY, 1000, replications=3, keep=keep)
    sections = Sections.of_runs([run.metrics for run in result.runs])
    assert sections.size == 3
    means_ms = [run.metrics.numbers["mean_latency_ms"] for run in result.runs]
    assert sections.numbers["mean_latency_ms"].tolist() == means_ms
    assert sections.within([12.0], LATENCY).tolist() == [[run.metrics.within(12.0)] for run in result.runs]


def test_a_column_of_ones_own_has_its_counts_by_section(run):
    age_ms = np.arange(5000.0)
    sections = Sections.of_log(run, run.log, 0, {"age_ms": age_ms})
    counts = sections.within([999.0], "age_ms")
    assert counts.sum() == 1000
    assert counts[-1] == 0
