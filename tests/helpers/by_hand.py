"""The batches of a few arrivals, to be compared with what a reader finds by hand."""

import numpy as np

import batchsim as bs


def run(times_ms, rule, **knobs):
    scenario = bs.Scenario(bs.Trace(np.array(times_ms) / 1000), rule, bs.Affine(10, 0), **knobs)
    result = bs.simulate(scenario)
    batches = result.batches
    triggers = [bs.Trigger(each).name for each in batches.trigger]
    return list(zip((batches.start_s * 1000).round(6), batches.batch_size, triggers, strict=True))
