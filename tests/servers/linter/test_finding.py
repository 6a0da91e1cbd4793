"""The lines of findings: each mark is on the line of the text that holds the parameter."""

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from places import DATA

import batchsim as bs
from batchsim import servers
from batchsim.servers.linter.finding import Outcome

FOLDER = DATA / "servers"
FILES = sorted(path for path in FOLDER.rglob("*") if path.is_file())
TRAFFIC = bs.Scenario(bs.Poisson(400), bs.SizeOrWait(8, 5), bs.Affine(5, 0.2))
FORMS = [(name, form.file) for name, server in servers.SERVERS.items() for form in server.formats]
# Arguments that are given by their place, so that the text does not have their names.
POSITIONAL = {
    ("sglang", "model_path"),
    ("tgi", "model_id"),
    ("vllm", "model"),
    ("tensorrt_llm", "model"),
    ("textbook", "max_batch_size"),
}
OTHER_NAMES = {"job_queue_size": "jobQueueSize", "dp_size": "dp", "model_path": "model"}


def holds(line, name):
    """Return whether a line of a text holds a key, in any of the formats' spellings."""
    words = [word.strip("_").removeprefix("no_") for word in re.findall(r"\w+", line.replace("-", "_"))]
    spelled = {name.rpartition(".")[2], name.lstrip("-").replace("-", "_"), OTHER_NAMES.get(name, name)}
    return bool({*words, *(word.lower() for word in words)} & spelled)


def check_places(config, text):
    lines = text.splitlines()
    for name, (line, _) in config.places.items():
        assert holds(lines[line - 1], name) or (config.server, name) in POSITIONAL, (name, lines[line - 1])


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_each_setting_and_unknown_key_of_an_example_has_the_place_of_its_name(path):
    config, text = servers.read(path), path.read_text()
    check_places(config, text)
    derived = {"gpus", "default_priority_level"}  # of several lines
    assert config.places.keys() >= config.unknown.keys() | config.settings.keys() - derived


@pytest.mark.parametrize(("name", "file"), FORMS)
@examples(max_examples=15, deadline=None)
@given(st.integers(1, 64), st.integers(1, 200), st.integers(0, 3))
def test_marks_are_on_the_line_of_the_parameter_in_every_format(name, file, size, wait_ms, more):
    try:
        written = servers.write(name, bs.SizeOrWait(size, wait_ms), file)
    except ValueError:
        return
    text = "\n".join(["", *written.splitlines()] if more and not written.startswith("models") else [written])
    config = servers.parse(text, name)
    check_places(config, text)
    found = servers.lint(config, TRAFFIC, requests=2000)
    for each in [*found, *found.notes]:
        for line in found.lines(each):
            assert any(holds(text.splitlines()[line - 1], setting) for setting in each.about)
        if not found.lines(each):
            assert not config.places.keys() & {*each.about}


def test_the_printed_and_the_plain_answer_name_the_line():
    config = servers.parse("\nmaxBatchDelay: 900\nbatchSize: 8\nbatchDelay: 3\n")
    found = servers.lint(config, TRAFFIC, requests=5000)
    assert re.search(r"^1\. line 2: \S+: maxBatchDelay=900 ", repr(found), re.MULTILINE)
    assert "note: line 4: torchserve does not have batchDelay" in repr(found)
    assert "line 2: maxBatchDelay" in found._repr_html_()
    answer = json.loads(json.dumps(found.to_dict()))
    assert (answer["findings"][0]["lines"], answer["notes"][0]["lines"]) == ([2], [4])


def test_a_finding_about_a_setting_that_is_left_out_has_no_line():
    found = servers.lint(servers.parse("batchSize: 8"), TRAFFIC, requests=5000)
    assert found[0].about == ("maxBatchDelay",)
    assert found.lines(found[0]) == ()


def test_settings_in_comments_have_lines_too():
    config = servers.parse("# a\n#  batchsim: handler='blocking'\n@serve.batch(max_batch_size=8)")
    assert config.places["handler"] == (2, 1)


def test_a_config_equals_one_that_was_not_read():
    config = servers.parse("batchSize: 8\nminWorkers: 2")
    assert config == servers.config("torchserve", batchSize=8, minWorkers=2)


def test_findings_print_for_people_and_for_programs():
    scenario = bs.Scenario(bs.Poisson(500), bs.SizeOrWait(1, 0), bs.Affine(1.8874, 0.1438))
    found = servers.lint(servers.config("kserve"), scenario)
    text, page = repr(found), found._repr_html_()
    for each in ("wait-default", "maxLatency=1", found[0].proof, found[0].gain):
        assert each in text
        assert each in page
    assert found.to_frame()["code"].tolist() == ["wait-default"]
    assert found.to_dict()["findings"][0]["change"] == {"maxLatency": 1}
    assert "nothing found" in repr(servers.lint(servers.config("triton", max_batch_size=8), scenario))
    assert found[0].code in str(found[0])
    assert found[:1] == found.findings
    table = found.settings()
    assert table.settings.tolist() == ["as they are", found[0].advice]
    assert table.p99_ms.tolist() == [found[0].value, found[0].changed_value]
    assert table.outcome.tolist() == ["now", "wait-default"]
    assert found.to_dict()["settings"] == table.to_dict("records")


@pytest.mark.parametrize("last", ["alone", "in full batches"])
def test_without_an_interval_a_change_must_help_in_each_part_of_a_run(last):
    alone = np.arange(600) * 0.03  # a wait delays each of these
    parts = [alone, alone + 20, alone + 40, alone if last == "alone" else np.repeat(np.arange(75) * 0.1, 8)]
    traffic = bs.Trace(np.concatenate([*parts[:3], parts[3] + 60]))
    waits, leaves = (
        Outcome({}, bs.Scenario(traffic, bs.SizeOrWait(8, wait_ms), bs.Affine(5, 0.25)), bs.simulate)
        for wait_ms in (20, 0)
    )
    assert leaves.p99_ms < waits.p99_ms / 3
    assert leaves.beats(waits, 0.2) is (last == "alone")
