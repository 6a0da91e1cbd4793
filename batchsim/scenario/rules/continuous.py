"""Continuous batching: each step of token generation has a new batch."""

from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, fields
from enum import StrEnum
from typing import Any

import numpy as np

from batchsim import _check
from batchsim.scenario.parameters import parameter
from batchsim.scenario.prefixes import HashIds
from batchsim.scenario.rules.rule import Rule, Step

FIRST = ("decode", "prefill")
RESERVE = ("step", "life")
MOST = 2**31
WAITS = "batch_wait_timeout_iters", "batch_wait_max_tokens_ratio", "batch_wait_timeout_ms"
DELAYS = "queue_min_ratio", "max_delay_ms", "token_usage_low_watermark"
QUIET = "max_model_len", "prefill_delayer", *DELAYS  # `repr` omits their defaults


class Ending(StrEnum):
    """Why no more rows join a step: a row had to leave, what is used up, or that nobody else waits."""

    PREEMPT = "preempt"
    BUDGET = "budget"
    SEATS = "seats"
    MEMORY = "memory"
    ALL = "all"


class NeverServed(ValueError):
    """A request that no run can serve."""


def _share(name: str, about: str, default: float = 0.0, **more: Any) -> Any:
    """Return a field of a real number, at least 0, in a server's own word."""
    return parameter(name, about, default=default, type="real", at_least=0, **{"usual": default} | more)


@dataclass(frozen=True)
class Continuous(Rule):
    """Continuous batching of token generation: each step chooses its rows, and requests join and leave.

    A request has a prompt and an output; it has generated `made` tokens so far, known = prompt + made, and
    `held` of these are in memory, in blocks of `block_size`. A row of n tokens raises `held` by n; once held
    = known, the step's end generates a token. Whenever an engine is free and requests wait or run:

        schedule:
          budget = max_num_batched_tokens
          first = "decode":   RUNNING(all); WAITING
          first = "prefill":  RUNNING(prompts that were cut); WAITING
                              if there is no row: RUNNING(all), without a budget
          every row: held += n

        RUNNING: in order of admission, while budget > 0:
          n = known - held, at most long_prefill_token_threshold, if that is above 0
          chunked: at most the budget; else skip a request whose n is above it
          while the blocks for held + n are not free:
            preempt the LAST of running: its blocks are free, held = 0, it goes to the HEAD of waiting
            if that was the request itself: leave RUNNING
          take the blocks, add the row, budget -= n

        WAITING, unless this step preempted: from the head, while budget > 0 and fewer than max_num_seqs run:
          n as above; stop if not chunked and n is above the budget
          reserve = "life":  stop unless the blocks for prompt + limit - 1 are free; take them all
          reserve = "step":  stop unless those for known are free beyond watermark_blocks; take those for n
          it runs, as the last; add the row, budget -= n

        end of the step: rows with held = known generate a token, the first at `first_token_s`; requests with
        the whole output leave, and their blocks are free

    A preempted request keeps its tokens and computes them again (recompute). `kv_blocks` is the number of
    usable blocks of each engine; None: unlimited. The defaults are vLLM's. Needs `tokens`, and a `StepTime`.

    `max_model_len`: the most tokens of a request, prompt and output together. A server refuses longer
    requests, so a scenario whose lengths can be longer is refused.

    `prefix_reuse`: vLLM's prefix cache. Free blocks keep their contents until they are taken again, in the
    order in which they were freed, a request's last blocks first. So a preempted request may find its first
    full blocks again, and a prompt those of another prompt with the same prefix (`tokens.prefixes`), whether
    that runs or has left; it computes only the rest, at least one token. A block in use by several requests
    is counted once. If a request fills a block whose contents are in use already, its own block is free
    again.

    >>> Continuous(max_num_seqs=64, kv_blocks=300).max_num_batched_tokens
    2048
    """

    max_num_seqs: int = parameter(
        "max_num_seqs", "No more requests run at once", default=256, at_most=MOST, slider=(1, 256, 1),
        usual=256,
    )  # fmt: skip
    max_num_batched_tokens: int = parameter(
        "max_num_batched_tokens", "A step computes no more tokens", default=2048, at_most=MOST,
        slider=(16, 16_384, 0.01), log=True, usual=2048,
    )  # fmt: skip
    _: KW_ONLY
    first: str = "decode"
    chunked: bool = True
    reserve: str = "step"
    kv_blocks: int | None = None
    block_size: int = parameter(
        "Block size (tokens)", "Tokens in a block of memory", default=16, at_most=MOST, slider=(1, 256, 1),
        usual=16,
    )  # fmt: skip
    watermark_blocks: int = parameter(
        "Watermark (blocks)",
        "Blocks kept free when a request is admitted",
        default=0,
        at_least=0,
        at_most=MOST,
    )
    long_prefill_token_threshold: int = parameter(
        "Long prefill", "Tokens of one prompt in a step, 0: any", default=0, at_least=0, at_most=MOST
    )
    prefix_reuse: bool = False
    max_model_len: int | None = None

    decides = False
    title = "Continuous batching"
    used_by = "vLLM, TensorRT-LLM, Orca"
    map_knobs = ("max_num_seqs", "max_num_batched_tokens")
    holds = False  # whether prompts may have to wait although they would fit
    wait_ms = 0.0  # before each step, for new requests

    def check(self) -> None:
        _check.one_of("first", self.first, FIRST)
        _check.one_of("reserve", self.reserve, RESERVE)
        for name in ("chunked", "prefix_reuse"):
            _check.instance(name, getattr(self, name), bool, "True or False")
        for name in ("kv_blocks", "max_model_len"):
            if getattr(self, name) is not None:
                _check.fix_whole(self, name, at_most=MOST)

    def __repr__(self) -> str:
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.repr}
        quiet = {f.name for f in fields(self) if f.name in QUIET and values[f.name] == f.default}
        said = [f"{name}={value!r}" for name, value in values.items() if name not in quiet]
        return f"{type(self).__name__}({', '.join(said)})"

    def check_fixed(self, **fixed: Any) -> None:
        """Raise ValueError if a parameter differs from its fixed value in the server's rule."""
        for name, value in fixed.items():
            if (given := getattr(self, name)) != value:
                raise ValueError(f"{name} must be {value!r} in a {type(self).__name__}, got {given!r}")

    def check_tokens(self, tokens: Any) -> None:
        """Raise ValueError if the lengths of a scenario's requests are not those of this rule."""
        if self.max_model_len is not None:
            tokens.check_longest(self.max_model_len)
        ids = tokens.prefixes
        if self.reuses and isinstance(ids, HashIds) and ids.piece_tokens % self.block_size:
            needs = "the tokens of a hash id must be a multiple of block_size"
            raise ValueError(f"{needs}, got {ids.piece_tokens} and {self.block_size}")

    @property
    def reuses(self) -> bool:
        """Whether free blocks keep their contents."""
        return self.prefix_reuse and self.reserve == "step"

    @property
    def max_batch_size(self) -> int:  # type: ignore[override]
        return self.max_num_seqs

    @property
    def enough(self) -> int:
        return 1

    @property
    def steps(self) -> tuple[Step, ...]:
        """Where the choice of a step's rows ends, with an `Ending` for a trigger."""
        limited, grows = self.kv_blocks is not None, self.reserve == "step"
        blocks = "no blocks for the next" if grows else "no blocks for the next one's life"
        budget = "the budget is used", "others wait"
        held = ", or held back" * self.holds
        if not self.chunked:
            above = "a limit" if held else "budget or memory" if limited else "the budget"
            budget = f"the next is above {above}{held}", "it waits"
        found = [("blocks run out", "preempt the last", Ending.PREEMPT)] * (limited and grows)
        found += [(*budget, Ending.BUDGET), (f"{self.max_num_seqs:,} run", "others wait", Ending.SEATS)]
        blocks = "held back, or " * self.holds + blocks if limited else "the next is held back"
        found += [(blocks, "it waits", Ending.MEMORY)] * ((limited or self.holds) and self.chunked)
        join = "all that wait join"
        return (*(Step(*each, f"{each[0]}: {each[1]}") for each in found), Step("", join, Ending.ALL, join))

    def ended(self, log: Any) -> np.ndarray:
        """Return the number of the one of `steps` that ended each step of a run, from `Result.steps`."""
        number = {step.trigger: i for i, step in enumerate(self.steps)}
        others = log.waiting > 0
        found = np.full(len(log), number[Ending.ALL])
        found[others] = number.get(Ending.MEMORY, number[Ending.BUDGET])
        found[others & (log.running >= self.max_num_seqs)] = number[Ending.SEATS]
        found[others & (log.tokens >= self.max_num_batched_tokens)] = number[Ending.BUDGET]
        if Ending.PREEMPT in number:
            found[log.preempted > 0] = number[Ending.PREEMPT]
        return found


# Which requests can be served at all.


Chunks = Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]]  # prompts, outputs and limits


def _blocks(rule: Continuous, prompts: np.ndarray, outputs: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Return the most blocks that each request ever holds, or reserves."""
    return -(-(prompts + (limits if rule.reserve == "life" else outputs) - 1) // rule.block_size)


def _usable(rule: Continuous) -> int:
    return (rule.kv_blocks or 0) - (0 if rule.reserve == "life" else rule.watermark_blocks)


def _largest_piece(rule: Continuous, prompts: np.ndarray, outputs: np.ndarray, short: bool) -> np.ndarray:
    """Return the most tokens that each request computes at once: all it has, if it may be preempted late."""
    uncut = prompts + outputs - 1 if short else prompts
    return np.minimum(uncut, rule.long_prefill_token_threshold or uncut)


def check_lengths(scenario: Any, chunks: Callable[[], Chunks]) -> None:
    """Raise NeverServed with the first request that can never run: later ones would wait for ever."""
    rule = scenario.rule
    if not isinstance(rule, Continuous) or (rule.kv_blocks is None and rule.chunked):
        return
    short = False  # of memory, so that requests may be preempted
    if rule.kv_blocks is not None:
        first = most = 0
        for prompts, outputs, limits in chunks():
            blocks = _blocks(rule, prompts, outputs, limits)
            for bad in np.flatnonzero(blocks > _usable(rule)):
                needed = prompts[bad] + (limits if rule.reserve == "life" else outputs)[bad] - 1
                got = f"{needed:,} tokens, {blocks[bad]:,} blocks, of request {first + bad:,}"
                fit = f"a request must fit into the memory, {_usable(rule):,} blocks of a server"
                raise NeverServed(f"{fit}, got {got}")
            first, most = first + prompts.size, max(most, int(blocks.max()))
        short = rule.reserve != "life" and min(rule.max_num_seqs, first) * most > rule.kv_blocks
    first, budget = 0, rule.max_num_batched_tokens
    for prompts, outputs, _ in () if rule.chunked else chunks():
        pieces = _largest_piece(rule, prompts, outputs, short)
        for bad in np.flatnonzero(pieces > budget):
            got = f"{pieces[bad]:,} tokens of request {first + bad:,}"
            raise NeverServed(f"a prompt that is not chunked must fit into the budget, {budget:,}, got {got}")
        first += prompts.size


def servable(rule: Rule, prompts: np.ndarray, outputs: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Return which requests can be served, by the conditions of `check_lengths`."""
    if not isinstance(rule, Continuous):
        return np.ones(prompts.size, bool)
    short, kept = False, np.ones(prompts.size, bool)
    if rule.kv_blocks is not None:
        blocks = _blocks(rule, prompts, outputs, limits)
        kept = blocks <= _usable(rule)
        most = int(blocks[kept].max(initial=0))
        short = rule.reserve != "life" and rule.max_num_seqs * most > rule.kv_blocks
    if not rule.chunked:
        kept &= _largest_piece(rule, prompts, outputs, short) <= rule.max_num_batched_tokens
    return kept


# TensorRT-LLM's waits.


@dataclass(frozen=True, repr=False)
class BatchWait(Continuous):
    """TensorRT-LLM's waits: prompts are held back until a step has enough tokens, or time is over.

    As `Continuous`, but a step with prompts and with next tokens is judged again (`_waiting_requests`,
    _torch/pyexecutor/py_executor.py, 2026):

        tokens = those of its prompts' rows, and one, plus what is drafted, for each other row
        if held >= batch_wait_timeout_iters or tokens >= batch_wait_max_tokens_ratio * max_num_batched_tokens:
          held = 0
        else: its prompts neither run nor take memory; held += 1

    So each of the two numbers has an effect only with the other: without iterations, or with a ratio of 0, no
    prompt is held back. Versions before 2026 count all tokens of a cut prompt.

    batch_wait_timeout_ms (`get_from_request_queue`, executor_request_queue.py) waits before EVERY step, also
    while answers run, until max_num_seqs new requests have come or the time is over. It begins with the last
    step, whose results are not awaited: a shorter time costs nothing while steps follow each other. Without
    `overlap` it begins at the last step's end. An idle engine waits from its first request on.

    Only the SimPy engine has this rule. Needs `tokens`, and a `StepTime`.

    >>> BatchWait(64, batch_wait_timeout_iters=10, batch_wait_max_tokens_ratio=0.5).holds
    True
    """

    _: KW_ONLY
    batch_wait_timeout_iters: int = parameter(
        "batch_wait_timeout_iters", "No prompt is held back for more steps", default=0, at_least=0,
        at_most=MOST, usual=10,
    )  # fmt: skip
    batch_wait_max_tokens_ratio: float = _share(
        "batch_wait_max_tokens_ratio",
        "A step with this share of the budget holds none",
        at_most=1,
        usual=0.25,
    )
    batch_wait_timeout_ms: float = _share("batch_wait_timeout_ms", "Each step waits for new requests")
    overlap: bool = True

    title = "Continuous, batch wait"
    used_by = "TensorRT-LLM"
    compiled = False

    def check(self) -> None:
        super().check()
        self.check_fixed(first="decode", prefix_reuse=False)
        _check.instance("overlap", self.overlap, bool, "True or False")

    @property
    def holds(self) -> bool:  # type: ignore[override]
        return self.batch_wait_timeout_iters > 0 and self.batch_wait_max_tokens_ratio > 0

    @property
    def wait_ms(self) -> float:  # type: ignore[override]
        return self.batch_wait_timeout_ms


# SGLang's rule.


CLIP = 4096  # tokens: the longest remaining output that the rule expects
LOOK_AHEAD = 20  # tokens that each remaining request can generate after a retraction


@dataclass(frozen=True, repr=False)
class NewTokenRatio(Continuous):
    """SGLang's rule: steps of prompts alone, cut, with memory for a learned share of the outputs.

    As `Continuous(first="prefill")`, but the remaining outputs of the running requests limit who joins, and
    their tokens so far determine who goes back. rest = min(limit - made, 4096):

        if a cut prompt remains, or requests wait and the memory is not `full`: a step of PROMPTS
          total = free tokens - ratio * the sum of rest over the running requests
          input = max_prefill_tokens; chunk = max_num_batched_tokens
          the cut prompt: as much as chunk and memory allow
          from the head of waiting, while fewer than max_num_seqs run:
            stop if total, input or chunk is used up; if total is, it is `full`
            stop if known + rest is not below total: then it is `full`; a request alone never stops here
            stop if known is above input, unless this is the first of the step
            it runs; add the row, cut to chunk; subtract known (and rest, unless cut) from total
        else a step of one token for each running request (mixed: both steps are one, and the ratio stays)
          if memory is short: sort by `made`, descending, then by prompt, ascending; the last one goes back to
            the TAIL of waiting, and so on until the others fit; one request always stays;
            ratio = (made + 20 for each remaining one) / (the sum of their limits + 1), at most 1
          else ratio -= (init_new_token_ratio - min_new_token_ratio) / decay_steps, down to the least

    The memory is no longer `full` once a request leaves; an idle engine starts again with
    init_new_token_ratio. Only the SimPy engine has this rule. Needs `tokens`, and a `StepTime`.

    With `prefill_delayer` (managers/prefill_delayer.py, 2026, one rank) a request that could join, and a cut
    prompt, ask first, once a step; after a no none joins, while a cut prompt and running requests go on:

        yes, if the used share of the memory is below token_usage_low_watermark
        most = the most prompts in a step so far
        short = fewer wait than min(floor(queue_min_ratio * running), most), for less than max_delay_ms
        no, if short, or if fewer than `most` seats are free; but the very first no is a yes

    A delay ends at a yes, and at a step at which nobody asks.

    >>> NewTokenRatio(max_num_seqs=64, kv_blocks=40_000).min_new_token_ratio
    0.098
    """

    _: KW_ONLY
    first: str = "prefill"
    block_size: int = parameter("Block size", "Tokens in a block of memory", default=1, at_most=MOST)
    max_prefill_tokens: int = parameter(
        "max_prefill_tokens", "A step begins no more prompts than these tokens", default=16_384,
        at_most=MOST, usual=16_384,
    )  # fmt: skip
    init_new_token_ratio: float = _share(
        "init_new_token_ratio", "The share of the remaining output that is kept free at first", 0.7, at_most=1
    )
    min_new_token_ratio: float = _share("min_new_token_ratio", "The final share", 0.098)
    decay_steps: int = parameter(
        "Decay (steps)", "Steps of tokens until the ratio is the least", default=600, at_most=MOST, usual=600
    )
    mixed: bool = False
    prefill_delayer: bool = False
    queue_min_ratio: float = _share("queue_min_ratio", "This many must wait, for each running request")
    max_delay_ms: float = _share("max_delay_ms", "Fewer than that wait no longer", 5000.0)
    token_usage_low_watermark: float = _share(
        "token_usage_low_watermark", "No prompt is held back while less of the memory is used", at_most=1
    )

    title = "Continuous, new token ratio"
    used_by = "SGLang"
    compiled = False

    def check(self) -> None:
        super().check()
        self.check_fixed(first="prefill", chunked=True, reserve="step", watermark_blocks=0)
        self.check_fixed(long_prefill_token_threshold=0, prefix_reuse=False)
        for name in ("mixed", "prefill_delayer"):
            _check.instance(name, getattr(self, name), bool, "True or False")
        _check.fix_real(self, "min_new_token_ratio", at_least=0, at_most=self.init_new_token_ratio)
        if self.token_usage_low_watermark and self.kv_blocks is None:
            raise ValueError("memory must be limited with token_usage_low_watermark, got kv_blocks=None")

    @property
    def holds(self) -> bool:  # type: ignore[override]
        return self.prefill_delayer


# Text Generation Inference's rule.


@dataclass(frozen=True, repr=False)
class WaitingServedRatio(Continuous):
    """Text Generation Inference's rule: steps of prompts alone once enough wait, with memory for all tokens.

    As `Continuous(first="prefill", reserve="life")`, but the running requests do not pause for a few prompts:

        JOIN(fewest, budget): from the head of waiting, while fewer than max_num_seqs run:
          stop unless the blocks for prompt + limit - 1 are free; take them all
          stop if the prompt is above the rest of the budget (chunked: it gets the rest)
          admit no requests if they are fewer than `fewest`

        if no request runs: JOIN(0, max_num_batched_tokens), a step of their prompts
        else, a turn:
          JOIN(floor(waiting_served_ratio * running), max_num_batched_tokens), a step of their prompts alone;
          with fewest = 0 if no request has joined for max_waiting_tokens turns
          then a step of one token for each running request, new ones included

    chunked: in a turn, fewest = 0, seats do not count, JOIN's budget is the rest after one token for each
    running request, and its step has both, so a turn gives running requests two tokens. Budgets are rounded
    up to whole blocks. Only the SimPy engine has this rule. Needs `tokens`, and a `StepTime`.

    >>> WaitingServedRatio(128, 4096, kv_blocks=300).waiting_served_ratio
    0.3
    """

    _: KW_ONLY
    first: str = "prefill"
    chunked: bool = False
    reserve: str = "life"
    waiting_served_ratio: float = _share(
        "waiting_served_ratio", "This many must wait, for each running request, to join", 0.3
    )
    max_waiting_tokens: int = parameter(
        "max_waiting_tokens", "After this many turns without new requests, any may join", default=20,
        at_least=0, at_most=MOST, usual=20,
    )  # fmt: skip

    title = "Continuous, waiting / served ratio"
    used_by = "TGI"
    compiled = False

    def check(self) -> None:
        super().check()
        self.check_fixed(first="prefill", reserve="life", watermark_blocks=0)
        self.check_fixed(long_prefill_token_threshold=0, prefix_reuse=False)
