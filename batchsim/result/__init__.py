"""What comes back: runs, their metrics, and how sure these are."""

from batchsim.result.result import Result
from batchsim.result.run import Batches, Run

__all__ = ["Batches", "Result", "Run"]
