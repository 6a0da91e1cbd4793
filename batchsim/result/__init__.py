"""What comes back: runs, the numbers that sum them up, and how sure these are."""

from batchsim.result.result import Batches, Result

__all__ = ["Batches", "Result"]
