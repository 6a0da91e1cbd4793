"""In a notebook compiling is a line of its cell that settles, and nothing on stderr, shown as an error."""

import pytest

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
        assert "about 1 s …" in texts[0]
        assert "about 1 s more …" in texts[2]
        first_s, both_s = (float(texts[place].split()[-2]) for place in (1, 3))
        assert 0 <= first_s <= both_s
        assert all(content["data"]["text/html"].startswith("<span") for content in contents)
    assert run("loop(lambda x: x)") == []


def test_outside_a_notebook_it_is_a_line_on_stderr(capfd, monkeypatch):
    from batchsim.engines.compiled import jit

    monkeypatch.setattr(jit._announcer, "printed", set())
    namespace = {}
    exec(f"{LOOPS}\n{TWO}\n", namespace)
    assert capfd.readouterr().err.count("batchsim is compiling its engine") == 1
