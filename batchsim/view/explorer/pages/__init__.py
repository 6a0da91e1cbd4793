"""The explorer's pages: what can be done with a run beside looking at it."""
