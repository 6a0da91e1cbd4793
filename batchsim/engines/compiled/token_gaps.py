"""The gaps between tokens, compiled: how many a step ends, and the longest of each request.

The requests of a decode group (`token_group`) make their tokens together, so a step notes one gap for all of
them, however large the group is. Those that have come since the last tick are visited once. The longest gap
of a request is that of the ticks since it came: ticks are divided into segments, a new one for each tick at
which requests come, and a request's longest gap is the largest of the segments from its own on.
"""

# mypy: disable-error-code="no-untyped-def"

from batchsim.engines.compiled.jit import inlined
from batchsim.engines.compiled.token_columns import GAPS, LATER, STEP

NEVER = 2**62  # a tick, or a token, that never comes


@inlined
def tick_gaps(now_s, server, requests, servers):
    """Note the gaps as each request of the group makes a token."""
    engine = servers.engines[server]
    aged, ready, segment = engine.aged, engine.ready, engine.segments
    for place in range(aged, ready):  # those that have come since the last tick
        row = requests.rows[servers.running[server, place]]
        row.stall_s = max(row.stall_s, now_s - row.token_s)
    if aged > 0:
        if aged < ready:
            segment -= 1
        gap_s = now_s - engine.tick_s
        servers.peaks_s[server, segment] = max(servers.peaks_s[server, segment], gap_s)
    engine.tick_s, engine.aged = now_s, ready


@inlined
def join_segments(server, servers):
    """Make the peak of each segment the largest from it on."""
    engine = servers.engines[server]
    peaks_s = servers.peaks_s[server]
    for segment in range(engine.segments, 0, -1):
        peaks_s[segment - 1] = max(peaks_s[segment - 1], peaks_s[segment])


@inlined
def settle_stalls(server, requests, servers):
    """Give the requests of the group their longest gaps, and begin the segments again."""
    engine = servers.engines[server]
    join_segments(server, servers)
    running = servers.running[server]
    for place in range(engine.ready):
        row = requests.rows[running[place]]
        row.stall_s = max(row.stall_s, servers.peaks_s[server, row.segment])
        row.segment = 0
    engine.segments, servers.peaks_s[server, 0] = 0, 0.0


@inlined
def begin_segment(server, requests, servers):
    """Begin a segment for requests that come into the group."""
    engine = servers.engines[server]
    if engine.segments + 1 == servers.peaks_s.shape[1]:
        settle_stalls(server, requests, servers)
    engine.segments += 1
    servers.peaks_s[server, engine.segments] = 0.0


@inlined
def whole_gaps(now_s, server, requests, servers):
    """Note the gap as a whole batch makes tokens. Here `aged` are the requests with tokens to make."""
    engine = servers.engines[server]
    running, generated = servers.running[server], engine.generated
    if generated == 1:
        servers.peaks_s[server, 0], engine.next_end = 0.0, 1
    else:
        gap_s = now_s - engine.ended_s
        servers.peaks_s[server, 0] = max(servers.peaks_s[server, 0], gap_s)
    if generated == engine.next_end:
        engine.aged, engine.next_end = 0, NEVER
        for place in range(engine.count):
            output = requests.output[running[place]]
            if output > generated:
                engine.aged += 1
                engine.next_end = min(engine.next_end, output)
            elif output == generated:
                requests.rows[running[place]].stall_s = servers.peaks_s[server, 0]


@inlined
def _add_gaps(from_s, gaps, engine, steps, sums, cursor):
    """Add gaps that began at the end of the engine's last step, or a late one."""
    if from_s == engine.ended_s:
        sums[GAPS] += gaps
        return
    row = cursor[LATER]
    steps.late[0, row], steps.late[1, row], steps.late[2, row] = cursor[STEP], from_s, gaps
    cursor[LATER] += 1


@inlined
def count_gaps(server, requests, servers, steps, sums, cursor):
    """Count the gaps that this step ends: one for each token that is not a request's first."""
    engine = servers.engines[server]
    ready, first = engine.ready, engine.ready
    if engine.served:
        first = engine.aged
        if first > 0:
            _add_gaps(engine.tick_s, first, engine, steps, sums, cursor)
    for place in range(first, engine.count):
        request = servers.running[server, place]
        generated = requests.generated[request]
        row = requests.rows[request]
        makes = row.cached == requests.prompt[request] + generated and generated > 0
        if place < ready or makes:
            _add_gaps(row.token_s, 1, engine, steps, sums, cursor)
