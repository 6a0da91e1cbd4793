from batchsim.simulate import simulate
from batchsim.view.run.data import ViewData
def token_data(scenario, requests, seed, ttft, tpot, stored, moving):
    raise ValueError("not yet")
