"""Three small models in JAX, compiled by `jax.jit`, on a GPU if JAX finds one."""

import functools
import itertools
import math
import os
import platform
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from batchsim import _check, _format

CLASSES = 10
PIXELS = 784  # of a 28 x 28 image, flattened
IMAGE = (32, 32, 3)
SMALLEST = 4  # pixels: the side at which convolutions stop halving the image
TOKENS = 256  # the size of the vocabulary: bytes
LENGTH = 16  # tokens in a sequence
NO_TOKEN = -1  # behind the end of a sequence that is shorter than the longest
HEAD_WIDTH = 32


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A compiled model: call it on a stacked batch to get an output for each item. `load_model` makes one.

    A batch is a NumPy array of shape (batch, *item_shape); the output is a JAX array of shape (batch,
    outputs), which may still be computing: `jax.block_until_ready` waits for it. The first batch of every
    size compiles. With `pad_to`, a batch is padded with zeros to the next of these sizes, the only ones that
    compile, and the output is cut back. With `lengths`, an item is a sequence of up to the largest of these,
    followed by -1, and a batch is padded to the next length that covers its longest. An item's output does
    not depend on the rest of its batch, up to rounding.

    ValueError for a wrong shape, an empty batch, a batch larger than the largest of `pad_to`, and a token
    outside the vocabulary; TypeError for a dtype that does not convert to `dtype`.
    """

    name: str
    item_shape: tuple[int, ...]
    dtype: np.dtype[Any]
    parameters: int
    device: str
    pad_to: tuple[int, ...] | None
    weights: Any
    tokens: int | None = None  # the size of the vocabulary, if items are tokens
    lengths: tuple[int, ...] | None = None  # to which batches of sequences are padded
    _forward: Any = field(kw_only=True)

    def __call__(self, batch: Any) -> jax.Array:
        """Compute one output per item of `batch`, shape (batch, *item_shape)."""
        items = np.asarray(batch)
        filled = self.padded(items)
        size, outputs = len(items), self.compute(filled)
        if size == len(filled):
            return outputs
        # Cut back on the host: a slice on the device would compile for every size, which padding avoids.
        return jax.device_put(np.asarray(outputs)[:size], outputs.device)

    def padded(self, batch: Any) -> np.ndarray:
        """Return a copy of `batch` in host memory, with zeros up to its padded size."""
        items = np.asarray(batch)
        self._check(items)
        # A copy even without padding: on a CPU, JAX may still read the batch after `compute` returns.
        shape, padding = (self.padded_size(len(items)), *self.item_shape), 0
        if self.lengths is not None:
            longest = int((items >= 0).sum(axis=1).max())
            edge = next(length for length in self.lengths if length >= longest)
            shape, padding, items = (shape[0], edge), NO_TOKEN, items[:, :edge]
        filled = np.full(shape, padding, self.dtype)
        filled[: len(items)] = items
        return filled

    def compute(self, filled: Any) -> jax.Array:
        """Compute one output per item of a batch from `padded`, in host memory or on the device."""
        outputs: jax.Array = self._forward(self.weights, filled)
        return outputs

    def lowered(self, filled: Any) -> Any:
        """Return the program for a batch from `padded`, as `jax.jit` lowers it."""
        return self._forward.lower(self.weights, filled)

    def _check(self, batch: np.ndarray) -> None:
        if batch.shape[1:] != self.item_shape:
            shape = ", ".join(["batch", *map(str, self.item_shape)])
            raise ValueError(f"a batch of {self.name} must have shape ({shape}), got {batch.shape}")
        if len(batch) == 0:
            raise ValueError(f"a batch must hold at least 1 item, got shape {batch.shape}")
        if not np.can_cast(batch.dtype, self.dtype, "same_kind"):
            raise TypeError(f"a batch of {self.name} must convert to {self.dtype}, got {batch.dtype}")
        if self.tokens is not None:
            # JAX would clamp a token that is out of range, and silently compute another input.
            least = 0 if self.lengths is None else NO_TOKEN
            wrong = batch[(batch < least) | (batch >= self.tokens)]
            if wrong.size:
                raise ValueError(f"a token must be between 0 and {self.tokens - 1}, got {wrong[0]}")

    def padded_size(self, batch_size: int) -> int:
        """Return the size to which a batch of `batch_size` is padded.

        >>> load_model("mlp", width=8, pad_to=[1, 4, 8]).padded_size(5)
        8
        """
        size = _check.whole("batch_size", batch_size)
        if self.pad_to is None:
            return size
        _check.at_most("a batch", size, self.pad_to[-1], "the largest of pad_to")
        return next(padded for padded in self.pad_to if padded >= size)

    def inputs(self, count: int, seed: int = 0, sizes: Any = None) -> np.ndarray:
        """Return `count` random items, shape (count, *item_shape): normal numbers, or token ids.

        `sizes`: the lengths of the sequences, of a model with `lengths`.
        """
        generator = np.random.default_rng(_check.whole("seed", seed, at_least=0))
        shape = (_check.whole("count", count), *self.item_shape)
        if self.tokens is not None:
            ids = generator.integers(0, self.tokens, shape, dtype=self.dtype)
            if sizes is not None:
                if self.lengths is None:
                    raise ValueError(
                        f"sizes must be None for a model without lengths, got {_format.brief(sizes)}"
                    )
                sizes = np.broadcast_to(sizes, count)
                _check.at_most("a size", int(sizes.max()), self.lengths[-1], "the largest of lengths")
                ids[np.arange(shape[1]) >= sizes[:, None]] = NO_TOKEN
            return ids
        return generator.standard_normal(shape, dtype=self.dtype)

    def forget_compiled(self) -> None:
        """Drop the compiled code; the next batch of every size compiles again."""
        self._forward.clear_cache()

    def __repr__(self) -> str:
        padded = "" if self.pad_to is None else f", pad_to={list(self.pad_to)}"
        items = f"items {self.item_shape} of {self.dtype}"
        return f"Model({self.name}: {self.parameters:,} parameters, {items}, on {self.device}{padded})"


def load_model(
    name: str, *, width: int | None = None, layers: int | None = None,
    pad_to: Iterable[int] | None = None, lengths: Iterable[int] | None = None, seed: int = 0,
) -> Model:  # fmt: skip
    """Build a model with random weights, drawn from `seed`, on JAX's default device.

    "mlp" classifies images of 784 pixels with `layers` dense layers (3) of `width` (2048): few operations on
    many weights, which a whole batch reads once. "convnet" classifies images of shape (32, 32, 3) with
    `layers` convolutions (4), the first with `width` channels (64), doubled each time the image is halved,
    down to 4 x 4: many operations on few weights. "transformer" predicts the byte that follows 16 others,
    with `layers` blocks (4) of `width` (256, a multiple of 32); with `lengths`, increasing, it takes
    sequences of different lengths. `pad_to`, increasing sizes, pads batches: see `Model`. Weights that do not
    fit in the device's memory raise MemoryError.

    >>> model = load_model("mlp", width=64, pad_to=[1, 2, 4])
    >>> model.item_shape, model.parameters
    ((784,), 59210)
    >>> model(model.inputs(3)).shape
    (3, 10)
    """
    if not isinstance(name, str) or name not in _ARCHITECTURES:
        raise ValueError(f"there is no model {name!r}" + _check.nearest(str(name), _ARCHITECTURES))
    architecture = _ARCHITECTURES[name]
    generator = np.random.default_rng(_check.whole("seed", seed, at_least=0))
    width = _check.whole("width", architecture.width if width is None else width)
    layers = _check.whole("layers", architecture.layers if layers is None else layers)
    sizes = None if pad_to is None else _check.sizes("pad_to", pad_to)
    item_shape, longest = architecture.item_shape, {}
    edges = None if lengths is None else _check.sizes("lengths", lengths)
    if edges is not None:
        if architecture.tokens is None:
            raise ValueError(f"lengths must be None for {name}, whose items have one shape, got {[*edges]}")
        item_shape, longest = (edges[-1],), {"length": edges[-1]}
    weights: Any = architecture.draw(generator, width, layers, **longest)
    # Committed to a device, the weights keep the model there even if the default device changes.
    device = next(iter(jnp.zeros(()).devices()))
    with fitting(f"{name} of width {width:,} and {layers:,} layers"):
        weights = jax.device_put(weights, device)
    return Model(
        name=name, item_shape=item_shape, tokens=architecture.tokens, pad_to=sizes, lengths=edges,
        device=describe(device),
        dtype=np.dtype(np.float32 if architecture.tokens is None else np.int32),
        parameters=sum(leaf.size for leaf in jax.tree_util.tree_leaves(weights)),
        weights=weights,
        # A new function for each model: models that shared one would share its compiled code.
        _forward=jax.jit(lambda weights, batch: architecture.forward(weights, batch)),
    )  # fmt: skip


@contextmanager
def fitting(what: str) -> Iterator[None]:
    """Raise a MemoryError that names `what` if the device's memory is full."""
    try:
        yield
    except RuntimeError as error:  # XLA has no own class for this error
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        got = str(error).partition("RESOURCE_EXHAUSTED:")[2].strip().partition("\n")[0]
        raise MemoryError(f"{what} must fit in the device's memory, got {got}") from error


def describe(device: jax.Device | None) -> str:
    """Return the name of a device; None is this machine's CPU, without JAX."""
    if device is None or device.platform == "cpu":
        return f"CPU, {os.cpu_count()} cores ({platform.machine()})"
    return str(device.device_kind)


@functools.cache
def devices() -> tuple[str, ...]:
    """Return the names of this machine's devices."""
    return tuple(dict.fromkeys([*(describe(device) for device in jax.devices()), describe(None)]))


# The models. Weights are nested containers of arrays; `forward` computes the outputs from them and a batch.


def _dense(generator: np.random.Generator, inputs: int, outputs: int, gain: float = 1.0) -> np.ndarray:
    """Draw a matrix that keeps the scale of its input (He et al., 2015: gain 2 before a ReLU)."""
    matrix = generator.standard_normal((inputs, outputs), dtype=np.float32)
    return matrix * np.float32(math.sqrt(gain / inputs))


def _layer(generator: np.random.Generator, inputs: int, outputs: int, gain: float = 1.0) -> Any:
    matrix = _dense(generator, inputs, outputs, gain)
    return matrix, generator.standard_normal(outputs, dtype=np.float32) * np.float32(0.1)


def _mlp_weights(generator: np.random.Generator, width: int, layers: int) -> Any:
    widths = [PIXELS] + [width] * layers
    hidden = [_layer(generator, *ends, gain=2) for ends in itertools.pairwise(widths)]
    return [*hidden, _layer(generator, width, CLASSES)]


def _mlp(weights: Any, batch: jax.Array) -> jax.Array:
    *hidden, (last, last_bias) = weights
    for matrix, bias in hidden:
        batch = jax.nn.relu(batch @ matrix + bias)
    return batch @ last + last_bias


def _convnet_weights(generator: np.random.Generator, width: int, layers: int) -> Any:
    doublings = int(math.log2(IMAGE[0] // SMALLEST)) - 1
    channels = [IMAGE[-1]] + [width * 2 ** min(layer, doublings) for layer in range(layers)]
    convolutions = []
    for inputs, outputs in itertools.pairwise(channels):
        matrix, bias = _layer(generator, 9 * inputs, outputs, gain=2)
        convolutions.append((matrix.reshape(3, 3, inputs, outputs), bias))
    return [*convolutions, _layer(generator, channels[-1], CLASSES)]


def _convnet(weights: Any, batch: jax.Array) -> jax.Array:
    *convolutions, (last, last_bias) = weights
    axes = ("NHWC", "HWIO", "NHWC")
    for kernel, bias in convolutions:
        strides = (2, 2) if batch.shape[1] > SMALLEST else (1, 1)
        batch = jax.lax.conv_general_dilated(batch, kernel, strides, padding="SAME", dimension_numbers=axes)
        batch = jax.nn.relu(batch + bias)
    return batch.mean(axis=(1, 2)) @ last + last_bias


def _transformer_weights(
    generator: np.random.Generator, width: int, layers: int, length: int = LENGTH
) -> Any:
    if width % HEAD_WIDTH:
        raise ValueError(f"width of a transformer must be a multiple of {HEAD_WIDTH}, got {width}")
    blocks = [{
        "scale": np.ones((2, width), np.float32),
        "query_key_value": _dense(generator, width, 3 * width), "mix": _dense(generator, width, width),
        "up": _dense(generator, width, 4 * width, gain=2), "down": _dense(generator, 4 * width, width),
    } for _ in range(layers)]  # fmt: skip
    token, position = _dense(generator, width, TOKENS).T, _dense(generator, width, length).T
    return {"token": token, "position": position, "blocks": blocks, "scale": np.ones(width, np.float32)}


def _transformer(weights: Any, batch: jax.Array) -> jax.Array:
    """Return the logits of the next token, shape (batch, TOKENS): causal, with pre-normalisation.

    A sequence that ends before the last column is followed by negative numbers, which change no logit.
    """
    last = jnp.maximum((batch >= 0).sum(axis=1), 1) - 1
    state = weights["token"][jnp.maximum(batch, 0)] + weights["position"][: batch.shape[1]]
    for block in weights["blocks"]:
        state = state + _attention(_normalised(state, block["scale"][0]), block)
        hidden = jax.nn.gelu(_normalised(state, block["scale"][1]) @ block["up"])
        state = state + hidden @ block["down"]
    ends = state[jnp.arange(len(batch)), last]
    return _normalised(ends, weights["scale"]) @ weights["token"].T


def _attention(state: jax.Array, block: Any) -> jax.Array:
    size, length, width = state.shape
    heads = (state @ block["query_key_value"]).reshape(size, length, 3, width // HEAD_WIDTH, HEAD_WIDTH)
    query, key, value = heads[:, :, 0], heads[:, :, 1], heads[:, :, 2]
    scores = jnp.einsum("bqhw,bkhw->bhqk", query, key) / math.sqrt(HEAD_WIDTH)
    past = jnp.tril(jnp.ones((length, length), bool))
    share = jax.nn.softmax(jnp.where(past, scores, -jnp.inf))
    return jnp.einsum("bhqk,bkhw->bqhw", share, value).reshape(size, length, width) @ block["mix"]


def _normalised(state: jax.Array, scale: jax.Array) -> jax.Array:
    return state * jax.lax.rsqrt(jnp.mean(state**2, axis=-1, keepdims=True) + 1e-6) * scale


class _Architecture(NamedTuple):
    draw: Callable[..., Any]
    forward: Callable[[Any, jax.Array], jax.Array]
    item_shape: tuple[int, ...]
    width: int
    layers: int
    tokens: int | None = None


# Sizes at which one item takes about a millisecond on a laptop, and batching visibly pays.
_ARCHITECTURES = {
    "convnet": _Architecture(_convnet_weights, _convnet, IMAGE, width=64, layers=4),
    "mlp": _Architecture(_mlp_weights, _mlp, (PIXELS,), width=2048, layers=3),
    "transformer": _Architecture(
        _transformer_weights, _transformer, (LENGTH,), width=256, layers=4, tokens=TOKENS
    ),
}
