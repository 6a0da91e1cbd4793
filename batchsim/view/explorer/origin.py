"""Whose service time it is: a formula, a published table, or a curve that some machine measured."""

import functools
import html

from batchsim.scenario import published_source
from batchsim.view.explorer.state import State


def say(state: State) -> str:
    """Return where the service time of a state comes from, as HTML.

    A curve says on which device it was measured, and whether that is this machine's.
    """
    if state.service == "published":
        source = published_source(state.published)
        text = f"Published: {source.stat} latency with {source.backend}. Not measured on this machine."
        link = html.escape(source.source_url, quote=True)
        return f'{html.escape(text)} <a href="{link}" target="_blank" rel="noopener">Source</a>'
    if state.service == "curve":
        return html.escape(_curve(state.curve_of))
    return "A formula: fixed cost + cost per item x batch size."


def _curve(of: str) -> str:
    if not of:
        return "A curve that was given without saying whose it is."
    device = of.partition(" on ")[2]
    here = devices_here()
    if device in here:
        return f"Measured: {of}, a device such as this machine's."
    return (
        f"Measured: {of}. That is another machine's curve: this one has {' and '.join(here)}. "
        "Choose “measure here” for its own."
    )


@functools.cache
def devices_here() -> tuple[str, ...]:
    """Return this machine's devices as measurements call them."""
    import jax  # only for a measured curve, so that mostly it is loaded

    from batchsim.device.models import describe

    return tuple(dict.fromkeys([*(describe(device) for device in jax.devices()), describe(None)]))
