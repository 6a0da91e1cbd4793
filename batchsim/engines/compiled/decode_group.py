"""The compiled engine of token generation: requests that have a token a step to make, counted together."""

# mypy: disable-error-code="no-untyped-def"

from batchsim.engines.compiled.jit import inlined

EVERYTHING = 2**62  # a budget that no step uses up, and a tick that never comes


@inlined
def blocks_for(tokens, size):
    """Return how many blocks of that size have room for so many tokens."""
    return (tokens + size - 1) // size


# Ready requests are those at the head of `running` that have a token a step to make, and nothing else. They
# move together: it is known at which tick of its engine each ends, and in which phase of the ticks it needs a
# block. So a step counts them, and looks at each only when one ends, or when memory or budget is short.
# Meanwhile `made` is less the engine's tick, and `held` and `room` are not kept, as they follow from it.


@inlined
def is_ready(request, requests):
    """Return whether a request that runs has a token a step to make, and nothing else."""
    held = requests.prompt[request] + requests.made[request] - 1
    return requests.held[request] == held and not requests.cut[request]


@inlined
def join_ready(request, server, batching, requests, servers):
    """Count a request, the next of `running`, among the ready ones."""
    tick = servers.tick[server]
    servers.reads[server] += requests.held[request] + 1
    requests.made[request] -= tick
    ahead = servers.phase[server] - requests.held[request]
    servers.edges[server, ahead % batching.block_size] += 1
    servers.next_end[server] = min(
        servers.next_end[server], requests.output[request] - requests.made[request]
    )


@inlined
def part_ready(server, batching, requests, servers):
    """Let every ready request have numbers of its own again."""
    running, tick, size = servers.running[server], servers.tick[server], batching.block_size
    for place in range(servers.ready[server]):
        request = running[place]
        requests.made[request] += tick
        requests.held[request] = requests.prompt[request] + requests.made[request] - 1
        if not batching.life:
            requests.room[request] = blocks_for(requests.held[request], size) * size
    servers.ready[server] = servers.reads[server] = 0
    servers.next_end[server] = EVERYTHING
    servers.edges[server, :] = 0


@inlined
def end_ready(server, batching, requests, servers, done):
    """Let the ready requests leave that end at this tick; return how many."""
    running, tick, size = servers.running[server], servers.tick[server], batching.block_size
    leaving, next_end = 0, EVERYTHING
    for place in range(servers.ready[server]):
        request = running[place]
        end = requests.output[request] - requests.made[request]
        if end > tick:
            next_end = min(next_end, end)
            running[place - leaving] = request
            continue
        held = requests.prompt[request] + requests.output[request] - 1
        blocks = requests.room[request] // size if batching.life else blocks_for(held, size)
        servers.free[server] += blocks
        servers.reads[server] -= held + 1
        servers.edges[server, (servers.phase[server] - held) % size] -= 1
        requests.made[request] = requests.output[request]
        requests.last_step[request] = servers.step[server]
        done[leaving] = request
        leaving += 1
    servers.ready[server] -= leaving
    servers.next_end[server] = next_end
    return leaving
