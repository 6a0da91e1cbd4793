"""What an explorer computed for its last settings: a slider goes back and forth."""

from collections.abc import Callable, Hashable
from typing import Any

STORED = 32  # heat maps and curves


def recall(stored: dict[Hashable, Any], key: Hashable, make: Callable[[], Any]) -> Any:
    """Return what is stored under a key, or make and store it; the oldest is forgotten."""
    if key not in stored:
        made = make()
        while len(stored) >= STORED:
            stored.pop(next(iter(stored)))
        stored[key] = made
    return stored[key]
