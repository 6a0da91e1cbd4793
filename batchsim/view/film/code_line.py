"""A line of a rule's pseudo-code."""

from dataclasses import dataclass

from batchsim.scenario.rules import Trigger
from batchsim.view.film.snapshot import Activity


@dataclass(frozen=True)
class CodeLine:
    """A line of the pseudo-code; of the lines in order, the first whose condition holds acts.

    By a line with a `trigger` a batch leaves, `because` of what ends the sentence "The batch leaves because
    ..."; one with an `activity` acts while none does. Of token generation, the choice of a step's rows ends
    at a line with an `ending`, and `because` says how.
    """

    text: str
    indent: int = 1
    trigger: Trigger | None = None
    activity: Activity | None = None
    because: str = ""
    ending: str = ""

    @property
    def title(self) -> str:
        """What happens by this line, as a sentence."""
        return f"{'In such a step' if self.ending else 'The batch leaves because'} {self.because}."
