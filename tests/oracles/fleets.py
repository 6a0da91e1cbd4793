"""What queueing theory says of replicas behind a router, batches of one, exponential service of mean 1."""

import numpy as np
from scipy.linalg import solve_continuous_lyapunov
from scipy.sparse import coo_matrix, diags
from scipy.sparse.linalg import spsolve


def two_choices_limit(load):
    """The mean time in the system with many replicas, each request in the shorter of two queues.

    M. Mitzenmacher, The power of two choices in randomized load balancing, 2001, theorem 1: the fraction of
    queues with i or more requests is load ** (2**i - 1).
    """
    return sum(load ** (2**i - 1) for i in range(1, 12)) / load


def two_choices(load, replicas, longest=25):
    """The same with so many replicas: the limit and its correction, of the order of 1 / replicas.

    N. Gast and B. Van Houdt, A refined mean field approximation, 2017: with the limit's Jacobian A, second
    derivatives B, and noise Q, A W + W A' + Q = 0 and A V + B W / 2 + C = 0, and E[x] = limit + V / replicas.
    C is ours, as the two queues differ: both have i or more requests with the chance x (x - 1 / replicas) /
    (1 - 1 / replicas), about x**2 - x (1 - x) / replicas.
    """
    x = load ** (2.0 ** np.arange(longest + 2) - 1)  # of the queues, with 0, 1, 2, ... or more requests
    above, x, below = x[2:], x[1:-1], x[:-2]
    jacobian = np.diag(-2 * load * x - 1) + np.diag(np.ones(longest - 1), 1)
    jacobian += np.diag(2 * load * x[:-1], -1)
    spread = solve_continuous_lyapunov(jacobian, -np.diag(load * (below**2 - x**2) + x - above))
    second = np.diag(spread) - x * (1 - x)
    correction = np.linalg.solve(jacobian, -load * -np.diff(second, prepend=0.0))
    return two_choices_limit(load) + correction.sum() / load / replicas


def shortest_of_two(load, longest=60):
    """The mean time in the system of two queues where each request joins the shorter: their Markov chain.

    The state is (shorter, longer), up to `longest` requests each; the mean time follows by Little's law.
    """
    short, long = np.meshgrid(range(longest + 1), range(longest + 1), indexing="ij")
    valid, rate = short <= long, 2.0 * load
    number = np.full(short.shape, -1)
    number[valid] = np.arange(valid.sum())
    rows, columns, rates = [], [], []

    def moves(where, to_short, to_long, at):
        low, high = np.minimum(to_short, to_long)[where], np.maximum(to_short, to_long)[where]
        rows.append(number[where])
        columns.append(number[low, high])
        rates.append(np.full(low.size, at))

    moves(valid & (short < longest), short + 1, long, rate)
    moves(valid & (short > 0), short - 1, long, 1.0)
    moves(valid & (long > 0), short, long - 1, 1.0)
    size = int(valid.sum())
    flow = coo_matrix((np.concatenate(rates), (np.concatenate(rows), np.concatenate(columns))), (size, size))
    flow = (flow - diags(np.asarray(flow.sum(axis=1)).ravel())).T.tolil()
    flow[0, :] = 1.0
    right = np.zeros(size)
    right[0] = 1.0
    chance = spsolve(flow.tocsc(), right)
    return float(chance @ (short + long)[valid]) / rate


def one_queue(servers, load):
    """The mean time in the system of M/M/servers, which no router in front of queues can beat: Erlang's C."""
    offered, blocked = servers * load, 1.0
    for count in range(1, servers + 1):
        blocked = offered * blocked / (count + offered * blocked)
    waits = blocked / (1 - load * (1 - blocked))
    return 1 + waits / (servers * (1 - load))
