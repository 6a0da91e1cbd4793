"""Predictions and self-grading exercises, without a kernel or a browser."""

import math
from functools import cache
from pathlib import Path

import matplotlib
import nbformat
import numpy as np
import pandas
import pytest
from matplotlib import pyplot as plt

import batchsim as bs
from batchsim.teaching import EXERCISES, SERVICE, check, predict
from batchsim.teaching.exercises import does_it_tell_the_truth as truth
from batchsim.teaching.exercises import same_knobs_different_servers as same
from batchsim.teaching.exercises import tune_to_an_objective as tuned
from batchsim.teaching.exercises.exercise import Number

matplotlib.use("agg")

NUMBERS = [name for name, exercise in EXERCISES.items() if isinstance(exercise, Number)]
SOONER = "Which answers sooner?", ["One at a time", "In batches", "Both <alike>"], "One at a time", "No wait."


@pytest.fixture(scope="module", autouse=True)
def right_once():
    """What is right in an exercise, often a search with simulations, is found once for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        for exercise in map(EXERCISES.get, NUMBERS):
            patch.setattr(exercise, "right", cache(exercise.right))
        yield


@pytest.fixture
def asked():
    return predict(*SOONER)


def test_nothing_is_chosen_for_the_learner(asked):
    assert asked.choice.value is None
    assert asked.verdict.value == ""


def test_committing_without_a_choice_asks_for_one_and_stays_open(asked):
    asked.commit.click()
    assert asked.verdict.value == "Nothing is chosen yet: choose an answer, then commit."
    assert not asked.commit.disabled


def test_a_right_prediction_says_right_and_why(asked):
    asked.choice.value = "One at a time"
    assert asked.verdict.value == ""
    asked.commit.click()
    assert asked.verdict.value == "✓ Right. No wait."


def test_a_wrong_prediction_says_what_is_right_and_why(asked):
    asked.choice.value = "In batches"
    asked.commit.click()
    assert asked.verdict.value == "✗ Not this time.<br>It is: “One at a time”. No wait."


def test_a_committed_prediction_cannot_be_changed(asked):
    asked.choice.value = "In batches"
    asked.commit.click()
    assert asked.choice.disabled
    assert asked.commit.disabled


def test_what_is_shown_is_text_and_never_markup():
    asked = predict("Is p < q?", ["p < q", "p > q"], "p < q", "Since q > p & so on.")
    assert asked.children[0].value == "<b>Predict: Is p &lt; q?</b>"
    asked.choice.value = "p > q"
    asked.commit.click()
    assert asked.verdict.value == "✗ Not this time.<br>It is: “p &lt; q”. Since q &gt; p &amp; so on."


def test_a_prediction_prints_the_same_each_time_and_shows_the_choice(asked):
    unanswered = "Predict: Which answers sooner?\n  ( ) One at a time\n  ( ) In batches\n  ( ) Both <alike>"
    assert repr(asked) == repr(predict(*SOONER)) == unanswered
    asked.choice.value = "In batches"
    assert repr(asked) == unanswered.replace("( ) In", "(x) In")


def test_a_page_without_a_kernel_shows_the_whole_question(asked):
    assert asked._repr_mimebundle_()["text/plain"] == repr(asked)


def test_no_prediction_is_an_output_widget(asked):
    assert [type(child).__name__ for child in asked.children] == [
        "HTML",
        "RadioButtons",
        "Button",
        "HTML",
        "VBox",
    ]


def test_a_wrong_choice_says_why_it_is_wrong():
    asked = predict("?", {"Yes": "", "No": "Since 1 < 2."}, "Yes", "It is.")
    asked.choice.value = "No"
    asked.commit.click()
    assert asked.verdict.value == "✗ Not this time. Since 1 &lt; 2.<br>It is: “Yes”. It is."


def outcome_of(then, choice="Yes"):
    asked = predict("?", ["Yes", "No"], "Yes", "", then)
    assert asked.outcome.children == ()
    asked.commit.click()
    assert asked.outcome.children == (), "nothing is chosen yet"
    asked.choice.value = choice
    asked.commit.click()
    return [child.value for child in asked.outcome.children]


@pytest.mark.parametrize("choice", ["Yes", "No"])
def test_the_outcome_is_shown_when_the_learner_commits_and_not_before(choice):
    assert outcome_of(lambda: print("p99 < 30 ms"), choice) == ["<pre>p99 &lt; 30 ms\n</pre>"]


def test_an_outcome_may_be_a_picture_and_a_table():
    def then():
        print("it rises")
        figure, ax = plt.subplots(figsize=(4, 3), dpi=50)
        ax.plot([1, 2])
        return figure, pandas.DataFrame({"p99": [3.5]})

    words, picture, table = outcome_of(then)
    assert words == "<pre>it rises\n</pre>"
    assert picture.startswith('<img src="data:image/png;base64,')
    assert picture.endswith('alt="it rises" style="width: 200px; max-width: 100%">')
    assert "<table" in table
    assert "3.5" in table
    assert plt.get_fignums() == [], "or the notebook shows the figure once more"


def test_an_outcome_that_fails_says_so():
    assert outcome_of(lambda: 1 / 0) == [
        "<pre>ZeroDivisionError: division by zero. Run the cells above, then this one again.</pre>"
    ]


def test_an_outcome_that_is_no_function_is_refused():
    with pytest.raises(TypeError, match="then must be a function without arguments, got 3"):
        predict("?", ["Yes", "No"], "Yes", "", 3)


def test_an_answer_that_is_no_choice_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match=r"got 'yes'; did you mean 'Yes'\?"):
        predict("?", ["Yes", "No"], "yes", "")


@pytest.mark.parametrize("choices", [["Yes"], ["Yes", "Yes"], []])
def test_fewer_than_two_different_choices_are_refused(choices):
    with pytest.raises(ValueError, match="choices must be at least two, all different, got"):
        predict("?", choices, "Yes", "")


def said(capsys, exercise, answer):
    assert check(exercise, answer) is None
    return capsys.readouterr().out


@pytest.mark.parametrize("name", EXERCISES)
def test_an_exercise_left_open_says_so_and_names_the_unit(capsys, name):
    expected = f"Not answered yet: put your answer in place of the ...: {EXERCISES[name].asks}.\n"
    assert said(capsys, name, ...) == expected


@pytest.mark.parametrize("name", NUMBERS)
def test_what_is_right_is_right_and_explained(capsys, name):
    right = EXERCISES[name].right()
    assert said(capsys, name, right).startswith("Right: ")
    assert said(capsys, name, np.float64(right)) == said(capsys, name, right)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("answer", [-1, 0, 1, 99, 2.5, 1e9])
def test_a_hint_never_tells(capsys, name, answer):
    right, told = EXERCISES[name].right(), said(capsys, name, answer)
    assert told.startswith("Not yet: ")
    shown = f"{right:,.0f}" if right >= 10 or right == round(right) else f"{right:.2f}"
    assert shown not in told.replace("100, 200, 300, 400", "")


@pytest.mark.parametrize(
    "answer",
    ["500", None, True, [500], math.nan, math.inf, check, pandas.DataFrame({"a": range(50)})],
    ids=lambda answer: type(answer).__name__,
)
def test_what_is_no_number_is_explained_in_one_line(capsys, answer):
    told = said(capsys, "01.1", answer)
    assert told.startswith("Not yet: the answer must be ")
    assert told.endswith(" (requests per second).\n")
    assert len(told.splitlines()) == 1


def test_an_unknown_exercise_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match=r"got '01\.11'; did you mean '01\.1'"):
        check("01.11", 1)


def test_a_name_that_is_no_name_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"got 7; known: 01\.1, "):
        check(7, 1)


def test_a_rounded_saturation_rate_counts_and_a_different_one_does_not(capsys):
    right = 12 / 3.65e-3
    assert said(capsys, "01.1", round(right, -1)).startswith("Right")
    assert said(capsys, "01.1", right * 1.02).startswith("Not yet")


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (12 / 3.65, "per millisecond"),
        (1000 / 3.65, "number of batches per second"),
        (500, "saturation rate one at a time"),
        (6000, "a batch takes longer"),
        (7, "how long a batch of 12 takes"),
    ],
)
def test_a_usual_mistake_about_the_saturation_rate_gets_its_own_hint(capsys, answer, hint):
    assert hint in said(capsys, "01.1", answer)


def test_the_smallest_batch_is_just_above_the_one_that_paper_says():
    # k / (1.85 + 0.15 k) > 3 per ms
    assert EXERCISES["01.2"].right() == math.floor(5.55 / 0.55) + 1


@pytest.mark.parametrize(
    ("answer", "hint"), [(10, "3,000 arrive"), (12, "Is it the smallest?"), (10.5, "whole number")]
)
def test_a_wrong_smallest_batch_gets_a_hint(capsys, answer, hint):
    assert hint in said(capsys, "01.2", answer)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_wait_that_breaks_even_is_what_runs_of_any_seed_show(capsys, seed):
    asked = EXERCISES["01.3"]

    def mean_ms(rule):
        return bs.simulate(
            bs.Scenario(bs.Poisson(asked.rate_per_s), rule, SERVICE), 100_000, seed=seed
        ).mean_latency_ms

    alone_ms = mean_ms(bs.SizeOrWait(1, 0))
    found = next(
        w for w in np.arange(2, 4, 0.05) if mean_ms(bs.SizeOrWait(asked.max_batch_size, w)) > alone_ms
    )
    assert said(capsys, "01.3", found).startswith("Right")


@pytest.mark.parametrize(
    ("answer", "hint"),
    [(-1, "at least 0 ms"), (0.00281, "seconds"), (1, "shorter"), (4, "longer"), (50, "too long")],
)
def test_a_wrong_wait_gets_a_hint(capsys, answer, hint):
    assert hint in said(capsys, "01.3", answer)


def test_a_request_waits_as_long_as_it_computes_at_two_thirds_of_the_capacity():
    # rho / (2 (1 - rho)) = 1
    assert EXERCISES["06.1"].right() == pytest.approx(2 / 3 / SERVICE(1), rel=1e-9)


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (2 / 3, "How many requests per second is it?"),
        (250, "there the mean latency is 3.00 ms, and it should be twice 2.00 ms"),
        (500, "there is no mean"),
        (-3, "more than 0 requests per second, got -3"),
    ],
)
def test_a_wrong_rate_for_twice_the_time_gets_a_hint(capsys, answer, hint):
    assert hint in said(capsys, "06.1", answer)


def test_as_many_requests_as_asked_for_give_the_interval_that_is_aimed_at():
    asked = EXERCISES["06.2"]
    assert asked.half_width(asked.requests) > 3 * asked.target
    assert asked.half_width(round(asked.right())) == pytest.approx(asked.target, rel=0.2)


def test_a_number_of_requests_from_a_rounded_interval_counts(capsys):
    assert said(capsys, "06.2", 40_000 * 5.3**2).startswith("Right")


@pytest.mark.parametrize(
    ("times", "hint"),
    [
        (1, "40,000 requests are too few"),
        (4, "± 2.71%"),
        (100, "± 0.54%"),
    ],
)
def test_a_wrong_number_of_requests_gets_a_hint(capsys, times, hint):
    assert hint in said(capsys, "06.2", 40_000 * times)


def test_who_forgets_the_square_is_told(capsys):
    asked = EXERCISES["06.2"]
    forgotten = asked.requests * asked.half_width(asked.requests) / asked.target
    assert "square root" in said(capsys, "06.2", forgotten)


def test_the_cost_of_a_wait_is_what_paired_runs_of_other_seeds_show():
    asked = EXERCISES["06.3"]
    for seed in range(3):
        runs = [
            bs.simulate(
                bs.Scenario(bs.Poisson(asked.rate_per_s), bs.SizeOrWait(asked.max_batch_size, ms), SERVICE),
                400_000,
                seed=seed,
            )
            for ms in (0, asked.max_wait_ms)
        ]
        shown = bs.compare(*runs, keys=["mean_latency_ms"])["mean_latency_ms"].difference
        assert shown == pytest.approx(asked.right(), rel=asked.within)


@pytest.mark.parametrize(
    ("answer", "hint"),
    [(-1, "compare(a, b) gives b - a"), (1000, "microseconds"), (5, "the same seed")],
)
def test_a_wrong_cost_of_a_wait_gets_a_hint(capsys, answer, hint):
    right = EXERCISES["06.3"].right()
    assert hint in said(capsys, "06.3", answer * right)


def test_that_a_wait_costs_nothing_or_all_of_it_is_not_taken(capsys):
    for answer in (0, 1):
        assert "simulate it" in said(capsys, "06.3", answer)


def first_cell(name):
    path = Path(__file__).parent.parent / "notebooks" / "solutions" / f"{name}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    namespace = {}
    exec(next(cell.source for cell in notebook.cells if cell.cell_type == "code"), namespace)
    return namespace


def test_the_exercises_of_lesson_7_ask_about_its_server_its_traffic_and_its_promise(monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    lesson = first_cell("07-tune-to-an-objective")
    assert lesson["TODAY"].service == tuned.SERVICE
    assert lesson["TODAY"].workload == bs.Poisson(tuned.RATE_PER_S)
    assert (lesson["PROMISED_MS"], lesson["SEED"]) == (tuned.PROMISED_MS, tuned.SEED)


def test_goodput_is_the_rate_times_the_part_in_time_whatever_the_seed():
    asked = EXERCISES["07.1"]
    scenario = bs.Scenario(bs.Poisson(tuned.RATE_PER_S), asked.rule, tuned.SERVICE)
    for seed in range(2, 5):
        latency_ms = bs.simulate(scenario, 100_000, seed=seed).latency_ms
        in_time = (latency_ms <= tuned.PROMISED_MS).mean()
        assert tuned.RATE_PER_S * in_time == pytest.approx(asked.right(), rel=asked.within)


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (1356, "that is the throughput"),
        (0.6, "How many requests per second is it?"),
        (60, "How many requests per second is it?"),
        (550, "how many are late"),
        (1351 * 2, "1,350 requests per second that arrive, got 2702"),
    ],
)
def test_a_wrong_goodput_gets_a_hint(capsys, answer, hint):
    assert hint in said(capsys, "07.1", answer)


def test_the_rate_of_the_stricter_promise_is_what_capacity_finds_whatever_the_seed(capsys):
    asked = EXERCISES["07.2"]
    rule = bs.SizeOrWait(asked.max_batch_size, max_wait_ms=0)
    setting = bs.Scenario(bs.Poisson(tuned.RATE_PER_S), rule, tuned.SERVICE)
    for seed in range(4):
        found = bs.capacity(setting, bs.SLO(p99_ms=asked.promised_ms), seed=seed)
        assert said(capsys, "07.2", found.rate_per_s).startswith("Right")


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (1549, "saturation rate"),
        (1786, "cannot keep up"),
        (1350, "p99 is 23.3 ms, and 18 ms"),
        (-7, "more than 0 requests per second, got -7"),
    ],
)
def test_a_wrong_rate_for_the_stricter_promise_gets_a_hint(capsys, answer, hint):
    assert hint in said(capsys, "07.2", answer)


def test_the_servers_that_are_enough_are_sure_whatever_the_seed():
    asked = EXERCISES["07.3"]
    rights = {tuned._fewest_servers(asked.rate_per_s, asked.most, seed)[0] for seed in range(3)}
    assert rights == {asked.right()}


def test_the_capacity_alone_would_ask_for_fewer_servers(capsys):
    asked = EXERCISES["07.3"]
    by_capacity = math.ceil(asked.load(1))
    assert by_capacity < asked.right()
    assert "just stable" in said(capsys, "07.3", by_capacity)


@pytest.mark.parametrize(
    ("answer", "hint"),
    [(1, "the load is 199%"), (4, "Would fewer do?"), (2.5, "whole numbers, at least 1, got 2.5")],
)
def test_a_wrong_number_of_servers_gets_a_hint(capsys, answer, hint):
    assert hint in said(capsys, "07.3", answer)


def test_the_exercises_of_lesson_8_ask_about_its_constants(monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    lesson = first_cell("08-does-it-tell-the-truth")
    for name in ("SLOWER", "OWN_MS", "RULE", "RATE_PER_S", "SEED"):
        assert lesson[name] == getattr(truth, name)
    assert lesson["SERVICE"] == SERVICE


def test_what_a_replay_found_slows_a_server_down_whatever_the_seed():
    asked = EXERCISES["08.2"]
    for seed in range(2, 5):
        scenario = bs.Scenario(bs.Poisson(truth.RATE_PER_S), truth.RULE, truth.as_it_ran())
        mean_ms = bs.simulate(scenario, truth.REQUESTS, seed=seed).mean_latency_ms
        assert mean_ms == pytest.approx(asked.right(), rel=asked.within)
    assert EXERCISES["08.1"].right() == pytest.approx(scenario.saturation_per_s)
    assert scenario.load < 0.9


@pytest.mark.parametrize(
    ("exercise", "answer", "hint"),
    [
        ("08.1", 16 / SERVICE(16), "the measurement alone"),
        ("08.1", 16 / (1.1 * SERVICE(16)), "0.6 ms of the batcher's own"),
        ("08.1", 16 / (SERVICE(16) + 0.0006), "1.1 times as long"),
        ("08.1", 1 / (1.1 * SERVICE(16) + 0.0006), "batches per second"),
        ("08.1", 0.016 / (1.1 * SERVICE(16) + 0.0006), "per millisecond"),
        ("08.1", -1, "more than 0"),
        ("08.1", 1000, "full batch"),
        ("08.3", 3 * 350, "still compiles"),
        ("08.3", 16 * 350, "without padding"),
        ("08.3", 13, "shapes fewer"),
        ("08.3", 4.55, "seconds"),
        ("08.3", 1, "how many shapes"),
    ],
)
def test_a_wrong_answer_of_lesson_8_gets_a_hint(capsys, exercise, answer, hint):
    assert hint in said(capsys, exercise, answer)


@pytest.mark.parametrize(
    ("of", "hint"),
    [
        (lambda measured, right: measured, "the measured service times"),
        (lambda measured, right: measured + 0.6, "requests wait longer"),
        (lambda measured, right: measured * 1.1 + 0.6, "make others wait"),
        (lambda measured, right: right / 1000, "seconds"),
        (lambda measured, right: 100, "Table"),
    ],
)
def test_a_wrong_mean_of_what_was_found_gets_a_hint(capsys, of, hint):
    right = EXERCISES["08.2"].right()
    assert hint in said(capsys, "08.2", of(truth._mean_ms(1, 0), right))


def test_the_exercises_of_lesson_9_ask_about_its_server(monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    lesson = first_cell("09-same-knobs-different-servers")
    assert lesson["SERVICE"] == same.SERVICE
    assert (lesson["B"], lesson["SEED"]) == (same.MAX_BATCH_SIZE, same.SEED)


def test_the_extra_p99_is_what_runs_of_other_seeds_show(capsys):
    asked = EXERCISES["09.1"]
    for seed in range(2, 5):
        triton, torchserve = same._p99s_ms(asked.rate_per_s, asked.max_wait_ms, seed)
        assert said(capsys, "09.1", torchserve - triton).startswith("Right")


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (-3.43, "which of the two is slower?"),
        (8.33, "How much higher is the other?"),
        (11.75, "How much higher is the other?"),
        (1.41, "How many milliseconds more?"),
        (0.00343, "seconds"),
        (5, "the whole wait"),
        (2, "to_frame()"),
    ],
)
def test_a_wrong_extra_p99_gets_a_hint(capsys, answer, hint):
    assert hint in said(capsys, "09.1", answer)


def test_the_least_wait_is_where_a_run_begins_to_keep_up():
    asked = EXERCISES["09.2"]
    for times, keeps_up in ((0.97, False), (1.03, True)):
        rule = bs.servers.ray_serve(same.MAX_BATCH_SIZE, times * asked.right() / 1000)
        result = bs.simulate(bs.Scenario(bs.Poisson(asked.rate_per_s), rule, same.SERVICE), 200_000)
        first, second = np.split(result.latency_ms, 2)
        assert (second.mean() < 2 * first.mean()) == keeps_up == (asked.load(times * asked.right()) < 1)


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (2.149, "2,000 requests per second"),
        (0.00174, "seconds"),
        (1, "too short"),
        (3, "a shorter wait would do"),
        (-1, "at least 0 ms"),
    ],
)
def test_a_wrong_least_wait_gets_a_hint(capsys, answer, hint):
    assert hint in said(capsys, "09.2", answer)


def test_what_ray_serve_carries_by_default_is_what_a_run_of_more_shows():
    asked = EXERCISES["09.3"]
    config = bs.servers.config("ray_serve")
    assert (config.rule.max_batch_size, config.rule.max_ongoing) == (asked.max_batch_size, asked.ongoing)
    assert config.rule.max_wait_ms == asked.wait_ms
    result = bs.simulate(config.scenario(bs.Poisson(3000), same.SERVICE), 20_000)
    assert result.throughput_per_s == pytest.approx(asked.right(), rel=0.01)


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (3007, "so many are never inside"),
        (1918, "each waits"),
        (500, "computed, too"),
        (79.3, "not batches"),
        (0.3966, "per second"),
        (5, "stay inside"),
    ],
)
def test_a_wrong_rate_with_too_few_ongoing_gets_a_hint(capsys, answer, hint):
    assert hint in said(capsys, "09.3", answer)
