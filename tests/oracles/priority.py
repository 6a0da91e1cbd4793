"""What queueing theory says of priorities."""

import itertools


def cobham_ms(rates_per_s, ms, cv):
    """Return the mean latency of each class, in ms, on one server that computes one request after another.

    Non-preemptive, Poisson arrivals, the same service time of mean `ms` for all: A. Cobham, Priority
    assignment in waiting line problems, 1954. A request waits for the one that is computed, and for the load
    of those before it, of its class and, while it waits, of higher ones.
    """
    loads = [rate / 1000 * ms for rate in rates_per_s]
    ends = [0.0, *itertools.accumulate(loads)]
    rest_ms = ends[-1] * ms * (1 + cv**2) / 2
    return [ms + rest_ms / ((1 - above) * (1 - with_it)) for above, with_it in itertools.pairwise(ends)]
