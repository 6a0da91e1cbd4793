"""The explorer: controls that move a picture of one scenario, and its whole surface, in a notebook."""

from typing import TYPE_CHECKING, Any

from batchsim.simulate import DEFAULT_REQUESTS
from batchsim.view.cell import LONGEST_S, announce

if TYPE_CHECKING:
    from batchsim.scenario import ClosedLoop, OpenLoop
    from batchsim.view.explorer.explorer import Explorer


def explore(
    service: Any = None, workload: "OpenLoop | ClosedLoop | None" = None, *,
    requests: int = DEFAULT_REQUESTS, seed: int = 0, link: str | None = None, play: bool = False,
    opening: bool = False,
) -> "Explorer":  # fmt: skip
    """Return sliders that move a picture of a scenario: show it as the last line of a cell.

    `service`: a Measurement, a service time, a rule, or a whole Scenario to begin with; the panel can also
    measure models. Parts of a Scenario without a control stay as they are. A Scenario with tokens, or a
    `StepTime`, begins with token generation. `workload`: the traffic to begin with; a slider can change the
    rate of a Trace. `requests`: the number of requests in each run. `link`: the state and the view of another
    explorer, as its line of text; it comes with a Scenario only if it needs one, for parts without a control.
    `play`: begin with the film of the requests, above their timeline. `opening`: add one control and view
    after the other, for readers who have never seen the explorer.

    >>> panel = explore(requests=500)
    >>> panel.controls["max_wait_ms"].value = 20
    >>> panel.result.scenario.rule
    SizeOrWait(max_batch_size=32, max_wait_ms=20)
    """
    end = announce("The explorer is loading, then it draws its first picture …")
    try:
        from batchsim.view.explorer.explorer import explorer  # with matplotlib and the engine, for seconds

        panel = explorer(service, workload, requests, seed, link, play, opening)
    except BaseException:
        end()
        raise
    panel.end_line = end
    end(LONGEST_S)  # if nothing shows it
    return panel
