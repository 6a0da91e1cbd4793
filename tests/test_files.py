"""Files are written whole or not at all; those of strangers are read, or refused in a line."""

import ast
import errno
import io
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from attack.configs import BOMBS, read_within
from imported import FILES, ROOT
from places import DATA

import batchsim as bs
from batchsim import servers
from batchsim._files import LONGEST_LINE, opened, replacing

POSIX = pytest.mark.skipif(os.name == "nt", reason="links, pipes and modes as on POSIX")


def write(path, content=b"new"):
    with replacing(path) as file:
        file.write(content)


def write_half(path):
    with replacing(path) as file:
        file.write(b"ne")
        file.write(1 / 0)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_in_one_step(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")
    with replacing(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["a.txt"]


def test_an_older_file_stays_where_writing_fails(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError):
        write_half(path)
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a.txt"]


def test_an_error_of_writing_names_the_file_that_was_asked_for(tmp_path):
    path = tmp_path / "a.txt"
    with pytest.raises(OSError, match=r"No space.*a\.txt"), replacing(path):
        raise OSError(errno.ENOSPC, "No space")  # as of a full disk
    with pytest.raises(OSError, match=r"b\.txt"), replacing(path):  # an error of reading another is left
        (tmp_path / "b.txt").read_bytes()
    with pytest.raises(FileNotFoundError, match=r"no/a\.txt'$"), replacing(tmp_path / "no" / "a.txt"):
        pass
    assert names(tmp_path) == []


def test_an_error_of_a_read_only_place_names_the_file_that_was_asked_for(tmp_path, monkeypatch):
    def refuse(path, *_, **__):  # such a place refuses to remove even what is not there
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    for name in ("open", "unlink"):
        monkeypatch.setattr(Path, name, refuse)
    with pytest.raises(OSError, match=r"Read-only.*a\.txt'$"):
        write(tmp_path / "a.txt")


@POSIX
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o444])
def test_a_file_keeps_its_mode_and_is_never_open_to_more(tmp_path, mode):
    path = tmp_path / "a.txt"
    path.touch()
    path.chmod(mode)
    with replacing(path) as file:
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == mode
        file.write(b"new")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", mode)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files to others")
def test_a_file_keeps_its_owner(tmp_path):
    path = tmp_path / "a.txt"
    path.touch()
    os.chown(path, 12345, 54321)
    write(path)
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 54321)


@POSIX
@pytest.mark.parametrize("there", [True, False])
def test_a_link_is_followed(tmp_path, there):
    folder, link = tmp_path / "of another name", tmp_path / "link"
    folder.mkdir()
    if there:
        (folder / "a.txt").write_bytes(b"old")
    link.symlink_to("of another name/a.txt")
    write(link)
    assert link.is_symlink()
    assert (folder / "a.txt").read_bytes() == b"new"
    assert (names(folder), names(tmp_path)) == (["a.txt"], ["link", "of another name"])


@POSIX
@pytest.mark.parametrize("linked", [True, False])
def test_a_device_is_written_to(tmp_path, linked):
    ours, device = os.openpty()  # not /dev/null, which a mistake made as root would replace
    os.set_blocking(ours, False)
    path, link = os.ttyname(device), tmp_path / "link"
    if linked:
        link.symlink_to(path)
    write(link if linked else path)
    assert os.read(ours, 99) == b"new"
    assert stat.S_ISCHR(os.stat(path).st_mode)
    assert link.is_symlink() == linked
    os.close(ours)
    os.close(device)


@POSIX
def test_a_pipe_gets_everything_or_nothing(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(ZeroDivisionError):
        write_half(path)
    assert os.read(reader, 99) == b""
    with replacing(path) as file:
        file.write(b"xxxx")
        file.seek(0)  # as a zip does
        file.write(b"new")
    assert os.read(reader, 99) == b"newx"
    os.close(reader)
    assert names(tmp_path) == ["pipe"]


@POSIX
@pytest.mark.parametrize("name", ["/dev/fd/1", "out.txt"])
def test_the_file_that_our_output_goes_to_is_added_to(tmp_path, name):
    code = (
        "from batchsim._files import replacing\nprint('one', flush=True)\n"
        f"with replacing({name!r}) as file: file.write(b'two\\n')\nprint('three')"
    )
    with (tmp_path / "out.txt").open("w") as out:
        subprocess.run([sys.executable, "-c", code], stdout=out, cwd=tmp_path, check=True)
    assert (tmp_path / "out.txt").read_text().split() == ["one", "two", "three"]
    assert names(tmp_path) == ["out.txt"]


def test_a_folder_is_no_file(tmp_path):
    (tmp_path / "a folder").mkdir()
    with pytest.raises(OSError, match="a folder"):
        write(tmp_path / "a folder")
    assert names(tmp_path) == ["a folder"]


@pytest.mark.parametrize("path", [1, 1.5, None, b"a.txt"])
def test_a_file_has_a_path(path):
    with pytest.raises(TypeError, match="path must be a file's path, got"):
        write(path)


# Files from strangers are read, or refused in a line, at little cost (`make attack` also edits examples).


REFUSED = {
    "squares": "line 23, column 14: max_batch_size must be a literal value, got a19 * a19",
    "aliases": "parts, those of aliases included, got more",
    "merge keys": "parts, those of aliases included, got more",
    "an alias of itself": "parts, those of aliases included, got more",
    "bare decorators": "f (line 5) and 2,995 more",
    "many commands": "line 5 and 6,995 more",
    "many words": "a script must have at most 30,000 words, got more",
    "many manifests": "a script must have at most 100,000 letters and 2,000 signs, got 28,010 and 5,600",
    "open arrays": "at most 100,000 letters and 2,000 signs, got 27,010 and 9,000",
    "open pipes": "at most 100,000 letters and 2,000 signs, got 18,010 and 9,000",
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
    "lengths in lines": bs.Tokens.from_jsonl,
    "measurement": bs.device.Measurement.load,
    "times": bs.device.Measurement.from_csv,
    "load test": bs.load_test,
    "progress": bs.teaching.progress_store.read,
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


LENGTHS = '{"input_length": 9, "output_length": 9, "hash_ids": [1]}\n'
VLLM = json.loads((DATA / "load_tests" / "vllm_10.json").read_text())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config", b"max_batch_size: \xff", "UTF-8"),
        ("scenario", b"servers = \xff", "must be text in UTF-8, got invalid start byte"),
        ("trace", b"PAR1\xff", "must be text in UTF-8, got Parquet"),
        ("trace", b'"' + b"x" * 200_000, "line 1: must be CSV, got field larger than field limit"),
        ("trace", b"t\n" + b"x" * LONGEST_LINE, "line 2: must have at most 1,048,576 letters"),
        ("lines", b'{"t": 1}\n{"t": "' + b"x" * LONGEST_LINE, "line 2: must have at most 1,048,576 letters"),
        ("lines", b"[" * 3000, r"line 1: must be JSON, got '\[.*nested too deeply"),
        ("lengths", b"ContextTokens,GeneratedTokens\n1,\xff", "must be text in UTF-8"),
        ("lengths", b"ContextTokens,GeneratedTokens\n0,1\n", "line 2: must be a whole number from 1 to"),
        ("lengths", b"ContextTokens,GeneratedTokens\n9,x\n", "line 2: must be a whole number .*, got 'x'"),
        ("lengths", b'ContextTokens,GeneratedTokens\n9,"' + b"9" * 200_000, "line 2: must be CSV"),
        ("lengths in lines", LENGTHS.encode() + b'{"a": ' * 3000, "line 2: must be JSON"),
        ("lengths in lines", LENGTHS.encode() + b"{}", "line 2: must have the key 'input_length'"),
        ("lengths in lines", LENGTHS.replace("[1]", "3").encode(), "ids must be a list of whole numbers"),
        ("lengths in lines", b"\xff", "must be text in UTF-8"),
        ("measurement", b"[" * 3000, "must be JSON, got .*nested too deeply"),
        ("times", b"batch_size,ms\n1,\xff", "must be text in UTF-8"),
        ("times", b"a," * 9000 + b"a\n" + b"1," * 9000 + b"1\n", "columns must differ, got a, a, .* more"),
        ("load test", b"[" * 3000, "must be JSON, got .*nested too deeply"),
        ("load test", b'{"benchmarks": \xff', "must be text in UTF-8"),
        ("load test", b'Concurrency,"' + b"9" * 200_000, "line 1: must be CSV"),
        ("load test", b"Concurrency,Inferences/Second\n\xff", "must be text in UTF-8"),
        ("load test", json.dumps(VLLM | {"completed": 10**400}).encode(), "at most 300 digits, got 401"),
        (
            "load test",
            b'{"request_latency": {"avg": 1, "p50": 1}, "input_config": ' + b"[" * 400 + b"]" * 400 + b"}",
            "what its tool writes",
        ),
        ("progress", b"[" * 3000, "nested too deeply"),
        ("progress", b"\xff", "must be JSON"),
        ("result", b"PK", "must be a saved result"),
    ],
)  # fmt: skip
def test_every_reader_names_the_file_that_it_refuses(name, content, message, tmp_path):
    path = tmp_path / "from a stranger"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"from a stranger.*{message}") as error:
        READERS[name](path)
    assert len(str(error.value)) < 500


# What may open a file, or read JSON or CSV by itself.
READS = {
    "open", "read_text", "read_bytes", "fromfile", "genfromtxt", "loadtxt", "memmap", "read_csv", "read_json",
    "read_parquet", "read_table", "ParquetFile", "ZipFile", "reader", "DictReader", "np.load", "json.load",
    "json.loads", "tomllib.load",
}  # fmt: skip
ELSEWHERE = {  # where a module does so, and with what
    "the package's own files": """web/course_files.py cli/files.py engines/compiled/jit.py
        measured/published.py teaching/output_capture.py servers/formats/document.py view/explorer/player.py
        view/explorer/main_picture.py view/scripts.py web/descriptions.py web/notebook.py web/page.py
        web/wasm.py""",
    "locks, folders and the system's files": """cli/__init__.py engines/estimates.py study/store.py
        teaching/progress_store.py view/explorer/ahead.py""",
    "no file": """__main__.py web/app/classroom.py cli/course.py servers/torchserve.py
        view/explorer/explorer.py""",
    "what `opened` yields": "result/storage.py scenario/trace_files.py",
}


def test_one_function_opens_all_files_and_one_reads_json_and_one_csv():
    found = set()
    for path in FILES.values():
        calls = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
        written = {ast.unparse(call.func) for call in calls}
        if READS & {*written, *(each.rpartition(".")[2] for each in written)}:
            found.add(path.relative_to(ROOT).as_posix())
    assert found == {"_files.py", *" ".join(ELSEWHERE.values()).split()}
