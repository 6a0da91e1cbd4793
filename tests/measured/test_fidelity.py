"""A real run beside its simulation: what is compared, how sure a prediction is, and what is said of it."""

import dataclasses
import operator

import numpy as np
import pytest
from validation import predicted

import batchsim as bs
from batchsim.device import compare_with_simulation, load_model, measure
from batchsim.measured import fidelity
from batchsim.measured.fidelity import KEYS, SHARES, Repeats, as_far_out, busy_in, measure_for, service_of

SCENARIO = bs.Scenario(bs.Poisson(1000), bs.SizeOrWait(4, 1), bs.Affine(100, 0))


@pytest.fixture(scope="module")
def model():
    return load_model("mlp", width=8)


@pytest.fixture(scope="module")
def compared(model):
    return compare_with_simulation(SCENARIO, model, 200, seed=2, limit_s=0.3, progress=False)


def test_both_have_the_same_arrivals_and_the_measured_service_time(compared):
    assert np.array_equal(compared.simulated.arrival_s, compared.replayed.due_s)
    assert compared.simulated.scenario == compared.replayed.scenario
    service = compared.simulated.scenario.service
    assert service == service_of(compared.measurement)
    assert compared.measurement.batch_sizes == (1, 2, 3, 4)


def test_the_difference_is_how_far_the_simulated_value_is_above_the_replayed(compared):
    frame = compared.to_frame()
    assert list(frame.index) == list(KEYS)
    expected = 100 * (frame.simulated / frame.replayed - 1)
    assert frame["difference_%"].to_numpy() == pytest.approx(expected.to_numpy())
    assert compared.difference("p99") == pytest.approx(expected["p99_ms"] / 100)


def test_what_is_predicted_is_the_median_of_repeats_and_95_of_100_are_in_the_interval(compared):
    frame = compared.to_frame()
    for key in KEYS:
        numbers = compared.repeats.numbers[key]
        assert numbers.size == 200
        assert frame.simulated[key] == compared.predicted(key) == np.median(numbers)
        low, high = compared.interval(key)
        assert (frame.low[key], frame.high[key]) == (low, high)
        assert np.mean((low <= numbers) & (numbers <= high)) >= 0.94
        assert np.mean((low < numbers) & (numbers < high)) <= 0.96
        assert frame.inside[key] == (low <= frame.replayed[key] <= high) == compared.inside(key)
    assert compared.interval("p99") == compared.interval("p99_ms")


def test_what_is_explained_is_repeated_with_the_services_own_noise_alone(compared):
    service = compared.explained.scenario.service
    assert compared.explained_repeats.numbers.keys() == compared.repeats.numbers.keys()
    known = fidelity.Repeats.of(
        compared.explained.scenario, [service] * 200, KEYS, 200, compared.replayed.seed
    )
    assert np.array_equal(known.latency_ms, compared.explained_repeats.latency_ms)


def test_a_padded_model_has_repeats_of_its_padded_service():
    padded = load_model("mlp", width=8, pad_to=[1, 4])
    compared = compare_with_simulation(SCENARIO, padded, 50, limit_s=0.2, progress=False)
    low, high = compared.interval("mean_latency_ms")
    assert 0 < low < compared.predicted("mean_latency_ms") < high


def test_what_is_measured_is_a_server_as_in_the_replay_before_it_and_after_it(model, compared, monkeypatch):
    assert compared.measurement.served
    asked = []
    real = compare_with_simulation.__globals__["measure_for"]
    monkeypatch.setitem(
        compare_with_simulation.__globals__, "measure_for", lambda *a: asked.append(real(*a)) or asked[-1]
    )
    both = compare_with_simulation(SCENARIO, model, 20, limit_s=0.2, progress=False).measurement
    before, after = asked
    assert both.samples_ms == before.joined(after).samples_ms
    assert all(measured.autocorrelation for measured in (before, after, both))


def test_what_explains_a_difference_is_a_simulation_whose_batches_are_as_slow_as_the_replays(compared):
    service, replayed = compared.explained.scenario.service, compared.replayed
    measured = compared.simulated.scenario.service
    for size in compared.measurement.batch_sizes:
        assert service(size) == pytest.approx(measured(size) * compared.slower)
    assert service.noise == measured.noise
    sizes = replayed.batches.batch_size
    measured_ms = 1000 * np.mean([measured(size) for size in sizes.tolist()])
    took_ms = replayed.model_ms + replayed.own_ms + replayed.reaction_ms
    assert compared.slower == pytest.approx(took_ms / measured_ms)


def test_it_reads_as_a_table_with_what_is_known_of_the_difference(compared):
    text = repr(compared)
    for word in (
        "mean latency",
        "p99",
        "mean batch size",
        "replayed",
        "simulated",
        "times as long as the server",
        "A run like this one has a mean latency between",
        "in 95 of 100 repeats",
        "sent at most",
    ):
        assert word in text
    assert ("DISTURBED" in text) == bool(compared.disturbed)


def test_a_replay_that_is_no_evidence_gets_no_verdict(compared):
    stopped = dataclasses.replace(compared.replayed, requested=999, error="it was stopped")
    assert "no verdict: it was stopped" in repr(dataclasses.replace(compared, replayed=stopped))


@pytest.mark.parametrize("name", ["rested", "together", "replayed.others"])
def test_a_removed_name_says_what_to_use_instead(compared, name):
    with pytest.raises(AttributeError, match="it was removed: "):
        operator.attrgetter(name)(compared)


def test_a_measurement_that_is_given_is_not_made_again(model, monkeypatch):
    given = measure(model, [1, 4], repeats=2, roofline=False, progress=False)
    monkeypatch.setattr("batchsim.measured.fidelity.measure_for", None)
    compared = compare_with_simulation(SCENARIO, model, 20, measurement=given)
    assert compared.measurement is given


def test_a_padded_model_is_measured_at_its_padded_sizes():
    padded = load_model("mlp", width=8, pad_to=[1, 4, 8, 16])
    measured = measure_for(padded, 6, limit_s=0.1)
    assert measured.batch_sizes == measure_for(padded, 8, limit_s=0.1).batch_sizes == (1, 4, 8)
    service = service_of(measured, padded.pad_to)
    assert service(3) == service(4) > 0


def test_of_many_sizes_the_powers_of_two_are_measured():
    assert measure_for(np.negative, 40, np.float32(1), 0.1).batch_sizes == (1, 2, 4, 8, 16, 32, 40)
    assert measure_for(np.negative, 64, np.float32(1), 0.1).batch_sizes == (1, 2, 4, 8, 16, 32, 64)


def test_the_measurement_covers_what_the_rule_names_although_no_batch_is_so_large(model):
    scenario = SCENARIO.replace(rule=bs.PreferredSizes([2], 4, 1))
    compared = compare_with_simulation(scenario, model, 20, limit_s=0.1, progress=False)
    assert compared.measurement.batch_sizes == (1, 2, 3, 4)


def test_a_server_is_measured_as_busy_as_it_is_in_the_scenario(model, monkeypatch):
    service = bs.Table({1: 1, 4: 2})
    for rate_per_s in (200, 1200):
        scenario = SCENARIO.replace(rate_per_s=rate_per_s)
        expected = bs.simulate(scenario.replace(service=service), 100_000).utilisation
        assert busy_in(scenario)(service) == pytest.approx(expected, abs=0.03)
    half = bs.simulate(SCENARIO.replace(service=service, rate_per_s=1000), 100_000).utilisation
    assert busy_in(SCENARIO, 0.5)(service) == pytest.approx(half, abs=0.03)
    asked, real = [], compare_with_simulation.__globals__["measure_for"]
    monkeypatch.setitem(
        compare_with_simulation.__globals__, "measure_for", lambda *a: asked.append(a[5]) or real(*a)
    )
    compare_with_simulation(SCENARIO, model, 20, limit_s=0.2, progress=False)
    assert [round(each(service), 9) for each in asked] == [round(busy_in(SCENARIO)(service), 9)] * 2


def test_a_plain_callable_is_measured_by_its_first_input():
    compared = compare_with_simulation(
        SCENARIO, lambda b: b * 2, 20, inputs=np.arange(20.0), limit_s=0.1, progress=False
    )
    assert compared.replayed.outputs == (2 * np.arange(20.0)).tolist()


def test_its_picture_has_both_latencies_and_both_batch_sizes(compared):
    latency, batches = bs.plot(compared).axes
    drawn = {line.get_label(): line.get_xdata() for line in latency.lines if len(line.get_xdata()) > 1}
    replayed, simulated = drawn.values()
    assert [label.partition(" ")[0] for label in drawn] == ["replayed", "simulated"]
    assert [replayed[0], replayed[-1]] == pytest.approx(
        [compared.replayed.latency_ms.min(), compared.replayed.latency_ms.max()]
    )
    assert simulated == pytest.approx(np.median(compared.repeats.latency_ms, axis=0))
    heights = sum(bar.get_height() for bar in batches.patches)
    assert heights == pytest.approx(200)


def test_the_picture_of_a_disturbed_replay_says_so(compared):
    stopped = dataclasses.replace(compared.replayed, requested=999, error="it was stopped")
    title = bs.plot(dataclasses.replace(compared, replayed=stopped)).axes[0].get_title()
    assert "DISTURBED" in title


# The same arrivals many times: what differs between the repeats, and whether their interval holds.


REPEATED = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(8, 5), bs.Affine(2, 0.5).with_noise(0.3))


def test_repeats_have_the_arrivals_of_the_run_and_noise_of_their_own():
    quiet = REPEATED.replace(service=bs.Affine(2, 0.5))
    known = bs.simulate(quiet, 300, seed=4)
    repeats = Repeats.of(REPEATED, [quiet.service] * 5, KEYS, 300, seed=4)
    for key in KEYS:
        assert repeats.numbers[key] == pytest.approx([known.metrics.number(key)] * 5, rel=0)
    assert np.array_equal(repeats.latency_ms[3], known.metrics.percentiles(SHARES))
    noisy = Repeats.of(REPEATED, [REPEATED.service] * 5, KEYS, 300, seed=4)
    assert np.unique(noisy.numbers["p99_ms"]).size == 5


def test_both_engines_repeat_alike():
    rule = bs.SizeOrWait(8, 5)

    class Slow(type(rule)):
        compiled = False

    services = [REPEATED.service] * 3
    slow = REPEATED.replace(rule=Slow(8, 5))
    fast, reference = (Repeats.of(each, services, KEYS, 200, 1) for each in (REPEATED, slow))
    assert np.array_equal(fast.latency_ms, reference.latency_ms)


def test_a_warmup_is_left_out():
    every, late = (Repeats.of(REPEATED, [REPEATED.service], KEYS, 300, 1, warmup) for warmup in (0, 0.5))
    expected = bs.simulate(REPEATED, 300, 1, warmup=0.5)
    assert every.median("mean_latency_ms") != late.median("mean_latency_ms")
    assert late.median("throughput_per_s") == pytest.approx(expected.throughput_per_s, rel=0.05)


@pytest.mark.parametrize("load", [0.5, 0.8, 0.9])
def test_a_run_is_inside_the_interval_of_its_prediction_nearly_always(load):
    shares = predicted.coverage(load, experiments=10, requests=1500, repeats=40, rounds=20)
    inside = [share for share, _ in shares.values()]
    assert np.mean(inside) > 0.75  # of ten runs; of 80 it is 0.91 to 0.97
    assert min(inside) > 0.6
    widest = {0.5: 0.6, 0.8: 3.0, 0.9: 6.0}[load]
    assert all(0 < width < widest for _, width in shares.values()), "an interval of anything holds anything"


def test_a_run_of_another_server_is_outside():
    wrong = [
        predicted.experiment(0.5, seed, 1500, 40, 20, speed=1.25)["mean_latency_ms"] for seed in range(4)
    ]
    assert sum(low <= real <= high for low, high, real, _ in wrong) <= 1


def test_all_rows_together_are_outside_as_rarely_as_one():
    normal = np.random.default_rng(1).normal(size=(6, 600))
    numbers = normal + normal[:1]  # what are metrics of one run hang together
    repeats, runs = numbers[:, :200], numbers[:, 200:].T
    low, high = np.quantile(repeats, [0.025, 0.975], axis=1)
    assert ((runs < low) | (runs > high)).any(axis=1).mean() > 0.2
    assert 0.02 < np.mean([as_far_out(repeats, run) < 0.05 for run in runs]) < 0.08
    assert as_far_out(repeats, runs[0] + 9) == 1 / 201
    assert as_far_out(repeats, np.median(repeats, axis=1)) > 0.9
