"""VALIDATION.md says what the code says today, and its claims hold."""

import re
from pathlib import Path

import pandas
import pytest
from oracles import published, validation

TEXT = (Path(__file__).parent.parent / "VALIDATION.md").read_text()
GROUPS = {group.title: group for group in validation.GROUPS}
# Those that cost seconds are recomputed by `make validate` alone.
QUICK = (
    "A minimum batch size",
    "The textbook rule with a wait",
    "A real server: nnU-Net on Triton",
    "For plausibility: Triton's guide",
)


def written(title):
    """The rows of a group in VALIDATION.md, as lists of cells."""
    section = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE)[1]
    return [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")][1:]


def test_every_group_stands_in_it_in_order_and_nothing_else():
    titles = re.findall(r"^## (.+)$", TEXT, re.MULTILINE)
    assert titles == [*GROUPS, "What this model leaves out"]
    for group in GROUPS.values():
        assert group.text in TEXT
        assert written(group.title)


def test_every_row_that_claims_agrees():
    assert "DISAGREES" not in TEXT
    assert TEXT.count("| agrees |") > 130


@pytest.mark.parametrize("title", QUICK)
def test_it_is_not_stale(title):
    rows = [str(row).strip("|").split("|") for row in GROUPS[title].rows()]
    for row, then in zip(rows, written(title), strict=True):
        assert row[0] == then[0]
        for number, was in zip(numbers(row), numbers(then), strict=True):
            assert number == pytest.approx(was, rel=2e-4), f"run `make validate`: {row[0]}"


def numbers(row):
    """The simulated number, its interval and what was expected; the error and the verdict follow."""
    return [float(found) for cell in row[1:4] for found in re.findall(r"-?\d+(?:\.\d+)?(?:e[+-]\d+)?", cell)]


@pytest.mark.parametrize(
    "row", list(GROUPS["A real server: nnU-Net on Triton"].rows()), ids=lambda row: row.what
)
def test_the_measured_server_within_3_percent(row):
    assert abs(row.error) < 0.03


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
    static = pandas.read_csv(shared_data / "published_latency.csv").query("model == 'nnUNet'")
    for device, table in published.NNUNET_STATIC_MS.items():
        points = static[(static.device == device) & (static.precision == "FP16")]
        assert {size: points.set_index("batch_size").latency_ms[size] for size in table} == table


def test_every_file_that_it_names_is_there():
    named = re.findall(r"`(batchsim/[\w/.]+)`", TEXT)
    assert named
    assert [path for path in named if not (Path(__file__).parent.parent / path).exists()] == []
