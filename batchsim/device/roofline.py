"""The peak rates of a device: its arithmetic, and its memory."""

import functools
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

LIMIT_S = 0.5  # for each of the two rates
LONG_ENOUGH_S = 0.005  # a call that dwarfs its start of about 20 µs
REPEATS = 5
LARGEST = 16_384  # the side of a matrix of float32 numbers: 1 GiB


class Roofline(NamedTuple):
    """The peak floating-point operations and bytes of a device per second."""

    flop_per_s: float
    bytes_per_s: float


@functools.cache
def roofline(device: jax.Device | None = None) -> Roofline:
    """Measure the roofline of a device, by default JAX's own, in about a second; cached for this process.

    The arithmetic is a product of square float32 matrices, as in the models; the memory is read and written
    in place. Matrices grow until a call takes 5 ms or half a second is over, because small ones stay in
    caches and their calls are mostly overhead. The fastest call counts, because slower ones were disturbed.

    >>> found = roofline()
    >>> found.flop_per_s > 1e6, found.bytes_per_s > 1e6
    (True, True)
    """
    device = jax.devices()[0] if device is None else device
    multiply = jax.jit(lambda matrix: matrix @ matrix)
    # In place, because the operating system allocates a new array page by page.
    write = jax.jit(lambda matrix: matrix + 1, donate_argnums=0)
    with jax.default_device(device):
        products = _fastest_s(multiply, 256, again=False)
        writes = _fastest_s(write, 4096, again=True)  # 64 MiB: more than most processors' caches
    largest = max(writes)
    return Roofline(
        flop_per_s=max(2.0 * side**3 / took_s for side, took_s in products.items()),
        bytes_per_s=2.0 * 4 * largest**2 / writes[largest],
    )


def _fastest_s(function: Callable[[jax.Array], jax.Array], side: int, again: bool) -> dict[int, float]:
    """Return the seconds of the fastest call by the side of its matrix, from `side` up.

    `again`: each call gets the output of the last one, which took its own input.
    """
    begin_s, fastest_s = time.perf_counter(), dict[int, float]()
    while True:
        matrix = jnp.ones((side, side), jnp.float32)
        for index in range(1 + REPEATS):
            call_s = time.perf_counter()
            output = function(matrix).block_until_ready()
            took_s = time.perf_counter() - call_s
            if index:  # the first compiles
                fastest_s[side] = min(took_s, fastest_s.get(side, took_s))
            matrix = output if again else matrix
        # Twice the side takes up to 8 times as long.
        too_long = time.perf_counter() - begin_s + 8 * REPEATS * fastest_s[side] > LIMIT_S
        if fastest_s[side] > LONG_ENOUGH_S or side == LARGEST or too_long:
            return fastest_s
        side *= 2
