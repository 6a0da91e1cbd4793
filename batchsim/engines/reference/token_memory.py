"""Memory whose free blocks keep their contents, in plain Python; and the engine of each rule."""

from collections import Counter
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from batchsim.engines.reference.token_steps import (
    BatchWaitEngine,
    Engine,
    NewTokenRatioEngine,
    Request,
    ServedRatioEngine,
    WholeEngine,
)
from batchsim.scenario.rules.continuous import BatchWait, Continuous, NewTokenRatio, WaitingServedRatio


@dataclass(eq=False)
class Kept:
    """Free blocks, one after the other.

    They contain the first own blocks of the request `owner`, the last of them first; or the shared contents
    of that number; or nothing (None).
    """

    owner: Request | int | None
    blocks: int


@dataclass(eq=False)
class ReusingEngine(Engine):
    """An engine under `Continuous(prefix_reuse=True)`: free blocks keep their contents until they are taken.

    So a preempted request can find the beginning of its tokens again, and a prompt that of another one.
    """

    kept: dict[Kept, None] = field(init=False)  # the free blocks, the next ones to be taken first
    whose: dict[Request | int, Kept] = field(default_factory=dict)  # those with contents
    uses: Counter[int] = field(default_factory=Counter)  # how many running requests use shared contents

    def __post_init__(self) -> None:
        self.kept = {Kept(None, self.free): None}

    # The queue of free blocks.

    def put(self, owner: Request | int | None, blocks: int) -> None:
        """Add blocks that are free from now on."""
        if blocks:
            kept = Kept(owner, blocks)
            self.kept[kept] = None
            self.free += blocks
            if owner is not None:
                self.whose[owner] = kept

    def take(self, blocks: int) -> None:
        """Take the blocks that are free for the longest time; their contents are lost."""
        self.free -= blocks
        while blocks:
            first = next(iter(self.kept))
            taken = min(blocks, first.blocks)
            first.blocks, blocks = first.blocks - taken, blocks - taken
            if not first.blocks:
                self.remove(first)

    def remove(self, kept: Kept) -> None:
        del self.kept[kept]
        if kept.owner is not None:
            del self.whose[kept.owner]

    def forget(self, owner: Request | int) -> None:
        """Free blocks with these contents have none from now on."""
        if owner in self.whose:
            self.whose.pop(owner).owner = None

    # Requests.

    def shared(self, request: Request) -> int:
        """Return how many shared blocks a running request has filled."""
        return min(request.cached // self.batching.block_size, len(request.shared))

    def hits(self, request: Request) -> list[int]:
        """Return the shared contents in memory with which a waiting request begins.

        It computes at least one token itself.
        """
        most = (request.known - 1) // self.batching.block_size
        return list(takewhile(lambda each: self.uses[each] or each in self.whose, request.shared[:most]))

    def found(self, request: Request) -> int:
        count = len(self.hits(request))
        if count == len(request.shared) and request in self.whose:
            count += self.whose[request].blocks
        return count

    def in_use(self, request: Request) -> int:
        return sum(self.uses[each] > 0 for each in self.hits(request))

    def add_row(self, request: Request, tokens: int, blocks: int) -> None:
        size = self.batching.block_size
        if not request.blocks:  # it joins
            hits, request.blocks = self.hits(request), self.found(request)
            for each in hits:
                if not self.uses[each]:
                    self.remove(self.whose[each])
                    self.free -= 1
                self.uses[each] += 1
            if request.blocks > len(hits):
                self.free -= self.whose[request].blocks
                self.remove(self.whose[request])
            self.forget(request)
        self.take(blocks)
        request.blocks += blocks
        filled = (request.cached + tokens) // size
        for each in request.shared[self.shared(request) : filled]:
            if self.uses[each]:
                self.put(None, 1)
            self.forget(each)
            self.uses[each] += 1
        super().add_row(request, tokens, 0)

    def release(self, request: Request, leaves: bool) -> None:
        """Free the blocks of a request, the last one first."""
        shared, full = self.shared(request), request.cached // self.batching.block_size
        own = 0 if leaves or full < len(request.shared) else full - shared
        self.put(None, request.blocks - shared - own)
        self.put(request, own)
        for each in reversed(request.shared[:shared]):
            self.uses[each] -= 1
            if not self.uses[each]:
                self.put(each, 1)
        request.blocks = 0

    def release_blocks(self, victim: Request) -> None:
        self.release(victim, leaves=False)
        super().release_blocks(victim)

    def finish_step(self) -> tuple[list[Request], list[Request]]:
        made = [row.request for row in self.rows if row.request.cached == row.request.known]
        for request in made:
            if request.generated + 1 == request.output:
                self.release(request, leaves=True)  # no request needs its own blocks again
        return super().finish_step()


def engine_for(rule: Any) -> type[Engine]:
    """Return the class of engine for a rule of token generation."""
    if not isinstance(rule, Continuous):
        return WholeEngine
    return ReusingEngine if rule.reuses else ENGINE_FOR_RULE.get(type(rule), Engine)


ENGINE_FOR_RULE: dict[type, type[Engine]] = {  # others: `Engine`
    BatchWait: BatchWaitEngine, WaitingServedRatio: ServedRatioEngine, NewTokenRatio: NewTokenRatioEngine,
}  # fmt: skip
