"""Draw the paper's figure: python paper/figure.py, or `make paper`."""

from pathlib import Path

import batchsim as bs

scenario = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))
figure = bs.plot(bs.simulate(scenario, requests=20_000, seed=1))
figure.savefig(Path(__file__).with_name("run.png"), dpi=150)
