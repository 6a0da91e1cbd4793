"""What is shown in place of a state whose run is refused: the nearest one that can be run."""

from collections.abc import Callable, Iterator

from batchsim.view.explorer.controls_table import CONTROLS, as_typed, relevant
from batchsim.view.explorer.state import DEFAULTS, State
from batchsim.view.pictures.data import ViewData


def nearest(state: State, run: Callable[[State], ViewData]) -> tuple[State, ViewData] | None:
    """Return the first state near a refused one that can be run, and its data; None where none can."""
    for near in _near(state):
        try:
            return near, run(near)
        except (TypeError, ValueError):
            continue
    return None


def _near(state: State) -> Iterator[State]:
    """Yield the state with one value as it is at first, each in turn, and then with all of them so."""
    first = DEFAULTS[state.mode].replace(seed=state.seed)
    changed = [name for name in state.differences(first) if relevant(name, vars(state))]
    for name in changed:
        yield state.replace(**{name: getattr(first, name)})
    yield first


def in_place_of(refused: State, shown: State) -> str:
    """Return a sentence that says what is shown instead of a state.

    >>> in_place_of(State(servers=2, max_wait_ms=5), State(servers=2))
    'The picture shows Max wait (ms) = 10 instead.'
    """
    differ = shown.differences(refused)
    if len(differ) != 1:
        return "The picture shows the values that the explorer begins with instead."
    ((name, value),) = differ.items()
    control = CONTROLS[name]
    text = control.bounds["options"][value] if control.kind == "choice" else as_typed(value)
    return f"The picture shows {control.label} = {text or 'none'} instead."
