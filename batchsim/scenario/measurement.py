"""A saved measurement: how long a model took, by batch size. `bs.device.measure` makes one; no JAX here."""

import codecs
import json
import os
from dataclasses import dataclass, fields
from datetime import datetime
from html import escape
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from batchsim import _check
from batchsim._files import replacing
from batchsim.scenario.service import Table

if TYPE_CHECKING:
    import pandas

HEADER = {"format": "batchsim measurement", "version": 1}  # what the file begins with
_FORMATS: dict[Any, Any] = dict.fromkeys(
    ("median_ms", "spread_ms", "per_item_ms", "compile_s"), "{:.3f}".format
) | {"items_per_s": "{:,.0f}".format}


@dataclass(frozen=True, repr=False)
class Measurement:
    """How long a model took for batches of each size, and on which device.

    `samples_ms` has a row for each of `batch_sizes`, of `repeats` milliseconds; `first_call_s` is the very
    first call at each size: compiling, and computing once. `platform` is JAX's word ("cpu", "gpu");
    `measured_at` is an ISO time. Wrong values raise ValueError or TypeError.
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
            _check.instance(name, getattr(self, name), str, "text")
        try:
            datetime.fromisoformat(self.measured_at)
        except ValueError:
            raise ValueError(f"measured_at must be an ISO time, got {self.measured_at!r}") from None
        sizes = _check.sizes("batch_sizes", self.batch_sizes, rising=False)
        repeats = _check.whole("repeats", self.repeats)
        rows = zip(sizes, _list_of(len(sizes), "samples_ms", self.samples_ms), strict=True)
        samples_ms = tuple(_times(repeats, f"samples_ms of batch size {size}", row) for size, row in rows)
        first_s = _times(len(sizes), "first_call_s", self.first_call_s)
        # As tuples, so that a measurement read from a file equals the one that was saved.
        vars(self).update(batch_sizes=sizes, repeats=repeats, samples_ms=samples_ms, first_call_s=first_s)

    @property
    def median_ms(self) -> dict[int, float]:
        """The median time of each batch size."""
        return dict(zip(self.batch_sizes, np.median(self.samples_ms, axis=1).tolist(), strict=True))

    @property
    def spread_ms(self) -> dict[int, float]:
        """The interquartile range of each batch size."""
        low, high = np.percentile(self.samples_ms, [25, 75], axis=1)
        return dict(zip(self.batch_sizes, (high - low).tolist(), strict=True))

    @property
    def compile_s(self) -> dict[int, float]:
        """The first call of each batch size: compiling, and computing once."""
        return dict(zip(self.batch_sizes, self.first_call_s, strict=True))

    @property
    def service(self) -> Table:
        """The medians as a service time; of a padded model, measure the padded sizes and pad this too."""
        return Table(self.median_ms)

    def to_frame(self) -> "pandas.DataFrame":
        """Return a DataFrame with a row a batch size."""
        import pandas

        sizes, median_ms = np.array(self.batch_sizes), np.array(list(self.median_ms.values()))
        times = {"median_ms": median_ms, "spread_ms": list(self.spread_ms.values())}
        rates = {"per_item_ms": median_ms / sizes, "items_per_s": sizes / median_ms * 1000}
        return pandas.DataFrame({"batch_size": sizes, **times, **rates, "compile_s": self.first_call_s})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to `path` as JSON; the file that was there stays if the writing fails."""
        with replacing(path) as file:
            json.dump(HEADER | vars(self), codecs.getwriter("utf-8")(file), indent=1, allow_nan=False)
            file.write(b"\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Return what `save` wrote to `path`; any other file raises ValueError."""
        file = _check.path("path", path)
        try:
            return cls(**_read(file.read_bytes()))
        except (OverflowError, TypeError, ValueError) as error:
            raise ValueError(f"{os.fspath(path)} is not a saved measurement: {error}") from None

    def _title(self) -> str:
        where = f"{self.model} on {self.device} (jax {self.jax_version}, {self.platform})"
        return f"Measurement: {where}, {self.repeats} repeats, {self.measured_at}"

    def __repr__(self) -> str:
        return self._title() + "\n" + self.to_frame().to_string(index=False, formatters=_FORMATS)

    def _repr_html_(self) -> str:
        table = self.to_frame().to_html(index=False, border=0, formatters=_FORMATS)
        return f"<p>{escape(self._title())}</p>{table}"


def _list_of(length: int, name: str, values: Any) -> Any:
    _check.instance(name, values, (list, tuple), "a list")
    if len(values) != length:
        raise ValueError(f"{name} must hold {length} values, got {len(values)}")
    return values


def _times(length: int, name: str, values: Any) -> tuple[float, ...]:
    return tuple(_check.real(f"a time in {name}", value, above=0) for value in _list_of(length, name, values))


def _read(text: bytes) -> dict[str, Any]:
    """Return a Measurement's fields from a saved file's bytes, or raise ValueError."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it must be JSON, got {text[:40]!r} ({error})") from None
    if not isinstance(content, dict):
        raise ValueError(f"it must be a JSON object, got {type(content).__name__}")
    for key, value in HEADER.items():
        got = content.pop(key, None)
        if got != value or type(got) is not type(value):  # True == 1, but it is no version
            raise ValueError(f"{key} must be {value!r}, got {got!r}")
    keys = [field.name for field in fields(Measurement)]
    for key in content:
        if key not in keys:
            raise ValueError(f"there is no key {key!r}" + _check.nearest(key, keys))
    if missing := [key for key in keys if key not in content]:
        raise ValueError(f"it must have the key {missing[0]!r}, got {', '.join(content) or 'no keys'}")
    return content
