"""What a lesson says is so with other seeds, is where it says, and is not too wide to read."""

import ast
import re
from functools import cache

import pytest
from lesson_cells import LESSONS, code, define, of_seeds, read

import batchsim as bs

WIDEST = 103  # letters
TABLE = re.compile(  # not a map's rows, or seats'
    r"\b(?:columns?|tables?|(?:last|first) line|(?:see|look at) the row|all rows)\b"
)
every_lesson = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)


def text(path):
    return " ".join(cell.source for cell in read(path).cells if cell.cell_type == "markdown")


@every_lesson
def test_no_line_of_code_that_a_student_sees_is_wider_than_the_page(path):
    """JupyterLab scrolls longer ones at 1280 pixels, beside the file browser."""
    seen = [each for each in code(read(path)) if not each.metadata.get("jupyter", {}).get("source_hidden")]
    lines = [line for cell in seen for line in cell.source.splitlines()]
    assert [line for line in lines if len(line) > WIDEST] == []


@every_lesson
def test_a_sentence_on_a_table_says_where_it_is_if_a_picture_folds_it(path):
    cells = read(path).cells
    for place, cell in enumerate(cells):
        if cell.source.startswith("predict(") and "image/png" in str(cells[place + 1].get("outputs")):
            parts = (
                each.value for each in ast.walk(ast.parse(cell.source)) if isinstance(each, ast.Constant)
            )
            explained = next(each.source for each in cells[place + 1 :] if each.cell_type == "markdown")
            words = " ".join([*map(str, parts), explained.partition("</details>")[0]])
            assert not TABLE.search(words) or "Numbers" in words, words


@every_lesson
def test_a_printed_row_has_separators_in_its_numbers(path):
    printed = "".join(each.get("text", "") for cell in code(read(path)) for each in cell.outputs)
    assert re.findall(r"^ *\d{4,}\b.*|.*[^\d] \d{4,}$", printed, re.MULTILINE) == []


# What other seeds give. Each range in a sentence on seeds is a key, with its value in the run of one seed.


def ttft_s(scenario, requests, seed):
    return bs.simulate(scenario, requests, seed=seed).percentile(50, column="ttft_ms") / 1000


def short_of_memory(lesson, seed, blocks, workload, tokens, **how):
    rule = bs.Continuous(64, kv_blocks=blocks, **how)
    return ttft_s(lesson["chat"](rule, workload, tokens), lesson["REQUESTS"], seed)


def budget_ms(lesson, seed, budget):
    rule = bs.Continuous(64, max_num_batched_tokens=budget)
    scenario = lesson["chat"](rule, bs.Poisson(2), lesson["LONG"])
    return bs.simulate(scenario, lesson["REQUESTS"], seed=seed).percentile(99, column="tpot_ms")


def thrashing_s(lesson, seed, **how):
    return short_of_memory(lesson, seed, 1200, bs.Poisson(2), lesson["LONG"], **how)


def in_bursts_s(lesson, seed):
    scenario = lesson["TODAY"].replace(workload=lesson["BURSTS"], max_wait_ms=0)  # as the search recommends
    return bs.simulate(scenario, lesson["REQUESTS"], seed=seed).percentile(99) / 1000


def padded_ms(lesson, limit=None):
    return lesson["run"](1250, bs.SizeOrWait(32, 10, max_batch_units=limit)).percentile(99)


def routed_ms(lesson, name, workload, **how):
    return lesson["on_cards"](workload, 2, **how)[name].percentile(99)


def varying_ms(lesson, name):
    service = lesson["SERVICE"].with_noise(1.0, "exponential")
    return routed_ms(lesson, name, bs.Poisson(14_000), service=service, routings=[name.replace(" ", "_")])


def herding_ms(lesson, name):
    return routed_ms(lesson, name, lesson["BURSTS"], stale_ms=20, routings=[name.replace(" ", "_")])


def half_width_percent(lesson, seed):
    result = lesson["run"](400, lesson["ONE_AT_A_TIME"], seed=seed)
    low_ms, high_ms = result.interval("mean_latency_ms")
    return 50 * (high_ms - low_ms) / result.mean_latency_ms


SAID = {
    "06": {"4 to 10 %": half_width_percent},
    "07": {"0.9 to 3.1 s": in_bursts_s},
    "09": {"29.4 to 29.6 ms": lambda lesson, _: lesson["on_each"](2000, 10, ["batched"])
           .results["batched"].percentile(99)},
    "10": {
        "61 to 111 ms": lambda lesson, seed: budget_ms(lesson, seed, 2048),
        "23 to 24 ms": lambda lesson, seed: budget_ms(lesson, seed, 128),
        "1 to 11 s": lambda lesson, seed: short_of_memory(lesson, seed, 500, bs.Poisson(4), lesson["TOKENS"]),
        "0.3 to 1.2 s": thrashing_s,
        "1 to 24 s": lambda lesson, seed: thrashing_s(lesson, seed, long_prefill_token_threshold=256),
    },
    "11": {
        "89 to 199 ms": lambda lesson, _: padded_ms(lesson),
        "4 to 8 times": lambda lesson, _: padded_ms(lesson) / padded_ms(lesson, 2048),
    },
    "12": {
        "1.4 to 2.5 times": lambda lesson, _: [
            varying_ms(lesson, name) / varying_ms(lesson, "least loaded")
            for name in ("random", "round robin")
        ],
        "114 to 213 ms": lambda lesson, _: herding_ms(lesson, "least loaded"),
        "52 to 167 ms": lambda lesson, _: herding_ms(lesson, "round robin"),
    },
}  # fmt: skip
RANGES = [(number, said) for number, ranges in SAID.items() for said in ranges]


@cache
def lesson_of(number, seed):
    """Return what a lesson's cells define, with a seed."""
    (path,) = (each for each in LESSONS if each.name.startswith(number))
    namespace = {"check": lambda *_: None, "__name__": "lesson", "SEED": seed}
    define(code(read(path)), namespace)
    return namespace


def found(number, said, seeds):
    """Return the smallest and the largest value of some seeds, rounded as a lesson says them."""
    values = []
    for seed in seeds:
        value = SAID[number][said](lesson_of(number, seed), seed)
        values += value if isinstance(value, list) else [value]
    low, _, high, *_ = said.split()
    return (
        [round(value, len(low.partition(".")[2])) for value in (min(values), max(values))],
        float(low),
        float(high),
    )


@every_lesson
def test_a_range_over_seeds_is_computed_again(path):
    assert sorted(of_seeds(text(path))) == sorted(SAID.get(path.name[:2], {}))


@every_lesson
def test_a_lesson_with_long_runs_says_how_far_other_seeds_are_from_its_numbers(path):
    sources = "\n".join(cell.source for cell in code(read(path)))
    if re.search(r"REQUESTS\b|100_000", sources):
        assert re.search(r"\bseeds\b|another `SEED`|95 % interval", text(path) + sources)


@pytest.mark.parametrize(("number", "said"), RANGES)
def test_other_seeds_give_what_a_lesson_says(number, said):
    values = []
    for seed in range(1, 31 if number == "06" else 9):
        value = SAID[number][said](lesson_of(number, seed), seed)
        values += value if isinstance(value, list) else [value]
    low, _, high, *_ = said.split()
    assert [round(each, len(low.partition(".")[2])) for each in (min(values), max(values))] == [
        float(low),
        float(high),
    ]
