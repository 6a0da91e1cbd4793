"""How long a model really takes, by batch size: the measured service time."""

import codecs
import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import jax
import numpy as np

from batchsim import _check
from batchsim._files import replacing
from batchsim.device.models import Model, describe, different_sizes
from batchsim.scenario import Table

if TYPE_CHECKING:
    import pandas

FORMAT = "batchsim measurement"
VERSION = 1

_finished: Callable[[Any], Any] = jax.block_until_ready


@dataclass(frozen=True, repr=False)
class Measurement:
    """How long a model took for batches of each size, and on what.

    `samples_ms` has a row a size, in the order of `batch_sizes`, of `repeats` milliseconds;
    `first_call_s` is what the very first call at each size took: compiling, and computing once.
    `platform` is JAX's word ("cpu", "gpu"); `measured_at` is an ISO time. Everything is checked
    as it comes in: ValueError or TypeError.
    """

    model: str
    device: str
    platform: str
    jax_version: str
    batch_sizes: tuple[int, ...]
    repeats: int
    samples_ms: tuple[tuple[float, ...], ...]
    first_call_s: tuple[float, ...]
    measured_at: str

    def __post_init__(self) -> None:
        for name in ("model", "device", "platform", "jax_version", "measured_at"):
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"{name} must be text, got {getattr(self, name)!r}")
        try:
            datetime.fromisoformat(self.measured_at)
        except ValueError:
            raise ValueError(f"measured_at must be an ISO time, got {self.measured_at!r}") from None
        repeats = _check.whole("repeats", self.repeats)
        sizes = different_sizes("batch_sizes", self.batch_sizes)
        rows = _listed("samples_ms", self.samples_ms, len(sizes))
        samples_ms = tuple(
            _times(f"samples_ms of batch size {size}", row, repeats)
            for size, row in zip(sizes, rows, strict=True)
        )
        first_call_s = _times("first_call_s", self.first_call_s, len(sizes))
        # Lists become tuples, so that a measurement that was saved and loaded equals the first.
        for name, value in [
            ("repeats", repeats),
            ("batch_sizes", sizes),
            ("samples_ms", samples_ms),
            ("first_call_s", first_call_s),
        ]:
            object.__setattr__(self, name, value)

    def _by_size(self, values: Iterable[float]) -> dict[int, float]:
        return dict(zip(self.batch_sizes, values, strict=True))

    @property
    def median_ms(self) -> dict[int, float]:
        """The middle time of each batch size."""
        return self._by_size(float(np.median(row)) for row in self.samples_ms)

    @property
    def spread_ms(self) -> dict[int, float]:
        """The interquartile range of each batch size: the middle half of the times lies in it."""
        quartiles = np.percentile(self.samples_ms, [25, 75], axis=1)
        return self._by_size((quartiles[1] - quartiles[0]).tolist())

    @property
    def compile_s(self) -> dict[int, float]:
        """The first call of each batch size: compiling, and computing once."""
        return self._by_size(self.first_call_s)

    @property
    def service(self) -> Table:
        """The medians as a service time; for a padded model measure its padded sizes, and pad this too."""
        return Table(self.median_ms)

    def to_frame(self) -> "pandas.DataFrame":
        """Return a DataFrame with a row a batch size."""
        import pandas

        sizes = np.array(self.batch_sizes)
        median_ms = np.array(list(self.median_ms.values()))
        return pandas.DataFrame(
            {
                "batch_size": sizes,
                "median_ms": median_ms,
                "spread_ms": list(self.spread_ms.values()),
                "per_item_ms": median_ms / sizes,
                "items_per_s": sizes / median_ms * 1000,
                "compile_s": self.first_call_s,
            }
        )

    # How it is kept.

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to `path` as JSON, in one step: what was there before is not lost half-way."""
        content = {"format": FORMAT, "version": VERSION} | {
            name: getattr(self, name) for name in _field_names()
        }
        with replacing(path) as file:
            json.dump(content, codecs.getwriter("utf-8")(file), indent=1, allow_nan=False)
            file.write(b"\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Return what `save` wrote to `path`; a file that is anything else raises ValueError."""
        try:
            return cls(**_content(Path(path).read_bytes()))
        except (OverflowError, TypeError, ValueError) as error:
            raise ValueError(f"{os.fspath(path)} is not a saved measurement: {error}") from None

    # How it prints.

    def _title(self) -> str:
        return (
            f"Measurement: {self.model} on {self.device} (jax {self.jax_version}, {self.platform}), "
            f"{self.repeats} repeats, {self.measured_at}"
        )

    def __repr__(self) -> str:
        return self._title() + "\n" + self.to_frame().to_string(index=False, formatters=_FORMATS)

    def _repr_html_(self) -> str:
        table = self.to_frame().to_html(index=False, border=0, formatters=_FORMATS)
        return f"<p>{escape(self._title())}</p>{table}"


_FORMATS: dict[Any, Callable[[object], str]] = {
    "median_ms": "{:.3f}".format,
    "spread_ms": "{:.3f}".format,
    "per_item_ms": "{:.3f}".format,
    "items_per_s": "{:,.0f}".format,
    "compile_s": "{:.3f}".format,
}


def _field_names() -> list[str]:
    return [field.name for field in fields(Measurement)]


def _listed(name: str, values: Any, length: int) -> tuple[Any, ...]:
    if not isinstance(values, (list, tuple)):
        raise TypeError(f"{name} must be a list, got {values!r}")
    if len(values) != length:
        raise ValueError(f"{name} must hold {length} values, got {len(values)}")
    return tuple(values)


def _times(name: str, values: Any, length: int) -> tuple[float, ...]:
    return tuple(_check.real(f"a time in {name}", value, above=0) for value in _listed(name, values, length))


def _content(text: bytes) -> dict[str, Any]:
    """Return the fields of a Measurement from a saved file's bytes, or raise ValueError."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it must be JSON, got {text[:40]!r} ({error})") from None
    if not isinstance(content, dict):
        raise ValueError(f"it must be a JSON object, got {type(content).__name__}")
    for key, value in (("format", FORMAT), ("version", VERSION)):
        got = content.pop(key, None)
        if got != value or type(got) is not type(value):  # True is no version
            raise ValueError(f"{key} must be {value!r}, got {got!r}")
    known = _field_names()
    for key in content:
        if key not in known:
            raise ValueError(f"there is no key {key!r}" + _check.nearest(key, known))
    for key in known:
        if key not in content:
            raise ValueError(f"key {key!r} must be there, got {', '.join(content) or 'no keys'}")
    return content


def measure(
    model: Model | Callable[[np.ndarray], Any],
    batch_sizes: Iterable[int] = (1, 2, 4, 8, 16, 32),
    *,
    repeats: int = 30,
    warmup: int = 3,
    example: Any = None,
    seed: int = 0,
) -> Measurement:
    """Time `model` on batches of each size, and return the milliseconds.

    `model` is a `Model`, or any callable on stacked arrays; that one needs `example`, one item:
    its batches are the item repeated. One call at each size compiles and `warmup` more settle
    down; then come `repeats` rounds, each with every size once, in an order drawn from `seed`:
    what drifts (clock rate, neighbours) touches all sizes alike. A time runs from the batch in
    the host's memory until the output is ready on the device: as in a server, it includes the
    copy to the device (not the one back). A `Model` forgets what it had compiled, so that the
    first call shows what compiling costs; padded sizes that share a shape compile it once.

    >>> from batchsim.device import load_model
    >>> measurement = measure(load_model("mlp", width=8), [1, 4], repeats=2)
    >>> len(measurement.samples_ms[0]), measurement.service.points_ms[1][0]
    (2, 4)
    """
    sizes = different_sizes("batch_sizes", batch_sizes)
    repeats = _check.whole("repeats", repeats)
    warmup = _check.whole("warmup", warmup, at_least=0)
    generator = np.random.default_rng(_check.whole("seed", seed, at_least=0))
    batches = _batches(model, sizes, example, seed)
    if isinstance(model, Model):
        model.forget_compiled()
    first_call_s, output = {}, None
    for size in sizes:
        first_call_s[size], output = _timed(model, batches[size])
        for _ in range(warmup):
            _finished(model(batches[size]))
    samples_ms: dict[int, list[float]] = {size: [] for size in sizes}
    for _ in range(repeats):
        for size in generator.permutation(sizes).tolist():
            seconds, _ = _timed(model, batches[size])
            samples_ms[size].append(seconds * 1000)
    device = _device_of(output)
    return Measurement(
        model=model.name if isinstance(model, Model) else getattr(model, "__name__", type(model).__name__),
        device=describe(device),
        platform="cpu" if device is None else device.platform,
        jax_version=jax.__version__,
        batch_sizes=sizes,
        repeats=repeats,
        samples_ms=tuple(tuple(samples_ms[size]) for size in sizes),
        first_call_s=tuple(first_call_s[size] for size in sizes),
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _batches(model: Any, sizes: tuple[int, ...], example: Any, seed: int) -> dict[int, np.ndarray]:
    """Return a batch of each size: random inputs of a Model, or the example repeated."""
    if not callable(model):
        raise TypeError(f"model must be callable, got {model!r}")
    if isinstance(model, Model):
        model.padded_size(max(sizes))  # refuse a size that it cannot compute before the first run
        if example is None:
            return {size: model.inputs(size, seed) for size in sizes}
    if example is None:
        raise TypeError("example must be one item of the batch when model is a plain callable, got None")
    return {size: np.stack([np.asarray(example)] * size) for size in sizes}


def _timed(model: Callable[[np.ndarray], Any], batch: np.ndarray) -> tuple[float, Any]:
    """Return the seconds of one call, and its output."""
    begin_s = time.perf_counter()
    output = _finished(model(batch))
    return time.perf_counter() - begin_s, output


def _device_of(output: Any) -> jax.Device | None:
    """Return where the output is; None if JAX did not make it."""
    for leaf in jax.tree_util.tree_leaves(output):
        if isinstance(leaf, jax.Array):
            return next(iter(leaf.devices()))
    return None
