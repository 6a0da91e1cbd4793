"""Objectives: numbers with their limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusals

import batchsim as bs
from batchsim.study.slo import SLO

POISSON = bs.Scenario(bs.Poisson(1400), bs.SizeOrWait(), bs.Affine(5, 0.25))


def test_an_objective_is_its_numbers_with_their_limits():
    slo = SLO(p50_ms=20, p99_ms=50, mean_ms=15, max_loss=0.01, min_throughput_per_s=800)
    assert [tuple(each) for each in slo.objectives] == [
        ("p50_ms", 20, 50.0),
        ("p99_ms", 50, 99.0),
        ("mean_latency_ms", 15, None),
        ("loss", 0.01, None),
        ("throughput_per_s", 800, None),
    ]
    assert repr(slo) == "SLO(p50_ms=20, p99_ms=50, mean_ms=15, max_loss=0.01, min_throughput_per_s=800)"
    assert eval(repr(slo)) == slo


@pytest.mark.parametrize(
    ("slo", "expected"),
    [
        (SLO(p99_ms=50, attainment=0.99), [("p99_ms", 50)]),
        (SLO(p99_ms=50, attainment=0.995), [("p99_ms", 50), ("p99.5_ms", 50)]),
        (SLO(p99_ms=50, attainment=0.9, within_ms=20), [("p90_ms", 20), ("p99_ms", 50)]),
        (SLO(p99_ms=50, attainment=0.99, within_ms=40), [("p99_ms", 40)]),
        (SLO(p99_ms=40, attainment=0.99, within_ms=50), [("p99_ms", 40)]),
        (SLO(p99_9_ms=80), [("p99.9_ms", 80)]),
        (SLO(within_ms=30, attainment=0.9995), [("p99.95_ms", 30)]),
    ],
    ids=repr,
)
def test_an_attainment_is_a_percentile(slo, expected):
    assert [(each.key, each.limit) for each in slo.objectives] == expected


@given(q=st.floats(0.001, 0.999), ms=st.floats(0.1, 1e4))
def test_any_attainment_names_a_percentile_that_a_result_has(q, ms):
    (objective,) = SLO(attainment=q, within_ms=ms).objectives
    key = bs.simulate(POISSON, 500).metrics.number(objective.key)
    assert key > 0
    assert objective.q == pytest.approx(100 * q)


@refusals
def test_an_slo_refuses():
    """
    SLO() -> an SLO must have an objective, as in SLO(p99_ms=50), got SLO()
    SLO(p99_ms=0) -> p99_ms must be greater than 0, got 0
    SLO(p99_ms=-5) -> p99_ms must be greater than 0, got -5
    SLO(p99_ms=math.nan) -> p99_ms must be a number, got nan
    SLO(p99_ms=math.inf) -> p99_ms must be finite, got inf
    SLO(p99_ms="50") -> TypeError: p99_ms must be a number, got '50'
    SLO(mean_ms=True) -> TypeError: mean_ms must be a number, got True
    SLO(attainment=0.99) -> an attainment needs within_ms, or exactly one percentile
    SLO(p50_ms=9, p99_ms=50, attainment=0.99) -> an attainment needs within_ms, or exactly one percentile
    SLO(within_ms=50) -> within_ms needs an attainment
    SLO(p99_ms=50, attainment=0.9) -> an attainment of p99_ms must be at least 0.99, its percentile, got 0.9
    SLO(within_ms=5, attainment=1.0) -> a fraction less than 1, got 1.0: no run can prove all
    SLO(within_ms=5, attainment=99) -> attainment must be a fraction less than 1, got 99
    SLO(max_loss=1) -> max_loss must be a fraction less than 1, got 1
    SLO(max_loss=-0.1) -> max_loss must be at least 0, got -0.1
    """
