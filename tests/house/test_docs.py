"""The documents that have a form: the path to read in docs/architecture.md, and CHANGELOG.md."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PATH = (
    "batcher.py", "scenario/rules/size_or_wait.py", "cli/scenario.toml", "engines/reference/instants.py",
    "simulate.py", "engines/totals.py", "result/standard_error.py", "view/pictures/batches.py",
    "view/explorer/knob.py", "teaching/exercises/why_batch.py",
)  # fmt: skip
KINDS = "Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"


def test_the_path_to_read_is_ten_files_of_about_as_many_lines_as_it_states():
    text = (ROOT / "docs" / "architecture.md").read_text()
    section = text.partition("## Ten files to read")[2].partition("\n## ")[0]
    lines = [len((ROOT / "batchsim" / name).read_text().splitlines()) for name in PATH]
    assert re.findall(r"^\| `(.+?)` \|", section, re.MULTILINE) == list(PATH)
    (told,) = re.findall(r"^About ([\d,]+) lines", section, re.MULTILINE)
    assert abs(sum(lines) - int(told.replace(",", ""))) <= 50
    assert sum(lines) <= 1550


def test_the_changelog_lists_each_change_in_one_line_by_version_and_kind():
    versions = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1:]
    for version in versions:
        assert re.match(r"\d+\.\d+\.\d+ \((unreleased|\d{4}-\d\d-\d\d)\)\n", version)
        for part in re.split(r"^### ", version, flags=re.MULTILINE)[1:]:
            kind, *lines = part.splitlines()
            assert kind in KINDS
            changes = [line for line in lines if line.startswith("- ")]
            told = [line for line in lines if line and line not in changes]
            assert all(len(line) <= 160 for line in changes)
            assert len(told) <= 1, f"a line that is neither a change nor the one above all: {told[-1]}"
