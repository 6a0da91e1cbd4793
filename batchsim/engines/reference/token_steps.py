"""What a step of token generation serves: the reference engine's words for `Continuous` and whole batches.

No SimPy here: an engine (one server) with its memory, and the line before all engines.
"""

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from batchsim._clock import later
from batchsim.engines.token_log import NO_TRIGGER, Batching
from batchsim.scenario.rules import Trigger


@dataclass(eq=False)
class Request:
    """A request, and how far it is."""

    number: int
    arrival_s: float
    prompt: int
    output: int
    limit: int
    held: int = 0  # tokens in memory
    made: int = 0  # tokens of the output
    blocks: int = 0
    cut: bool = False  # whether its last row left some of what is known
    started: bool = False

    @property
    def known(self) -> int:
        return self.prompt + self.made


@dataclass(eq=False)
class Row:
    """What a step does for a request: so many tokens after those that it held."""

    request: Request
    tokens: int
    held: int

    @property
    def reads(self) -> int:
        return self.held + 1 if self.tokens == 1 else 0

    @property
    def pairs(self) -> int:
        new = self.tokens
        return new * self.held + new * (new + 1) // 2 if new > 1 else 0


@dataclass(eq=False)
class Engine:
    """A server: who runs on it, its memory, and the rows of its present step."""

    number: int
    batching: Batching
    free: int
    rule: Any
    running: list[Request] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)  # empty: no step is under way
    budget: float = 0
    preempted: int = 0
    trigger: int = NO_TRIGGER

    def schedule(self, line: deque[Request]) -> None:
        """Choose the rows of the next step, as `Continuous` says."""
        self.budget, self.preempted, self.rows = self.batching.budget, 0, []
        if self.batching.decode_first:
            self.serve_running(list(self.running), line)
            self.admit(line)
        else:
            cut = [request for request in self.running if request.cut]
            self.serve_running(cut if self.batching.chunked else [], line)
            self.admit(line)
            if not self.rows:  # a step of decodes
                self.budget = math.inf
                self.serve_running(list(self.running), line)
        self.settle()

    def settle(self) -> None:
        """Count what the step's rows bring as held, from now on."""
        for row in self.rows:
            row.request.held += row.tokens
            row.request.cut = row.request.held < row.request.known

    def victims(self, line: deque[Request]) -> Iterator[Request]:
        """Return those that went back to the line when the step was scheduled: they are at its head."""
        return islice(line, self.preempted)

    def room_for(self, request: Request) -> int:
        """Return how many of its tokens the budget lets a request have now; 0: it has to wait."""
        tokens = request.known - request.held
        if self.batching.threshold > 0:
            tokens = min(tokens, self.batching.threshold)
        if self.batching.chunked:
            return int(min(tokens, self.budget))
        return tokens if tokens <= self.budget else 0

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.batching.block_size)

    def serve_running(self, requests: list[Request], line: deque[Request]) -> None:
        for request in requests:
            if self.budget <= 0:
                return
            if request not in self.running or not (tokens := self.room_for(request)):
                continue
            while (need := self.blocks_for(request.held + tokens) - request.blocks) > self.free:
                if self.preempt_last(line) is request:
                    return
            self.add_row(request, tokens, max(need, 0))

    def preempt_last(self, line: deque[Request]) -> Request:
        """Send the last of those that run back to the head of the line; return it."""
        victim = self.running.pop()
        self.free += victim.blocks
        victim.blocks = victim.held = 0
        line.appendleft(victim)
        self.preempted += 1
        return victim

    def admit(self, line: deque[Request]) -> None:
        """Let requests of the line join, from its head: nobody overtakes."""
        if self.preempted:
            return
        while line and self.budget > 0 and len(self.running) < self.batching.seats:
            request = line[0]
            request.held = self.found(request) * self.batching.block_size
            tokens = self.room_for(request)
            if self.batching.life:
                needed = self.blocks_for(request.prompt + request.limit - 1)
                taken, kept_free = needed, 0
            else:
                needed = self.blocks_for(request.known)
                taken = self.blocks_for(request.held + tokens) - self.found(request)
                kept_free = self.batching.watermark_blocks
            if not tokens or needed > self.free - kept_free:
                return
            self.running.append(line.popleft())
            self.add_row(request, tokens, taken)

    def found(self, request: Request) -> int:
        """Return how many blocks of what a waiting request held are still there: here none."""
        return 0

    def add_row(self, request: Request, tokens: int, blocks: int) -> None:
        self.free -= blocks
        request.blocks += blocks
        self.budget -= tokens
        self.rows.append(Row(request, tokens, request.held))

    def finish_step(self) -> tuple[list[Request], list[Request]]:
        """Hand out the tokens of the step that ends; return who made the first, and who leaves."""
        first, done = [], []
        for request in [row.request for row in self.rows]:
            if request.held == request.known:
                request.made += 1
                if request.made == 1:
                    first.append(request)
                if request.made == request.output:
                    done.append(request)
        for request in done:
            self.free += request.blocks
        self.running = [request for request in self.running if request not in done]
        self.rows = []
        return first, done


class WholeEngine(Engine):
    """A server of whole batches: a step of all prompts, then of a token each until the longest is done."""

    def schedule(self, line: deque[Request]) -> None:
        ragged = self.batching.ragged
        prompts = max((request.prompt for request in self.running), default=0)
        self.rows, self.trigger = [], NO_TRIGGER
        for request in self.running:
            if not ragged or request.made < request.output:
                held = (request.prompt if ragged else prompts) + request.made - 1
                self.rows.append(Row(request, 1, held))

    def board(self, line: deque[Request], size: int, trigger: int) -> None:
        """Take a batch from the line, and schedule its prompts."""
        self.running = [line.popleft() for _ in range(size)]
        longest = max(request.prompt for request in self.running)
        for request in self.running:
            self.rows.append(Row(request, request.prompt if self.batching.ragged else longest, 0))
        self.trigger = trigger

    def finish_step(self) -> tuple[list[Request], list[Request]]:
        for row in self.rows:
            row.request.made += 1
        first = [row.request for row in self.rows if row.request.made == 1]
        self.rows, done = [], []
        if all(request.made >= request.output for request in self.running):
            done, self.running = self.running, []
        return first, done


def leaving(line: deque[Request], now_s: float, batching: Batching, ended: bool) -> tuple[int, int]:
    """Return how many requests a whole batch takes now, and its trigger; 0 if none leaves."""
    if len(line) >= batching.largest:
        return batching.largest, Trigger.FULL
    if batching.wait_s < math.inf:
        due_s = later(line[0].arrival_s, batching.wait_s)
        return (len(line), Trigger.WAIT if now_s == due_s else Trigger.BACKLOG) if now_s >= due_s else (0, 0)
    if len(line) >= batching.enough:
        came_s = line[batching.enough - 1].arrival_s
        return len(line), Trigger.ENOUGH if now_s == came_s else Trigger.BACKLOG
    return (len(line), Trigger.DRAIN) if ended else (0, 0)
