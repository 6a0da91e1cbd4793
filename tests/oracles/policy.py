"""Wait-or-serve policies by brute force: a simulator, a truncated chain, and value iteration.

Deliberately naive, and none shares code with batchsim. `policy[s]` is how many of s waiting requests a
free server takes, 0 to wait for one more; its last entry holds above. Times in seconds.
"""

import math
import random

import numpy as np


def simulate(policy, rate_per_s, seconds, requests, seed):
    """The mean latency in seconds and the mean batch size of a run with Poisson arrivals, fixed times."""
    draw = random.Random(seed)
    now, total, batches = 0.0, 0.0, 0
    coming = draw.expovariate(rate_per_s)
    waiting, arrived, served = [], 0, 0
    while served < requests:
        taken = policy[min(len(waiting), len(policy) - 1)]
        if taken == 0:
            now = coming
        else:
            now += seconds[taken]
            batches += 1
            served += taken
            total += sum(now - arrival for arrival in waiting[:taken])
            del waiting[:taken]
        while coming <= now:
            waiting.append(coming)
            arrived += 1
            coming += draw.expovariate(rate_per_s)
    return total / served, served / batches


def poisson(mean, count):
    masses = [math.exp(-mean)]
    for n in range(1, count):
        masses.append(masses[-1] * mean / n)
    return np.array(masses)


def geometric(mean, count):
    return np.array([(mean / (1 + mean)) ** n / (1 + mean) for n in range(count)])


def evaluate(policy, rate_per_s, seconds, states=200, arrivals=poisson, squared_cv=0.0):
    """The mean number in system and the mean batch size, from the chain cut off at so many states.

    Seen whenever the server may decide: at a batch's end and, while it waits, at each arrival.
    """
    matrix, area, time, sizes = np.zeros((states, states)), *np.zeros((3, states))
    masses_of = {n: arrivals(rate_per_s * seconds[n], states + n) for n in set(policy) - {0}}
    for s in range(states):
        taken = policy[min(s, len(policy) - 1)]
        if taken == 0:
            matrix[s, s + 1] = 1
            time[s], area[s] = 1 / rate_per_s, s / rate_per_s
            continue
        left, service_s = s - taken, seconds[taken]
        masses = masses_of[taken][: states - left]
        matrix[s, left:] = masses
        matrix[s, -1] += 1 - masses.sum()
        time[s], sizes[s] = service_s, taken
        area[s] = s * service_s + rate_per_s * service_s**2 * (1 + squared_cv) / 2
    equations = matrix.T - np.eye(states)
    equations[0] = 1.0
    found = np.linalg.solve(equations, np.eye(states)[0])
    return found @ area / (found @ time), found @ sizes / found[sizes > 0].sum()


def value_iteration(rate_per_s, seconds, cost, states, tolerance=1e-9):
    """The least long-run cost rate, and a policy, by relative value iteration on a truncated process.

    Cost rate: the number in system, plus `cost[n]` for each batch of n. Semi-Markov, made discrete by
    Schweitzer's transformation: each state is left with probability step / (mean stay).
    """
    most = len(seconds) - 1
    step = 0.9 * min(1 / rate_per_s, *seconds[1:])
    masses = {n: poisson(rate_per_s * seconds[n], 2 * states) for n in range(1, most + 1)}
    values = np.zeros(states)
    choices = [list(range(1, min(s, most) + 1)) + ([0] if s < states - 1 else []) for s in range(states)]
    moves = {}
    for s in range(states):
        for n in choices[s]:
            row = np.zeros(states)
            if n == 0:
                row[s + 1], stay, price = 1, 1 / rate_per_s, s / rate_per_s
            else:
                left = s - n
                row[left:] = masses[n][: states - left]
                row[-1] += 1 - row.sum()
                stay = seconds[n]
                price = s * stay + rate_per_s * stay**2 / 2 + cost[n]
            row *= step / stay
            row[s] += 1 - step / stay
            moves[s, n] = price / stay, row
    keys = list(moves)
    prices = np.array([moves[key][0] for key in keys]) * step
    rows = np.array([moves[key][1] for key in keys])
    begins = np.flatnonzero([i == 0 or keys[i][0] != keys[i - 1][0] for i in range(len(keys))])
    while True:
        each = prices + rows @ values
        new = np.minimum.reduceat(each, begins)
        change = new - values
        if change.max() - change.min() < tolerance * step:
            ends = np.append(begins[1:], len(keys))
            best = [keys[b + int(np.argmin(each[b:e]))][1] for b, e in zip(begins, ends, strict=True)]
            return change.mean() / step, best
        values = new - new[0]
