"""The compiled engine of token generation: what a step serves, and what its end hands out.

The reference says the same in `reference_schedule`. Here nobody keeps rows: a step adds up its whole numbers
as it goes, and at its end the requests that caught up are those with held = prompt + made. In place of blocks
a request has the number of tokens that its blocks have room for, so that most rows need no division.
"""

# mypy: disable-error-code="no-untyped-def"

import math

from batchsim._clock import TICK_S
from batchsim.engines.compiled.columns import (
    HEAD,
    LARGEST_BLOCK,
    LEFT,
    MOST_RUNNING,
    MOST_TOKENS,
    PAIRS,
    PREEMPTED,
    READS,
    ROWS,
    STACK,
    STEP,
    TAIL,
    TOKENS,
    WORK,
)
from batchsim.engines.compiled.decode_group import (
    EVERYTHING,
    blocks_for,
    end_ready,
    is_ready,
    join_ready,
    part_ready,
)
from batchsim.engines.compiled.jit import inlined
from batchsim.engines.compiled.static_batching import finish_whole, whole_step
from batchsim.engines.compiled.threshold import later
from batchsim.engines.token_log import NO_TRIGGER
from batchsim.scenario.step_time import step_ms

_step_ms = inlined(step_ms)


@inlined
def _add_row(request, tokens, batching, requests, sums):
    """Let a step serve so many tokens of a request."""
    held = requests.held[request]
    sums[ROWS] += 1
    sums[TOKENS] += tokens
    sums[LEFT] -= tokens
    if tokens == 1:
        sums[READS] += held + 1
    else:
        sums[PAIRS] += tokens * held + tokens * (tokens + 1) // 2
    requests.held[request] = held + tokens
    known = requests.prompt[request] + requests.made[request]
    requests.cut[request] = held + tokens < known


@inlined
def _tokens(request, batching, requests, sums):
    """Return how many of its tokens the budget lets a request have now; 0: it has to wait."""
    tokens = requests.prompt[request] + requests.made[request] - requests.held[request]
    if batching.threshold > 0:
        tokens = min(tokens, batching.threshold)
    if tokens <= sums[LEFT]:
        return tokens
    return sums[LEFT] if batching.chunked else 0


@inlined
def _serve_running(now_s, server, cut_alone, batching, requests, queue, servers, sums, at):
    """Serve those that run, in order of admission; where memory is short the last of them goes back."""
    running, size = servers.running[server], batching.block_size
    place = servers.ready[server]
    if place > 0 and not cut_alone:
        blocks = 0 if batching.life else servers.edges[server, servers.phase[server]]
        if place <= sums[LEFT] and blocks <= servers.free[server]:
            servers.served[server] = True
            servers.free[server] -= blocks
            sums[ROWS] += place
            sums[TOKENS] += place
            sums[READS] += servers.reads[server]
            sums[LEFT] -= place
        else:  # one by one, as the last of them may have to go back
            part_ready(server, batching, requests, servers)
            place = 0
    while place < servers.count[server] and sums[LEFT] > 0:
        request = running[place]
        place += 1
        if cut_alone and not requests.cut[request]:
            continue
        tokens = _tokens(request, batching, requests, sums)
        if tokens == 0:
            continue
        held = requests.held[request] + tokens
        if held > requests.room[request]:
            blocks = blocks_for(held, size) - requests.room[request] // size
            while blocks > servers.free[server]:
                servers.count[server] -= 1
                victim = running[servers.count[server]]
                servers.free[server] += requests.room[victim] // size
                requests.room[victim] = requests.held[victim] = 0
                requests.preemptions[victim] += 1
                requests.back_s[victim] = now_s
                queue.stack[at[STACK]] = victim
                at[STACK] += 1
                sums[PREEMPTED] += 1
                if victim == request:
                    return
            servers.free[server] -= blocks
            requests.room[request] += blocks * size
        _add_row(request, tokens, batching, requests, sums)


@inlined
def next_in_line(queue, at):
    """Return who may join next: the preempted before others, the latest of them first; -1: nobody waits."""
    if at[STACK] > 0:
        return queue.stack[at[STACK] - 1]
    return queue.requests[at[HEAD]] if at[HEAD] < at[TAIL] else -1


@inlined
def to_join(request, batching, requests, sums):
    """Return how many tokens a request would have as it joins, and blocks: needed, taken, and kept free."""
    tokens, size = _tokens(request, batching, requests, sums), batching.block_size
    if batching.life:
        needed = blocks_for(requests.prompt[request] + requests.limit[request] - 1, size)
        return tokens, needed, needed, 0
    needed = blocks_for(requests.prompt[request] + requests.made[request], size)
    return tokens, needed, blocks_for(tokens, size), batching.watermark_blocks


@inlined
def _admit(now_s, server, batching, requests, queue, servers, sums, at):
    """Let requests join, from the head of the line."""
    running, size = servers.running[server], batching.block_size
    while sums[LEFT] > 0 and servers.count[server] < batching.seats:
        request = next_in_line(queue, at)
        if request < 0:
            return
        tokens, needed, taken, kept_free = to_join(request, batching, requests, sums)
        if tokens == 0 or needed > servers.free[server] - kept_free:
            return
        if at[STACK] > 0:
            at[STACK] -= 1
            away_s = requests.before_s if requests.token_step[request] < 0 else requests.after_s
            away_s[request] += now_s - requests.back_s[request]
        else:
            at[HEAD] += 1
            requests.first_step[request] = at[STEP]
        running[servers.count[server]] = request
        servers.count[server] += 1
        servers.free[server] -= taken
        requests.room[request] = taken * size
        _add_row(request, tokens, batching, requests, sums)


@inlined
def _schedule(now_s, server, batching, requests, queue, servers, sums, at):
    """Choose what the next step serves, as `Continuous` says."""
    sums[LEFT] = batching.budget
    servers.served[server] = False
    # One place alone calls each part, as each call is another copy for the compiler.
    for turn in range(2):
        if turn == 1:
            if batching.decode_first or sums[ROWS] > 0:
                return
            sums[LEFT] = EVERYTHING  # a step of decodes
        cut_alone = turn == 0 and not batching.decode_first
        if batching.chunked or not cut_alone:
            _serve_running(now_s, server, cut_alone, batching, requests, queue, servers, sums, at)
        if turn == 0 and sums[PREEMPTED] == 0:
            _admit(now_s, server, batching, requests, queue, servers, sums, at)


# The two sides of a step.


@inlined
def start(now_s, ended, server, batching, cost, requests, queue, servers, steps, sums, at):
    """Start the next step of an engine; return whether there is anything to do."""
    sums[:] = 0
    trigger = NO_TRIGGER
    if batching.whole:
        trigger = whole_step(now_s, ended, server, batching, requests, queue, servers, sums, at)
    else:
        _schedule(now_s, server, batching, requests, queue, servers, sums, at)
    if sums[ROWS] == 0:
        return False
    seconds = _step_ms(cost, sums[TOKENS], sums[READS], sums[PAIRS]) / 1000
    row = at[STEP] - steps.first
    if steps.noise.size:
        seconds = seconds * steps.noise[row]
    done_s = later(now_s, max(seconds, TICK_S))  # however short, it takes a tick of the clock
    servers.busy_until_s[server], servers.step[server] = done_s, at[STEP]
    steps.start_s[row], steps.finish_s[row] = now_s, done_s
    steps.rows[row], steps.server[row], steps.trigger[row] = sums[ROWS], server, trigger
    steps.tokens[row], steps.reads[row], steps.pairs[row] = sums[TOKENS], sums[READS], sums[PAIRS]
    steps.running[row] = servers.count[server]
    steps.waiting[row] = at[STACK] + at[TAIL] - at[HEAD]
    steps.blocks[row] = batching.kv_blocks - servers.free[server]
    steps.preempted[row] = sums[PREEMPTED]
    at[STEP] += 1
    at[WORK] += 1 + sums[ROWS]
    at[MOST_RUNNING] = max(at[MOST_RUNNING], servers.count[server])
    at[MOST_TOKENS] = max(at[MOST_TOKENS], sums[TOKENS])
    return True


@inlined
def finish(server, batching, requests, servers, done):
    """End an engine's step: hand out its tokens. Return how many leave; they are in `done`."""
    servers.busy_until_s[server] = math.inf
    if batching.whole:
        return finish_whole(server, requests, servers, done)
    running, step, size = servers.running[server], servers.step[server], batching.block_size
    leaving = 0
    if servers.served[server]:  # the ready ones made a token each
        servers.tick[server] += 1
        servers.reads[server] += servers.ready[server]
        servers.phase[server] = servers.phase[server] + 1 if servers.phase[server] + 1 < size else 0
        if servers.tick[server] == servers.next_end[server]:
            leaving = end_ready(server, batching, requests, servers, done)
    count, ready = servers.count[server], servers.ready[server]
    for place in range(ready + leaving, count):
        request = running[place]
        made = requests.made[request]
        if requests.held[request] == requests.prompt[request] + made:  # it caught up
            made += 1
            requests.made[request] = made
            if made == 1:
                requests.token_step[request] = step
            if made == requests.output[request]:
                servers.free[server] += requests.room[request] // size
                requests.last_step[request] = step
                done[leaving] = request
                leaving += 1
                continue
        running[place - leaving] = request
    servers.count[server] = count = count - leaving
    while size <= LARGEST_BLOCK and ready < count and is_ready(running[ready], requests):
        join_ready(running[ready], server, batching, requests, servers)
        ready += 1
    servers.ready[server] = ready
    return leaving
