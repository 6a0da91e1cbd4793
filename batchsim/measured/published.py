"""Published service times, measured by others, each with its source.

A name is model/device/precision, with a fourth part (the backend, or a sequence length) where those three are
ambiguous. BERT reads 384 tokens.

A time is the mean latency of a client that sends one batch at a time. On Triton this includes sending and
queueing (up to 1 ms according to the page), which a busy server may overlap with computing; in MXNet, loading
the images. BERT's and TFT's times are printed to 0.1 ms: the shortest, 0.6 ms, is accurate to 8 %.

The 90 tables come from NVIDIA's Deep Learning Examples. These tables there, and in splitwise-sim, are
omitted:

- 16 tables of language models, which time a phase (a prompt, or a token of each request), not a request;
- 8 tables of ResNet-50 on Triton (ONNX Runtime with TensorRT, and TF-TRT), which measure the client, not the
  model: it sends up to 128 images a request, which takes longer than to compute them. On the same pages the
  server carries 1.7 to 3.6 times the rate of these tables (T4: 2,145/s, but the largest batches would carry
  1,129/s; A40, 128 images: 67.9 ms, including 19 ms of computing in the server's own report). Seven of them
  were included until 0.1 (`REMOVED`). On the pages of GPUNet, FastPitch and TFT that ratio is 0.76 to 0.96;
- 8 tables of Wide & Deep, whose sizes count candidates: 1, then 16,384 and more, with no sizes between;
- 4 tables of ResNet-50 in PyTorch, whose mean is above its own 99th percentile, and up to 11 % above batch
  size / throughput: fewer than 1 % of the batches dominate it;
- 1 table whose page contradicts itself: BERT-dist6l with ONNX Runtime on T4, with a largest batch of 1 and
  times for batches of 16.

The module also has published times of steps of token generation, and the power of servers by batch size.
"""

import csv
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

from batchsim import _check
from batchsim._format import listed
from batchsim.scenario.service import Table
from batchsim.scenario.step_time import StepCost, StepTime

ABOUT = ("name", "backend", "stat", "source_url", "licence")  # columns
# Those eight tables: asking for one raises the reason.
REMOVED = frozenset(
    f"resnet50/{device}/fp16{backend}"
    for device in ("a100-80gb", "a40", "t4", "v100-32gb")
    for backend in ("", "/tf-trt")
)  # fmt: skip


@dataclass(frozen=True)
class Published:
    """A published table: the service time, the backend, the statistic, and the source.

    `service` holds the statistic `stat` of the latency, such as "mean"; `p99_ms` and `throughput_per_s`
    (requests per second) are from the same page, as (batch size, number) pairs.
    """

    name: str
    service: Table
    backend: str
    stat: str
    p99_ms: tuple[tuple[int, float], ...]
    throughput_per_s: tuple[tuple[int, float], ...]
    source_url: str
    licence: str


def published(name: str) -> Table | StepTime:
    """Return the published service time of this name; `published_source` also returns its source.

    It interpolates between the measured sizes and refuses larger ones. For language models it is the time of
    a step. An unknown name raises ValueError with the nearest known one.

    >>> published("gpunet-175ms/v100-32gb/fp16")(2)
    0.00277
    >>> published("llama-3.1-8b/rtx-4090").weights_ms
    9.997
    """
    return published_source(name).service


def published_names(
    match: str | None = None, *, tokens: bool = False, watts: bool = False
) -> tuple[str, ...]:
    """Return the published names, sorted; with `match`, those that contain it as whole words.

    Slashes and hyphens separate words, so "t4" matches the device, but not a part of "bert4". With `tokens`,
    the names of steps of token generation instead; with `watts`, those that `published_watts` knows.

    >>> published_names("nnunet")
    ('nnunet/t4/fp16', 'nnunet/v100-32gb/fp16')
    >>> len(published_names()), len(published_names("bert")), len(published_names("gpunet-175ms"))
    (90, 47, 2)
    >>> published_names("llama-3.1-8b", tokens=True)
    ('llama-3.1-8b/h100/trt-llm', 'llama-3.1-8b/rtx-4090', 'llama-3.1-8b/rtx-pro-6000')
    >>> published_names("llama-3.1-8b", watts=True)
    ('llama-3.1-8b/a100-40gb', 'llama-3.1-8b/b200', 'llama-3.1-8b/h100')
    """
    _check.instance("match", match, (str, type(None)), "a string")
    names: Iterable[str] = _watts() if watts else step_tables() if tokens else _tables()
    return tuple(name for name in names if _words(match or "") in _words(name))


def published_source(name: str) -> "Published | PublishedSteps":
    """Return a published table, or the times of steps, with its source.

    >>> source = published_source("gpunet-175ms/v100-32gb/fp16")
    >>> source.backend, source.stat, source.licence
    ('Triton, ONNX Runtime with TensorRT', 'mean', 'Apache-2.0 (PyTorch/Classification/GPUNet/LICENSE)')
    >>> dict(source.p99_ms)[8]
    6.16
    """
    _check.instance("the name of a published table", name, str, "a string")
    if name in REMOVED:
        why = "it timed the client, not the model: the server carries 1.7 to 3.6 times what it said"
        raise ValueError(f"the published table {name!r} was removed: {why}")
    found: Published | PublishedSteps = _named(name, {**_tables(), **step_tables()})
    return found


def _named(name: str, tables: Mapping[str, Any]) -> Any:
    """Return the table of a name, or raise with the nearest known one."""
    if name not in tables:
        hint = alike(name, tables) or "; `batchsim published` lists them"
        raise ValueError(f"there is no published table {name!r}{hint}")
    return tables[name]


def alike(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'x', 'y' or 'z'?" for whole names like this one, or "".

    >>> alike("resnet", published_names())[:54]
    "; did you mean 'resnet50/a100-80gb/mixed-fp16', 'resne"
    """
    names = sorted(known)
    first = _check.closest(name.lower().partition("/")[0], {each.partition("/")[0] for each in names})
    whole = _check.closest(name, names)
    found = [whole] if whole else [each for each in names if first and each.startswith(f"{first}/")]
    return f"; did you mean {listed([*map(repr, found[:3])], 'or')}?" if found else ""


def _words(text: str) -> str:
    words = text.lower().replace("/", "-").strip("-")
    return f"-{words}-" if words else ""


def _rows(file: str) -> list[dict[str, str]]:
    """Return the rows of a file of this package, sorted by their names."""
    from importlib.resources import files  # slow to import, and rarely needed

    text = files("batchsim.measured").joinpath(file).read_text(encoding="utf-8")
    return sorted(csv.DictReader(text.splitlines()), key=itemgetter("name"))


@functools.cache
def _tables() -> dict[str, Published]:
    """Return every table by its name, sorted."""
    return {name: _table(list(rows)) for name, rows in groupby(_rows("published.csv"), itemgetter("name"))}


def _table(rows: list[dict[str, str]]) -> Published:
    def pairs(column: str) -> tuple[tuple[int, float], ...]:
        return tuple((int(row["batch_size"]), float(row[column])) for row in rows)

    about = {column: rows[0][column] for column in ABOUT}  # the same in every row: a table is of one page
    service, p99_ms, throughput_per_s = map(pairs, ("latency_ms", "p99_ms", "throughput_per_s"))
    return Published(service=Table(service), p99_ms=p99_ms, throughput_per_s=throughput_per_s, **about)


# Published times of steps of token generation, each with its source.


@dataclass(frozen=True)
class PublishedSteps:
    """Published times of steps: the service time, the backend, the kind of data fitted, and the source.

    `mean_error` is the mean relative error on that data.
    """

    name: str
    service: StepTime
    backend: str
    stat: str
    mean_error: float
    source_url: str
    licence: str


@functools.cache
def step_tables() -> dict[str, PublishedSteps]:
    """Return every table of steps by its name, sorted."""
    return {row["name"]: _steps_table(row) for row in _rows("published_steps.csv")}


def _steps_table(row: dict[str, str]) -> PublishedSteps:
    service = StepTime(*(float(row[name]) for name in StepCost._fields))
    about = {column: row[column] for column in ABOUT}
    return PublishedSteps(service=service, mean_error=float(row["mean_error"]), **about)


# Published power of servers by batch size, each with its source.


@dataclass(frozen=True)
class PublishedWatts:
    """Measured power and energy by batch size, the backend, and the source.

    `watts` is {batch size: what all GPUs of the server draw while they compute}, for `Scenario(watts=...)`;
    `joules` is {batch size: energy of one token, or of one image}, as `per` says. The source has neither idle
    power nor the lengths of prompts: a server that is idle counts as drawing the watts of the smallest size,
    unless you add a size 0.
    """

    name: str
    watts: Mapping[int, float]
    joules: Mapping[int, float]
    per: str
    backend: str
    source_url: str
    licence: str


def published_watts(name: str) -> PublishedWatts:
    """Return the measured power and energy by batch size of a model on a device.

    ML.ENERGY measured them: language models answer chats, full batches all the time; image generators make
    one batch after the other. The mean batch size is rounded. Of its chats on H100 and B200 (2026), and on
    A100 (2024), batchsim has all curves of five sizes or more; of its image generators (2024) those of four.
    An unknown name raises ValueError with the nearest known one.

    >>> llama = published_watts("llama-3.1-8b/h100")
    >>> llama.watts[8], llama.watts[511]
    (486.4, 688.3)
    >>> llama.joules[8], llama.joules[511], llama.per
    (0.4548, 0.07019, 'token')
    """
    _check.instance("the name of a published table", name, str, "a string")
    found: PublishedWatts = _named(name, _watts())
    return found


@functools.cache
def _watts() -> dict[str, PublishedWatts]:
    """Return every table of watts by its name, sorted."""
    return {row["name"]: _watts_table(row) for row in _rows("published_watts.csv")}


def _watts_table(row: dict[str, str]) -> PublishedWatts:
    points = [point.split(":") for point in row["points"].split()]  # batch size, watts, joules
    watts, joules = ({int(of[0]): float(of[each]) for of in points} for each in (1, 2))
    about = {column: row[column] for column in (*ABOUT, "per") if column in row}
    return PublishedWatts(watts=watts, joules=joules, **about)
