"""The compiled engine of token generation: whole batches, padded to their longest or ragged."""

# mypy: disable-error-code="no-untyped-def"

import math

from batchsim.engines.compiled.columns import HEAD, PAIRS, READS, ROWS, STEP, TAIL, TOKENS
from batchsim.engines.compiled.jit import inlined
from batchsim.engines.compiled.threshold import later
from batchsim.engines.token_log import NO_TRIGGER
from batchsim.scenario.rules.rule import BACKLOG, DRAIN, ENOUGH, FULL, WAIT


@inlined
def _leaving(now_s, ended, batching, requests, queue, at):
    """Return how many requests a whole batch takes now, and its trigger; 0 if none leaves."""
    length = at[TAIL] - at[HEAD]
    if length == 0:
        return 0, FULL
    if length >= batching.largest:
        return batching.largest, FULL
    if batching.wait_s < math.inf:
        due_s = later(requests.arrival_s[queue.requests[at[HEAD]]], batching.wait_s)
        if now_s < due_s:
            return 0, FULL
        return length, WAIT if now_s == due_s else BACKLOG
    if length >= batching.enough:
        came_s = requests.arrival_s[queue.requests[at[HEAD] + batching.enough - 1]]
        return length, ENOUGH if now_s == came_s else BACKLOG
    return (length, DRAIN) if ended else (0, FULL)


@inlined
def whole_step(now_s, ended, server, batching, requests, queue, servers, sums, at):
    """Take a batch and compute its prompts, or go on with the one that there is; return its trigger."""
    running = servers.running[server]
    if servers.count[server] == 0:
        size, trigger = _leaving(now_s, ended, batching, requests, queue, at)
        if size == 0:
            return NO_TRIGGER
        longest = last = 0
        for place in range(size):
            request = queue.requests[at[HEAD] + place]
            running[place] = request
            requests.first_step[request] = at[STEP]
            longest = max(longest, requests.prompt[request])
            last = max(last, requests.output[request])
        at[HEAD] += size
        servers.count[server], servers.made[server] = size, 0
        servers.longest[server], servers.last[server] = longest, last
        for place in range(size):
            new = requests.prompt[running[place]] if batching.ragged else longest
            sums[TOKENS] += new
            if new == 1:
                sums[READS] += 1
            else:
                sums[PAIRS] += new * (new + 1) // 2
        sums[ROWS] = size
        return trigger
    made = servers.made[server]
    if batching.ragged:
        for place in range(servers.count[server]):
            request = running[place]
            if made < requests.output[request]:
                sums[ROWS] += 1
                sums[READS] += requests.prompt[request] + made
    else:
        sums[ROWS] = servers.count[server]
        sums[READS] = sums[ROWS] * (servers.longest[server] + made)
    sums[TOKENS] = sums[ROWS]
    return NO_TRIGGER


@inlined
def finish_whole(server, requests, servers, done):
    """End a whole batch's step; return how many leave, all or none."""
    running, step, count = servers.running[server], servers.step[server], servers.count[server]
    servers.made[server] += 1
    if servers.made[server] == 1:
        for place in range(count):
            requests.token_step[running[place]] = step
    if servers.made[server] < servers.last[server]:
        return 0
    for place in range(count):
        done[place] = running[place]
        requests.last_step[running[place]] = step
    servers.count[server] = 0
    return count
