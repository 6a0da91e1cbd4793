"""Ask and tell: other optimisers drive the same runs."""

import math
import warnings

import pytest

import batchsim as bs
from batchsim.study import phrases
from batchsim.study.judgement import Estimate
from batchsim.study.slo import SLO

POISSON = bs.Scenario(bs.Poisson(1400), bs.SizeOrWait(), bs.Affine(5, 0.25))
GRID = {"max_batch_size": [4, 16, 64], "max_wait_ms": [0, 20]}


@pytest.fixture
def problem():
    return bs.study.Problem(POISSON, SLO(p99_ms=30), GRID, requests=20_000)


def test_ask_goes_through_the_grid_once_and_tell_keeps_the_longest_run(problem):
    asked = []
    while (knobs := problem.ask()) is not None:
        asked.append(knobs)
        problem.tell(knobs, problem.evaluate(knobs, problem.lengths[0]))
    assert asked == [{"max_batch_size": size, "max_wait_ms": ms} for size in (4, 16, 64) for ms in (0, 20)]
    full = problem.evaluate(asked[3])
    problem.tell(asked[3], full)
    problem.tell(asked[3], problem.evaluate(asked[3], problem.lengths[0]))
    assert problem.best() == (asked[3] if full.feasible else asked[4])


def test_an_evaluation_is_the_run_s_own(problem):
    value, low, high, feasible, why, excess, requests = problem.evaluate(
        {"max_batch_size": 64, "max_wait_ms": 0}
    )
    run = bs.simulate(POISSON.replace(max_batch_size=64, max_wait_ms=0), 20_000, warmup=0.1)
    assert (value, requests) == (run.percentile(99), 20_000)
    assert (low, high) == run.interval("p99")
    assert feasible is True
    assert excess == pytest.approx(value / 30)
    assert "below 30 ms" in why


@pytest.mark.parametrize("limit", [SLO(p50_ms=30), SLO(mean_ms=30), SLO(p99_ms=15)], ids=repr)
def test_an_evaluation_gives_the_interval_that_its_reason_shows_at_each_length(limit):
    problem = bs.study.Problem(POISSON, limit, GRID, requests=20_000)
    for requests in problem.lengths:
        value, low, high, *_, why, _, _ = problem.evaluate({"max_batch_size": 64, "max_wait_ms": 0}, requests)
        assert phrases.estimated(limit.latency.key, Estimate(value, low, high)) in why
        assert ("(" in why) is (low < value < high)
        assert "(" in why or limit.p99_ms


def test_settings_without_a_run_are_not_feasible_and_say_why(problem):
    overloaded = problem.evaluate({"max_batch_size": 4, "max_wait_ms": 0})
    refused = problem.evaluate({"max_batch_size": 0})
    for each, why in ((overloaded, "load 2.1"), (refused, "max_batch_size must be at least 1, got 0")):
        assert (each.value, each.feasible, each.requests) == (math.inf, False, 0)
        assert why in each.why


def test_bad_calls_are_refused(problem):
    with pytest.raises(ValueError, match=r"requests must be at most .*20000"):
        problem.evaluate({"max_batch_size": 4}, 20_001)
    with pytest.raises(ValueError, match="must not change the workload"):
        problem.evaluate({"rate_per_s": 5})
    with pytest.raises(ValueError, match="must be one of the grid"):
        problem.tell({"max_batch_size": 5}, problem.evaluate({"max_batch_size": 16}))


def test_optuna_s_grid_sampler_reproduces_tune(problem):
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def objective(trial):
        knobs = {name: trial.suggest_categorical(name, values) for name, values in problem.over.items()}
        for step, requests in enumerate(problem.lengths):
            found = problem.evaluate(knobs, requests)
            trial.set_user_attr("constraint", found.excess - 1)
            trial.report(min(found.value, 1e9), step)
            if math.isinf(found.value) or trial.should_prune():
                raise optuna.TrialPruned
        return found.value

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its experimental parts
        study = optuna.create_study(
            sampler=optuna.samplers.GridSampler(problem.over, seed=1), pruner=optuna.pruners.MedianPruner()
        )
        study.optimize(objective, n_trials=len(problem.grid))
    tuned = bs.tune(POISSON, SLO(p99_ms=30), GRID, requests=20_000)
    complete = [trial for trial in study.trials if trial.state.name == "COMPLETE"]
    feasible = [trial for trial in complete if trial.user_attrs["constraint"] <= 0]
    assert min(feasible, key=lambda trial: trial.value).params == tuned.knobs
    assert len(complete) < len(study.trials) == len(problem.grid)
