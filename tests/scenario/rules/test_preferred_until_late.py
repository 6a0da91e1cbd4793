"""Preferred sizes: the batches of Triton's own steps, and what was measured of them."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.triton_core import Core

import batchsim as bs

SERVICE = bs.Affine(1.8874, 0.1438)


def both(gaps_ns, preferred, largest, delay_ms, instances, ragged=True):
    """The batches of the rule, and those of Triton's source: when each starts, and its size."""
    arrivals_ns = np.cumsum(gaps_ns)
    arrivals_ns -= arrivals_ns[0]
    rule = bs.servers.triton(largest, round(delay_ms * 1000), preferred)
    scenario = bs.Scenario(bs.Trace(arrivals_ns / 1e9), rule, SERVICE, servers=instances)
    batches = bs.simulate(scenario, engine="compiled").batches
    ours = zip(np.rint(batches.start_s * 1e9).astype(int).tolist(), batches.batch_size.tolist(), strict=True)
    took_ns = [0, *(round(SERVICE(size) * 1e9) for size in range(1, largest + 1))]
    core = Core(arrivals_ns.tolist(), took_ns, preferred, largest, round(delay_ms * 1e6), instances, ragged)
    return [*ours], core.run()


@settings(max_examples=150)
@given(
    st.sampled_from([((8, 16), 256), ((4,), 6), ((2, 3, 7), 7), ((1, 5), 9), ((5,), 100)]),
    st.sampled_from([0, 0.5, 2, 10, 2000]),
    st.sampled_from([500, 2000, 5000, 12_000]),
    st.integers(1, 4),
    st.integers(0, 9999),
)
def test_its_batches_are_those_of_the_steps_in_the_source(sizes, delay_ms, rate_per_s, instances, seed):
    gaps_ns = np.random.default_rng(seed).exponential(1e9 / rate_per_s, 300).astype(int) + 1
    ours, theirs = both(gaps_ns, *sizes, delay_ms, instances)
    assert ours == theirs


@pytest.mark.parametrize("rate_per_s", [500, 2000, 3000])
def test_without_preferred_sizes_the_textbook_has_the_batches_of_the_source(rate_per_s):
    gaps_ns = np.random.default_rng(rate_per_s).exponential(1e9 / rate_per_s, 3000).astype(int) + 1
    for delay_ms in (0, 1, 5):
        ours, theirs = both(gaps_ns, (32,), 32, delay_ms, 2)
        assert ours == theirs
    # Inputs of fixed shapes are not modelled: how much later batches start is in the docstring of `triton`.
    ours, theirs = both(gaps_ns, (32,), 32, 1, 1, ragged=False)
    mean_ms = [latency_ms(gaps_ns, batches) for batches in (ours, theirs)]
    assert 1.05 < mean_ms[1] / mean_ms[0] < 1.6
    assert both(gaps_ns, (32,), 32, 0, 1, ragged=False)[1] == both(gaps_ns, (32,), 32, 0, 1)[0]


def latency_ms(gaps_ns, batches):
    arrivals_ns = np.cumsum(gaps_ns)
    ends_ns = np.concatenate([np.full(size, start + SERVICE(size) * 1e9) for start, size in batches])
    return (ends_ns - (arrivals_ns - arrivals_ns[0])).mean() / 1e6


def test_under_load_it_takes_one_request_more_than_the_largest_preferred_size():
    # As issue 8141 of triton-inference-server/server saw: 8 and 16 preferred of 256, a delay of 2 s.
    rule = bs.servers.triton(256, 2_000_000, preferred_batch_size=[8, 16])
    busy = bs.simulate(bs.Scenario(bs.ClosedLoop(64), rule, SERVICE), 20_000)
    sizes = Counter(busy.batches.batch_size.tolist())
    assert sizes[17] / len(busy.batches.batch_size) > 0.95
    # And where nothing waits for an instance, the preferred sizes.
    calm = bs.simulate(bs.Scenario(bs.Poisson(300), rule, SERVICE), 20_000)
    assert {*calm.batches.batch_size.tolist()} <= {8, 16}


def test_limits_of_the_queue_and_priorities_switch_forming_in_advance_off():
    rule = bs.PreferredUntilLate([8, 16], 256, 2000)
    busy = bs.Scenario(bs.Poisson(4000), rule, SERVICE)
    for limits in ({"queue_limit": 10_000}, {"timeout_ms": 1900}):
        sizes = bs.simulate(busy.replace(**limits), 5000).batches.batch_size
        assert {*sizes.tolist()} == {8, 16}
    assert 17 in bs.simulate(busy, 5000).batches.batch_size


@pytest.mark.parametrize("wait_ms", [0, 5])
def test_a_burst_leaves_in_preferred_sizes(wait_ms):
    scenario = bs.Scenario(bs.Trace(np.zeros(30)), bs.PreferredUntilLate([4, 8], 32, wait_ms), SERVICE)
    sizes = bs.simulate(scenario).batches.batch_size.tolist()
    # The first leaves at once, and two form. Without a wait, 6 are left as one of these starts, and 4 are
    # preferred. With one, the two take one more each; 4 form later, and join the last, as they are late.
    assert sizes == ([8, 8, 8, 4, 2] if wait_ms == 0 else [8, 9, 13])
