"""A sweep into a folder, and the files there."""

from pathlib import Path

import pandas as pd

import batchsim as bs
from batchsim.study import sweep as sweeping

BASE = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))
OVER = {
    "max_batch_size": [4, 16, 32],
    "max_wait_ms": [0, 2.5],
    "service": [bs.Affine(5, 0.25), bs.Table({16: 3})],
}
POINTS = 12


def sweep(scenario=BASE, over=OVER, requests=300, engine="simpy", **kwargs):
    return sweeping.sweep(scenario, over, requests, engine=engine, progress=False, **kwargs)


def files(folder):
    return sorted((Path(folder) / "points").glob("*.parquet"))


def stored(folder):
    return pd.read_parquet(Path(folder) / "points")
