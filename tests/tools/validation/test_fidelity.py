"""What `make fidelity` says of its runs, and where it writes it."""

import dataclasses
import re
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest
from validation import fidelity
from validation.fidelity import Cold, Row, of_cold_starts

import batchsim as bs
from batchsim.result.metrics import heading

PAGE = "# Is it true?\n\n## A group\n\nrows\n\n## The intervals themselves\n\ntables\n"


def test_the_section_stands_before_the_intervals_once():
    first = f"\n## {fidelity.TITLE}\n\nfirst\n"
    written = fidelity.put_into(PAGE, first, "The intervals themselves")
    assert written == PAGE.replace("\n## The intervals", first + "\n## The intervals")
    again = fidelity.put_into(written, first.replace("first", "second"), "The intervals themselves")
    assert again == written.replace("first", "second")


def test_the_median_of_the_repeats_decides():
    row = Row("mean", 10, 10.5, (-0.3, 0.05, 0.02), within=0.1)
    assert (row.error, row.verdict) == (0.05, "within")
    assert Row("mean", 10, 12, (0.2, 0.05, -0.3), within=0.1).verdict == "**misses**"
    assert Row("mean", 10, 12, (0.2,), within=0.1, disturbed=1).verdict == "disturbed"
    assert str(row) == "| mean | 10 | 10.5 |  |  | +5.0% (-30.0%, +5.0%, +2.0%) | within |"
    known = Row("mean", 10, 10.5, (0.05, 0.2), 0.1, interval=(9, 12), inside=(True, False))
    assert str(known) == "| mean | 10 | 10.5 | 9 to 12 | 1 of 2 | +20.0% (+5.0%, +20.0%) | **misses** |"


def test_a_cold_start_that_compiles_more_sizes_is_told_from_one_that_compiles_longer():
    more = Cold(replayed=(8, 1.0), simulated=(10, 1.25), others=0.0)
    longer = Cold(replayed=(10, 1.0), simulated=(10, 1.1), others=0.0)
    busy = Cold(replayed=(10, 1.0), simulated=(10, 9.0), others=0.5)
    assert (more.each, longer.each) == (pytest.approx(0), pytest.approx(0.1))
    row, explained = of_cold_starts("mlp", [more, busy, longer])
    assert row.errors == (pytest.approx(0.25), pytest.approx(0.1))
    assert row.disturbed == 0
    assert explained == "| mlp | 8, 10 | 10, 10 | +0.0%, +10.0% |"


@pytest.fixture(scope="module")
def short():
    """One repeat of the shortest comparison that there is."""
    patch = pytest.MonkeyPatch()
    patch.setattr(fidelity, "LIMIT_S", 0.2)
    patch.setattr(fidelity, "load_model", lambda name: bs.device.load_model(name, width=8))
    said, kept = [], []
    part = "## Title", {"mlp": fidelity.Case("mlp", (0.5,))}, None
    runs = fidelity.Runs(0.05, say=lambda *what, **how: said.append(what), keep=kept.append, part=part)
    known = runs.compare("mlp", 0.5, 0)
    yield runs, said, kept, known
    patch.undo()


def test_what_is_known_is_kept_after_each_run(short):
    runs, said, kept, _ = short
    assert len(said) == len(kept) == 1
    minute = r"\d\d:\d\d UTC"  # of this text, and of the one that was kept
    assert re.sub(minute, "", kept[0]) == re.sub(minute, "", runs.text())
    compared = runs.repeated["mlp", 0.5][0].compared
    low, high = compared.interval("p99_ms")
    assert f"| {low:.4g} to {high:.4g} | {int(compared.inside('p99_ms'))} of 1 |" in kept[0]
    assert [row.what for row in runs.rows] == [
        f"mlp, load 0.5: {heading(key)}" for key in ("mean_latency_ms", "mean_batch_size", "p99_ms")
    ]


def test_an_interrupted_replay_ends_all_runs_and_what_there_was_stays(short, monkeypatch):
    runs, _, kept, _ = short

    def stopped(scenario, model, requests, seed, **given):
        real = bs.device.replay(scenario, model, requests, seed, **given)
        return dataclasses.replace(real, requested=real.requested + 1, error="it was stopped")

    monkeypatch.setattr(fidelity, "replay", stopped)
    with pytest.raises(KeyboardInterrupt):
        runs.run()
    assert len(runs.around) == len(kept) == 1
    assert "Interrupted: 1 of 3 comparisons" in runs.text()


def test_requests_of_different_lengths_have_a_row_of_their_padding(monkeypatch):
    monkeypatch.setattr(fidelity, "LIMIT_S", 0.05)
    monkeypatch.setattr(
        fidelity, "load_model",
        lambda name, **padded: bs.device.load_model(name, width=32, layers=1, **padded),
    )  # fmt: skip
    ((name, case),) = fidelity.LENGTHS.items()
    few = dataclasses.replace(case, padded={"pad_to": (2, 8), "lengths": (32, 128)})
    part = "### Title", {name: few}, None
    runs = fidelity.Runs(0.05, say=lambda *what, **how: None, part=part, repeats=1)
    runs.run()
    *_, padding = runs.rows
    compared = runs.repeated[name, 0.5][0].compared
    assert padding.what == f"{name}, load 0.5: padding"
    assert padding.errors == (pytest.approx(padding.simulated - padding.replayed),)
    assert padding.replayed == compared.replayed.summary()["padding"]
    assert np.array_equal(compared.replayed.size, compared.simulated.size)
    service = compared.simulated.scenario.service
    assert (service.batch_sizes, service.lengths) == ((2, 8), (32, 128))
    of_batch = [compared.replayed.size[compared.replayed.batch_index == k] for k in range(5)]
    assert compared._measured_s[:5] == pytest.approx([service(sizes) for sizes in of_batch])


def test_it_says_how_disturbed_the_machine_was(short):
    runs, *_ = short
    around, row = runs.around[0]
    assert 0 <= around.others <= 1
    assert f"{around.drift:+.1%}" in row
    assert f"other programs took {around.others:.0%} of the processors" in runs.machine()


def test_the_drift_is_how_much_longer_batches_took_afterwards(short):
    _, _, _, (_, before) = short
    slower = dataclasses.replace(
        before, samples_ms=tuple(tuple(1.1 * ms for ms in row) for row in before.samples_ms)
    )
    found = fidelity.Surroundings.of(fidelity.Others(), before, slower)
    assert found.drift == pytest.approx(0.1)


SPIN = "import time\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass"


def test_another_program_disturbs_a_repeat_and_this_one_does_not(short, monkeypatch):
    runs, *_ = short
    monkeypatch.setattr(fidelity, "AHEAD", False)
    repeat = runs.repeated["mlp", 0.5][0]
    busy = dataclasses.replace(repeat.around, others=0.2)
    assert dataclasses.replace(repeat, around=busy).disturbed == "other programs took 20%"
    others = fidelity.Others()
    own_s = time.process_time()
    with subprocess.Popen([sys.executable, "-c", SPIN]) as program:
        while psutil.Process(program.pid).cpu_times().user < 0.3:
            assert time.process_time() < own_s + 60  # this program computes, too
        share, passed_s = others.share(), time.perf_counter() - others.begin_s
        program.kill()
    assert share >= 0.2 / (passed_s * len(others._processors()))
