"""Orca, the origin of continuous batching: iteration-level scheduling."""

from batchsim import _check
from batchsim.scenario.rules.continuous import MOST, Continuous
from batchsim.servers.language import UNCUT
from batchsim.servers.server import Server


def orca(max_batch_size: int = 32) -> Continuous:
    """Return the rule of Orca (OSDI 2022), as Vidur implements it.

    Running requests go first. Then the next in line join while one of max_batch_size slots is free: whole
    prompts, in the same step as others' next tokens. A slot holds memory for the longest possible request,
    so memory suffices whenever a slot is free; with equal memory, Orca has fewer slots than other servers
    have requests. It has no token budget and no preemption. The paper gives no default size.

    >>> orca(8).max_num_seqs
    8
    """
    size = _check.whole("Orca's max_batch_size", max_batch_size, at_most=MOST)
    return Continuous(size, UNCUT, chunked=False, reserve="life")


SERVER = Server(
    "orca", "2022", orca, title="Orca", extras=lambda target: {"max_batch_size": target.rule.max_batch_size}
)
