"""A run as a film: snapshots, the animation, and the rule as pseudo-code."""
