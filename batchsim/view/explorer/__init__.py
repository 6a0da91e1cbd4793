"""The explorer: controls that move a picture of one scenario, and its whole landscape, in a notebook."""

from batchsim.view.explorer.panel import Explorer, explore

__all__ = ["Explorer", "explore"]
