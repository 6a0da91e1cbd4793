"""The compiled engine of token generation: steps of which each is like the last, one after the other.

While nobody comes, joins, ends or goes back, a step differs from the last in the keys alone that it reads.
Most steps are so, and then all that has to be done of them is to add up when they end.
"""

# mypy: disable-error-code="no-untyped-def"

from batchsim._clock import TICK_S
from batchsim.engines.compiled.columns import HEAD, LEFT, STACK, STEP, TAIL, WORK
from batchsim.engines.compiled.jit import inlined
from batchsim.engines.compiled.threshold import later
from batchsim.engines.compiled.token_steps import _step_ms, next_in_line, to_join
from batchsim.engines.token_log import NO_TRIGGER


@inlined
def _joins_nobody(server, batching, requests, queue, servers, sums, at):
    """Return whether nobody who waits now can join before one of the ready requests ends.

    Until then these hold the same seats and tokens of the budget, and no fewer blocks. Nor does another
    engine take anybody: its step goes on, or else it had taken them before.
    """
    request = next_in_line(queue, at)
    if request < 0:
        return True
    sums[LEFT] = batching.budget - (servers.ready[server] if batching.decode_first else 0)
    if sums[LEFT] <= 0 or servers.count[server] == batching.seats:
        return True
    tokens, needed, _, kept_free = to_join(request, batching, requests, sums)
    return tokens == 0 or needed > servers.free[server] - kept_free


@inlined
def go_on_alike(until_s, limits, batching, cost, requests, queue, servers, steps, sums, at):
    """Let the engine whose step ends first go on with its ready requests alone.

    As long as the next step starts before `until_s`, and before any other engine's step ends.
    """
    server, ends_s = 0, servers.busy_until_s
    for other in range(1, ends_s.size):
        if ends_s[other] < ends_s[server]:
            server = other
    for other in range(ends_s.size):
        if other != server:
            until_s = min(until_s, ends_s[other])
    ready, size = servers.ready[server], batching.block_size
    # That this step serves the ready ones says that the budget has room for them.
    if ends_s[server] >= until_s or not servers.served[server] or ready < servers.count[server]:
        return
    if not _joins_nobody(server, batching, requests, queue, servers, sums, at):
        return
    begin, before_s, before = at[STEP] - steps.first, ends_s[server], servers.reads[server]
    now_s, reads, free = before_s, before, servers.free[server]
    tick, phase = servers.tick[server], servers.phase[server]
    # This instant may start a step of each engine, for which rows are left.
    row, last = begin, steps.start_s.size - ends_s.size
    while now_s < until_s and tick + 1 < servers.next_end[server] and row < last:
        ahead = phase + 1 if phase + 1 < size else 0
        blocks = 0 if batching.life else servers.edges[server, ahead]
        if blocks > free:
            break
        tick, phase = tick + 1, ahead
        free -= blocks
        reads += ready
        seconds = _step_ms(cost, ready, reads, 0) / 1000
        if steps.noise.size:
            seconds = seconds * steps.noise[row]
        done_s = later(now_s, max(seconds, TICK_S))
        steps.finish_s[row], steps.blocks[row] = done_s, batching.kv_blocks - free
        row += 1
        servers.clock_s[0], now_s = now_s, done_s
    if row == begin:
        return
    waiting = at[STACK] + at[TAIL] - at[HEAD]
    for each in range(begin, row if limits.logged else begin):
        steps.start_s[each] = before_s if each == begin else steps.finish_s[each - 1]
        steps.rows[each] = steps.tokens[each] = steps.running[each] = ready
        steps.server[each], steps.trigger[each], steps.waiting[each] = server, NO_TRIGGER, waiting
        steps.reads[each] = before + (each - begin + 1) * ready
        steps.pairs[each] = steps.preempted[each] = 0
    at[WORK] += row - begin
    at[STEP] += row - begin
    ends_s[server], servers.reads[server], servers.free[server] = now_s, reads, free
    servers.tick[server], servers.phase[server], servers.step[server] = tick, phase, at[STEP] - 1
