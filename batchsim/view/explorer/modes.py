"""What the explorer can be about: whole requests, or the tokens that they generate."""

from collections.abc import Mapping

REQUESTS, TOKENS = MODES = ("requests", "tokens")
# The lists of kinds that each has: what is chosen from the others makes no difference there.
CHOICES: Mapping[str, tuple[str, ...]] = {
    REQUESTS: ("workload", "rule", "service"),
    TOKENS: ("workload", "prompts", "outputs", "batching", "step"),
}
