"""Films: what a run says at any time, what plays it, and the rule as pseudo-code."""
