"""The explorer: controls that move a picture of one scenario, and its whole surface, in a notebook."""

from batchsim.view.explorer.explorer import Explorer, explore

__all__ = ["Explorer", "explore"]
