"""The requests that a step of token generation serves, in plain Python: one class of engine for each rule.

An engine is one server with its memory. All engines share one queue. The processes are in `token_engine`.
"""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from batchsim._clock import later
from batchsim.engines.token_log import NO_TRIGGER, Batching
from batchsim.scenario.rules import Trigger
from batchsim.scenario.rules.continuous import CLIP, LOOK_AHEAD


@dataclass(eq=False)
class Request:
    """A request and its progress."""

    number: int
    arrival_s: float
    prompt: int
    output: int
    limit: int
    cached: int = 0  # tokens whose keys are in memory
    generated: int = 0  # tokens of the output
    blocks: int = 0
    truncated: bool = False  # whether its last row computed only a part of the known tokens
    started: bool = False
    seen: bool = False  # by an engine that waits for new ones
    shared: Sequence[int] = ()  # the contents of its first blocks, which others may share

    @property
    def known(self) -> int:
        return self.prompt + self.generated

    @property
    def prefills(self) -> bool:
        """Whether its next row computes a prompt, or a part of what a preempted one has to compute again."""
        return self.truncated or not self.generated or self.known - self.cached > 1


@dataclass(eq=False)
class Row:
    """A request's part of a step: `tokens` new ones after the `cached` ones."""

    request: Request
    tokens: int
    cached: int

    @property
    def reads(self) -> int:
        return self.cached + 1 if self.tokens == 1 else 0

    @property
    def pairs(self) -> int:
        new = self.tokens
        return new * self.cached + new * (new + 1) // 2 if new > 1 else 0


@dataclass(eq=False)
class Engine:
    """A server: the requests that run on it, its free blocks, and the rows of its present step."""

    number: int
    batching: Batching
    free: int
    rule: Any
    drafts: int = 0  # tokens that are drafted for each request
    running: list[Request] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)  # empty: idle
    budget: float = 0
    preempted: list[Request] = field(default_factory=list)  # by the present step, in order
    trigger: int = NO_TRIGGER
    begun_s: float = -math.inf  # when its last step began and ended
    ended_s: float = -math.inf

    def ready_s(self, queue: deque[Request]) -> float:
        """Return the time before which no step begins."""
        return -math.inf

    def schedule(self, queue: deque[Request], now_s: float, ended: bool) -> None:
        """Choose the rows of the next step under `Continuous`."""
        self.choose(queue)
        self.settle()

    def choose(self, queue: deque[Request]) -> None:
        self.budget, self.preempted, self.rows = self.batching.budget, [], []
        if self.batching.decode_first:
            self.serve_running(list(self.running), queue)
            self.admit(queue)
        else:
            cut = [request for request in self.running if request.truncated]
            self.serve_running(cut if self.batching.chunked else [], queue)
            self.admit(queue)
            if not self.rows:  # a step of decodes
                self.budget = math.inf
                self.serve_running(list(self.running), queue)

    def settle(self) -> None:
        """Count the tokens of the step's rows as cached from now on: no later step computes them again."""
        for row in self.rows:
            row.request.cached += row.tokens
            row.request.truncated = row.request.cached < row.request.known

    def tokens_now(self, request: Request) -> int:
        """Return how many of its missing tokens fit into the budget now; 0: the request must wait."""
        tokens = request.known - request.cached
        if self.batching.threshold > 0:
            tokens = min(tokens, self.batching.threshold)
        if self.batching.chunked:
            return int(min(tokens, self.budget))
        return tokens if tokens <= self.budget else 0

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.batching.block_size)

    def serve_running(self, requests: list[Request], queue: deque[Request]) -> None:
        for request in requests:
            if self.budget <= 0:
                return
            if request not in self.running or not (tokens := self.tokens_now(request)):
                continue
            while (need := self.blocks_for(request.cached + tokens) - request.blocks) > self.free:
                if self.preempt_last(queue) is request:
                    return
            self.add_row(request, tokens, max(need, 0))

    def preempt_last(self, queue: deque[Request]) -> Request:
        """Send the request that was admitted last back to the head of the queue; return it."""
        victim = self.running.pop()
        self.release_blocks(victim)
        queue.appendleft(victim)
        return victim

    def release_blocks(self, victim: Request) -> None:
        self.free += victim.blocks
        victim.blocks = victim.cached = 0
        self.preempted.append(victim)

    def admit(self, queue: deque[Request]) -> None:
        """Let requests join from the head of the queue, in order."""
        if self.preempted:  # they are at the head of the queue, and have just been short of memory
            return
        while queue and self.budget > 0 and len(self.running) < self.batching.seats:
            request = queue[0]
            request.cached = self.found(request) * self.batching.block_size
            tokens = self.tokens_now(request)
            if self.batching.life:
                needed = self.blocks_for(request.prompt + request.limit - 1)
                taken, kept_free = needed, 0
            else:
                needed = self.blocks_for(request.known) - self.in_use(request)
                taken = self.blocks_for(request.cached + tokens) - self.found(request)
                kept_free = self.batching.watermark_blocks
            if not tokens or needed > self.free - kept_free:
                return
            self.running.append(queue.popleft())
            self.add_row(request, tokens, taken)

    def found(self, request: Request) -> int:
        """Return how many blocks with the beginning of a waiting request are in memory."""
        return 0

    def in_use(self, request: Request) -> int:
        """Return how many of these other requests use."""
        return 0

    def add_row(self, request: Request, tokens: int, blocks: int) -> None:
        self.free -= blocks
        request.blocks += blocks
        self.budget -= tokens
        self.rows.append(Row(request, tokens, request.cached))

    def making(self) -> list[Request]:
        """Return the requests that make a token at the end of the step."""
        return [row.request for row in self.rows if row.request.cached == row.request.known]

    def finish_step(self) -> tuple[list[Request], list[Request]]:
        """End the step; return the requests that made a token, and the ones that leave."""
        made = self.making()
        for request in made:
            request.generated += 1
        done = [request for request in made if request.generated == request.output]
        self.free += sum(request.blocks for request in done)
        self.running = [request for request in self.running if request not in done]
        self.rows = []
        return made, done


class WholeEngine(Engine):
    """A server of whole batches: one step for all prompts, then a token each until the longest is done."""

    def schedule(self, queue: deque[Request], now_s: float, ended: bool) -> None:
        self.rows, self.trigger = [], NO_TRIGGER
        if not self.running:
            size, trigger = self.leaving(queue, now_s, ended)
            if size:
                self.board(queue, size, trigger)
            return
        ragged, prompts = self.batching.ragged, max(request.prompt for request in self.running)
        for request in self.running:
            if not ragged or request.generated < request.output:
                cached = (request.prompt if ragged else prompts) + request.generated - 1
                self.rows.append(Row(request, 1, cached))

    def leaving(self, queue: deque[Request], now_s: float, ended: bool) -> tuple[int, int]:
        """Return the size of the batch that leaves now, and its trigger; 0 if none leaves."""
        batching, waiting = self.batching, len(queue)
        if not queue or waiting >= batching.largest:
            return min(waiting, batching.largest), Trigger.FULL
        if batching.wait_s < math.inf:
            due_s = later(queue[0].arrival_s, batching.wait_s)
            size = waiting if now_s >= due_s else 0
            return size, Trigger.WAIT if now_s == due_s else Trigger.BACKLOG
        if waiting >= batching.enough:
            came_s = queue[batching.enough - 1].arrival_s
            return waiting, Trigger.ENOUGH if now_s == came_s else Trigger.BACKLOG
        return (waiting if ended else 0), Trigger.DRAIN

    def board(self, queue: deque[Request], size: int, trigger: int) -> None:
        """Take a batch from the queue, and schedule its prompts."""
        self.running = [queue.popleft() for _ in range(size)]
        longest = max(request.prompt for request in self.running)
        for request in self.running:
            self.rows.append(Row(request, request.prompt if self.batching.ragged else longest, 0))
        self.trigger = trigger

    def making(self) -> list[Request]:
        return [row.request for row in self.rows if row.request.generated < row.request.output]

    def finish_step(self) -> tuple[list[Request], list[Request]]:
        made, done = [row.request for row in self.rows], []
        for request in made:
            request.generated += 1
        self.rows = []
        if all(request.generated >= request.output for request in self.running):
            done, self.running = self.running, []
        return made, done


# The rules of single servers, which only the reference engine runs.


@dataclass(eq=False)
class BatchWaitEngine(Engine):
    """An engine under `BatchWait`."""

    held: int = 0  # steps from which prompts were held back, since some went on

    def ready_s(self, queue: deque[Request]) -> float:
        wait_s = self.rule.batch_wait_timeout_ms / 1000
        if not wait_s or not (self.running or queue):
            return -math.inf
        if sum(not request.seen for request in queue) >= self.batching.seats:
            return -math.inf
        since_s = self.begun_s if self.rule.overlap else self.ended_s
        return float(later(since_s if self.running else max(since_s, queue[0].arrival_s), wait_s))

    def choose(self, queue: deque[Request]) -> None:
        for request in queue:
            request.seen = True
        super().choose(queue)
        prompts = [row for row in self.rows if row.request.prefills]
        decodes = len(self.rows) - len(prompts)
        if prompts and decodes:
            tokens = sum(row.tokens for row in prompts) + (1 + self.drafts) * decodes
            enough = self.rule.batch_wait_max_tokens_ratio * self.batching.budget
            if self.held >= self.rule.batch_wait_timeout_iters or tokens >= enough:
                self.held = 0
            else:
                self.held += 1
                self.hold_back(prompts, queue)

    def hold_back(self, prompts: list[Row], queue: deque[Request]) -> None:
        """Take rows out of the step; requests that would have joined wait again, in order."""
        for request in [row.request for row in reversed(prompts)]:
            blocks = self.blocks_for(request.cached)
            if not request.cached:
                self.running.remove(request)
                queue.appendleft(request)
            elif self.batching.life:
                continue
            self.free += request.blocks - blocks
            request.blocks = blocks
        self.rows = [row for row in self.rows if not row.request.prefills]


@dataclass(eq=False)
class ServedRatioEngine(Engine):
    """An engine under `WaitingServedRatio`."""

    waited: int = 0  # turns since a request joined
    joined: bool = False  # whether one joined in the first half of this turn

    def schedule(self, queue: deque[Request], now_s: float, ended: bool) -> None:
        self.rows = []
        size, chunked = len(self.running), self.batching.chunked
        if not size:
            self.join(queue, 0, self.batching.seats, self.batching.budget)
            # An engine that ran empty as others joined begins a new turn: the next step may let more in.
            self.waited, self.joined = 1, False
        elif self.joined or not self.turn(queue, size, chunked):
            self.joined = False
            self.waited += 1
            self.next_tokens(self.running)
        self.settle()

    def turn(self, queue: deque[Request], size: int, chunked: bool) -> bool:
        """Let requests join at the beginning of a turn; return whether one did."""
        if chunked:
            under_way = list(self.running)
            due = sum(request.known - request.cached for request in under_way)
            self.join(queue, 0, len(queue), self.batching.budget - due)
            if self.rows:  # the requests that ran before come first
                new, self.rows = self.rows, []
                self.next_tokens(under_way)
                self.rows += new
        else:
            # The server computes in single precision.
            fewest = int(np.float32(size) * np.float32(self.rule.waiting_served_ratio))
            fewest = 0 if self.waited >= self.rule.max_waiting_tokens else fewest
            self.join(queue, fewest, self.batching.seats - size, self.batching.budget)
        self.joined = bool(self.rows)
        if self.joined:
            self.waited = 1
        return self.joined

    def join(self, queue: deque[Request], fewest: int, most: int, budget: int) -> None:
        """Let requests join from the head of the queue, each with memory for all of its tokens."""
        left, free = self.blocks_for(budget) * self.batching.block_size, self.free
        new: list[tuple[Request, int, int]] = []
        for request in islice(queue, min(max(most, 0), len(queue))):  # in a browser a count has 32 bits
            blocks = self.blocks_for(request.prompt + request.limit - 1)
            tokens = request.prompt
            if tokens > left:
                tokens = left if self.batching.chunked else 0
            if tokens <= 0 or blocks > free:
                break
            new.append((request, tokens, blocks))
            left, free = left - tokens, free - blocks
        if len(new) >= fewest:
            for request, tokens, blocks in new:
                self.running.append(queue.popleft())
                self.add_row(request, tokens, blocks)

    def next_tokens(self, requests: Iterable[Request]) -> None:
        """Serve a token for each request; truncated prompts share the rest of the budget."""
        left = self.batching.budget - sum(not request.truncated for request in requests)
        for request in requests:
            tokens = request.known - request.cached
            if request.truncated:
                tokens = max(min(tokens, left), 0)
                left -= tokens
            if tokens:
                self.add_row(request, tokens, 0)


@dataclass(eq=False)
class NewTokenRatioEngine(Engine):
    """An engine under `NewTokenRatio`."""

    ratio: float = math.nan
    full: bool = False
    most: int = 0  # prompts in a step so far
    delay_s: float = math.nan  # since when prompts are held back
    refused: bool = False  # whether they have ever been
    admits: bool | None = None  # whether prompts may join this step; None: nobody asked

    def schedule(self, queue: deque[Request], now_s: float, ended: bool) -> None:
        self.rows, self.preempted, size, self.admits = [], [], self.batching.block_size, None
        if not self.running:
            self.full = False
            if not queue or math.isnan(self.ratio):  # idle, rather than between two requests of a queue
                self.ratio = self.rule.init_new_token_ratio
        decoding = [request for request in self.running if not request.truncated]
        if len(decoding) < len(self.running) or (queue and not self.full):
            self.serve_prompts(decoding, queue, size, now_s)
            self.most = max(self.most, len(self.rows))
        if self.admits is None:
            self.delay_s = math.nan
        if not self.rows or (self.rule.mixed and self.needed(decoding) <= self.free):
            self.serve_tokens(decoding, queue)
        self.settle()

    def rest(self, request: Request) -> int:
        """Return how many tokens a request may still generate, as far as the server looks ahead."""
        return min(request.limit - request.generated, CLIP)

    def may_join(self, running: int, waiting: int, used: int, now_s: float) -> bool:
        """Return whether prompts may join this step: the same answer to all that ask."""
        if self.admits is None:
            rule = self.rule
            short = waiting < min(int(running * rule.queue_min_ratio), self.most)
            # No comparison holds while there is no delay, NaN.
            over = now_s >= later(self.delay_s, rule.max_delay_ms / 1000)
            refuses = (short and not over) or self.batching.seats - running < self.most
            low = used / self.batching.kv_blocks < rule.token_usage_low_watermark
            refuses &= rule.prefill_delayer and not low
            self.admits = not (refuses and self.refused)
            self.refused |= refuses
            if self.admits:
                self.delay_s = math.nan
            elif math.isnan(self.delay_s):
                self.delay_s = now_s
        return self.admits

    def serve_prompts(
        self, decoding: list[Request], queue: deque[Request], size: int, now_s: float
    ) -> None:  # fmt: skip
        asks = len(decoding), len(queue), self.batching.kv_blocks - self.free, now_s
        total = self.free * size - sum(self.rest(request) * self.ratio for request in decoding)
        mixed = len(decoding) if self.rule.mixed else 0
        given, chunk = self.rule.max_prefill_tokens - mixed, self.batching.budget - mixed
        total -= mixed
        for request in [request for request in self.running if request.truncated]:  # at most one
            rest = request.known - request.cached
            tokens = min(rest, max(chunk, 1), self.free * size + request.blocks * size - request.cached)
            if tokens > 0:
                self.may_join(*asks)
                self.add(request, tokens)
                total -= tokens + (self.rest(request) if tokens == rest else 0)
                given, chunk = given - tokens, chunk - tokens
        while queue and len(self.running) < self.batching.seats:
            request, first = queue[0], not self.rows
            known = request.known
            tokens, spent = min(known, chunk), chunk <= 0 or given <= 0
            # Without budget, memory does not matter. A request that runs alone may take all memory: the
            # server rejects requests that could never fit.
            if self.running and (total <= 0 or (not spent and known + self.rest(request) >= total)):
                self.full = True
                return
            if spent or (known > given and not first) or self.blocks_for(tokens) > self.free:
                return
            if not self.may_join(*asks):
                return
            self.running.append(queue.popleft())
            self.add(request, tokens)
            total -= tokens + (self.rest(request) if tokens == known else 0)
            given, chunk = given - tokens, chunk - tokens

    def serve_tokens(self, decoding: list[Request], queue: deque[Request]) -> None:
        if decoding and self.needed(decoding) > self.free:
            self.retract(decoding, queue)
        elif decoding and not self.rows:  # the ratio decays only in a step of decodes alone
            rule = self.rule
            decay = (rule.init_new_token_ratio - rule.min_new_token_ratio) / rule.decay_steps
            self.ratio = max(self.ratio - decay, rule.min_new_token_ratio)
        for request in decoding:
            self.add(request, 1)

    def add(self, request: Request, tokens: int) -> None:
        self.add_row(request, tokens, max(self.blocks_for(request.cached + tokens) - request.blocks, 0))

    def needed(self, decoding: list[Request]) -> int:
        """Return the blocks that the next tokens need."""
        return sum(max(self.blocks_for(each.cached + 1) - each.blocks, 0) for each in decoding)

    def retract(self, decoding: list[Request], queue: deque[Request]) -> None:
        """Preempt the requests with the fewest tokens until the others fit; one always stays.

        `running` is then in the order in which the server would keep them.
        """
        decoding.sort(key=lambda request: (request.generated, -request.prompt), reverse=True)
        while len(decoding) > 1:
            self.send_back(decoding.pop(), queue)
            if self.needed(decoding) <= self.free:
                break
        cut = [request for request in self.running if request.truncated]
        if self.needed(decoding) > self.free:  # a real server stops here; we preempt the prompt under way
            for request in cut:
                self.send_back(request, queue)
            cut = []
        self.running = decoding + cut
        made, limits = (sum(getattr(each, name) for each in decoding) for name in ("generated", "limit"))
        self.ratio = min(1.0, (made + LOOK_AHEAD * len(decoding)) / (limits + 1))
        self.full = False

    def send_back(self, victim: Request, queue: deque[Request]) -> None:
        self.release_blocks(victim)
        queue.append(victim)

    def finish_step(self) -> tuple[list[Request], list[Request]]:
        made, done = super().finish_step()
        if done:
            self.full = False
        return made, done
