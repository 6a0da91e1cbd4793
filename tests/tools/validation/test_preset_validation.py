"""The measured run under the rules of five servers: only the one that was measured agrees."""

import pytest
from validation.preset_validation import PRESETS, means_of, measured_run

BOUNDS = (0.05, 0.03, 0.045)  # of TTFT, TPOT and answer


def errors(name):
    _, _, measured_ms = measured_run()
    return [ours / theirs - 1 for ours, theirs in zip(means_of(PRESETS[name]), measured_ms, strict=True)]


def test_vllms_preset_is_within_the_bounds_of_its_measured_run():
    found = errors("vLLM 0.19")
    assert all(abs(error) < bound for error, bound in zip(found, BOUNDS, strict=True))
    assert found == pytest.approx([0.041, 0.020, 0.035], abs=0.001)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("TensorRT-LLM 1.0, no evict", [0.18, -0.21, 0.084]), ("Orca, slots of the longest", [2.3, -0.41, 1.7])],
)
def test_rules_that_promise_more_memory_are_far_off(name, expected):
    found = errors(name)
    assert found == pytest.approx(expected, rel=0.2)
    assert all(abs(error) > bound for error, bound in zip(found, BOUNDS, strict=True))
