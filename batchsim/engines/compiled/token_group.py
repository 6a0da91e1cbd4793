"""The decode group of an engine, compiled: it makes tokens in step, so its requests need no visit.

A decode group has the requests at the head of `running` that only make a token in each step ("ready"). A tick
is a step that serves the group. The tick at which a request joins determines the tick at which it ends, and
the phase (the tick modulo the block size) at which it needs its next block. So a step that serves the group
adds up four numbers, however large the group is; its requests are visited only when one ends, or when memory
or budget is too short for all. Meanwhile `generated` is less the tick of the engine, and so constant, while
`cached` and `capacity` are stale, because they follow from the tick.
"""

# mypy: disable-error-code="no-untyped-def"

from batchsim.engines.compiled.jit import inlined
from batchsim.engines.compiled.token_gaps import NEVER, begin_segment, join_segments, settle_stalls
from batchsim.engines.compiled.token_memory import release


@inlined
def blocks_for(tokens, size):
    """Return how many blocks of `size` tokens hold `tokens`."""
    return (tokens + size - 1) // size


@inlined
def is_ready(request, requests):
    """Return whether a request that runs only makes a token in each step from now on."""
    row = requests.rows[request]
    cached = requests.prompt[request] + requests.generated[request] - 1
    return row.cached == cached and not row.truncated


@inlined
def add_to_group(request, server, ready, batching, requests, servers):
    """Add a request, the next of `running`, to the group of `ready` requests."""
    engine = servers.engines[server]
    row, tick = requests.rows[request], engine.tick
    engine.reads += row.cached + 1
    requests.generated[request] -= tick
    ahead = engine.phase - row.cached
    servers.block_demand_by_phase[server, ahead % batching.block_size] += 1
    engine.next_end = min(engine.next_end, requests.output[request] - requests.generated[request])
    if ready == 0:
        engine.segments, servers.peaks_s[server, 0] = 0, 0.0
    elif ready == engine.aged:  # the first that comes since the last tick
        begin_segment(server, requests, servers)
    row.segment = engine.segments


@inlined
def dissolve_group(server, batching, requests, servers):
    """Give every request of the group its own numbers again."""
    engine = servers.engines[server]
    running, tick, size = servers.running[server], engine.tick, batching.block_size
    settle_stalls(server, requests, servers)
    for place in range(engine.ready):
        request = running[place]
        row = requests.rows[request]
        if place < engine.aged:
            row.token_s = engine.tick_s
        requests.generated[request] += tick
        row.cached = requests.prompt[request] + requests.generated[request] - 1
        if not batching.life:
            row.capacity = blocks_for(row.cached, size) * size
    engine.ready = engine.aged = engine.reads = 0
    engine.next_end = NEVER
    servers.block_demand_by_phase[server, :] = 0


@inlined
def finish_in_group(now_s, server, batching, requests, servers, done):
    """Let the requests of the group leave that end at this tick; return how many."""
    engine = servers.engines[server]
    running, tick, size = servers.running[server], engine.tick, batching.block_size
    join_segments(server, servers)
    leaving, next_end = 0, NEVER
    for place in range(engine.ready):
        request = running[place]
        end = requests.output[request] - requests.generated[request]
        if end > tick:
            next_end = min(next_end, end)
            running[place - leaving] = request
            continue
        row = requests.rows[request]
        cached = requests.prompt[request] + requests.output[request] - 1
        blocks = row.capacity // size if batching.life else blocks_for(cached, size)
        if batching.reuses:
            release(server, request, cached, blocks, True, batching, requests, servers)
        else:
            engine.free += blocks
        engine.reads -= cached + 1
        servers.block_demand_by_phase[server, (engine.phase - cached) % size] -= 1
        requests.generated[request] = requests.output[request]
        peak_s = servers.peaks_s[server, row.segment]
        row.stall_s = max(row.stall_s, peak_s)
        row.last_step, row.finish_s = engine.step, now_s
        done[leaving] = request
        leaving += 1
    engine.ready -= leaving
    engine.aged -= leaving
    engine.next_end = next_end
    return leaving
