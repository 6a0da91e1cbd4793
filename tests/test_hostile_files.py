"""Files from strangers are read, or refused in a line, at little cost (`make attack` also edits examples)."""

import io
import os
import re
import subprocess
import sys

import pytest
from attack.configs import BOMBS, read_within

import batchsim as bs
from batchsim import servers
from batchsim._files import opened
from batchsim.scenario.trace_files import LONGEST_LINE

REFUSED = {
    "squares": "line 22, column 29: max_batch_size must be a literal value, got a * a",
    "aliases": "parts, those of aliases included, got more",
    "merge keys": "parts, those of aliases included, got more",
    "an alias of itself": "parts, those of aliases included, got more",
    "bare decorators": "f (line 5) and 2,995 more",
    "many commands": "line 5 and 6,995 more",
    "fields": "at most 30,000 words and signs",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", BOMBS)
def test_a_text_that_is_small_to_write_and_large_to_read_is_answered_at_once(name):
    outcome = read_within(BOMBS[name])
    if name in REFUSED:
        assert outcome == "refused"
        with pytest.raises(ValueError, match=re.escape(REFUSED[name])):
            servers.parse(BOMBS[name])


def test_ten_unknown_keys_are_named_and_the_others_counted():
    keys = "".join(f"k{n}: 1\n" for n in range(50))
    found = servers.parse(f"kind: InferenceService\nspec: {{predictor: {{batcher: {{}}}}}}\n{keys}")
    assert len(found.unknown) == 10
    assert found.notes == ("40 other unknown keys",)


def test_a_config_larger_than_a_megabyte_is_refused(tmp_path):
    path = tmp_path / "config.pbtxt"
    path.write_text("max_batch_size: 8" + " " * 2**20)
    with pytest.raises(ValueError, match=r"config.pbtxt must have at most 1 MiB, got 1 MiB or more$"):
        servers.read(path)
    with pytest.raises(ValueError, match=r"at most 1,048,576 characters, got 1,048,593$"):
        servers.parse(path.read_text())


READERS = {
    "config": servers.read,
    "scenario": bs.Scenario.from_toml,
    "trace": bs.Trace.from_csv,
    "lines": bs.Trace.from_jsonl,
    "parquet": bs.Trace.from_parquet,
    "lengths": bs.Tokens.from_csv,
    "measurement": bs.device.Measurement.load,
    "result": bs.Result.load,
}


@pytest.mark.skipif(os.name == "nt", reason="pipes and devices as on POSIX")
@pytest.mark.parametrize("name", READERS)
def test_a_pipe_and_a_device_are_refused_by_every_reader(name, tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(ValueError, match=r"pipe must be a regular file, got a pipe"):
        READERS[name](path)
    with pytest.raises(ValueError, match=r"/dev/zero must be a regular file, got a device"):
        READERS[name]("/dev/zero")


@pytest.mark.skipif(os.name == "nt", reason="/dev/stdin as on POSIX")
def test_standard_input_is_read_up_to_the_limit():
    code = "from batchsim._files import opened\nwith opened('/dev/stdin', 5) as file: print(file.read())"

    def answer(given):
        return subprocess.run([sys.executable, "-c", code], input=given, capture_output=True, check=False)

    assert answer(b"12345").stdout == b"b'12345'\n"
    assert b"at most 0.00000477 MiB, got 0.00000572 MiB or more" in answer(b"1234567").stderr


def test_a_file_is_opened_as_text_or_bytes(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"\xc3\xa4\r\n")
    with opened(path, 9) as file:
        assert file.read() == b"\xc3\xa4\r\n"
    with opened(path, 9, encoding="utf-8", newline="") as file:
        assert isinstance(file, io.TextIOWrapper)
        assert file.read() == "ä\r\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a." * 500_000 + "a = 1\n", r"line 1: a key must have at most 16 parts$"),
        ("[" + "a." * 500_000 + "a]\n", r"line 1: a key must have at most 16 parts$"),
        (f'"{"k" * 10_000_000}" = 1\n', r"no key 'k{30,40}\.\.\.k{30,40}"),
        ("a = " + "[" * 500_000 + "\n", r"recursion"),
    ],
)
def test_a_scenario_that_is_deep_or_long_is_refused_in_a_short_line(text, message):
    with pytest.raises(ValueError, match=message) as error:
        bs.Scenario.from_toml(text)
    assert len(str(error.value)) < 500


def test_a_line_of_a_trace_is_not_read_without_end(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text('{"t": 1}\n{"t": "' + "x" * LONGEST_LINE)
    with pytest.raises(ValueError, match=r"line 2: must have at most 1,048,576 letters"):
        bs.Trace.from_jsonl(path)
