"""The compiled loop of token generation: from instant to instant, each with the four steps of the reference.

Most steps differ from the one before only in the keys that they read: no request comes, joins, ends or is
preempted. `run_uniform_steps` computes such steps in a row, without an instant for each.
"""

# mypy: disable-error-code="no-untyped-def"

import math

from batchsim._clock import TICK_S
from batchsim.engines.compiled.columns import HEAD, SENT, TAIL, THINKING
from batchsim.engines.compiled.instants import (
    ENDED,
    MORE,
    PAUSED,
    REJECTED,
    TIMED_OUT,
    answer_client,
    next_send_s,
    pop_senders,
)
from batchsim.engines.compiled.jit import compiled, inlined
from batchsim.engines.compiled.threshold import later, soonest, to_ticks
from batchsim.engines.compiled.token_columns import (
    BLOCKS,
    BY,
    GAPS,
    IDLE,
    LATER,
    LEFT,
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
from batchsim.engines.compiled.token_gaps import tick_gaps
from batchsim.engines.compiled.token_memory import take_contents
from batchsim.engines.compiled.token_steps import admission, compiled_step_ms, finish, next_in_queue, start
from batchsim.engines.token_log import NO_TRIGGER


@inlined
def _no_request_can_join(server, batching, requests, queue, servers, sums, cursor):
    """Return whether no waiting request can join before a request of the decode group ends.

    Until then the group takes the same seats and the same part of the budget, and no fewer blocks. Another
    engine cannot admit one either: it computes a step, or could not at the last instant.
    """
    engine = servers.engines[server]
    request = next_in_queue(queue, cursor)
    if request < 0:
        return True
    sums[LEFT] = batching.budget - (engine.ready if batching.decode_first else 0)
    if sums[LEFT] <= 0 or engine.count == batching.seats:
        return True
    tokens, needed, _, kept_free = admission(server, request, batching, requests, servers, sums)
    return tokens == 0 or needed > engine.free - kept_free


@inlined
def run_uniform_steps(until_s, limits, batching, cost, requests, queue, servers, steps, sums, cursor):
    """Let the engine whose step ends first continue its decode group, if it runs nothing else.

    These steps start before `until_s` and before the step of another engine ends: nothing else happens.
    """
    server, count = 0, servers.engines.size
    for other in range(1, count):
        if servers.engines[other].busy_until_s < servers.engines[server].busy_until_s:
            server = other
    for other in range(count):
        if other != server:
            until_s = min(until_s, servers.engines[other].busy_until_s)
    engine = servers.engines[server]
    ready, size = engine.ready, batching.block_size
    # The present step serves the group, so the budget suffices for the next ones too.
    if engine.busy_until_s >= until_s or not engine.served or ready < engine.count:
        return
    if not _no_request_can_join(server, batching, requests, queue, servers, sums, cursor):
        return
    begin, before_s, before = cursor[STEP] - steps.first, engine.busy_until_s, engine.reads
    now_s, reads, free = before_s, before, engine.free
    tick, phase = engine.tick, engine.phase
    peak_s, segment = 0.0, engine.segments
    # Leave a row for each engine: the instant that follows may start a step of each.
    row, last = begin, steps.start_s.size - count
    while now_s < until_s and tick + 1 < engine.next_end and row < last:
        ahead = phase + 1 if phase + 1 < size else 0
        blocks = 0 if batching.life else servers.block_demand_by_phase[server, ahead]
        if blocks > free:
            break
        tick, phase = tick + 1, ahead
        if row == begin:
            tick_gaps(now_s, server, requests, servers)
        else:
            peak_s = max(peak_s, now_s - servers.clock_s[0])
        free -= blocks
        reads += ready
        seconds = compiled_step_ms(cost, ready, reads, 0, ready) / 1000
        if steps.noise.size:
            seconds = seconds * steps.noise[row]
        done_s = later(now_s, max(seconds, TICK_S))
        steps.finish_s[row], steps.numbers[BLOCKS, row] = done_s, batching.kv_blocks - free
        row += 1
        servers.clock_s[0], now_s = now_s, done_s
    if row == begin:
        return
    if batching.reuses:
        take_contents(server, engine.free - free, servers.memory)
    servers.peaks_s[server, segment] = max(servers.peaks_s[server, segment], peak_s)
    engine.ended_s = engine.tick_s = servers.clock_s[0]
    waiting = cursor[STACK] + cursor[TAIL] - cursor[HEAD]
    for each in range(begin, row if limits.logged else begin):
        steps.start_s[each] = before_s if each == begin else steps.finish_s[each - 1]
        for column in (ROWS, TOKENS, RUNNING, GAPS):
            steps.numbers[column, each] = ready
        steps.numbers[SERVER, each], steps.numbers[TRIGGER, each] = server, NO_TRIGGER
        steps.numbers[READS, each] = before + (each - begin + 1) * ready
        steps.numbers[WAITING, each] = waiting
        steps.numbers[PAIRS, each] = steps.numbers[PREEMPTED, each] = 0
    cursor[WORK] += row - begin
    cursor[STEP] += row - begin
    engine.busy_until_s, engine.reads, engine.free = now_s, reads, free
    engine.tick, engine.phase, engine.step = tick, phase, cursor[STEP] - 1


@inlined
def _start_steps(now_s, ended, batching, cost, requests, queue, servers, steps, sums, cursor):
    """Start steps, each on the lowest-numbered idle engine that can, until no engine can.

    After each, ask from the lowest again: a preempted request may run on an engine that was idle.
    """
    server = 0
    while server < servers.engines.size:
        idle = servers.engines[server].busy_until_s == math.inf
        if idle and start(
            now_s, ended, server, batching, cost, requests, queue, servers, steps, sums, cursor
        ):
            server = -1 if servers.engines.size > 1 else 0
        server += 1


@inlined
def _note_idle(now_s, servers):
    """Add the time since the instant before, if an engine was idle."""
    ticks = to_ticks(now_s)
    for server in range(servers.engines.size):
        if servers.engines[server].busy_until_s == math.inf:
            servers.idle[IDLE] += ticks - servers.idle[BY]
            break
    servers.idle[BY] = ticks


@inlined
def _enter(request, limit, requests, queue, servers, cursor):
    """Let the request that comes now into the queue, unless that is at its limit."""
    row = requests.rows[request]
    row.first_step = row.token_step = row.last_step = row.log_entry = -1
    row.forming_s = -servers.idle[IDLE]
    cursor[SENT] += 1
    if cursor[STACK] + cursor[TAIL] - cursor[HEAD] >= limit:
        row.status = REJECTED
        return False
    queue.arrived[cursor[TAIL]] = request
    cursor[TAIL] += 1
    return True


@compiled
def pass_steps(limits, batching, cost, requests, queue, clients, servers, steps, sums, done, cursor):
    """Go from instant to instant until the run is over, or work or rows run out."""
    arrival_s, closed, total = requests.arrival_s, requests.client.size > 0, limits.total
    last_s, count = servers.clock_s[0], servers.engines.size
    log_size, preemptions_at_once = queue.log.shape[1], servers.running.size
    cursor[LATER] = 0
    # At one instant each client sends at most once.
    most = total if total <= arrival_s.size else arrival_s.size - clients.client.size
    work_left = limits.work + cursor[WORK]
    while True:
        # At one instant each engine starts at most one step, and preempts at most all that it runs.
        if cursor[STEP] - steps.first + count > steps.start_s.size or cursor[WORK] >= work_left:
            return PAUSED
        if cursor[LATER] + servers.running.size > steps.late.shape[1]:
            return PAUSED
        if log_size > 0 and cursor[PREEMPTION] + preemptions_at_once > log_size:
            return PAUSED
        if closed and cursor[SENT] > most:
            return MORE
        work_left -= 1
        # The next instant at which something is due.
        now_s = math.inf
        if not closed and cursor[SENT] < total:
            now_s = arrival_s[cursor[SENT]]
        if cursor[THINKING] > 0:
            now_s = min(now_s, next_send_s(requests, clients, cursor))
        if cursor[HEAD] < cursor[TAIL]:
            oldest_s = arrival_s[queue.arrived[cursor[HEAD]]]
            now_s = min(now_s, later(oldest_s, limits.timeout_s))
            # Engines without a step were asked at `last_s`: a wait that ended by then must not stop time.
            due_s = later(oldest_s, batching.wait_s)
            if batching.whole and due_s > last_s:
                for server in range(count):
                    if servers.engines[server].busy_until_s == math.inf:
                        now_s = min(now_s, due_s)
                        break
        if cursor[SENT] == total and last_s < limits.end_s:
            now_s = min(now_s, limits.end_s)
        if not batching.whole:
            until_s = min(now_s, limits.until_s)
            run_uniform_steps(until_s, limits, batching, cost, requests, queue, servers, steps, sums, cursor)
        now_s = min(now_s, soonest(servers.engines.busy_until_s))
        if now_s == math.inf:
            return ENDED
        if now_s >= limits.until_s:
            return MORE
        last_s = servers.clock_s[0] = now_s
        _note_idle(now_s, servers)

        # 1. Requests of an open loop enter.
        while not closed and cursor[SENT] < total and arrival_s[cursor[SENT]] <= now_s:
            _enter(cursor[SENT], limits.queue, requests, queue, servers, cursor)

        # 2. Steps that end hand out their tokens; then engines without a step may start one.
        for server in range(count):
            if servers.engines[server].busy_until_s <= now_s:
                leaving = finish(now_s, server, batching, requests, queue, servers, done)
                for place in range(leaving if closed else 0):
                    answer_client(now_s, done[place], requests, clients, cursor)
        # `_start_steps` is most of the code, and inlined, so this loop has its only call. Turn 0 is part of
        # step 2; each of the others follows a request that a client sends in step 4.
        turn, sending = 0, 0
        while turn <= sending:
            if turn > 0:
                request, client = cursor[SENT], clients.sending[turn - 1]
                arrival_s[request], requests.client[request] = now_s, client
                if not _enter(request, limits.queue, requests, queue, servers, cursor):
                    answer_client(now_s, request, requests, clients, cursor)
            ended = cursor[SENT] == total and now_s >= limits.end_s
            _start_steps(now_s, ended, batching, cost, requests, queue, servers, steps, sums, cursor)
            if turn == 0:
                # 3. Requests that have waited too long leave, unless they had started.
                while cursor[HEAD] < cursor[TAIL]:
                    request = queue.arrived[cursor[HEAD]]
                    if now_s < later(arrival_s[request], limits.timeout_s):
                        break
                    requests.rows[request].status = TIMED_OUT
                    cursor[HEAD] += 1
                    answer_client(now_s, request, requests, clients, cursor)
                # 4. Clients whose thinking is over send, in their order; after each, steps may start.
                sending = pop_senders(now_s, total, requests, clients, cursor)
            turn += 1
        if closed and cursor[SENT] == total:
            cursor[THINKING] = 0  # the clients stop
