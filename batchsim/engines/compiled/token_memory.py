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
# A run of free blocks, in a circular list.
RUN = np.dtype([("owner", np.int64), ("blocks", np.int64), ("before", np.int64), ("after", np.int64)])
# Shared contents: their run of free blocks, 0: none; and how many running requests use them.
CONTENT = np.dtype([("run", np.int64), ("uses", np.int64)])


def records(shape: Any, kind: np.dtype) -> np.recarray:
    """Return records of zeros."""
    return np.zeros(shape, kind).view(np.recarray)


class TokenMemory(NamedTuple):
    """Runs of free blocks, shape (servers, entries), and where contents are; empty if nothing is reused."""

    runs: Any  # a record each: see RUN
    spare: Any  # the first unused entry of each engine; `after` leads to the others
    own: Any  # the run of each request's own blocks, 0: none, shape (servers, requests)
    contents: Any  # a record each, likewise: see CONTENT
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
        runs = records((servers, size), RUN)
        runs.owner = NOBODY
        if size:  # one run has all blocks
            runs.before[:, 0] = runs.after[:, 0] = 1
            runs.blocks[:, 1] = batching.kv_blocks
            runs.after[:, 2:-1] = np.arange(3, size)
        own = np.zeros((servers, requests), np.int64)
        shared = records((servers, contents), CONTENT)
        used = np.full(servers, 2, np.int64)
        return cls(runs, used, own, shared, prefixes.first, prefixes.pieces, prefixes.per_piece)


@called
def _lose(server, entry, memory):
    """Let a run have no contents."""
    run = memory.runs[server, entry]
    if run.owner > NOBODY:
        memory.own[server, run.owner] = 0
    elif run.owner < NOBODY:
        memory.contents[server, -2 - run.owner].run = 0
    run.owner = NOBODY


@called
def _unlink(server, entry, memory):
    run = memory.runs[server, entry]
    memory.runs[server, run.before].after, memory.runs[server, run.after].before = run.after, run.before
    run.after, memory.spare[server] = memory.spare[server], entry


@called
def _join(server, entry, memory):
    """Join a run with the next one, if both have no contents."""
    run, after = memory.runs[server, entry], memory.runs[server, entry].after
    both = entry != 0 and after != 0
    if both and run.owner == NOBODY == memory.runs[server, after].owner:
        run.blocks += memory.runs[server, after].blocks
        _unlink(server, after, memory)


@called
def _remove(server, entry, memory):
    before = memory.runs[server, entry].before
    _lose(server, entry, memory)
    _unlink(server, entry, memory)
    _join(server, before, memory)


@called
def _forget(server, entry, memory):
    if entry != 0:
        _lose(server, entry, memory)
        _join(server, entry, memory)
        _join(server, memory.runs[server, entry].before, memory)


@called
def _put(server, owner, blocks, servers):
    """Add blocks that are free from now on."""
    memory = servers.memory
    if blocks == 0:
        return
    servers.engines[server].free += blocks
    entry, last = memory.spare[server], memory.runs[server, 0].before
    run = memory.runs[server, entry]
    memory.spare[server] = run.after
    run.owner, run.blocks, run.before, run.after = owner, blocks, last, 0
    memory.runs[server, last].after = memory.runs[server, 0].before = entry
    if owner > NOBODY:
        memory.own[server, owner] = entry
    elif owner < NOBODY:
        memory.contents[server, -2 - owner].run = entry
    else:
        _join(server, last, memory)


@called
def take_contents(server, blocks, memory):
    """Take the blocks that are free for the longest time from the queue; `free` already counts them."""
    while blocks > 0:
        entry = memory.runs[server, 0].after
        run = memory.runs[server, entry]
        taken = min(blocks, run.blocks)
        blocks -= taken
        run.blocks -= taken
        if run.blocks == 0:
            _remove(server, entry, memory)


@called
def _content(request, block, requests, memory):
    piece = memory.pieces[memory.first[requests.rows[request].path] + block // memory.per_piece]
    return piece * memory.per_piece + block % memory.per_piece


@called
def find(server, request, batching, requests, servers):
    """Return how many blocks with the beginning of a waiting request are in memory: all, shared, and in use.

    It computes at least one token itself.
    """
    memory = servers.memory
    known = requests.prompt[request] + requests.generated[request]
    most, hits, used = min((known - 1) // batching.block_size, requests.rows[request].shared), 0, 0
    while hits < most:
        content = memory.contents[server, _content(request, hits, requests, memory)]
        if content.uses > 0:
            used += 1
        elif content.run == 0:
            break
        hits += 1
    own = memory.own[server, request]
    if hits == requests.rows[request].shared and own != 0:
        return hits + memory.runs[server, own].blocks, hits, used
    return hits, hits, used


@called
def join_memory(server, request, batching, requests, servers):
    """Let a request that joins use what is in memory of its beginning; return how many blocks that is."""
    engine, memory = servers.engines[server], servers.memory
    found, hits, _ = find(server, request, batching, requests, servers)
    for block in range(hits):
        content = memory.contents[server, _content(request, block, requests, memory)]
        if content.uses == 0:
            engine.free -= 1
            _remove(server, content.run, memory)
        content.uses += 1
    own = memory.own[server, request]
    if found > hits:
        engine.free -= memory.runs[server, own].blocks
        _remove(server, own, memory)
    else:
        _forget(server, own, memory)
    return found


@called
def fill(server, request, cached, batching, requests, servers):
    """Note the shared blocks that a request fills as its tokens in memory become `cached`."""
    memory = servers.memory
    last = min(cached // batching.block_size, requests.rows[request].shared)
    for block in range(requests.rows[request].cached // batching.block_size, last):
        content = memory.contents[server, _content(request, block, requests, memory)]
        if content.uses > 0:
            _put(server, NOBODY, 1, servers)
        _forget(server, content.run, memory)
        content.uses += 1


@called
def release(server, request, cached, blocks, leaves, batching, requests, servers):
    """Free the blocks of a request with so many tokens in memory, the last block first."""
    memory = servers.memory
    full, shared = cached // batching.block_size, requests.rows[request].shared
    own = 0 if leaves else max(full - shared, 0)
    shared = min(full, shared)
    _put(server, NOBODY, blocks - shared - own, servers)
    _put(server, request, own, servers)
    for block in range(shared - 1, -1, -1):
        number = _content(request, block, requests, memory)
        content = memory.contents[server, number]
        content.uses -= 1
        if content.uses == 0:
            _put(server, -2 - number, 1, servers)
