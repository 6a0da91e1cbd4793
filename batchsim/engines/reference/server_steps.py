"""What a step serves under the rules of single servers, which the reference engine alone has."""

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from batchsim.engines.reference.token_steps import Engine, Request
from batchsim.scenario.rules.continuous import CLIP, LOOK_AHEAD, NewTokenRatio, WaitingServedRatio


@dataclass(eq=False)
class ServedRatioEngine(Engine):
    """An engine as `WaitingServedRatio` says."""

    waited: int = 0  # turns since someone joined
    joined: bool = False  # in the first half of this turn

    def schedule(self, line: deque[Request]) -> None:
        self.rows = []
        size, chunked = len(self.running), self.batching.chunked
        if not size:
            self.join(line, 0, self.batching.seats, self.batching.budget)
            self.waited = 1
        elif self.joined or not self.turn(line, size, chunked):
            self.joined = False
            self.waited += 1
            self.next_tokens(self.running)
        self.settle()

    def turn(self, line: deque[Request], size: int, chunked: bool) -> bool:
        """Let others join at the beginning of a turn; return whether anyone did."""
        if chunked:
            under_way = list(self.running)
            due = sum(request.known - request.held for request in under_way)
            self.join(line, 0, len(line), self.batching.budget - due)
            if self.rows:  # of both, those who ran before first
                new, self.rows = self.rows, []
                self.next_tokens(under_way)
                self.rows += new
        else:
            # In single precision, as the server.
            fewest = int(np.float32(size) * np.float32(self.rule.waiting_served_ratio))
            fewest = 0 if self.waited >= self.rule.max_waiting_tokens else fewest
            self.join(line, fewest, self.batching.seats - size, self.batching.budget)
        self.joined = bool(self.rows)
        if self.joined:
            self.waited = 1
        return self.joined

    def join(self, line: deque[Request], fewest: int, most: int, budget: int) -> None:
        """Take who is to join from the head of the line, with memory for a whole life."""
        left, free = self.blocks_for(budget) * self.batching.block_size, self.free
        new: list[tuple[Request, int, int]] = []
        for request in islice(line, max(most, 0)):
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
                self.running.append(line.popleft())
                self.add_row(request, tokens, blocks)

    def next_tokens(self, requests: Iterable[Request]) -> None:
        """Serve everyone's next token, and of cut prompts what the budget has left."""
        left = self.batching.budget - sum(not request.cut for request in requests)
        for request in requests:
            tokens = request.known - request.held
            if request.cut:
                tokens = max(min(tokens, left), 0)
                left -= tokens
            if tokens:
                self.add_row(request, tokens, 0)


@dataclass(eq=False)
class NewTokenRatioEngine(Engine):
    """An engine as `NewTokenRatio` says."""

    ratio: float = math.nan
    full: bool = False

    def schedule(self, line: deque[Request]) -> None:
        self.rows, self.preempted, size = [], 0, self.batching.block_size
        if not self.running:
            self.full = False
            if not line or math.isnan(self.ratio):  # idle; not between two requests with others in line
                self.ratio = self.rule.init_new_token_ratio
        decoding = [request for request in self.running if not request.cut]
        if len(decoding) < len(self.running) or (line and not self.full):
            self.serve_prompts(decoding, line, size)
        if not self.rows or (self.rule.mixed and self.needed(decoding) <= self.free):
            self.serve_tokens(decoding, line)
        self.settle()

    def rest(self, request: Request) -> int:
        """Return how much a request may still say, as far as the server looks."""
        return min(request.limit - request.made, CLIP)

    def serve_prompts(self, decoding: list[Request], line: deque[Request], size: int) -> None:
        total = self.free * size - sum(self.rest(request) * self.ratio for request in decoding)
        mixed = len(decoding) if self.rule.mixed else 0
        given, chunk = self.rule.max_prefill_tokens - mixed, self.batching.budget - mixed
        total -= mixed
        for request in [request for request in self.running if request.cut]:  # one at most
            rest = request.known - request.held
            tokens = min(rest, max(chunk, 1), self.free * size + request.blocks * size - request.held)
            if tokens > 0:
                self.add(request, tokens)
                total -= tokens + (self.rest(request) if tokens == rest else 0)
                given, chunk = given - tokens, chunk - tokens
        while line and len(self.running) < self.batching.seats:
            request, first = line[0], not self.rows
            known = request.known
            tokens, spent = min(known, chunk), chunk <= 0 or given <= 0
            # A step that is spent asks for no memory. Alone a request may have all: the server lets nobody
            # in who could never fit.
            if self.running and (total <= 0 or (not spent and known + self.rest(request) >= total)):
                self.full = True
                return
            if spent or (known > given and not first) or self.blocks_for(tokens) > self.free:
                return
            self.running.append(line.popleft())
            self.add(request, tokens)
            total -= tokens + (self.rest(request) if tokens == known else 0)
            given, chunk = given - tokens, chunk - tokens

    def serve_tokens(self, decoding: list[Request], line: deque[Request]) -> None:
        if decoding and self.needed(decoding) > self.free:
            self.retract(decoding, line)
        elif decoding and not self.rows:  # beside prompts the share stays as it is
            rule = self.rule
            decay = (rule.init_new_token_ratio - rule.min_new_token_ratio) / rule.decay_steps
            self.ratio = max(self.ratio - decay, rule.min_new_token_ratio)
        for request in decoding:
            self.add(request, 1)

    def add(self, request: Request, tokens: int) -> None:
        self.add_row(request, tokens, max(self.blocks_for(request.held + tokens) - request.blocks, 0))

    def needed(self, decoding: list[Request]) -> int:
        """Return the blocks that the next tokens need."""
        return sum(max(self.blocks_for(each.held + 1) - each.blocks, 0) for each in decoding)

    def retract(self, decoding: list[Request], line: deque[Request]) -> None:
        """Send back who has said least, until the rest fits; one stays. The order becomes that of staying."""
        decoding.sort(key=lambda request: (request.made, -request.prompt), reverse=True)
        while len(decoding) > 1:
            self.send_back(decoding.pop(), line)
            if self.needed(decoding) <= self.free:
                break
        cut = [request for request in self.running if request.cut]
        if self.needed(decoding) > self.free:  # where the server gives up: the prompt under way makes room
            for request in cut:
                self.send_back(request, line)
            cut = []
        self.running = decoding + cut
        made, limits = (sum(getattr(each, name) for each in decoding) for name in ("made", "limit"))
        self.ratio = min(1.0, (made + LOOK_AHEAD * len(decoding)) / (limits + 1))
        self.full = False

    def send_back(self, victim: Request, line: deque[Request]) -> None:
        self.free += victim.blocks
        victim.blocks = victim.held = 0
        line.append(victim)
        self.preempted += 1

    def victims(self, line: deque[Request]) -> Iterator[Request]:
        return islice(line, len(line) - self.preempted, None)

    def finish_step(self) -> tuple[list[Request], list[Request]]:
        first, done = super().finish_step()
        if done:
            self.full = False
        return first, done


OF_SERVERS: dict[type, type[Engine]] = {
    WaitingServedRatio: ServedRatioEngine, NewTokenRatio: NewTokenRatioEngine,
}  # fmt: skip


# An engine whose free blocks keep what they held: a preempted request finds its own beginning again.


@dataclass(eq=False)
class ReusingEngine(Engine):
    """An engine as `Continuous(prefix_reuse=True)` says."""

    # The free blocks, the next one to be taken first: whose beginning each keeps, if anybody's.
    kept: deque[Request | None] = field(init=False)

    def __post_init__(self) -> None:
        self.kept = deque([None] * self.free)

    def found(self, request: Request) -> int:
        # They were freed from its last block on, and are taken from there: what is left is a beginning.
        return self.kept.count(request)

    def add_row(self, request: Request, tokens: int, blocks: int) -> None:
        if not request.blocks and (found := self.found(request)):
            self.kept = deque(owner for owner in self.kept if owner is not request)
            self.free -= found
            request.blocks = found
        for _ in range(blocks):
            self.kept.popleft()
        super().add_row(request, tokens, blocks)

    def preempt_last(self, line: deque[Request]) -> Request:
        last = self.running[-1]
        full = last.held // self.batching.block_size
        others = last.blocks - full
        self.kept.extend([None] * others + [last] * full)
        return super().preempt_last(line)

    def finish_step(self) -> tuple[list[Request], list[Request]]:
        first, done = super().finish_step()
        self.kept.extend([None] * sum(request.blocks for request in done))  # nobody asks for these again
        return first, done
