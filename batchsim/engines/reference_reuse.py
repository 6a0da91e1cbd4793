"""An engine whose free blocks keep what they held: a preempted request finds its own beginning again.

It is vLLM's prefix cache, where no two requests begin alike. The reference engine alone has it.
"""

from collections import deque
from dataclasses import dataclass, field

from batchsim.engines.reference_schedule import Engine, Request


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
