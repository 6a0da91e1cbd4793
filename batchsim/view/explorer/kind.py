"""One item of a list that the explorer offers: what it stands for, and the controls that make it."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Kind:
    """One item of a list: its label, the class it stands for, and the controls that give its arguments.

    `make` takes the controls' values in order, `read` returns them for an instance, None where the controls
    cannot express it. Without these two, the values are the arguments of the class.
    """

    label: str
    part: type
    controls: tuple[str, ...]
    make: Callable[..., Any] | None = None
    read: Callable[[Any], Sequence[Any] | None] | None = None

    def values(self, part: Any) -> dict[str, Any] | None:
        """Return the controls' values for a part, None where it is of another kind."""
        if type(part) is not self.part:
            return None
        if self.read:
            values = self.read(part)
        else:
            values = [getattr(part, f.name) for f in dataclasses.fields(self.part) if not f.kw_only]
        return None if values is None else dict(zip(self.controls, values, strict=True))
