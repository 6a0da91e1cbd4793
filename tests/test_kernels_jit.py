"""How the loops are compiled."""

import os

import pytest

from batchsim.engines.kernels_jit import follow

OLD, NEW = 1_600_000_000 * 10**9, 1_700_000_000 * 10**9  # ns


def a_file(folder, name, text, mtime_ns):
    path = folder / f"{name}.py"
    path.write_text(text)
    os.utime(path, ns=(mtime_ns, mtime_ns))
    return str(path)


@pytest.fixture
def files(tmp_path):
    """Two files by their time."""
    return {mtime_ns: a_file(tmp_path, f"of_{mtime_ns}", "", mtime_ns) for mtime_ns in (OLD, NEW)}


def mtime_ns(path):
    return os.stat(path).st_mtime_ns


@pytest.mark.parametrize("order", [(OLD, NEW), (NEW, OLD)])
def test_a_file_that_is_older_than_any_of_its_sources_becomes_as_new(tmp_path, files, order):
    loop = a_file(tmp_path, "loop", "", OLD + 1)
    follow(loop, *(files[time] for time in order))
    assert mtime_ns(loop) == NEW


@pytest.mark.parametrize("time_ns", [NEW, NEW + 1])
def test_a_file_that_is_as_new_as_its_sources_is_left_alone(tmp_path, files, time_ns, monkeypatch):
    loop = a_file(tmp_path, "loop", "", time_ns)
    monkeypatch.setattr(os, "utime", lambda *_, **__: pytest.fail("the file was touched"))
    follow(loop, *files.values())
    assert mtime_ns(loop) == time_ns


def test_a_file_that_may_not_be_changed_stays_without_a_word(tmp_path, files, monkeypatch):
    def refuse(path, **_):
        raise PermissionError(f"not yours: {path}")

    loop = a_file(tmp_path, "loop", "", OLD)
    monkeypatch.setattr(os, "utime", refuse)
    follow(loop, files[NEW])
    assert mtime_ns(loop) == OLD
