"""Load tests that others measured, calibrated: KubeCon NA 2025's, and closed loops of another model."""

import csv
import functools
from pathlib import Path

import batchsim as bs
from batchsim.measured.load_stages import Stage
from batchsim.measured.load_tests import LoadTest

TESTS = Path(__file__).parent.parent
FILES = sorted((TESTS / "data/load_tests/inference_perf").glob("stage_*.json"))
HELD_OUT = (61.79, 152.98)
LOW = (31.4,)
METRICS = (
    ("mean TPOT (ms)", "tpot_ms", 0.05), ("mean TTFT (ms)", "ttft_ms", 0.1),
    ("served per s", "served_per_s", 0.04),
)  # fmt: skip


def rule(seats):
    """As `manifests.yaml` has it, and vLLM 0.11's default budget on an H100."""
    return bs.Continuous(seats, 8192, chunked=False)


@functools.cache
def calibration(held_out=HELD_OUT):
    return bs.calibrate(FILES, rule(128), hold_out=held_out)


@functools.cache
def closed_loops():
    """Every third loop of Qwen3-32B fitted."""
    with open(TESTS / "oracles/measured/closed_loops_qwen3.csv") as file:
        rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    stages = tuple(
        Stage(
            0, {"mean": row["tpot_ms"] * row["output_tokens"]}, reported_tpot_ms={"mean": row["tpot_ms"]},
            concurrency=row["concurrency"], prompt_tokens=row["prompt_tokens"],
            output_tokens=row["output_tokens"], mixed=True,  # how they began is not known
        )
        for row in rows
    )  # fmt: skip
    test = LoadTest("aiconfigurator", "095f58a", stages)
    return bs.calibrate(test, bs.Continuous(512, 8192), hold_out=[bool(i % 3) for i in range(len(stages))])
