"""Runs of token generation whose pictures are drawn."""

import warnings

import batchsim as bs
from batchsim.study.surface import load_curve
from batchsim.view.pictures.data import ViewData

STEP = bs.StepTime(fixed_ms=2, weights_ms=8, per_token_ms=0.1, per_read_ms=0.001, per_pair_ms=0.00001)
TOKENS = bs.Scenario(
    bs.Poisson(8), bs.Continuous(max_num_seqs=8, max_num_batched_tokens=64, kv_blocks=90), STEP,
    tokens=bs.Tokens(bs.Lognormal(60, 1, at_most=400), bs.Geometric(30)),
)  # fmt: skip
LIMITS = {"ttft_ms": 300.0, "tpot_ms": 20.0, "objective_ms": 2000.0}


def token_data_of(scenario, requests=400, before=None, pinned=None, **limits_ms):
    result, comparison = bs.simulate(scenario, requests), None
    if pinned is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # so short a run has no interval
            comparison = bs.compare(pinned.result, result)
    known = isinstance(scenario.rule, bs.Continuous)
    return ViewData(
        result, GRIDS[len(limits_ms) == 3 and known], load_curve(scenario, 50), before=before, pinned=pinned,
        comparison=comparison, **limits_ms,
    )  # fmt: skip


GRIDS = []
