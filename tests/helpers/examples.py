"""What hypothesis draws: the same inputs each time, or with `make fuzz` others and more of them."""

from collections.abc import Callable, Iterable

from hypothesis import HealthCheck, is_hypothesis_test, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

# A slow machine must not change a verdict: neither an example nor the drawing of ten has a time limit.
UNTIMED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("fixed", derandomize=True, **UNTIMED)
# Without a database, so that the seed alone decides what is drawn.
settings.register_profile("fuzz", derandomize=False, database=None, print_blob=True, **UNTIMED)
settings.load_profile("fixed")

# One value in twenty is a constant: one of hypothesis's own, or one that it finds in the source of the local
# modules that are loaded. Which those are depends on the tests that ran before in the same process, so an
# input came and went with the number of workers; and every edit of the package changed the inputs of tests
# that have nothing to do with it. Hypothesis has no setting for this. So, where inputs are fixed, no module
# counts as local; tests/house/test_deterministic.py fails if this stops working.
_found_in_local_modules = providers._get_local_constants


def _local_constants() -> Constants:
    return Constants() if settings.default.derandomize else _found_in_local_modules()


providers._get_local_constants = _local_constants


def multiply(tests: Iterable[Callable], times: int) -> None:
    """Multiply each property's own number of examples; a profile would change only the default number."""
    for test in tests:
        if times != 1 and is_hypothesis_test(test):
            own = test._hypothesis_internal_use_settings
            test._hypothesis_internal_use_settings = settings(own, max_examples=own.max_examples * times)
