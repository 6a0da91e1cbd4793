"""What VALIDATION.md compares of energy: measured power, each batch size of a curve held out in turn."""

import math
from statistics import median

import numpy as np

import batchsim as bs

SURE = 0.05  # relative: the error with which a row of medians agrees
TURNS = 4  # of full batches


def row(what, ours, theirs, tolerance=math.nan):
    from validation.page import Row  # which imports this module

    return Row(what, float(ours), math.nan, math.nan, float(theirs), tolerance)


def curves(per, on=""):
    """Return the published curves of tokens or of images, of one kind of GPU."""
    found = map(bs.published_watts, bs.published_names(watts=True))
    return [each for each in found if each.per == per and on in each.name.partition("/")[2]]


def joules(curve, size, lacks=None):
    """Return the simulated energy of a token, or image, in full batches; `lacks` is a size held out."""
    watts = {at: drawn for at, drawn in curve.watts.items() if at != lacks}
    ms = {
        at: 1000 * at * curve.joules[at] / drawn for at, drawn in watts.items()
    }  # as power is energy / time
    full = bs.SizeOrWait(size, math.inf)
    result = bs.simulate(bs.Scenario(bs.ClosedLoop(size), full, bs.Table(ms), watts=watts), TURNS * size)
    return result.summary()["joules_per_request"]


def held_out(curve):
    """Return (simulated, measured, size) of each size between the ends, held out, in order of the error."""
    found = [(joules(curve, size, size), curve.joules[size], size) for size in sorted(curve.joules)[1:-1]]
    return sorted(found, key=lambda each: abs(each[0] / each[1] - 1))


def typical(curve):
    """Return the one of `held_out` whose error is the median, the larger of two."""
    found = held_out(curve)
    return found[len(found) // 2]


def language_models():
    for gpu in ("a100", "h100", "b200"):
        found = {curve.name: typical(curve) for curve in curves("token", gpu)}
        for name, (ours, theirs, size) in found.items():
            yield row(f"{name}, batches of {size} held out: energy of a token (J)", ours, theirs)
        error = median(abs(ours / theirs - 1) for ours, theirs, _ in found.values())
        what = f"{gpu.upper()}, {len(found)} curves: 1 + median error"
        yield row(f"{what} of the energy", 1 + error, 1, SURE)
        for how, by in (("batch size", by_size), ("throughput, a line", by_throughput)):
            errors = [median(watts_errors(curve, by)) for curve in curves("token", gpu)]
            yield row(f"{what} of watts by {how}", 1 + median(errors), 1)


def by_size(curve, sizes, size):
    return np.interp(size, sizes, [curve.watts[each] for each in sizes])


def by_throughput(curve, sizes, size):
    watts = np.array([curve.watts[each] for each in sizes])
    per_s = watts / [curve.joules[each] for each in sizes]
    line = np.polynomial.Polynomial.fit(per_s, watts, 1, w=1 / watts)
    return line(curve.watts[size] / curve.joules[size])


def watts_errors(curve, by):
    """Return the relative error of watts at each size between the ends, held out."""
    for size in sorted(curve.watts)[1:-1]:
        others = sorted(curve.watts.keys() - {size})
        yield abs(by(curve, others, size) / curve.watts[size] - 1)


def gain(curve):
    """Yield how many times the best batch size's energy the smallest takes: simulated, measured."""
    sizes = sorted(curve.joules)
    for each in ([joules(curve, size) for size in sizes], [curve.joules[size] for size in sizes]):
        yield each[0] / min(each)


def gains():
    for per, what in (("token", "language models"), ("image", "image generators")):
        found = curves(per)
        ours, theirs = map(median, zip(*map(gain, found), strict=True))
        yield row(f"{len(found)} curves of {what}: smallest / best size, energy, median", ours, theirs, 1e-3)
    found = [typical(curve) for curve in curves("image")]
    error = median(abs(ours / theirs - 1) for ours, theirs, _ in found)
    yield row(f"image generators, {len(found)} curves: 1 + median error", 1 + error, 1, SURE)


GROUPS = [
    (
        "Energy of a token, at batch sizes held out",
        """ML.ENERGY measured the power of language models by batch size (`bs.published_watts`). Each size
between the ends of a curve is held out in turn. The time of a batch and the watts at that size are then
interpolated between its neighbours, and full batches are simulated; the watts are those of all GPUs. Each row
shows the size of the curve's median error, and has no verdict of its own. A curve's time between tokens
comes from its own power and energy, so a row tests the model of watts and its sums, not the time of a step of
another server. The watts themselves are interpolated by batch size, as `Scenario(watts=...)` does; the usual
model, a line of watts by throughput, is no better although it is given the throughput of the size that it
lacks. Source: <https://github.com/ml-energy/leaderboard> and leaderboard-v2, Apache-2.0.""",
        language_models,
    ),
    (
        "What batching saves",
        """The same curves. The first two rows agree by construction, as no size is held out: they show that
simulated sums return what was measured, and how far language models and image generators are apart.""",
        gains,
    ),
]
