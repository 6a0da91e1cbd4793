"""A real run beside its simulation as text: a table, and below it what is known of the difference."""

from typing import Any

import numpy as np

from batchsim._format import duration, fixed, listed
from batchsim.device.repeats import LEVEL
from batchsim.result.metrics import heading

OTHERWISE = 0.2  # how far batches may be from their measurement before a reader is asked about it
TOGETHER = 0.3  # the correlation of one batch with the next from which a reader is told of it


def plain(compared: Any) -> str:
    """Return a comparison as text."""
    of = f"{compared.measurement.model}, {compared.replayed.engine}"
    head = f"  {'':<20}{'replayed':>10}{'simulated':>11}{'95 of 100 repeats':>21}{'inside':>8}"
    rows = [
        f"  {heading(key):<20}{fixed(row['replayed']):>10}{fixed(row['simulated']):>11}"
        f"{fixed(row['low']) + ' to ' + fixed(row['high']):>21}{'yes' if row['inside'] else 'NO':>8}"
        f"{row['difference_%']:>+10.1f} %{fixed(row['explained']):>11}"
        for key, row in compared.to_frame().iterrows()
    ]
    return "\n".join(
        [
            f"Fidelity: {of}, {compared.replayed.arrival_s.size:,} requests",
            head + f"{'difference':>12}{'explained':>11}",
            *rows,
            *(f"  {note}" for note in compared.notes()),
        ]
    )


def said(compared: Any) -> list[str]:
    """Return in words what a run like this one gives, and whether this one did."""
    (low, high), (p99_low, p99_high) = compared.interval("mean_latency_ms"), compared.interval("p99_ms")
    rows = compared.to_frame()
    outside = [heading(key).partition(" (")[0] for key in rows.index[~rows["inside"].to_numpy(bool)]]
    return [
        f"A run like this one has a mean latency between {duration(low)} and {duration(high)}, and a p99 "
        f"between {duration(p99_low)} and {duration(p99_high)}, in {100 * LEVEL:.0f} of 100 repeats.",
        f"This one is outside in {listed(outside)}." if outside else "This one is inside in every row.",
    ]


def notes(compared: Any) -> list[str]:
    """Return what is known of the difference, a sentence each."""
    replayed = compared.replayed
    late_ms = float(np.percentile(replayed.late_ms, 99))
    elsewhere = abs(compared.slower - 1) > OTHERWISE
    noise = compared.simulated.scenario.service.noise
    measured = noise.correlation if noise is not None else 0.0
    apart = compared.together > measured + TOGETHER
    what = "the server" if compared.measurement.served else "the model alone"
    notes = [
        *said(compared),
        f"Batches took {compared.slower:.2f} times as long as {what} was measured, in the same sizes"
        + (": does something else compute on this machine?" if elsewhere else "."),
        f"Of that, {duration(replayed.own_ms)} a batch were the batcher's own, and "
        f"{duration(replayed.reaction_ms)} until it started.",
        f"A batch's time correlates with the next one's by {compared.together:.2f}, in the "
        f"measurement by {measured:.2f}"
        + (": slow ones come together more than the simulation knows." if apart else "."),
        f"99 % of the requests were sent at most {duration(late_ms)} late, and other programs took "
        f"{replayed.others:.0%} of the processors.",
    ]
    rested, expected = compared.rested(replayed), compared.rested(compared.simulated)
    if rested == rested:  # not where the server never rested, or always did
        notes.append(
            f"After a rest of the server a batch took {rested:.2f} times as long as right after another one, "
            f"in the simulation {expected:.2f} times."
        )
    return notes + ([f"DISTURBED, no verdict: {compared.disturbed}."] if compared.disturbed else [])
