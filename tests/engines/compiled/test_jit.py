"""The loops are compiled, cached and announced."""

import ast
import errno
import importlib
import os
import sys
import time
from pathlib import Path

import pytest
import runs
from one_compiles import take_turns

import batchsim as bs
from batchsim.engines.compiled import jit

PACKAGE = Path(bs.__file__).parent

LOOP = """
from batchsim.engines.compiled.jit import compiled


@compiled
def one():
    return 1


@compiled
def two():
    return 2


@compiled
def twice(x):
    return 2 * x
"""


@pytest.fixture
def loop(tmp_path, monkeypatch):
    """A function that returns a loop of a file, as a process that begins finds it."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "a_loop.py").write_text(LOOP)

    def begin():
        importlib.invalidate_caches()
        sys.modules.pop("a_loop", None)
        found = importlib.import_module("a_loop").one
        assert found() == 1
        return found

    yield begin
    sys.modules.pop("a_loop", None)  # the next test's is another file


def loaded(barrier, folder, found):
    """As a worker of pytest-xdist: whether a loop that others need at the same time is loaded."""
    sys.path.insert(0, str(folder))
    save = jit._Cache.save_overload
    jit._Cache.save_overload = lambda *arguments: (time.sleep(0.5), save(*arguments))  # it compiles for long
    take_turns()
    barrier.wait()
    loop = importlib.import_module("a_loop").one
    loop()
    found.put(sum(loop.stats.cache_hits.values()))


def test_of_workers_that_need_a_loop_at_once_one_compiles_it(tmp_path):
    (tmp_path / "a_loop.py").write_text(LOOP)
    barrier, found = runs.processes.Barrier(2), runs.processes.Queue()
    workers = [runs.processes.Process(target=loaded, args=(barrier, tmp_path, found)) for _ in range(2)]
    for worker in workers:
        worker.start()
    assert sorted(found.get() for _ in workers) == [0, 1]
    for worker in workers:
        worker.join()


@pytest.fixture
def nothing_printed(monkeypatch):
    """As in a process that begins."""
    monkeypatch.setattr(jit._announcer, "printed", set())


def test_a_loop_is_kept_until_any_file_of_the_loops_says_something_else(loop, monkeypatch):
    assert not loop().stats.cache_hits
    assert loop().stats.cache_hits
    monkeypatch.setattr(jit, "SOURCES", "of another version")
    assert not loop().stats.cache_hits
    assert loop().stats.cache_hits


def test_whether_a_loop_is_on_disk_is_known_without_a_call(loop, monkeypatch):
    fresh = importlib.import_module("a_loop").one
    assert not jit.is_kept(fresh)
    assert fresh() == 1
    assert jit.is_kept(loop())
    monkeypatch.setattr(jit, "SOURCES", "of another version")
    sys.modules.pop("a_loop")
    assert not jit.is_kept(importlib.import_module("a_loop").one)


def test_a_listener_that_raises_prevents_the_compilation(nothing_printed, capfd):
    def loop():
        return 1

    def refuse(text):
        raise KeyError(text)

    loop.__module__ = "batchsim.engines.a_loop"
    compiled = jit.compiled_uncached(loop)
    for _ in range(2):  # and the next one is announced as well
        with pytest.raises(KeyError, match="is compiling"), jit.announcing(refuse):
            compiled()
    assert compiled.signatures == []
    told = []
    with jit.announcing(told.append):
        assert compiled() == 1
    assert len(told) == 1
    assert capfd.readouterr().err == ""


def test_a_loop_is_not_kept_where_it_cannot_be_said_for_which_files(loop, monkeypatch):
    monkeypatch.setattr("numba.core.caching.FunctionCache.__init__", lambda *_: None)  # another Numba's
    assert not loop().stats.cache_hits
    assert not loop().stats.cache_hits


def test_a_loop_runs_where_nothing_can_be_kept_on_disk(loop, monkeypatch):
    # Numba finds no folder for its cache: an installation and a home that are read-only.
    monkeypatch.setattr("numba.core.caching.CacheImpl._locator_classes", [])
    assert loop().stats.cache_path is None
    assert not loop().stats.cache_hits


def the_file_of(found):
    (path,) = Path(found.stats.cache_path).glob("a_loop.one*")
    return path


def flipped(content, place):
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


DAMAGE = {
    "empty": lambda content: b"",
    "cut": lambda content: content[:1000],
    "garbage": lambda content: bytes(range(256)) * 20,
    "a bit of the code": lambda content: flipped(content, len(content) // 2),
    "a bit of the checksum": lambda content: flipped(content, 40),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_loop_is_never_run_but_compiled_again_and_repaired(loop, capfd, nothing_printed, how):
    path = the_file_of(loop())
    path.write_bytes(DAMAGE[how](path.read_bytes()))
    assert not loop().stats.cache_hits
    assert "damaged" in capfd.readouterr().err
    assert loop().stats.cache_hits
    assert capfd.readouterr().err == ""


def test_a_loop_of_other_sources_is_not_run_however_its_file_is_named(
    loop, monkeypatch, capfd, nothing_printed
):
    path = the_file_of(loop())
    content = path.read_bytes()
    monkeypatch.setattr(jit, "SOURCES", "of another version")
    assert the_file_of(loop()) == path
    path.write_bytes(content)
    assert not loop().stats.cache_hits
    assert capfd.readouterr().err == ""


def test_files_in_each_others_place_are_not_run(loop, capfd, nothing_printed):
    def called():
        module = sys.modules[loop().py_func.__module__]
        assert (module.twice(3), module.twice(1.5)) == (6, 3.0)
        return module.twice.stats

    assert not called().cache_hits
    assert sum(called().cache_hits.values()) == 2
    one, other = Path(called().cache_path).glob("a_loop.twice*")
    contents = one.read_bytes(), other.read_bytes()
    one.write_bytes(contents[1])
    other.write_bytes(contents[0])
    assert not called().cache_hits
    (path,) = Path(called().cache_path).glob("a_loop.one*")
    path.write_bytes(contents[0])
    assert not loop().stats.cache_hits
    assert sys.modules["a_loop"].two() == 2  # of the same signature and bytecode
    (other,) = path.parent.glob("a_loop.two*")
    path.write_bytes(other.read_bytes())
    assert not loop().stats.cache_hits
    assert capfd.readouterr().err == ""


def test_where_a_loop_cannot_be_read_nor_written_it_is_compiled_each_time_and_that_is_said_once(
    loop, capfd, nothing_printed
):
    path = the_file_of(loop())
    path.unlink()
    path.mkdir()
    for expected in (2, 0):
        assert not loop().stats.cache_hits
        assert capfd.readouterr().err.count("batchsim's compiled engine") == expected
    path.rmdir()
    assert not loop().stats.cache_hits
    assert loop().stats.cache_hits


def test_a_full_disk_keeps_no_loop_and_stops_no_run(loop, monkeypatch, capfd, nothing_printed):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    assert not loop().stats.cache_hits
    assert not loop().stats.cache_hits
    said = capfd.readouterr().err
    assert said.count("No space left") == said.count("NUMBA_CACHE_DIR") == 1


def test_a_part_is_compiled_once_whatever_numbers_its_callers_pass():
    @jit.inlined
    def part(server, leaves):
        return server if leaves else -server

    @jit.compiled_uncached
    def whole(count):
        server, total = 0, part(7, leaves=True)
        while server < count:
            total += part(server, False)
            server += 1
        return total

    assert whole(4) == 7 - 1 - 2 - 3
    assert len(part.overloads) == 1


@pytest.mark.parametrize("as_part", [jit.inlined, jit.called])
def test_a_part_has_no_entry_for_python_which_runs_it_as_it_is(as_part):
    @as_part
    def part(number):
        return number + 1

    @jit.compiled_uncached
    def whole(number):
        return part(number)

    assert whole(4) == 5 == part(4)
    (code,) = part.overloads.values()
    wrappers = {code.fndesc.llvm_cpython_wrapper_name, code.fndesc.llvm_cfunc_wrapper_name}
    assert not wrappers & {function.name for function in code.library.get_defined_functions()}


def test_the_digest_is_of_every_file_of_which_a_loop_can_contain_code_or_constants():
    files = jit.sources()
    loops = [file for file in files if "compiled.jit import compiled" in file.read_text()]
    assert len(loops) >= 3
    imported = {
        node.module
        for file in loops
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module.startswith("batchsim")
    }
    assert "batchsim.engines.compiled.threshold" in imported
    modules = {".".join(("batchsim", *file.relative_to(PACKAGE).with_suffix("").parts)) for file in files}
    assert imported <= modules
    rules = {f"batchsim.scenario.rules.{rule.__module__.rpartition('.')[2]}" for rule in bs.scenario.RULES}
    assert rules <= modules


def test_the_digest_is_of_what_the_files_say(tmp_path):
    for folder in ("here", "there"):
        for file in jit.sources():
            copy = tmp_path / folder / file.relative_to(PACKAGE)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(file.name)
    here, there = (jit.sources(tmp_path / folder / "engines" / "compiled") for folder in ("here", "there"))
    assert jit.digest(here) == jit.digest(there)
    (tmp_path / "there" / "engines" / "log.py").write_text("another")
    assert jit.digest(here) != jit.digest(there)


# In a notebook, compiling shows a line of its cell; stderr would look like an error.

LOOPS = """
from batchsim.engines.compiled.jit import compiled_uncached

def loop(function):
    function.__module__ = "batchsim.engines.a_loop"
    return compiled_uncached(function)
"""
TWO = "loop(lambda x: x + 1)(1), loop(lambda x: x + 2)(1)"


@pytest.fixture
def run():
    """A function that runs a cell in a real kernel, and returns what it shows, and how it ended."""
    manager = pytest.importorskip("jupyter_client.manager")
    kernel, client = manager.start_new_kernel()
    shown = []

    def hook(message):
        if message["msg_type"] in ("stream", "display_data", "update_display_data", "error"):
            shown.append((message["msg_type"], message["content"]))

    def run(source):
        shown.clear()
        reply = client.execute_interactive(source, output_hook=hook, timeout=120)
        assert reply["content"]["status"] == "ok", shown
        return list(shown)

    yield run
    client.stop_channels()
    kernel.shutdown_kernel(now=True)


def test_a_notebook_shows_one_line_a_cell_that_settles_to_how_long_it_took(run):
    run(LOOPS)
    for _ in range(2):
        shown = run(TWO)
        kinds, contents = zip(*shown, strict=True)
        assert kinds == ("display_data", *3 * ["update_display_data"])
        assert len({content["transient"]["display_id"] for content in contents}) == 1
        texts = [content["data"]["text/plain"] for content in contents]
        assert [text.split()[0] for text in texts] == ["Compiling", "Compiled"] * 2
        first_s, both_s = (float(texts[place].split()[-2]) for place in (1, 3))
        assert 0 <= first_s <= both_s
        assert all(content["data"]["text/html"].startswith("<span") for content in contents)
    assert run("loop(lambda x: x)") == []


def test_outside_a_notebook_it_is_a_line_on_stderr(capfd, nothing_printed):
    exec(f"{LOOPS}\n{TWO}\n", {})
    assert capfd.readouterr().err.count("batchsim is compiling its engine") == 1
