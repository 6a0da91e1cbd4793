"""When a batch leaves: the rules, one file each."""

from batchsim.scenario.rules.at_least import AtLeast
from batchsim.scenario.rules.preferred_sizes import PreferredSizes
from batchsim.scenario.rules.rule import LARGEST_BATCH, Rule, Step, Threshold, Trigger
from batchsim.scenario.rules.size_or_wait import SizeOrWait

__all__ = [
    "LARGEST_BATCH", "RULES", "AtLeast", "PreferredSizes", "Rule", "SizeOrWait", "Step", "Threshold",
    "Trigger",
]  # fmt: skip

# The registry: TOML, the shell and the explorer offer these, in this order.
RULES: tuple[type[Rule], ...] = (SizeOrWait, AtLeast, PreferredSizes)
