"""When a batch leaves: the rules, one file each."""

from batchsim.scenario.parameters import LARGEST_BATCH
from batchsim.scenario.rules.at_least import AtLeast
from batchsim.scenario.rules.buckets import Buckets
from batchsim.scenario.rules.competing_windows import CompetingWindows
from batchsim.scenario.rules.frozen_batches import FrozenBatches
from batchsim.scenario.rules.learned_cork import LearnedCork
from batchsim.scenario.rules.learned_sizes import LearnedSizes
from batchsim.scenario.rules.preferred_sizes import PreferredSizes
from batchsim.scenario.rules.preferred_until_late import PreferredUntilLate
from batchsim.scenario.rules.prefetched_batches import PrefetchedBatches
from batchsim.scenario.rules.pull_then_wait import PullThenWait
from batchsim.scenario.rules.rule import Rule, Step, Threshold, Trigger
from batchsim.scenario.rules.running_window import RunningWindow
from batchsim.scenario.rules.size_or_wait import SizeOrWait
from batchsim.scenario.rules.sleeping_poll import SleepingPoll
from batchsim.scenario.rules.sorted_window import SortedWindow
from batchsim.scenario.rules.stalled_batches import StalledBatches

__all__ = [
    "LARGEST_BATCH", "RULES", "RULES_OF_SIZES", "AtLeast", "Buckets", "CompetingWindows",
    "FrozenBatches", "LearnedCork", "LearnedSizes",
    "PreferredSizes", "PreferredUntilLate", "PrefetchedBatches",
    "PullThenWait", "Rule", "RunningWindow", "SizeOrWait",
    "SleepingPoll", "SortedWindow", "StalledBatches", "Step", "Threshold", "Trigger",
]  # fmt: skip

# The registry: TOML, the shell and the explorer offer these, in this order.
RULES: tuple[type[Rule], ...] = (
    SizeOrWait, AtLeast, PreferredSizes, PreferredUntilLate,
    PullThenWait, FrozenBatches, StalledBatches, RunningWindow, SleepingPoll, LearnedCork,
    LearnedSizes, CompetingWindows,
)  # fmt: skip
# Rules for requests with sizes. The page lacks them.
RULES_OF_SIZES: tuple[type[Rule], ...] = (Buckets, SortedWindow, PrefetchedBatches)
