"""VALIDATION.md: its comparisons, its tables, and what draws them up."""

import sys
from pathlib import Path

# Tests and this page compare with the same oracles.
sys.path.append(str(Path(__file__).parents[2] / "tests"))
