"""VALIDATION.md says what the code says today, and its claims hold."""

import re
from functools import cache

import pandas
import pytest
from places import ROOT
from validation import page as validation
from validation import pages, published

TEXT = pages.whole()
GROUPS = {group.title: group for group in validation.GROUPS}
# Those that cost seconds are recomputed by `make validate` alone.
QUICK = (
    "A minimum batch size",
    "The textbook rule with a wait",
    "A real server: nnU-Net on Triton",
    "For plausibility: Triton's guide",
    "For plausibility: FastPitch on Triton, two instances on one GPU",
    "A measured run: vLLM 0.19 on an RTX 4090",
    "Questions that engineers asked",
)


def written(title):
    """The rows of a group in VALIDATION.md, as lists of cells."""
    section = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE)[1]
    return [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")][1:]


def test_every_group_stands_in_it_in_order_and_nothing_else():
    titles = re.findall(r"^## (.+)$", TEXT, re.MULTILINE)
    real = re.findall(r"^## (.+)$", validation.real_runs(), re.MULTILINE)
    measured = ["The servers' own code", *real, "The intervals themselves"]
    assert titles == [*GROUPS, *measured, "The choice of a setting", "What this model leaves out"]
    assert validation.real_runs() in TEXT, "run `make fidelity` or `make validate`"
    for group in GROUPS.values():
        assert group.text in TEXT
        assert written(group.title)


def test_its_first_screen_counts_the_rows_below():
    below = TEXT[TEXT.index("\n## ") :]
    assert validation.HEAD + validation.summary(below) + below == TEXT


def test_the_first_screen_names_the_spread_of_several_real_runs():
    lines = ["| a | -1.0% (-1.0%, +2.5%, -0.5%) | within |", "| b (+1.0%) | +0.5% (+0.5%, +1.0%, +2.0%) | |"]
    assert validation.spread(lines) == "3 runs a row: 2.5 points in the median, 3.5 at most"
    assert validation.spread(["| a | +1.0% | agrees |", "| litserve (a, b) | -0.1% +0.2% | agrees |"]) == ""
    (real,) = (line for line in TEXT.splitlines() if line.startswith("| [Real runs]"))
    assert "3 runs a row" in real


def test_every_row_that_claims_agrees():
    assert "DISAGREES" not in TEXT
    assert TEXT.count("| agrees |") > 130


@pytest.mark.parametrize("title", QUICK)
def test_it_is_not_stale(title):
    rows = [str(row).strip("|").split("|") for row in rows_of(title)]
    for row, then in zip(rows, written(title), strict=True):
        assert row[0] == then[0]
        for number, was in zip(numbers(row), numbers(then), strict=True):
            assert number == pytest.approx(was, rel=2e-4), f"run `make validate`: {row[0]}"


@cache
def rows_of(title):
    """What the code says today; nnU-Net's servers are simulated in both engines, for two tests."""
    return list(GROUPS[title].rows())


def numbers(row):
    """The simulated number, its interval and what was expected; the error and the verdict follow."""
    return [float(found) for cell in row[1:4] for found in re.findall(r"-?\d+(?:\.\d+)?(?:e[+-]\d+)?", cell)]


def test_the_measured_server_within_3_percent():
    rows = rows_of("A real server: nnU-Net on Triton")
    assert len(rows) == 32
    assert [row.what for row in rows if not abs(row.error) < 0.03] == []


SHARED = {  # groups with two instances on one GPU, the rows of these, and their mean absolute error
    "For plausibility: Triton's guide": ("two instances", 8, 5.4),
    "For plausibility: FastPitch on Triton, two instances on one GPU": ("", 64, 4.0),
    "For plausibility: TFT on Triton, two instances on one GPU": ("", 96, 10.3),
}


@pytest.mark.parametrize(("title", "rows", "count", "error"), [(t, *each) for t, each in SHARED.items()])
def test_two_instances_on_one_gpu_within_11_percent_from_one_number(title, rows, count, error):
    cells = [row for row in written(title) if rows in row[0] and "throughput" in row[0]]
    errors = [abs(float(row[4].strip(" %"))) for row in cells]
    assert len(errors) == count
    assert sum(errors) / count == pytest.approx(error, abs=0.05)
    assert error < 11
    assert f"{error} %" in re.sub(r"\s+", " ", GROUPS[title].text)


def test_a_row_can_disagree():
    wrong = validation.Row("x", ours=1.2, low=1.1, high=1.3, theirs=1)
    assert not wrong.agrees
    assert "DISAGREES" in str(wrong)
    assert validation.Row("x", ours=1.2, low=0.9, high=1.3, theirs=1).agrees
    assert validation.Row("x", ours=1.009, low=1.008, high=1.01, theirs=1).agrees


def test_the_published_figures_are_those_of_the_data(shared_data):
    rows = pandas.read_csv(shared_data / "measured_nnunet_triton.csv")
    for device, latencies_ms in published.NNUNET_MEAN_LATENCY_MS.items():
        assert rows.avg[rows.device == device].tolist() == list(latencies_ms)
    guide = pandas.read_csv(shared_data / "measured_triton_guide.csv")
    ours = published.GUIDE_NO_BATCHING + published.GUIDE_BATCHING + published.GUIDE_TWO_INSTANCES
    assert list(guide.iloc[:, 2:].itertuples(index=False, name=None)) == list(ours)
    others = (
        (
            "fastpitch",
            "batch_size",
            "inferences_per_s",
            published.FASTPITCH_STATIC_MS,
            published.FASTPITCH_PER_S,
        ),
        ("tft", "batch_per_request", "items_per_s", published.TFT_STATIC_MS, published.TFT_PER_S),
    )
    for name, size, per_s, static_ms, online in others:
        offline, two = (
            pandas.read_csv(shared_data / "validation" / f"{name}_triton_{kind}.csv").groupby("pair")
            for kind in ("offline", "two_instances")
        )
        for pair in online:
            assert dict(offline.get_group(pair)[[size, "avg_ms"]].values) == static_ms[pair]
            assert two.get_group(pair)[per_s].tolist() == list(online[pair])
    server = pandas.read_csv(shared_data / "validation" / "mlperf_v30_server.csv")
    for row, name in ((0, "A30, retinanet"), (4, "L4, resnet50")):
        _, *numbers, latencies_ms = published.MLPERF[name]
        assert server.iloc[row, [4, 5, 7, 8, 9, 10, 11]].tolist() == numbers
        assert server.iloc[row, 12:17].tolist() == list(latencies_ms)
    static = pandas.read_csv(shared_data / "published_latency.csv").query("model == 'nnUNet'")
    for device, table in published.NNUNET_STATIC_MS.items():
        points = static[(static.device == device) & (static.precision == "FP16")]
        assert {size: points.set_index("batch_size").latency_ms[size] for size in table} == table


def test_every_file_that_it_names_is_there():
    named = re.findall(r"`(batchsim/[\w/.]+)`", TEXT)
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []
