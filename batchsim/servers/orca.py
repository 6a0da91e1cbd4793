"""Orca, where continuous batching comes from: iteration-level scheduling."""

from batchsim import _check
from batchsim.scenario.rules.continuous import MOST, Continuous
from batchsim.servers.language import UNCUT
from batchsim.servers.server import Server, ServerConfig, Words


def orca(max_batch_size: int = 32) -> Continuous:
    """Return the rule of Orca (OSDI 2022), as Vidur's stand-in has it.

    Who runs goes first, then the next in line while one of max_batch_size slots is free, whole prompts beside
    next tokens. A slot is memory for the model's largest length, so memory is enough whenever a slot is free:
    a server with as much memory has fewer slots than others have requests. No budget of tokens, no
    preemption. The paper names no default size.

    >>> orca(8).max_num_seqs
    8
    """
    size = _check.whole("Orca's max_batch_size", max_batch_size, at_most=MOST)
    return Continuous(size, UNCUT, chunked=False, reserve="life")


def config(max_batch_size: int = 32) -> ServerConfig:
    """Return what it means."""
    return ServerConfig("orca", orca(max_batch_size))


SERVER = Server("orca", "2022", orca, config, words=Words("max_batch_size"))
