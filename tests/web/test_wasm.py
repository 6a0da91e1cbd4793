"""The build of the page's module says its steps, and is not repeated for the same code."""

import pytest

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


def test_each_step_is_printed_before_it_begins(tmp_path, monkeypatch, capsys):
    said, compiled_entry = [], wasm.compiled_entry

    def heard(*of):
        said.append(capsys.readouterr().out)
        return compiled_entry(*of)

    monkeypatch.setattr(wasm, "compiled_entry", heard)
    monkeypatch.setattr("batchsim.web.entries.entries", lambda *_: dict(few.items()))
    few = {name: entries()[name] for name in ("draw", "stretch")}
    wasm.main(str(tmp_path / "module.wasm"), "SizeOrWait")
    assert said == ["compiling draw, 1 of 2\n", "compiling stretch, 2 of 2\n"]
