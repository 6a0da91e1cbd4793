"""What a server's settings cost under a scenario: findings, each with its proof and a change to make."""

from batchsim.servers.linter.finding import Finding, Findings, Note
from batchsim.servers.linter.linter import lint

__all__ = ["Finding", "Findings", "Note", "lint"]
