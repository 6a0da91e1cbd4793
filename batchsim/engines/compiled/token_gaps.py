"""The gaps between tokens, compiled: how many a step ends, and the longest of each request.

The requests of a decode group (`token_steps`) make their tokens together, so a step notes one gap for all of
them, however large the group is. Those that have come since the last tick are visited once. The longest gap
of a request is that of the ticks since it came: ticks are divided into segments, a new one for each tick at
which requests come, and a request's longest gap is the largest of the segments from its own on.
"""

# mypy: disable-error-code="no-untyped-def"

from batchsim.engines.compiled.columns import GAPS, LATER, STEP
from batchsim.engines.compiled.jit import inlined

NEVER = 2**62  # a tick, or a token, that never comes


@inlined
def tick_gaps(now_s, server, requests, servers):
    """Note the gaps as each request of the group makes a token."""
    aged, ready, segment = servers.aged[server], servers.ready[server], servers.segments[server]
    for place in range(aged, ready):  # those that have come since the last tick
        request = servers.running[server, place]
        requests.stall_s[request] = max(requests.stall_s[request], now_s - requests.token_s[request])
    if aged > 0:
        if aged < ready:
            segment -= 1
        gap_s = now_s - servers.tick_s[server]
        servers.peaks_s[server, segment] = max(servers.peaks_s[server, segment], gap_s)
    servers.tick_s[server], servers.aged[server] = now_s, ready


@inlined
def join_segments(server, servers):
    """Make the peak of each segment the largest from it on."""
    peaks_s = servers.peaks_s[server]
    for segment in range(servers.segments[server], 0, -1):
        peaks_s[segment - 1] = max(peaks_s[segment - 1], peaks_s[segment])


@inlined
def settle_stalls(server, requests, servers):
    """Give the requests of the group their longest gaps, and begin the segments again."""
    join_segments(server, servers)
    running = servers.running[server]
    for place in range(servers.ready[server]):
        request = running[place]
        peak_s = servers.peaks_s[server, requests.segment[request]]
        requests.stall_s[request] = max(requests.stall_s[request], peak_s)
        requests.segment[request] = 0
    servers.segments[server], servers.peaks_s[server, 0] = 0, 0.0


@inlined
def begin_segment(server, requests, servers):
    """Begin a segment for requests that come into the group."""
    if servers.segments[server] + 1 == servers.peaks_s.shape[1]:
        settle_stalls(server, requests, servers)
    servers.segments[server] += 1
    servers.peaks_s[server, servers.segments[server]] = 0.0


@inlined
def whole_gaps(now_s, server, requests, servers):
    """Note the gap as a whole batch makes tokens. Here `aged` are the requests with tokens to make."""
    running, generated = servers.running[server], servers.generated[server]
    if generated == 1:
        servers.peaks_s[server, 0], servers.next_end[server] = 0.0, 1
    else:
        gap_s = now_s - servers.ended_s[server]
        servers.peaks_s[server, 0] = max(servers.peaks_s[server, 0], gap_s)
    if generated == servers.next_end[server]:
        servers.aged[server], servers.next_end[server] = 0, NEVER
        for place in range(servers.count[server]):
            output = requests.output[running[place]]
            if output > generated:
                servers.aged[server] += 1
                servers.next_end[server] = min(servers.next_end[server], output)
            elif output == generated:
                requests.stall_s[running[place]] = servers.peaks_s[server, 0]


@inlined
def _add_gaps(from_s, gaps, server, servers, steps, sums, cursor):
    """Add gaps that began at the end of the engine's last step, or a late one."""
    if from_s == servers.ended_s[server]:
        sums[GAPS] += gaps
        return
    row = cursor[LATER]
    steps.late[0, row], steps.late[1, row], steps.late[2, row] = cursor[STEP], from_s, gaps
    cursor[LATER] += 1


@inlined
def count_gaps(server, requests, servers, steps, sums, cursor):
    """Count the gaps that this step ends: one for each token that is not a request's first."""
    ready, first = servers.ready[server], servers.ready[server]
    if servers.served[server]:
        first = servers.aged[server]
        if first > 0:
            _add_gaps(servers.tick_s[server], first, server, servers, steps, sums, cursor)
    for place in range(first, servers.count[server]):
        request = servers.running[server, place]
        generated = requests.generated[request]
        makes = requests.cached[request] == requests.prompt[request] + generated and generated > 0
        if place < ready or makes:
            _add_gaps(requests.token_s[request], 1, server, servers, steps, sums, cursor)
