"""The requests that a step of token generation serves, and the end of a step, compiled.

The same rules as in `reference/token_steps.py`. To be fast, a step keeps no rows but adds up their whole
numbers; at its end, the requests that make a token are those with cached = prompt + generated. A request has
the capacity of its blocks in tokens instead of their number, so that most rows need no division.
"""

# mypy: disable-error-code="no-untyped-def"

import math

from batchsim._clock import PER_S, TICK_S
from batchsim.engines.compiled.columns import HEAD, TAIL
from batchsim.engines.compiled.jit import inlined
from batchsim.engines.compiled.threshold import later, to_ticks
from batchsim.engines.compiled.token_columns import (
    BLOCKS,
    DECODES,
    GAPS,
    IDLE,
    LARGEST_BLOCK,
    LEFT,
    LOGGED,
    MOST_RUNNING,
    MOST_TOKENS,
    PAIRS,
    PREEMPTED,
    PREEMPTION,
    READS,
    ROWS,
    RUNNING,
    SERVER,
    STACK,
    STEP,
    TOKENS,
    TRIGGER,
    WAITING,
    WORK,
)
from batchsim.engines.compiled.token_gaps import count_gaps, tick_gaps, whole_gaps
from batchsim.engines.compiled.token_group import (
    add_to_group,
    blocks_for,
    dissolve_group,
    finish_in_group,
    is_ready,
)
from batchsim.engines.compiled.token_memory import fill, find, join_memory, release, take_contents
from batchsim.engines.token_log import BACK, NO_TRIGGER, REGAINED, RESUMED, VICTIM
from batchsim.scenario.rules.rule import BACKLOG, DRAIN, ENOUGH, FULL, WAIT
from batchsim.scenario.step_time import step_ms

ENDLESS = 2**62  # a budget that no step uses up


@inlined
def _note_start(now_s, request, requests, servers, cursor):
    """Note the first step of a request, which begins now."""
    row, arrival_s = requests.rows[request], requests.arrival_s[request]
    row.first_step, row.start_s = cursor[STEP], now_s
    forming = row.forming_s + servers.idle[IDLE]
    # The difference of the times, so that exactly nothing of it is queueing.
    whole = forming == to_ticks(now_s) - to_ticks(arrival_s)
    row.forming_s = now_s - arrival_s if whole else forming / PER_S


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
    engine = servers.engines[server]
    running = servers.running[server]
    if engine.count == 0:
        size, trigger = _leaving(now_s, ended, batching, requests, queue, cursor)
        if size == 0:
            return NO_TRIGGER
        longest = last = 0
        for place in range(size):
            request = queue.arrived[cursor[HEAD] + place]
            running[place] = request
            _note_start(now_s, request, requests, servers, cursor)
            longest = max(longest, requests.prompt[request])
            last = max(last, requests.output[request])
        cursor[HEAD] += size
        engine.count, engine.generated = size, 0
        engine.longest, engine.last = longest, last
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
    generated = engine.generated
    if batching.ragged:
        for place in range(engine.count):
            request = running[place]
            if generated < requests.output[request]:
                sums[ROWS] += 1
                sums[READS] += requests.prompt[request] + generated
    else:
        sums[ROWS] = engine.count
        sums[READS] = sums[ROWS] * (engine.longest + generated)
    sums[TOKENS] = sums[DECODES] = sums[ROWS]
    sums[GAPS] = engine.aged
    return NO_TRIGGER


@inlined
def _finish_static(now_s, server, requests, servers, done):
    """End a whole batch's step; return how many requests leave."""
    engine = servers.engines[server]
    running, step, count = servers.running[server], engine.step, engine.count
    engine.generated += 1
    if engine.generated == 1:
        for place in range(count):
            row = requests.rows[running[place]]
            row.token_step, row.first_token_s = step, now_s
    whole_gaps(now_s, server, requests, servers)
    if engine.generated < engine.last:
        return 0
    for place in range(count):
        done[place] = running[place]
        row = requests.rows[running[place]]
        row.last_step, row.finish_s = step, now_s
    engine.count = 0
    return count


# Continuous batching: each step chooses its requests again.

compiled_step_ms = inlined(step_ms)


@inlined
def _add_row(request, tokens, requests, sums):
    """Add a row of `tokens` to the step that is being scheduled."""
    row = requests.rows[request]
    cached = row.cached
    sums[ROWS] += 1
    sums[TOKENS] += tokens
    sums[LEFT] -= tokens
    if tokens == 1:
        sums[DECODES] += 1
        sums[READS] += cached + 1
    else:
        sums[PAIRS] += tokens * cached + tokens * (tokens + 1) // 2
    row.cached = cached + tokens
    known = requests.prompt[request] + requests.generated[request]
    row.truncated = cached + tokens < known


@inlined
def _tokens(request, batching, requests, sums):
    """Return how many of its missing tokens fit into the budget now; 0: the request must wait."""
    tokens = requests.prompt[request] + requests.generated[request] - requests.rows[request].cached
    if batching.threshold > 0:
        tokens = min(tokens, batching.threshold)
    if tokens <= sums[LEFT]:
        return tokens
    return sums[LEFT] if batching.chunked else 0


@inlined
def _serve_running(now_s, server, truncated_only, batching, requests, queue, servers, sums, cursor):
    """Serve the requests that run, in order of admission; while memory is short, preempt the last of them."""
    engine = servers.engines[server]
    running, size = servers.running[server], batching.block_size
    place = engine.ready
    if place > 0 and not truncated_only:
        blocks = 0 if batching.life else servers.block_demand_by_phase[server, engine.phase]
        if place <= sums[LEFT] and blocks <= engine.free:
            engine.served = True
            engine.free -= blocks
            if batching.reuses:
                take_contents(server, blocks, servers.memory)
            sums[ROWS] += place
            sums[TOKENS] += place
            sums[DECODES] += place
            sums[READS] += engine.reads
            sums[LEFT] -= place
        else:  # serve them one by one: those at the end may wait or be preempted
            dissolve_group(server, batching, requests, servers)
            place = 0
    while place < engine.count and sums[LEFT] > 0:
        request = running[place]
        row = requests.rows[request]
        place += 1
        if truncated_only and not row.truncated:
            continue
        tokens = _tokens(request, batching, requests, sums)
        if tokens == 0:
            continue
        cached = row.cached + tokens
        if cached > row.capacity:
            blocks = blocks_for(cached, size) - row.capacity // size
            while blocks > engine.free:
                engine.count -= 1
                victim = running[engine.count]
                taken = requests.rows[victim]
                held = taken.capacity // size
                if batching.reuses:
                    kept = taken.cached
                    release(server, victim, kept, held, False, batching, requests, servers)
                else:
                    engine.free += held
                taken.capacity = taken.cached = 0
                taken.preemptions += 1
                taken.back_s = now_s
                if queue.log.shape[1] > 0:
                    entry = taken.log_entry = cursor[PREEMPTION]
                    queue.log[VICTIM, entry], queue.log[BACK, entry] = victim, cursor[STEP]
                    queue.log[RESUMED, entry] = queue.log[REGAINED, entry] = -1
                    cursor[PREEMPTION] += 1
                queue.preempted[cursor[STACK]] = victim
                cursor[STACK] += 1
                sums[PREEMPTED] += 1
                if victim == request:
                    return
            engine.free -= blocks
            row.capacity += blocks * size
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
        requests.rows[request].cached = found * size
    tokens = _tokens(request, batching, requests, sums)
    if batching.life:
        needed = blocks_for(requests.prompt[request] + requests.rows[request].limit - 1, size)
        return tokens, needed, needed, 0
    needed = blocks_for(requests.prompt[request] + requests.generated[request], size) - used
    return tokens, needed, blocks_for(tokens, size), batching.watermark_blocks


@inlined
def _admit(now_s, server, batching, requests, queue, servers, sums, cursor):
    """Let requests join, from the head of the queue."""
    engine = servers.engines[server]
    running, size = servers.running[server], batching.block_size
    while sums[LEFT] > 0 and engine.count < batching.seats:
        request = next_in_queue(queue, cursor)
        if request < 0:
            return
        tokens, needed, taken, kept_free = admission(server, request, batching, requests, servers, sums)
        if tokens == 0 or needed > engine.free - kept_free:
            return
        row = requests.rows[request]
        if cursor[STACK] > 0:
            cursor[STACK] -= 1
            if row.token_step < 0:
                row.preempted_before_first_s += now_s - row.back_s
            else:
                row.preempted_after_first_s += now_s - row.back_s
            if row.log_entry >= 0:
                queue.log[RESUMED, row.log_entry] = cursor[STEP]
        else:
            cursor[HEAD] += 1
            _note_start(now_s, request, requests, servers, cursor)
        running[engine.count] = request
        engine.count += 1
        engine.free -= taken
        row.capacity = taken * size
        if batching.reuses:
            found = join_memory(server, request, batching, requests, servers)
            take_contents(server, taken, servers.memory)
            row.capacity += found * size
            fill(server, request, found * size + tokens, batching, requests, servers)
        _add_row(request, tokens, requests, sums)


@inlined
def _schedule(now_s, server, batching, requests, queue, servers, sums, cursor):
    """Choose the rows of the next step under `Continuous`."""
    engine = servers.engines[server]
    sums[LEFT] = batching.budget
    engine.served = False
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
    engine = servers.engines[server]
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
    engine.busy_until_s, engine.step = done_s, cursor[STEP]
    steps.start_s[row], steps.finish_s[row] = now_s, done_s
    sums[SERVER], sums[TRIGGER], sums[RUNNING] = server, trigger, engine.count
    sums[WAITING] = cursor[STACK] + cursor[TAIL] - cursor[HEAD]
    sums[BLOCKS] = batching.kv_blocks - engine.free
    for column in range(LOGGED):
        steps.numbers[column, row] = sums[column]
    cursor[STEP] += 1
    cursor[WORK] += 1 + sums[ROWS]
    cursor[MOST_RUNNING] = max(cursor[MOST_RUNNING], engine.count)
    cursor[MOST_TOKENS] = max(cursor[MOST_TOKENS], sums[TOKENS])
    return True


@inlined
def finish(now_s, server, batching, requests, queue, servers, done):
    """End the step of an engine; return how many requests leave. They are in `done`."""
    engine = servers.engines[server]
    engine.busy_until_s = math.inf
    if batching.whole:
        leaving = _finish_static(now_s, server, requests, servers, done)
        engine.ended_s = now_s
        return leaving
    engine.ended_s = now_s
    running, step, size = servers.running[server], engine.step, batching.block_size
    leaving = 0
    if engine.served:  # each request of the group makes a token
        tick_gaps(now_s, server, requests, servers)
        engine.tick += 1
        engine.reads += engine.ready
        engine.phase = engine.phase + 1 if engine.phase + 1 < size else 0
        if engine.tick == engine.next_end:
            leaving = finish_in_group(now_s, server, batching, requests, servers, done)
    count, ready = engine.count, engine.ready
    # The others, behind the group. `leaving` places are free by now: requests that stay move forward.
    for place in range(ready + leaving, count):
        request = running[place]
        row, generated = requests.rows[request], requests.generated[request]
        if row.cached == requests.prompt[request] + generated:  # all known tokens are computed
            generated += 1
            requests.generated[request] = generated
            if generated == 1:
                row.token_step, row.first_token_s = step, now_s
            else:
                gap_s = now_s - row.token_s
                row.stall_s = max(row.stall_s, gap_s)
            row.token_s = now_s
            if row.log_entry >= 0:
                queue.log[REGAINED, row.log_entry] = step
                row.log_entry = -1
            if generated == requests.output[request]:
                held = row.capacity // size
                if batching.reuses:
                    kept = row.cached
                    release(server, request, kept, held, True, batching, requests, servers)
                else:
                    engine.free += held
                row.last_step, row.finish_s = step, now_s
                done[leaving] = request
                leaving += 1
                continue
        running[place - leaving] = request
    engine.count = count = count - leaving
    while size <= LARGEST_BLOCK and ready < count and is_ready(running[ready], requests):
        add_to_group(running[ready], server, ready, batching, requests, servers)
        ready += 1
    engine.ready = ready
    return leaving
