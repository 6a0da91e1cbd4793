"""Measurements of models and servers: read, fitted, checked for outliers, and published ones."""

import dataclasses
from pathlib import Path
from typing import Any

from batchsim.scenario.noise import Noise
from batchsim.scenario.service import Table
from batchsim.scenario.sized_time import SizeTable
from batchsim.scenario.step_time import StepTime
from batchsim.scenario.toml import KINDS


def _measured(
    path: str | Path, *, noise: Noise | None = None, padding: Any = None, compile_ms: Any = None
) -> Table | SizeTable:
    from batchsim.measured.sized_measurement import load

    service = load(path).service
    return dataclasses.replace(service, noise=noise, padding=padding, compile_ms=compile_ms)


def _published(
    name: str, *, noise: Noise | None = None, padding: Any = None, compile_ms: Any = None
) -> Table | StepTime:
    from batchsim.measured.published import published

    return dataclasses.replace(published(name), noise=noise, padding=padding, compile_ms=compile_ms)


# These kinds are only read: a scenario file that is written has the Table or StepTime itself.
KINDS["service"] |= {"Measurement": (_measured,), "published": (_published,)}
