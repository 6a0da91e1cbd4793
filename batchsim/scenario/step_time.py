"""The time of a step of token generation, from its tokens, reads and pairs."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from batchsim import _check
from batchsim._compat import bincount, repeat
from batchsim.scenario.data_sheets import Card, LanguageModel, card_named, model_named
from batchsim.scenario.parameters import parameter
from batchsim.scenario.service import Service, cost, fixed_ms, next_size, per_pair_ms

MOST_DRAFT = 1000


class StepCost(NamedTuple):
    """The five numbers of a `StepTime`, in ms."""

    fixed_ms: float
    weights_ms: float
    per_token_ms: float
    per_read_ms: float
    per_pair_ms: float


class WholeCost(NamedTuple):
    """The numbers of a `StepTime`, its speculation and its captured sizes, as the engines take them."""

    fixed_ms: float
    weights_ms: float
    per_token_ms: float
    per_read_ms: float
    per_pair_ms: float
    draft: int  # tokens; 0: no speculation
    draft_ms: float
    share: float  # of a speculating step that counts for each of its tokens
    captured: np.ndarray  # the captured size that each number of sequences is padded to; 0: none
    most_captured: int
    captures_prompts: bool
    beyond_ms: float


def step_ms(cost: WholeCost, tokens: int, reads: int, pairs: int, decodes: int) -> float:
    """Return the milliseconds of a step; `decodes` of its tokens are rows of one token.

    Python runs this, and Numba compiles it; both evaluate it in this order and round each operation.
    """
    more, padding, least_ms, alone = cost.draft * decodes, 0, cost.beyond_ms, tokens == decodes
    if alone or cost.captures_prompts:
        size = -(-(tokens + more) // (1 + cost.draft))
        if size <= cost.most_captured and cost.captured[size] > 0:
            padding, least_ms = int(cost.captured[size]) * (1 + cost.draft) - tokens - more, 0.0
    if cost.draft == 0 or decodes == 0:
        products_ms = max(cost.weights_ms, cost.per_token_ms * (tokens + padding))
        own_ms = cost.fixed_ms + products_ms + cost.per_read_ms * reads + cost.per_pair_ms * pairs
        return max(own_ms, least_ms)
    before_ms = cost.fixed_ms + cost.draft_ms + cost.per_read_ms * reads
    alone_ms = max(cost.weights_ms, cost.per_token_ms * (decodes + more + (padding if alone else 0)))
    products_ms = max(cost.weights_ms, cost.per_token_ms * (tokens + more + padding))
    prompts_ms = products_ms - alone_ms + cost.per_pair_ms * pairs
    # A real step with prompts happens as often as here, unlike one of decodes alone.
    missing_ms = max(least_ms - (before_ms + alone_ms + prompts_ms), 0.0) * (cost.share if alone else 1.0)
    return (before_ms + alone_ms) * cost.share + prompts_ms + missing_ms


@dataclass(frozen=True, repr=False)
class StepTime(Service):
    """A step takes `fixed + max(weights, per_token * tokens) + per_read * reads + per_pair * pairs` ms.

    `tokens` counts all rows. A row of one token reads the keys of its request, and its own: their sum is
    `reads`. A longer row of c tokens after k makes c * k + c (c + 1) / 2 `pairs` of a query and a key. Below
    weights / per_token tokens, reading the model's weights determines the time.

    A whole batch (`SizeOrWait`, `AtLeast`) pads prompts to its longest and computes every row to the end,
    unless `ragged`. Needs `tokens` in the scenario. The draft is that of `speculative`.

    A server records its kernels for some batch sizes (CUDA graphs), and replays them. `captured` has these
    numbers of sequences: a step in which each request makes one token takes the time of the next captured
    size, because it is padded; without `captured_padding` only the sizes themselves are replayed. Sizes above
    the seats of the rule are left out, as servers do. Any other step is launched kernel by kernel, and takes
    at least `beyond_ms`. Steps with prompts are not captured, unless `captured_prompts`: then the sizes are
    numbers of tokens, and also apply to steps with prompts. Without `captured`, no step is.

    >>> step = StepTime(fixed_ms=2, weights_ms=8, per_token_ms=0.1, per_read_ms=0.001, per_pair_ms=0.00001)
    >>> step.ms(tokens=100, pairs=5050)  # a prompt of 100
    12.0505
    >>> step.ms(tokens=1, reads=101)  # its next token
    10.101
    >>> step = StepTime(2, 8, 0.1, captured=(1, 2, 4, *range(8, 97, 8)), beyond_ms=60)
    >>> [round(step.ms(size, decodes=size), 1) for size in (80, 89, 96, 97)]
    [10.0, 11.6, 11.6, 60.0]
    """

    fixed_ms: float = fixed_ms()
    weights_ms: float = cost("Weights (ms)", "Time to read the model's weights in every step", 50, 0.1)
    per_token_ms: float = cost(
        "Per token (ms)",
        "Time to compute each token of a step; it counts once it exceeds the time of the weights", 0.5, 0.001,
    )  # fmt: skip
    per_read_ms: float = cost(
        "Per key read (ms)", "Time for a decode to read one token's keys and values", 0.002, 0.00001,
        default=0.0,
    )  # fmt: skip
    per_pair_ms: float = per_pair_ms()
    _: KW_ONLY
    ragged: bool = False
    draft: int = 0
    acceptance: float = 0.0
    draft_ms: float = 0.0
    captured: tuple[int, ...] | None = parameter(
        "Captured sizes",
        "Sequences that steps of decodes are padded to (CUDA graphs), e.g. 1, 2, 4, 8, 16", type="sizes",
        when_none="none", default=None,
    )  # fmt: skip
    captured_padding: bool = True
    captured_prompts: bool = False
    beyond_ms: float = cost(
        "Uncaptured (ms)",
        "Least time of a step without a graph, whose kernels are launched one by one", 200, 1, default=0.0,
    )  # fmt: skip

    def check(self) -> None:
        _check.fix_real(self, "draft_ms", at_least=0)
        _check.fix_whole(self, "draft", at_least=0, at_most=MOST_DRAFT)
        _check.fix_real(self, "acceptance", at_least=0, at_most=1)
        if not self.draft and (self.acceptance or self.draft_ms):
            given = f"acceptance={self.acceptance!r} and draft_ms={self.draft_ms!r}"
            raise ValueError(f"draft must be at least 1 with an acceptance or draft_ms, got 0 and {given}")
        if self.fixed_ms + max(self.weights_ms, self.per_token_ms) <= 0:
            raise ValueError("a step of one token must take longer than 0 ms, got 0")
        for name in ("ragged", "captured_padding", "captured_prompts"):
            _check.instance(name, getattr(self, name), bool, "True or False")
        if self.padding is not None:
            rule = "padded sizes need a service time by batch size, as Affine or Table"
            hint = "whole batches are padded unless ragged=True, and steps to the sizes in captured"
            raise ValueError(f"{rule}, got a StepTime ({hint})")
        super().check()

    @classmethod
    def fit(cls, steps: Any, ms: Any = None) -> Self:
        """Return the step time with the least squares of relative errors on measured steps.

        `steps` has columns `tokens`, `reads` and `pairs`, like `Result.steps`, a DataFrame or a dict of
        arrays; `ms` has the time of each, by default its column `ms`, or finish_s - start_s. If only groups
        of steps were measured, such as whole batches, `steps` is a list of such columns, one for each number
        of `ms`.

        Fit to the steps of a run, never to a uniform grid, where steps that no server makes count as much as
        frequent ones. Simulate with a first guess, take `result.steps`, measure these, fit, and simulate
        again. `fixed_ms + weights_ms` is well determined; their split is not, if few steps have enough tokens
        for arithmetic to take longer than reading the weights.

        >>> real = StepTime(6.88, 9.997, 0.09631, 1.922e-4, 1.225e-6)
        >>> steps = {"tokens": [1, 40, 130, 512, 2048], "reads": [900, 40_000, 90_000, 0, 9000],
        ...          "pairs": [0, 0, 5000, 131_328, 2_000_000]}
        >>> ms = [real.ms(*row) for row in zip(*steps.values(), strict=True)]
        >>> found = StepTime.fit(steps, ms)
        >>> bool(abs(found.errors(steps, ms)).max() < 1e-3), round(found.fixed_ms + found.weights_ms, 2)
        (True, 16.88)
        """
        return cls(*fitted(steps, ms))

    def errors(self, steps: Any, ms: Any = None) -> np.ndarray:
        """Return the relative error at each measured step, or list of steps; above 0 if this is slower.

        `steps` and `ms` as `fit` takes them.
        """
        if not self.by_sums:
            rule = "errors must be those of steps without speculation and captured sizes"
            raise ValueError(f"{rule}, got {self!r}")
        rows, times_ms, of = measured(steps, ms)
        fixed, weights, per_token, per_read, per_pair = self.cost
        each_ms = fixed + np.maximum(weights, per_token * rows[:, 0]) + rows[:, 1:] @ [per_read, per_pair]
        return bincount(of, each_ms) / times_ms - 1

    @classmethod
    def roofline(
        cls, model: str | LanguageModel, gpu: str | Card, fixed_ms: float, *, gpus: int = 1,
        weight_bytes: float = 2, kv_bytes: float = 2, bandwidth_share: float = 0.85,
        flops_share: float | None = None,
    ) -> Self:  # fmt: skip
        """Return a first guess from the data sheets of a model and a GPU: the roofline.

        `model` and `gpu` are names (`batchsim.scenario.data_sheets` has them) or your own sheets.
        `weight_bytes` of a parameter, `kv_bytes` of a key's number: 2 in 16 bits, 1 in fp8. Reading uses
        `bandwidth_share` of the GPU's bandwidth (usual: 0.75 to 0.95), and products use `flops_share` of its
        16-bit rate, by default the card's own: 1 for an RTX 4090, 0.5 for the others (usual: 0.4 to 0.6).
        Measure `fixed_ms`, the time of launching, sampling and the host: 0.5 to 7 ms on real servers.
        Mixtures of experts are not covered: they read more weights with more tokens in a step.

        On one GPU, prompts of 512 to 2,048 tokens agree with `published` steps within a factor of 2.1, and
        within 10 % on an RTX 4090. Several `gpus` share the work evenly. Their communication is not included,
        and a warning tells you: in published steps, four H100s take 1.3 times as long for decodes of a 70B
        model, and 2.2 times for its prompts.

        >>> guess = StepTime.roofline("llama-3.1-8b", "h100", fixed_ms=2)
        >>> round(guess.weights_ms, 2), round(guess.weights_ms / guess.per_token_ms)
        (5.64, 174)
        """
        of = model if isinstance(model, LanguageModel) else model_named(model)
        on = gpu if isinstance(gpu, Card) else card_named(gpu)
        gpus = _check.whole("gpus", gpus)
        flops_share = on.flops_share if flops_share is None else flops_share
        for name, share in (("bandwidth_share", bandwidth_share), ("flops_share", flops_share)):
            _check.real(name, share, above=0, at_most=1)
        for name, size in (("weight_bytes", weight_bytes), ("kv_bytes", kv_bytes)):
            _check.real(name, size, above=0, at_most=8)
        if gpus > 1:
            missing = f"the communication of {gpus} gpus is not included, so steps are too short"
            _check.warn(f"{missing}: add it to fixed_ms and per_token_ms, or fit measured steps")
        byte_ms = 1e-6 / (on.gigabytes_per_s * bandwidth_share * gpus)
        flop_ms = 1e-9 / (on.tera_flops * flops_share * gpus)
        return cls(
            fixed_ms, of.parameters * weight_bytes * byte_ms, 2 * of.parameters * flop_ms,
            of.kv_bytes(kv_bytes) * byte_ms, 4 * of.layers * of.heads * of.head_size * flop_ms,
        )  # fmt: skip

    def speculative(self, draft: int, acceptance: float, draft_ms: float) -> Self:
        """Return this time with speculative decoding: a small model drafts `draft` tokens for each request.

        A step verifies them together, and costs the products of draft + 1 tokens for each request that
        generates, and `draft_ms` for drafting. Each drafted token is accepted with the probability
        `acceptance` if those before it are, so a step makes the sum of acceptance ** k, k from 0 to draft,
        tokens on average (Leviathan, Kalman and Matias, ICML 2023). With few requests a step takes as long as
        without a draft, because it reads the weights; with many, arithmetic is short, and rejected tokens
        waste it.

        The simulation stays at one token a step, and each step costs its share of a speculating step. So
        times are those of the mean: real tokens come several at a time, with longer gaps between. Drafted
        tokens count neither in the budget nor in the memory.

        >>> step = StepTime(2, 8, 0.1)
        >>> fast = step.speculative(draft=4, acceptance=0.7, draft_ms=2)
        >>> round(fast.tokens_a_step, 3)
        2.773
        >>> [round(each.ms(n, decodes=n) / n, 3) for n in (1, 100) for each in (step, fast)]
        [10.0, 4.327, 0.12, 0.195]
        """
        draft = _check.whole("draft", draft)
        return dataclasses.replace(self, draft=draft, acceptance=acceptance, draft_ms=draft_ms)

    @property
    def tokens_a_step(self) -> float:
        """The mean number of tokens that a real step makes for a request; 1 without speculation."""
        return float(sum(self.acceptance**accepted for accepted in range(self.draft + 1)))

    @property
    def cost(self) -> StepCost:
        """The five numbers."""
        return StepCost(*(float(getattr(self, name)) for name in StepCost._fields))

    @property
    def by_sums(self) -> bool:
        """Whether tokens, reads and pairs alone give a step's time, so that formulas cover it."""
        return not self.draft and self.captured is None and not self.beyond_ms

    def check_seats(self, seats: int) -> None:
        """Raise ValueError if all captured sizes are above the seats."""
        if self.captured and not self.captured_prompts:
            least = "the smallest size in captured"
            _check.at_most(least, self.captured[0], seats, "the number of seats")

    def whole_cost(self, seats: float = math.inf) -> WholeCost:
        """Return the numbers that `step_ms` takes, of a server with these seats."""
        sizes = self.captured or ()
        most = max((size for size in sizes if size <= seats or self.captured_prompts), default=0)
        return WholeCost(
            *self.cost, self.draft, float(self.draft_ms), 1 / self.tokens_a_step,
            _table(sizes, self.captured_padding), most, self.captured_prompts, float(self.beyond_ms),
        )  # fmt: skip

    def padded_decodes(self, sizes: Any, seats: float = math.inf) -> np.ndarray:
        """Return the captured sizes of steps with one token of each of `sizes` requests; 0: not captured.

        >>> StepTime(2, 8, 0.1, captured=[1, 2, 4, 8]).padded_decodes([1, 3, 6, 8, 9], seats=7)
        array([1, 4, 0, 0, 0])
        """
        cost, sizes = self.whole_cost(seats), np.asarray(sizes, np.int64)
        return np.where(sizes > cost.most_captured, 0, cost.captured[np.minimum(sizes, cost.most_captured)])

    def ms(self, tokens: int, reads: int = 0, pairs: int = 0, decodes: int = 0) -> float:
        """Return the mean milliseconds of a step; `decodes`: its rows of one token."""
        return step_ms(self.whole_cost(), tokens, reads, pairs, decodes)

    def __call__(self, batch_size: int) -> float:
        raise TypeError(
            f"a StepTime must be called as .ms(tokens, reads, pairs), got batch_size={batch_size!r}"
        )

    def scaled(self, factor: float, max_batch_size: int) -> "StepTime":  # type: ignore[override]
        """Return this time multiplied by `factor`, at all sizes; the noise stays."""
        factor = _check.real("factor", factor, above=0)
        times_ms = self.cost._asdict() | {"draft_ms": self.draft_ms, "beyond_ms": self.beyond_ms}
        return dataclasses.replace(self, **{name: ms * factor for name, ms in times_ms.items()})

    def table(self, max_batch_size: int) -> np.ndarray:
        raise ValueError(f"a service time by batch size is needed here, got {self!r}")

    def __repr__(self) -> str:
        numbers = ", ".join(f"{name}={getattr(self, name)!r}" for name in StepCost._fields)
        own = (field for field in dataclasses.fields(self) if field.name in StepTime.__annotations__)
        others = {each.name: each.default for each in own if each.name not in StepCost._fields}
        more = "".join(
            f", {name}={value!r}" for name, usual in others.items() if (value := getattr(self, name)) != usual
        )
        return f"StepTime({numbers}{more})" + self._suffix()


@functools.lru_cache(maxsize=64)
def _table(sizes: tuple[int, ...], pads: bool) -> np.ndarray:
    """Return the captured size of each number of sequences up to the largest one, 0 where there is none."""
    each = range(1, sizes[-1] + 1 if sizes else 1)
    return np.array([0, *(next_size(sizes, size) if pads or size in sizes else 0 for size in each)], np.int64)


# The fit of a `StepTime` to measured steps.


COLUMNS = ("tokens", "reads", "pairs")
KINKS = 48  # candidates between the fewest and the most tokens of a step; the best are refined
FINEST = 1e-5  # the relative precision of the kink


def fitted(steps: Any, ms: Any) -> list[float]:
    """Return the five numbers nearest to measured steps: see `StepTime.fit`.

    The kink is the number of tokens from which on arithmetic takes longer than reading the weights. For a
    given kink the time is linear in the four other numbers, so non-negative least squares of the relative
    errors solves for them; a search finds the kink.
    """
    from scipy.optimize import minimize_scalar, nnls  # it takes 0.25 s to load

    rows, times_ms, of = measured(steps, ms)
    tokens = rows[:, 0]

    def relative(column: np.ndarray) -> np.ndarray:
        return bincount(of, column) / times_ms

    steady = [relative(column) for column in (np.ones(tokens.size), rows[:, 1], rows[:, 2])]

    def solved(kink: float) -> tuple[float, np.ndarray]:
        columns = np.column_stack([steady[0], relative(np.maximum(tokens, kink)), *steady[1:]])
        scale = np.maximum(columns.max(axis=0), 1e-300)  # tokens and pairs differ by many orders
        # QR keeps the residual norms, so the solver sees five rows instead of thousands.
        triangle: Any = np.linalg.qr(np.column_stack([columns / scale, np.ones(times_ms.size)]), mode="r")
        factors, rest = nnls(triangle[:, :-1], triangle[:, -1])
        return rest, factors / scale

    low, high = float(tokens.min()), float(tokens.max())
    tried = np.geomspace(low, high, KINKS) if high > low else np.array([high])
    found = [(solved(kink)[0], kink) for kink in tried.tolist()]
    # Few steps leave several local minima between their numbers of tokens.
    for at in range(1, tried.size - 1):
        if found[at][0] <= min(found[at - 1][0], found[at + 1][0]):
            between, options = (tried[at - 1], tried[at + 1]), {"xatol": FINEST * tried[at]}
            best = minimize_scalar(lambda x: solved(x)[0], bounds=between, method="bounded", options=options)
            found.append((float(best.fun), float(best.x)))
    kink = min(found)[1]
    fixed, per_token, per_read, per_pair = solved(kink)[1].tolist()
    return [fixed, per_token * kink, per_token, per_read, per_pair]


def measured(steps: Any, ms: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the columns of steps, the measured times in ms, and the index of each step's time.

    Arrays of shape (steps, 3), (measurements,) and (steps,). Wrong steps raise ValueError or TypeError.
    """
    several = isinstance(steps, Sequence) and not isinstance(steps, (str, bytes))
    parts = [_columns(part) for part in (steps if several else [steps])]
    if not parts or not all(part.size for part in parts):
        raise ValueError("steps must not be empty, got none")
    rows = np.concatenate(parts)
    if several:
        if ms is None:
            raise ValueError("ms must be given, the time of each of these lists of steps, got None")
        of = repeat(np.arange(len(parts)), [len(part) for part in parts])
    else:
        of = np.arange(len(rows))
        if ms is None and hasattr(steps, "keys") and "ms" in steps:
            ms = steps["ms"]
        elif ms is None:
            finish_s, start_s = (np.asarray(_column(steps, f"{end}_s"), float) for end in ("finish", "start"))
            ms = (finish_s - start_s) * 1000
    times_ms = np.asarray(ms, float)
    if times_ms.shape != (of[-1] + 1,):
        raise ValueError(f"ms must have a time for each of {of[-1] + 1:,}, got shape {times_ms.shape}")
    for bad in np.flatnonzero(~((times_ms > 0) & np.isfinite(times_ms))):
        raise ValueError(f"ms must be above 0, got {times_ms[bad]} at index {bad}")
    return rows, times_ms, of


def _columns(steps: Any) -> np.ndarray:
    columns = []
    for name in COLUMNS:
        column = np.asarray(_column(steps, name), float)
        least = 1 if name == "tokens" else 0
        for bad in np.flatnonzero(~((column >= least) & np.isfinite(column))):
            raise ValueError(f"{name} of a step must be at least {least}, got {column[bad]} at index {bad}")
        columns.append(column)
    if len({column.shape for column in columns}) > 1 or columns[0].ndim != 1:
        raise ValueError(f"steps must have columns of one length, got {[c.shape for c in columns]}")
    return np.column_stack(columns)


def _column(steps: Any, name: str) -> Any:
    """Return a column of `Result.steps`, of a mapping or of a DataFrame."""
    try:
        return steps[name] if hasattr(steps, "keys") else getattr(steps, name)
    except (AttributeError, KeyError):
        rule = f"steps must have columns {', '.join(COLUMNS)}, as Result.steps has"
        raise TypeError(f"{rule}, got {type(steps).__name__} without {name}") from None
