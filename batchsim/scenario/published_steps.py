"""Published times of steps of token generation, each with its source.

They were not published as such: the five numbers of a `StepTime` are fitted to what was, by relative error.

- Of the RTX cards, to 1,500 random likely steps (half of them decodes only, log-normal lengths) of a profile
  of vLLM's operators. With other steps the best five numbers differ, and so does their error: on the steps of
  one measured run these are off by some per cent, and its mean answers by 3.5 % (VALIDATION.md).
- "vllm" and "trt-llm" of Llama-2, Llama-3 and Mistral, to the answers of whole batches that were sent at
  once, prompts as long as outputs. They do not tell pairs from reads, so pairs cost nothing here.
- "trt-llm" of Llama-3.1-8B on one H100, through the simulator, to the TPOT of closed loops (8 to 64 clients,
  outputs of 128 and 256) with a budget of 8,192 tokens, TensorRT-LLM's default.

A cell of four GPUs is one server of four, tensor parallel. Left out: DistServe's, Splitwise's and Sarathi's
tables, in which prompts and decodes have laws of their own, of older engines.
"""

import csv
import functools
from dataclasses import dataclass

from batchsim.scenario.step_time import StepCost, StepTime


@dataclass(frozen=True)
class PublishedSteps:
    """Published times of steps: the service time, the backend, what it was fitted to, and the source.

    `mean_error` is the mean relative error on what it was fitted to.
    """

    name: str
    service: StepTime
    backend: str
    stat: str
    mean_error: float
    source_url: str
    licence: str


@functools.cache
def tables() -> dict[str, PublishedSteps]:
    """Return every table of steps by its name, sorted."""
    from importlib.resources import files  # slow to import, and rarely needed

    text = files("batchsim.scenario").joinpath("published_steps.csv").read_text(encoding="utf-8")
    return {row["name"]: _table(row) for row in sorted(csv.DictReader(text.splitlines()), key=_name)}


def _name(row: dict[str, str]) -> str:
    return row["name"]


def _table(row: dict[str, str]) -> PublishedSteps:
    service = StepTime(*(float(row[name]) for name in StepCost._fields))
    about = {column: row[column] for column in ("name", "backend", "stat", "source_url", "licence")}
    return PublishedSteps(service=service, mean_error=float(row["mean_error"]), **about)
