"""How much of a day a run covers: its numbers stand for the day only if it covers whole periods.

A run that ends before midnight has seen too much of the night, or of the peak. The sections of a run that
covers many periods consist of whole periods as well: then none is a night, and they are alike but for chance.
"""

from dataclasses import dataclass

import numpy as np

from batchsim.result.run_length import FEW
from batchsim.result.sections import FINE
from batchsim.scenario import ClosedLoop, Diurnal, OpenLoop

COLUMNS = 20_000_000  # requests whose columns fit in a machine's memory


@dataclass(frozen=True)
class Periods:
    """The periods of a day that a run covers with `requests`, after `dropped` ones that it leaves out."""

    day: Diurnal
    requests: int
    dropped: int = 0

    @classmethod
    def of(cls, workload: OpenLoop | ClosedLoop, requests: int, dropped: int = 0) -> "Periods | None":
        """Return them; None of traffic that has no periods, or the same rate all day."""
        periodic = workload.is_periodic and requests > 0
        return cls(workload, requests, dropped) if periodic else None  # type: ignore[arg-type]

    @property
    def whole(self) -> int:
        """How many they are, 0 if their number is not whole."""
        return self.day.whole_periods(self.requests, self.dropped)

    @property
    def covered(self) -> str:
        """How many they are, in words."""
        covered_s = self.day.reached_s(self.dropped + self.requests) - self.day.reached_s(self.dropped)
        return f"{covered_s / self.day.period_s:.3g}"

    def enough(self, periods: int | None = None) -> int:
        """Return how many requests of a run cover so many periods; by default the nearest whole number."""
        kept = self.day.nearest_whole(
            self.requests if periods is None else periods * self.day.requests_a_period
        )
        return round(kept * (self.dropped + self.requests) / self.requests)

    @property
    def partial(self) -> str:
        """Why an interval or a verdict cannot be had of a run whose periods are not whole; else ""."""
        if self.whole:
            return ""
        of = f"periods of {self.day.period_s:g} s"
        return f"needs whole {of}, got {self.covered}: requests={self.enough()} would do"

    def warning(self, columns: bool) -> str:
        """Return what is wrong with the numbers of a run whose periods are not whole; else "".

        `columns`: whether it keeps them, of which there may be too many to keep.
        """
        if self.whole:
            return ""
        enough = self.enough()
        keep = ", keep='summary'" if columns and enough > COLUMNS else ""
        rule = f"requests must cover whole periods of {self.day.period_s:g} s, got {self.covered} of them"
        return f"{rule}: take requests={enough}{keep}, or another period_s"

    @property
    def few(self) -> str:
        """Why there is no interval of one run: its periods are not whole, or too few; else ""."""
        if self.whole >= FEW or self.partial:
            return self.partial
        of = f"{FEW} periods of {self.day.period_s:g} s"
        return f"needs {of}, or replications, got {self.whole}: requests={self.enough(FEW)} would do"

    @property
    def ends(self) -> np.ndarray | None:
        """Where sections of whole periods end, as fractions of the requests; None of too few periods."""
        if self.few:
            return None
        sections = min(FINE, 1 << (self.whole.bit_length() - 1))
        return np.round(np.linspace(0, self.whole, sections + 1)) / self.whole
