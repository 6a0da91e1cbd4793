"""The memory of an engine whose free blocks keep their contents (`Continuous.prefix_reuse`), compiled.

Free blocks are a queue of runs, in the order in which they are taken: the first own blocks of a preempted
request, the last of them first; a block with contents that requests share; or blocks without contents. Who
holds which block does not matter, so a running request has no table of blocks: its first ones are shared as
far as `uses` counts them, the others are its own. A queue is a circular list, whose entry 0 is no run.
"""

# mypy: disable-error-code="no-untyped-def"

from typing import Any, NamedTuple

import numpy as np

from batchsim.engines.compiled.jit import called
from batchsim.engines.token_log import Batching
from batchsim.scenario.prefixes import PrefixBlocks

NOBODY = -1  # shared contents c have the owner -2 - c


class TokenMemory(NamedTuple):
    """Runs of free blocks, shape (servers, entries), and where contents are; empty if nothing is reused."""

    owner: Any
    blocks: Any
    before: Any
    after: Any
    spare: Any  # the first unused entry of each engine; `after` leads to the others
    own: Any  # the run of each request's own blocks, 0: none, shape (servers, requests)
    shared: Any  # the run of shared contents, likewise
    uses: Any  # by how many running requests, likewise
    first: Any  # see `PrefixBlocks`
    pieces: Any
    per_piece: int

    @classmethod
    def allocate(
        cls, servers: int, requests: int, batching: Batching, prefixes: PrefixBlocks
    ) -> "TokenMemory":
        """Return the memory of idle engines."""
        contents = prefixes.count if batching.reuses else 0
        requests = requests if batching.reuses else 0
        # Runs without contents stand alone: the next to each other are joined.
        most = min(requests, batching.kv_blocks) + min(contents, batching.kv_blocks)
        size = 2 * most + 4 if batching.reuses else 0
        owner = np.full((servers, size), NOBODY)
        blocks, before, after = np.zeros((3, servers, size), np.int64)
        if size:  # one run has all blocks
            before[:, 0] = after[:, 0] = 1
            blocks[:, 1] = batching.kv_blocks
            after[:, 2:-1] = np.arange(3, size)
        own = np.zeros((servers, requests), np.int64)
        shared, uses = np.zeros((2, servers, contents), np.int64)
        return cls(
            owner, blocks, before, after, np.full(servers, 2), own, shared, uses,
            prefixes.first, prefixes.pieces, prefixes.per_piece,
        )  # fmt: skip


@called
def _lose(server, entry, memory):
    """Let a run have no contents."""
    owner = memory.owner[server, entry]
    if owner > NOBODY:
        memory.own[server, owner] = 0
    elif owner < NOBODY:
        memory.shared[server, -2 - owner] = 0
    memory.owner[server, entry] = NOBODY


@called
def _unlink(server, entry, memory):
    before, after = memory.before[server, entry], memory.after[server, entry]
    memory.after[server, before], memory.before[server, after] = after, before
    memory.after[server, entry], memory.spare[server] = memory.spare[server], entry


@called
def _join(server, entry, memory):
    """Join a run with the next one, if both have no contents."""
    after = memory.after[server, entry]
    both = entry != 0 and after != 0
    if both and memory.owner[server, entry] == NOBODY == memory.owner[server, after]:
        memory.blocks[server, entry] += memory.blocks[server, after]
        _unlink(server, after, memory)


@called
def _remove(server, entry, memory):
    before = memory.before[server, entry]
    _lose(server, entry, memory)
    _unlink(server, entry, memory)
    _join(server, before, memory)


@called
def _forget(server, entry, memory):
    if entry != 0:
        _lose(server, entry, memory)
        _join(server, entry, memory)
        _join(server, memory.before[server, entry], memory)


@called
def _put(server, owner, blocks, servers):
    """Add blocks that are free from now on."""
    memory = servers.memory
    if blocks == 0:
        return
    servers.free[server] += blocks
    entry = memory.spare[server]
    memory.spare[server] = memory.after[server, entry]
    last = memory.before[server, 0]
    memory.before[server, entry], memory.after[server, entry] = last, 0
    memory.after[server, last] = memory.before[server, 0] = entry
    memory.owner[server, entry], memory.blocks[server, entry] = owner, blocks
    if owner > NOBODY:
        memory.own[server, owner] = entry
    elif owner < NOBODY:
        memory.shared[server, -2 - owner] = entry
    else:
        _join(server, last, memory)


@called
def take_contents(server, blocks, memory):
    """Take the blocks that are free for the longest time from the queue; `free` already counts them."""
    while blocks > 0:
        entry = memory.after[server, 0]
        taken = min(blocks, memory.blocks[server, entry])
        blocks -= taken
        memory.blocks[server, entry] -= taken
        if memory.blocks[server, entry] == 0:
            _remove(server, entry, memory)


@called
def _content(request, block, requests, memory):
    piece = memory.pieces[memory.first[requests.path[request]] + block // memory.per_piece]
    return piece * memory.per_piece + block % memory.per_piece


@called
def find(server, request, batching, requests, servers):
    """Return how many blocks with the beginning of a waiting request are in memory: all, shared, and in use.

    It computes at least one token itself.
    """
    memory = servers.memory
    known = requests.prompt[request] + requests.generated[request]
    most, hits, used = min((known - 1) // batching.block_size, requests.shared[request]), 0, 0
    while hits < most:
        content = _content(request, hits, requests, memory)
        if memory.uses[server, content] > 0:
            used += 1
        elif memory.shared[server, content] == 0:
            break
        hits += 1
    own = memory.own[server, request]
    if hits == requests.shared[request] and own != 0:
        return hits + memory.blocks[server, own], hits, used
    return hits, hits, used


@called
def join_memory(server, request, batching, requests, servers):
    """Let a request that joins use what is in memory of its beginning; return how many blocks that is."""
    memory = servers.memory
    found, hits, _ = find(server, request, batching, requests, servers)
    for block in range(hits):
        content = _content(request, block, requests, memory)
        if memory.uses[server, content] == 0:
            servers.free[server] -= 1
            _remove(server, memory.shared[server, content], memory)
        memory.uses[server, content] += 1
    own = memory.own[server, request]
    if found > hits:
        servers.free[server] -= memory.blocks[server, own]
        _remove(server, own, memory)
    else:
        _forget(server, own, memory)
    return found


@called
def fill(server, request, cached, batching, requests, servers):
    """Note the shared blocks that a request fills as its tokens in memory become `cached`."""
    memory = servers.memory
    last = min(cached // batching.block_size, requests.shared[request])
    for block in range(requests.cached[request] // batching.block_size, last):
        content = _content(request, block, requests, memory)
        if memory.uses[server, content] > 0:
            _put(server, NOBODY, 1, servers)
        _forget(server, memory.shared[server, content], memory)
        memory.uses[server, content] += 1


@called
def release(server, request, cached, blocks, leaves, batching, requests, servers):
    """Free the blocks of a request with so many tokens in memory, the last block first."""
    memory = servers.memory
    full, shared = cached // batching.block_size, requests.shared[request]
    own = 0 if leaves else max(full - shared, 0)
    shared = min(full, shared)
    _put(server, NOBODY, blocks - shared - own, servers)
    _put(server, request, own, servers)
    for block in range(shared - 1, -1, -1):
        content = _content(request, block, requests, memory)
        memory.uses[server, content] -= 1
        if memory.uses[server, content] == 0:
            _put(server, -2 - content, 1, servers)
