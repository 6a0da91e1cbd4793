"""A run of any rule on one server, by asking the rule itself at every instant: for pictures of rules."""

import numpy as np

import batchsim as bs
from batchsim.engines.log import Log
from batchsim.scenario.rules.rule import START, Waiting


def run_by_rule(rule, rate_per_s=900, requests=1000, service=bs.Affine(3, 0.25)):  # noqa: B008  # frozen
    """Return the Result of Poisson traffic under a rule."""
    arrival_s = np.cumsum(np.random.default_rng(0).exponential(1 / rate_per_s, requests))
    queue, state, batch_index = np.arange(requests), np.zeros(rule.state_size), np.zeros(requests, int)
    head, now, rows = 0, 0.0, []
    while head < requests:
        came = int(np.searchsorted(arrival_s, now, side="right"))
        action, wake_s = None, np.inf
        if came > head:
            waiting = Waiting(arrival_s, queue, head, came - head, 0, came == requests)
            action, size, trigger = rule.decide(now, waiting, 1, state, rule.params)
            wake_s = rule.wake_s(now, waiting, 1, state, rule.params)
        if action == START:
            finish_s = now + service(size)
            batch_index[head : head + size] = len(rows)
            rows.append((now, finish_s, size, 0, trigger))
            head, now = head + size, finish_s
        else:
            now = min(wake_s, arrival_s[came] if came < requests else np.inf)
    start_s, finish_s, size, server, trigger = (np.array(column) for column in zip(*rows, strict=True))
    status = np.full(requests, bs.Status.SERVED, np.uint8)
    log = Log(arrival_s, batch_index, status, start_s, finish_s, size, server, trigger.astype(np.uint8))
    return bs.Result(bs.Scenario(bs.Poisson(rate_per_s), rule, service), 0, "", 0.0, log)
