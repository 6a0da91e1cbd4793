"""The requests that a step of token generation serves, and the end of a step, compiled.

The same rules as in `reference/token_steps.py`. To be fast, a step keeps no rows but adds up their whole
numbers; at its end, the requests that make a token are those with cached = prompt + generated. A request has
the capacity of its blocks in tokens instead of their number, so that most rows need no division.
"""

# mypy: disable-error-code="no-untyped-def"

import math

from batchsim._clock import TICK_S
from batchsim.engines.compiled.columns import (
    DECODES,
    GAPS,
    HEAD,
    LARGEST_BLOCK,
    LEFT,
    MOST_RUNNING,
    MOST_TOKENS,
    PAIRS,
    PREEMPTED,
    PREEMPTION,
    READS,
    ROWS,
    STACK,
    STEP,
    TAIL,
    TOKENS,
    WORK,
)
from batchsim.engines.compiled.jit import inlined
from batchsim.engines.compiled.threshold import later
from batchsim.engines.compiled.token_gaps import (
    NEVER,
    begin_segment,
    count_gaps,
    join_segments,
    settle_stalls,
    tick_gaps,
    whole_gaps,
)
from batchsim.engines.compiled.token_memory import fill, find, join_memory, release, take_contents
from batchsim.engines.token_log import BACK, NO_TRIGGER, REGAINED, RESUMED, VICTIM
from batchsim.scenario.rules.rule import BACKLOG, DRAIN, ENOUGH, FULL, WAIT
from batchsim.scenario.step_time import step_ms

ENDLESS = 2**62  # a budget that no step uses up


@inlined
def blocks_for(tokens, size):
    """Return how many blocks of `size` tokens hold `tokens`."""
    return (tokens + size - 1) // size


# The decode group: requests at the head of `running` that only make a token in each step ("ready"). A tick is
# a step that serves the group. The tick at which a request joins determines the tick at which it ends, and
# the phase (the tick modulo the block size) at which it needs its next block. So a step that serves the group
# adds up four numbers, however large the group is; its requests are visited only when one ends, or when
# memory or budget is too short for all. Meanwhile `generated` is less the tick of the engine, and so
# constant, while `cached` and `capacity` are stale, because they follow from the tick.


@inlined
def is_ready(request, requests):
    """Return whether a request that runs only makes a token in each step from now on."""
    cached = requests.prompt[request] + requests.generated[request] - 1
    return requests.cached[request] == cached and not requests.truncated[request]


@inlined
def add_to_group(request, server, ready, batching, requests, servers):
    """Add a request, the next of `running`, to the group of `ready` requests."""
    tick = servers.tick[server]
    servers.reads[server] += requests.cached[request] + 1
    requests.generated[request] -= tick
    ahead = servers.phase[server] - requests.cached[request]
    servers.block_demand_by_phase[server, ahead % batching.block_size] += 1
    servers.next_end[server] = min(
        servers.next_end[server], requests.output[request] - requests.generated[request]
    )
    if ready == 0:
        servers.segments[server], servers.peaks_s[server, 0] = 0, 0.0
    elif ready == servers.aged[server]:  # the first that comes since the last tick
        begin_segment(server, requests, servers)
    requests.segment[request] = servers.segments[server]


@inlined
def dissolve_group(server, batching, requests, servers):
    """Give every request of the group its own numbers again."""
    running, tick, size = servers.running[server], servers.tick[server], batching.block_size
    settle_stalls(server, requests, servers)
    for place in range(servers.ready[server]):
        request = running[place]
        if place < servers.aged[server]:
            requests.token_s[request] = servers.tick_s[server]
        requests.generated[request] += tick
        requests.cached[request] = requests.prompt[request] + requests.generated[request] - 1
        if not batching.life:
            requests.capacity[request] = blocks_for(requests.cached[request], size) * size
    servers.ready[server] = servers.aged[server] = servers.reads[server] = 0
    servers.next_end[server] = NEVER
    servers.block_demand_by_phase[server, :] = 0


@inlined
def finish_in_group(server, batching, requests, servers, done):
    """Let the requests of the group leave that end at this tick; return how many."""
    running, tick, size = servers.running[server], servers.tick[server], batching.block_size
    join_segments(server, servers)
    leaving, next_end = 0, NEVER
    for place in range(servers.ready[server]):
        request = running[place]
        end = requests.output[request] - requests.generated[request]
        if end > tick:
            next_end = min(next_end, end)
            running[place - leaving] = request
            continue
        cached = requests.prompt[request] + requests.output[request] - 1
        blocks = requests.capacity[request] // size if batching.life else blocks_for(cached, size)
        if batching.reuses:
            release(server, request, cached, blocks, True, batching, requests, servers)
        else:
            servers.free[server] += blocks
        servers.reads[server] -= cached + 1
        servers.block_demand_by_phase[server, (servers.phase[server] - cached) % size] -= 1
        requests.generated[request] = requests.output[request]
        peak_s = servers.peaks_s[server, requests.segment[request]]
        requests.stall_s[request] = max(requests.stall_s[request], peak_s)
        requests.last_step[request] = servers.step[server]
        done[leaving] = request
        leaving += 1
    servers.ready[server] -= leaving
    servers.aged[server] -= leaving
    servers.next_end[server] = next_end
    return leaving


# Whole batches: one step for all prompts, then a token each until the longest output is done.


@inlined
def _leaving(now_s, ended, batching, requests, queue, cursor):
    """Return the size of the whole batch that leaves now, and its trigger; 0 if none leaves."""
    length = cursor[TAIL] - cursor[HEAD]
    if length == 0:
        return 0, FULL
    if length >= batching.largest:
        return batching.largest, FULL
    if batching.wait_s < math.inf:
        due_s = later(requests.arrival_s[queue.arrived[cursor[HEAD]]], batching.wait_s)
        if now_s < due_s:
            return 0, FULL
        return length, WAIT if now_s == due_s else BACKLOG
    if length >= batching.enough:
        came_s = requests.arrival_s[queue.arrived[cursor[HEAD] + batching.enough - 1]]
        return length, ENOUGH if now_s == came_s else BACKLOG
    return (length, DRAIN) if ended else (0, FULL)


@inlined
def _static_step(now_s, ended, server, batching, requests, queue, servers, sums, cursor):
    """Take a batch and compute its prompts, or serve the present one again; return the trigger."""
    running = servers.running[server]
    if servers.count[server] == 0:
        size, trigger = _leaving(now_s, ended, batching, requests, queue, cursor)
        if size == 0:
            return NO_TRIGGER
        longest = last = 0
        for place in range(size):
            request = queue.arrived[cursor[HEAD] + place]
            running[place] = request
            requests.first_step[request] = cursor[STEP]
            longest = max(longest, requests.prompt[request])
            last = max(last, requests.output[request])
        cursor[HEAD] += size
        servers.count[server], servers.generated[server] = size, 0
        servers.longest[server], servers.last[server] = longest, last
        for place in range(size):
            new = requests.prompt[running[place]] if batching.ragged else longest
            sums[TOKENS] += new
            if new == 1:
                sums[DECODES] += 1
                sums[READS] += 1
            else:
                sums[PAIRS] += new * (new + 1) // 2
        sums[ROWS] = size
        return trigger
    generated = servers.generated[server]
    if batching.ragged:
        for place in range(servers.count[server]):
            request = running[place]
            if generated < requests.output[request]:
                sums[ROWS] += 1
                sums[READS] += requests.prompt[request] + generated
    else:
        sums[ROWS] = servers.count[server]
        sums[READS] = sums[ROWS] * (servers.longest[server] + generated)
    sums[TOKENS] = sums[DECODES] = sums[ROWS]
    sums[GAPS] = servers.aged[server]
    return NO_TRIGGER


@inlined
def _finish_static(now_s, server, requests, servers, done):
    """End a whole batch's step; return how many requests leave."""
    running, step, count = servers.running[server], servers.step[server], servers.count[server]
    servers.generated[server] += 1
    if servers.generated[server] == 1:
        for place in range(count):
            requests.token_step[running[place]] = step
    whole_gaps(now_s, server, requests, servers)
    if servers.generated[server] < servers.last[server]:
        return 0
    for place in range(count):
        done[place] = running[place]
        requests.last_step[running[place]] = step
    servers.count[server] = 0
    return count


# Continuous batching: each step chooses its requests again.

compiled_step_ms = inlined(step_ms)


@inlined
def _add_row(request, tokens, requests, sums):
    """Add a row of `tokens` to the step that is being scheduled."""
    cached = requests.cached[request]
    sums[ROWS] += 1
    sums[TOKENS] += tokens
    sums[LEFT] -= tokens
    if tokens == 1:
        sums[DECODES] += 1
        sums[READS] += cached + 1
    else:
        sums[PAIRS] += tokens * cached + tokens * (tokens + 1) // 2
    requests.cached[request] = cached + tokens
    known = requests.prompt[request] + requests.generated[request]
    requests.truncated[request] = cached + tokens < known


@inlined
def _tokens(request, batching, requests, sums):
    """Return how many of its missing tokens fit into the budget now; 0: the request must wait."""
    tokens = requests.prompt[request] + requests.generated[request] - requests.cached[request]
    if batching.threshold > 0:
        tokens = min(tokens, batching.threshold)
    if tokens <= sums[LEFT]:
        return tokens
    return sums[LEFT] if batching.chunked else 0


@inlined
def _serve_running(now_s, server, truncated_only, batching, requests, queue, servers, sums, cursor):
    """Serve the requests that run, in order of admission; while memory is short, preempt the last of them."""
    running, size = servers.running[server], batching.block_size
    place = servers.ready[server]
    if place > 0 and not truncated_only:
        blocks = 0 if batching.life else servers.block_demand_by_phase[server, servers.phase[server]]
        if place <= sums[LEFT] and blocks <= servers.free[server]:
            servers.served[server] = True
            servers.free[server] -= blocks
            if batching.reuses:
                take_contents(server, blocks, servers.memory)
            sums[ROWS] += place
            sums[TOKENS] += place
            sums[DECODES] += place
            sums[READS] += servers.reads[server]
            sums[LEFT] -= place
        else:  # serve them one by one: those at the end may wait or be preempted
            dissolve_group(server, batching, requests, servers)
            place = 0
    while place < servers.count[server] and sums[LEFT] > 0:
        request = running[place]
        place += 1
        if truncated_only and not requests.truncated[request]:
            continue
        tokens = _tokens(request, batching, requests, sums)
        if tokens == 0:
            continue
        cached = requests.cached[request] + tokens
        if cached > requests.capacity[request]:
            blocks = blocks_for(cached, size) - requests.capacity[request] // size
            while blocks > servers.free[server]:
                servers.count[server] -= 1
                victim = running[servers.count[server]]
                held = requests.capacity[victim] // size
                if batching.reuses:
                    kept = requests.cached[victim]
                    release(server, victim, kept, held, False, batching, requests, servers)
                else:
                    servers.free[server] += held
                requests.capacity[victim] = requests.cached[victim] = 0
                requests.preemptions[victim] += 1
                requests.back_s[victim] = now_s
                if queue.log.shape[1] > 0:
                    entry = requests.log_entry[victim] = cursor[PREEMPTION]
                    queue.log[VICTIM, entry], queue.log[BACK, entry] = victim, cursor[STEP]
                    queue.log[RESUMED, entry] = queue.log[REGAINED, entry] = -1
                    cursor[PREEMPTION] += 1
                queue.preempted[cursor[STACK]] = victim
                cursor[STACK] += 1
                sums[PREEMPTED] += 1
                if victim == request:
                    return
            servers.free[server] -= blocks
            requests.capacity[request] += blocks * size
            if batching.reuses:
                take_contents(server, blocks, servers.memory)
        if batching.reuses:
            fill(server, request, cached, batching, requests, servers)
        _add_row(request, tokens, requests, sums)


@inlined
def next_in_queue(queue, cursor):
    """Return the request that may join next, the one preempted last first; -1: the queue is empty."""
    if cursor[STACK] > 0:
        return queue.preempted[cursor[STACK] - 1]
    return queue.arrived[cursor[HEAD]] if cursor[HEAD] < cursor[TAIL] else -1


@inlined
def admission(server, request, batching, requests, servers, sums):
    """Return what admitting a request takes: its tokens, and the blocks it needs, takes, and leaves free."""
    size, found, used = batching.block_size, 0, 0
    if batching.reuses:
        found, _, used = find(server, request, batching, requests, servers)
        requests.cached[request] = found * size
    tokens = _tokens(request, batching, requests, sums)
    if batching.life:
        needed = blocks_for(requests.prompt[request] + requests.limit[request] - 1, size)
        return tokens, needed, needed, 0
    needed = blocks_for(requests.prompt[request] + requests.generated[request], size) - used
    return tokens, needed, blocks_for(tokens, size), batching.watermark_blocks


@inlined
def _admit(now_s, server, batching, requests, queue, servers, sums, cursor):
    """Let requests join, from the head of the queue."""
    running, size = servers.running[server], batching.block_size
    while sums[LEFT] > 0 and servers.count[server] < batching.seats:
        request = next_in_queue(queue, cursor)
        if request < 0:
            return
        tokens, needed, taken, kept_free = admission(server, request, batching, requests, servers, sums)
        if tokens == 0 or needed > servers.free[server] - kept_free:
            return
        if cursor[STACK] > 0:
            cursor[STACK] -= 1
            away_s = requests.preempted_after_first_s
            if requests.token_step[request] < 0:
                away_s = requests.preempted_before_first_s
            away_s[request] += now_s - requests.back_s[request]
            if requests.log_entry[request] >= 0:
                queue.log[RESUMED, requests.log_entry[request]] = cursor[STEP]
        else:
            cursor[HEAD] += 1
            requests.first_step[request] = cursor[STEP]
        running[servers.count[server]] = request
        servers.count[server] += 1
        servers.free[server] -= taken
        requests.capacity[request] = taken * size
        if batching.reuses:
            found = join_memory(server, request, batching, requests, servers)
            take_contents(server, taken, servers.memory)
            requests.capacity[request] += found * size
            fill(server, request, found * size + tokens, batching, requests, servers)
        _add_row(request, tokens, requests, sums)


@inlined
def _schedule(now_s, server, batching, requests, queue, servers, sums, cursor):
    """Choose the rows of the next step under `Continuous`."""
    sums[LEFT] = batching.budget
    servers.served[server] = False
    # Each call is inlined, as another copy for the compiler: in a loop, one call of each part is enough.
    for turn in range(2):
        if turn == 1:
            if batching.decode_first or sums[ROWS] > 0:
                return
            sums[LEFT] = ENDLESS  # a step of decodes
        truncated_only = turn == 0 and not batching.decode_first
        if batching.chunked or not truncated_only:
            _serve_running(now_s, server, truncated_only, batching, requests, queue, servers, sums, cursor)
        if turn == 0 and sums[PREEMPTED] == 0:
            _admit(now_s, server, batching, requests, queue, servers, sums, cursor)


# The start and the end of a step.


@inlined
def start(now_s, ended, server, batching, cost, requests, queue, servers, steps, sums, cursor):
    """Start the next step of an engine; return whether it has one."""
    sums[:] = 0
    trigger = NO_TRIGGER
    if batching.whole:
        trigger = _static_step(now_s, ended, server, batching, requests, queue, servers, sums, cursor)
    else:
        _schedule(now_s, server, batching, requests, queue, servers, sums, cursor)
    if sums[ROWS] == 0:
        return False
    if not batching.whole:
        count_gaps(server, requests, servers, steps, sums, cursor)
    seconds = compiled_step_ms(cost, sums[TOKENS], sums[READS], sums[PAIRS], sums[DECODES]) / 1000
    row = cursor[STEP] - steps.first
    if steps.noise.size:
        seconds = seconds * steps.noise[row]
    done_s = later(now_s, max(seconds, TICK_S))  # however short, it takes a tick of the clock
    servers.busy_until_s[server], servers.step[server] = done_s, cursor[STEP]
    steps.start_s[row], steps.finish_s[row] = now_s, done_s
    steps.rows[row], steps.server[row], steps.trigger[row] = sums[ROWS], server, trigger
    steps.tokens[row], steps.reads[row], steps.pairs[row] = sums[TOKENS], sums[READS], sums[PAIRS]
    steps.running[row] = servers.count[server]
    steps.waiting[row] = cursor[STACK] + cursor[TAIL] - cursor[HEAD]
    steps.blocks[row] = batching.kv_blocks - servers.free[server]
    steps.preempted[row], steps.gaps[row] = sums[PREEMPTED], sums[GAPS]
    cursor[STEP] += 1
    cursor[WORK] += 1 + sums[ROWS]
    cursor[MOST_RUNNING] = max(cursor[MOST_RUNNING], servers.count[server])
    cursor[MOST_TOKENS] = max(cursor[MOST_TOKENS], sums[TOKENS])
    return True


@inlined
def finish(server, batching, requests, queue, servers, done):
    """End the step of an engine; return how many requests leave. They are in `done`."""
    now_s, servers.busy_until_s[server] = servers.busy_until_s[server], math.inf
    if batching.whole:
        leaving = _finish_static(now_s, server, requests, servers, done)
        servers.ended_s[server] = now_s
        return leaving
    servers.ended_s[server] = now_s
    running, step, size = servers.running[server], servers.step[server], batching.block_size
    leaving = 0
    if servers.served[server]:  # each request of the group makes a token
        tick_gaps(now_s, server, requests, servers)
        servers.tick[server] += 1
        servers.reads[server] += servers.ready[server]
        servers.phase[server] = servers.phase[server] + 1 if servers.phase[server] + 1 < size else 0
        if servers.tick[server] == servers.next_end[server]:
            leaving = finish_in_group(server, batching, requests, servers, done)
    count, ready = servers.count[server], servers.ready[server]
    # The others, behind the group. `leaving` places are free by now: requests that stay move forward.
    for place in range(ready + leaving, count):
        request = running[place]
        generated = requests.generated[request]
        if requests.cached[request] == requests.prompt[request] + generated:  # all known tokens are computed
            generated += 1
            requests.generated[request] = generated
            if generated == 1:
                requests.token_step[request] = step
            else:
                gap_s = now_s - requests.token_s[request]
                requests.stall_s[request] = max(requests.stall_s[request], gap_s)
            requests.token_s[request] = now_s
            if requests.log_entry[request] >= 0:
                queue.log[REGAINED, requests.log_entry[request]] = step
                requests.log_entry[request] = -1
            if generated == requests.output[request]:
                held = requests.capacity[request] // size
                if batching.reuses:
                    kept = requests.cached[request]
                    release(server, request, kept, held, True, batching, requests, servers)
                else:
                    servers.free[server] += held
                requests.last_step[request] = step
                done[leaving] = request
                leaving += 1
                continue
        running[place - leaving] = request
    servers.count[server] = count = count - leaving
    while size <= LARGEST_BLOCK and ready < count and is_ready(running[ready], requests):
        add_to_group(running[ready], server, ready, batching, requests, servers)
        ready += 1
    servers.ready[server] = ready
    return leaving
