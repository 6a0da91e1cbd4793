"""The build of the page's module says its steps, and compiles only what has changed."""

import subprocess
import sys

import pytest

from batchsim import _clock
from batchsim.web import wasm
from batchsim.web.entries import entries

CODE = '"""A rule."""\n\nX = 1  # why\n\n\ndef rule(x):\n    """Return it."""\n    return x + X\n'


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (CODE.replace("why", "because"), True),
        (CODE.replace("Return it.", "Return the sum."), True),
        (CODE.replace("A rule", "The rule").replace("\n\n\n", "\n"), True),
        (CODE.replace("X = 1", "X = 2"), False),
        (CODE.replace("x + X", "X + x"), False),
        (CODE.replace("x + X", "'Return it.'"), False),
    ],
)
def test_the_module_is_built_again_for_other_code_and_not_for_other_comments(
    tmp_path, monkeypatch, other, same
):
    source, built = tmp_path / "rule.py", []
    monkeypatch.setattr(wasm, "sources", lambda: [source])
    monkeypatch.setattr(wasm, "build", lambda **_: built.append(1) or b"module")
    files = set()
    for text in (CODE, other):
        source.write_text(text)
        files.add(wasm.built(tmp_path / "build"))
    assert (len(built), len(files)) == ((1, 1) if same else (2, 2))


def test_the_code_of_a_module_is_the_same_in_each_version_of_python():
    tree = wasm.ast.parse("def f(): pass")  # from 3.12 on a function has type parameters, here none
    nothing = ("arguments",)
    assert wasm.plain(tree) == (
        "Module",
        ("body", [("FunctionDef", ("name", "f"), ("args", nothing), ("body", [("Pass",)]))]),
    )


@pytest.fixture
def few(monkeypatch):
    """Two entries: one alone reads the clock."""
    few = {name: entries()[name] for name in ("draw", "stretch")}
    monkeypatch.setattr("batchsim.web.entries.entries", lambda *_: dict(few.items()))
    return few


def test_each_step_is_printed_before_it_begins(tmp_path, monkeypatch, capsys, few):
    said, compiled_entry = [], wasm.compiled_entry

    def heard(*of):
        said.append(capsys.readouterr().out)
        return compiled_entry(*of)

    monkeypatch.setattr(wasm, "compiled_entry", heard)
    wasm.main(str(tmp_path / "module.wasm"), str(tmp_path), "SizeOrWait")
    assert said == ["compiling draw, 1 of 2\n", "compiling stretch, 2 of 2\n"]


def other_code(of):
    """Let the code of a file be other, as after an edit."""
    code_of = wasm.code_of
    return wasm, "code_of", lambda text: code_of(text) + "other" * (of in text)


# What is changed: a constant of the clock, its code, that of a file that chooses what is compiled, the types.
CHANGED = {
    "nothing": ((wasm, "LARGEST", 5), []),
    "constant": ((_clock, "WHOLE", 2.0**51), ["draw", "stretch"]),
    "code": (other_code("def later("), ["stretch"]),
    "code that no entry calls": (other_code("def generate("), []),
    "overloads": (other_code("@overload(decide"), ["draw", "stretch"]),
    "entries": (other_code("def draw("), ["draw", "stretch"]),
    "versions": ((wasm.importlib.metadata, "version", lambda name: "0.99"), ["draw", "stretch"]),
}


@pytest.mark.parametrize("what", CHANGED)
def test_only_the_loops_whose_code_has_changed_are_compiled_again(what, tmp_path, monkeypatch, capsys, few):
    first = wasm.module_of(few, tmp_path)
    capsys.readouterr()
    change, compiled = CHANGED[what]
    monkeypatch.setattr(*change)
    again = wasm.module_of(few, tmp_path)
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[1][:-1] for line in said if line.startswith("compiling")] == compiled
    assert len(said) == len(few)
    if not compiled:
        assert again == first


TWO_WORKERS = """
import sys
from pathlib import Path
from batchsim.web import wasm
from batchsim.web.entries import entries
wasm.MANY = 1
few = {name: entries()[name] for name in ("draw", "stretch")}
made = wasm.module_of(few, Path(sys.argv[1]), workers=2)
print(made == wasm.module_of(few, Path(sys.argv[1], "alone")))
"""


@pytest.mark.skipif(not hasattr(wasm.os, "fork"), reason="workers are forks")
def test_several_workers_make_the_same_module(tmp_path):
    # In a process of its own: a fork of this one would have JAX's threads.
    told = subprocess.run(
        [sys.executable, "-c", TWO_WORKERS, tmp_path], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.splitlines()
    assert sorted(told[:2]) == ["compiling draw, 1 of 2", "compiling stretch, 2 of 2"]
    assert told[2:4] == ["unchanged: draw, 1 of 2", "unchanged: stretch, 2 of 2"]
    assert told[-1] == "True"


@pytest.mark.parametrize("content", ["", "{}", '{"modules": ["batchsim.gone"], "checksum": ""}', "[1]"])
def test_a_damaged_file_of_an_entry_is_compiled_again(content, tmp_path, few):
    whole = wasm.module_of(few, tmp_path)
    (tmp_path / "draw.json").write_text(content)
    assert wasm.module_of(few, tmp_path) == whole


def test_an_entry_knows_the_modules_of_what_it_calls_also_by_the_rule(tmp_path):
    name = "run_LearnedCork"
    wasm.module_of({name: entries()[name]}, tmp_path)
    known = wasm.json_of((tmp_path / f"{name}.json").read_text(), name)["modules"]
    own = {
        "scenario.rules.learned_cork",
        "engines.compiled.instants",
        "engines.compiled.rule_calls",
        "_clock",
    }
    assert {f"batchsim.{each}" for each in own} <= set(known)
    assert "batchsim.scenario.rules.learned_sizes" not in known
