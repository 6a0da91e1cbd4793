"""The cost of a server's settings under a scenario: findings, each with a proof and a change."""

from batchsim.servers.linter.finding import Finding, Findings, Note
from batchsim.servers.linter.linter import lint

__all__ = ["Finding", "Findings", "Note", "lint"]
