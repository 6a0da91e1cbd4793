"""The build of the page's module says its steps, and is not repeated for the same code."""

from types import SimpleNamespace

import pytest

from batchsim.web import wasm

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
    monkeypatch.setattr(wasm, "build", lambda: built.append(1) or b"module")
    files = set()
    for text in (CODE, other):
        source.write_text(text)
        files.add(wasm.built(tmp_path / "build"))
    assert (len(built), len(files)) == ((1, 1) if same else (2, 2))


def test_each_step_is_printed_before_it_begins(tmp_path, monkeypatch, capsys):
    said = []

    def object_of(name, function, types, machine):
        said.append(capsys.readouterr().out)
        return b""

    monkeypatch.setattr(wasm, "object_of", object_of)
    monkeypatch.setattr(wasm.subprocess, "run", lambda command, check: SimpleNamespace(returncode=0))
    wasm.main(str(tmp_path / "module.wasm"), "SizeOrWait")
    assert said[0] == f"compiling draw, 1 of {len(said)}\n"
    assert [line.split(",")[1] for line in said] == [f" {at + 1} of {len(said)}\n" for at in range(len(said))]
