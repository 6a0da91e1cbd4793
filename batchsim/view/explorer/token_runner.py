"""From a scenario of token generation to all that the picture shows."""

from batchsim.simulate import simulate
from batchsim.view.run.token_data import TokenViewData


def token_data(scenario, requests, seed, ttft_objective_ms, tpot_objective_ms, stored, moving):
    result = simulate(scenario, 2000 if moving else requests, seed)
    return TokenViewData(result, ttft_ms=ttft_objective_ms, tpot_ms=tpot_objective_ms)
