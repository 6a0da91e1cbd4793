"""The panel of a textbook: sliders, a bare SimPy loop and four pyplot axes: the yardstick."""

import matplotlib.pyplot as plt
import numpy as np
import simpy
from ipywidgets import FloatSlider, IntSlider, interactive

REQUESTS, SEED = 100_000, 0
FIXED_S, PER_ITEM_S = 0.005, 0.00025


def simulate(rate_per_s, max_batch_size, max_wait_ms):
    """Return each request's arrival and latency, and each batch's size, in the order of service."""
    env = simpy.Environment()
    waiting = simpy.Store(env)
    gaps_s = np.random.default_rng(SEED).exponential(1 / rate_per_s, REQUESTS)
    arrivals_s, latencies_s, batch_sizes = [], [], []

    def source():
        for gap_s in gaps_s.tolist():
            yield env.timeout(gap_s)
            waiting.put(env.now)

    def server():
        while len(latencies_s) < REQUESTS:
            batch = [(yield waiting.get())]
            timer = env.timeout(max(batch[0] + max_wait_ms / 1000 - env.now, 0))
            while len(batch) < max_batch_size:
                get = waiting.get()
                yield get | timer
                if not get.triggered:
                    get.cancel()
                    break
                batch.append(get.value)
            yield env.timeout(FIXED_S + PER_ITEM_S * len(batch))
            arrivals_s.extend(batch)
            latencies_s.extend(env.now - arrival_s for arrival_s in batch)
            batch_sizes.append(len(batch))

    env.process(source())
    env.run(env.process(server()))
    return np.array(arrivals_s), np.array(latencies_s), np.array(batch_sizes)


def draw(rate_per_s, max_batch_size, max_wait_ms):
    arrivals_s, latencies_s, batch_sizes = simulate(rate_per_s, max_batch_size, max_wait_ms)
    latencies_ms = latencies_s * 1000
    _, ((histogram, sizes), (timeline, percentiles)) = plt.subplots(2, 2, figsize=(12, 8))

    histogram.hist(latencies_ms, bins=60)
    histogram.set(title="Latency", xlabel="latency (ms)", ylabel="requests")

    sizes.hist(batch_sizes, bins=np.arange(0.5, max_batch_size + 1))
    sizes.set(title="Batch sizes", xlabel="requests in a batch", ylabel="batches")

    first = slice(30)
    starts_ms = arrivals_s[first] * 1000
    timeline.hlines(np.arange(len(starts_ms)), starts_ms, starts_ms + latencies_ms[first])
    timeline.set(title="The first 30 requests", xlabel="time (ms)", ylabel="request")

    levels = np.arange(1, 100)
    percentiles.plot(levels, np.percentile(latencies_ms, levels))
    percentiles.set(title="Percentiles", xlabel="percentile", ylabel="latency (ms)")

    plt.tight_layout()
    plt.show()


def panel():
    return interactive(
        draw,
        rate_per_s=IntSlider(1000, 100, 3000, 10),
        max_batch_size=IntSlider(32, 1, 64),
        max_wait_ms=FloatSlider(value=10, min=0, max=100, step=0.5),
    )
