"""The teachers' guide: what it says of the lessons is so, and the numbers of its answers are computed."""

import re
from functools import cache

import numpy as np
import pytest
from places import ROOT
from tracked import notebooks

import batchsim as bs

GUIDE = (ROOT / "notebooks" / "README.md").read_text()
SECTIONS = dict(re.findall(r"^### (\d\d): .+?\n(.*?)(?=^##|\Z)", GUIDE, re.DOTALL | re.MULTILINE))
SERVICE = bs.Affine(fixed_ms=1.85, per_item_ms=0.15)  # of most lessons


def ms(value):
    return f"{value:.2f}"


def explorer():
    scenario = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))
    result = bs.simulate(scenario, seed=1)
    return [
        f"{scenario.saturation_per_s:,.0f}",
        f"{100 * scenario.load:.1f} %",
        f"{result.mean_batch_size:.1f}",
        f"{100 * result.utilisation:.1f} %",
    ]


def why_batch():
    service, rule = bs.Affine(6, 0.5), bs.SizeOrWait(16, 40)
    mean_ms = bs.simulate(bs.Scenario(bs.Poisson(5), rule, service), seed=1).mean_latency_ms
    alone_ms = bs.theory.light_traffic_latency_ms(rule, service)
    return [f"{1 / service(1):.0f}", f"{16 / service(16):,.0f}", f"{alone_ms:.1f}", f"{mean_ms:.1f}"]


def build_a_batcher():
    calls = []

    def fails_second(batch):
        calls.append(len(batch))
        if len(calls) == 2:
            raise RuntimeError("out of memory")
        return batch

    batcher = bs.InferenceBatcher(fails_second, max_batch_size=4, max_wait_ms=0)
    for number in range(7):
        batcher.add_request(number, number)
    answered = len(batcher.process_batch())
    with pytest.raises(RuntimeError):
        batcher.process_batch()
    return [str(answered), str(len(batcher.queue)), str(batcher.queue[0]["id"])]


def slow_motion():
    arrivals = bs.Trace([0.000, 0.002, 0.006, 0.009])
    result = bs.simulate(bs.Scenario(arrivals, bs.SizeOrWait(3, 4), bs.Affine(5, 1)))
    parts = zip(result.forming_ms, result.queueing_ms, result.computing_ms, strict=True)
    return [" + ".join(f"{part:.0f}" for part in request) for request in parts]


def size_or_wait():
    settings = [(4000, 2), (4000, 1), (100, 10), (100, 5)]
    results = [
        bs.simulate(bs.Scenario(bs.Poisson(rate), bs.SizeOrWait(32, wait), SERVICE), seed=1)
        for rate, wait in settings
    ]
    a, b = results[0].batches.trigger, results[2].batches.trigger
    assert round(100 * np.mean(a == bs.Trigger.BACKLOG)) == 98
    assert np.all(b == bs.Trigger.WAIT)
    return [ms(result.mean_latency_ms) for result in results]


def tails_and_bursts():
    calm_s, burst_s = np.arange(1, 3001) / 300, np.arange(1, 1601) / 800
    arrivals_s = np.concatenate([calm_s, 10 + burst_s, 12 + calm_s])
    rule, service = bs.SizeOrWait(1, 0), bs.Affine(2, 1e-9)
    latency_ms = bs.simulate(bs.Scenario(bs.Trace(arrivals_s), rule, service)).latency_ms
    gone_s = arrivals_s[latency_ms > 3].max() - 12
    return [f"{latency_ms.max() / 1000:.1f}", f"{gone_s:.1f}"]


def theory_meets_simulation():
    return [f"{50_000 * (0.8 / 0.1) ** 2:,.0f}", ms(bs.theory.md1(250, 2).mean_latency_ms)]


def tune_to_an_objective():
    saturation_per_s = 64 / bs.published("gpunet-175ms/v100-32gb/fp16")(64)
    left = 2200 - saturation_per_s
    gone_s = left / (saturation_per_s - 500)
    return [f"{left:.0f}", f"{1000 * left / saturation_per_s:.0f}", ms(gone_s)]


def does_it_tell_the_truth():
    service = bs.Affine(2, 0.25).padded_to([8]).compiling(350)
    result = bs.simulate(bs.Scenario(bs.Constant(500), bs.SizeOrWait(8, 0), service), 2000)
    start_s, finish_s = result.batches.start_s[0], result.batches.finish_s[0]
    came = np.sum((result.arrival_s > start_s) & (result.arrival_s <= finish_s))
    assert 8 / service(8) == pytest.approx(2000)
    return [str(came), ms(came / 1500), f"{result.latency_ms.max():.0f}"]


def same_knobs():
    rules = [
        bs.servers.triton(4, max_queue_delay_microseconds=5000),
        bs.servers.torchserve(4, maxBatchDelay=5),
        bs.servers.ray_serve(4, batch_wait_timeout_s=0.005),
    ]
    arrivals, service = bs.Trace([0.000, 0.007, 0.009, 0.013]), bs.Affine(9, 1)
    starts = [bs.simulate(bs.Scenario(arrivals, rule, service)).start_s for rule in rules]
    ends_ms = [f"{1000 * start_s[-1]:.0f}" for start_s in starts]
    assert [round(1000 * start_s[0]) for start_s in starts] == [5, 5, 5]
    return ends_ms


def continuous_batching():
    tokens, step = bs.Tokens(prompt=[50] * 4, output=[10, 20, 40, 100]), bs.StepTime(0, 20, 0)
    whole, joined = (
        bs.simulate(bs.Scenario(bs.Trace([0.0] * 4), rule, step, tokens=tokens))
        for rule in (bs.SizeOrWait(4, 1000), bs.Continuous(4))
    )
    useful = whole.output_tokens.sum() / whole.steps.rows.sum()
    return [
        f"{whole.latency_ms.max():,.0f}",
        ", ".join(f"{latency_ms:,.0f}" for latency_ms in joined.latency_ms),
        f"{joined.mean_latency_ms:.0f}",
        f"{100 * useful:.1f} %",
    ]


def one_long_sentence():
    service, sizes = bs.PaddedTime(2, 0.1, 0.005), [400] + [40] * 7
    plain, limited = bs.SizeOrWait(8, 0), bs.SizeOrWait(8, 0, max_batch_units=1600)
    runs = [
        bs.simulate(bs.Scenario(bs.Trace([0.0] * len(some), sizes=some), rule, service))
        for some, rule in ((sizes, plain), (sizes[:1], plain), (sizes[1:], plain), (sizes, limited))
    ]
    one, long, short, cut = (1000 * (run.batches.finish_s - run.batches.start_s) for run in runs)
    padding = 100 * runs[0].summary()["padding"]
    parts = [*one, padding, long.sum() + short.sum(), *cut]
    return [f"{part:.1f}" + (" %" if part is padding else "") for part in parts]


def one_queue_or_four():
    plain = bs.Scenario(bs.Constant(1000), bs.SizeOrWait(8, 30), bs.Affine(4, 0.5))
    runs = [bs.simulate(plain.replace(servers=4), 3200), bs.simulate(plain.replace(replicas=4), 3200)]
    waits = [f"{(result.start_s - result.arrival_s).max() * 1000:.0f}" for result in runs]
    return [*waits, *(f"{result.mean_latency_ms:.1f}" for result in runs)]


COMPUTED = {
    "00": explorer, "01": why_batch, "02": build_a_batcher, "03": slow_motion, "04": size_or_wait,
    "05": tails_and_bursts, "06": theory_meets_simulation, "07": tune_to_an_objective,
    "08": does_it_tell_the_truth, "09": same_knobs, "10": continuous_batching,
    "11": one_long_sentence, "12": one_queue_or_four,
}  # fmt: skip


@cache
def lessons():
    return {path.name[:2]: path for path in notebooks("notebooks/[0-9][0-9]-*.ipynb")}


def test_every_lesson_has_a_section_and_an_exam_question():
    assert set(lessons()) <= set(SECTIONS)
    assert list(SECTIONS) == list(COMPUTED)
    for section in SECTIONS.values():
        assert re.findall(r"^\*(\w+)\*", section, re.MULTILINE) == ["Board", "Exam", "Answer"]
        assert section.count("\n| “") >= 2, "what one hears, and what to ask then"


@pytest.mark.parametrize("lesson", COMPUTED)
def test_the_numbers_of_an_answer_are_what_is_computed(lesson):
    answer = SECTIONS[lesson].partition("*Answer*")[2]
    assert re.findall(r"\*\*([^*]+)\*\*", answer) == COMPUTED[lesson]()


def test_the_table_names_every_lesson_by_its_question_and_minutes():
    rows = dict(re.findall(r"^\| (?:\[(?=\d))?(\d\d)(?:\]\([^)]*\))? \|(.*)$", GUIDE, re.MULTILINE))
    assert list(rows) == list(SECTIONS)
    for name, path in lessons().items():
        if name != "00":
            title = re.search(r'"# (.+?\?)', path.read_text())[1]
            assert rows[name].split(" | ")[0].strip() == title
            assert rows[name].split(" | ")[2].startswith("45")
            assert f"[{name}]({path.name})" in GUIDE


def test_a_section_is_headed_by_the_question_of_its_lesson():
    headed = dict(re.findall(r"^### (\d\d): (.+)$", GUIDE, re.MULTILINE))
    asked = dict(re.findall(r"^\| \[?(\d\d)\]?(?:\([^)]*\))? \| (.+?\?) \|", GUIDE, re.MULTILINE))
    assert headed == asked


def test_every_link_of_the_guide_leads_to_a_file():
    links = re.findall(r"\]\(([^)#:]+)\)", GUIDE)
    assert [link for link in links if not (ROOT / "notebooks" / link).exists()] == []
