"""tools/mutants.py: small bugs are made in a copy, and those that no test sees are printed."""

import ast
import importlib.util
import subprocess

import pytest
from places import ROOT

MODULE = '''
"""Less than 3 < 4 sentences."""
import functools

@functools.lru_cache(maxsize=8)
def paid(part: float, least: float = 0.05) -> bool | None:
    """Return whether a part, in % of > 1, is paid."""
    if not (part) >= least and part is not None:
        raise ValueError(f"part must be at least {least + 1}, got {part}")
    return max(2, 100 + part)  # µ < 5
'''


@pytest.fixture(scope="module")
def mutants():
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "tools" / "mutants.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_comparisons_operators_constants_and_roundings_change_but_no_sentence_or_annotation(mutants):
    text = MODULE.encode()
    lines = MODULE.splitlines()
    found = [(each.line, each.of(text).decode().splitlines()) for each in sorted(mutants.mutants(text))]
    for line, changed in found:
        ast.parse("\n".join(changed))
        assert [
            number for number, two in enumerate(zip(lines, changed, strict=True), 1) if two[0] != two[1]
        ] == [line]
    assert [changed[line - 1].strip() for line, changed in found] == [
        "def paid(part: float, least: float = 0.07500000000000001) -> bool | None:",
        "if (part) >= least and part is not None:",
        "if not (part) > least and part is not None:",
        "if not (part) >= least or part is not None:",
        "if not (part) >= least and part is None:",
        "return min(2, 100 + part)  # µ < 5",
        "return max(3, 100 + part)  # µ < 5",
        "return max(2, 150 + part)  # µ < 5",
        "return max(2, 100 - part)  # µ < 5",
    ]


def test_every_mutant_of_a_module_is_python(mutants):
    text = (ROOT / "batchsim" / "study" / "judgement.py").read_bytes()
    found = list(mutants.mutants(text))
    for each in found[:: len(found) // 40]:
        ast.parse(each.of(text))


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("result/warmup.py", "test_warmup.py"),  # named after it
        ("result/intervals.py", "test_intervals_jams.py"),  # imports it
        ("theory/single.py", "test_single.py"),
        ("web/app/access.py", "test_access.py"),
        ("engines/compiled/cells.py", "test_pairwise.py"),  # a compiled loop: the engines agree
        ("web/js/charts.js", "test_entries.py"),  # the page's package
        ("web/js/film.js", "test_film_script.py"),  # names the script
        ("view/explorer/screen.js", "test_opening.py"),  # runs in a browser alone
    ],
)
def test_the_nearest_tests_are_named_after_a_module_or_import_it(mutants, module, name):
    found = mutants.nearest(ROOT / "batchsim" / module)
    assert name in [path.name for path in found]
    assert len(found) < 40
    folders = {path.parent.name for path in found}
    assert ("agreement" in folders) is (module == "engines/compiled/cells.py")
    assert ("browser" in folders) is (module == "view/explorer/screen.js")


@pytest.fixture
def project(tmp_path):
    """A package with one module, `>=` and its limit; its test holds neither."""
    (tmp_path / "batchsim").mkdir()
    (tmp_path / "tests").mkdir()
    module = tmp_path / "batchsim" / "paid.py"
    (tmp_path / "batchsim" / "__init__.py").touch()
    module.write_text("def paid(part):\n    return part >= 0.5\n")
    (tmp_path / "tests" / "test_paid.py").write_text(
        "from batchsim.paid import paid\n\ndef test_most_is_paid():\n    assert paid(0.9) and not paid(0.1)\n"
    )
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return module


@pytest.fixture
def tried(mutants, project, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # which take two seconds to load
    monkeypatch.setattr(mutants, "_is_compiled", lambda *_: False)
    return lambda: mutants.report(project, mutants.drawn(project, 0, 0), [], project.parent.parent)


def test_what_no_test_sees_is_printed_with_its_line_and_the_checkout_stays(tried, project, capsys):
    before = project.read_bytes()
    assert tried() == 2
    place = "batchsim/paid.py"
    assert capsys.readouterr().out.splitlines() == [
        f"{place}:2", "  - return part >= 0.5", "  + return part > 0.5",
        f"{place}:2", "  - return part >= 0.5", "  + return part >= 0.75",
        f"{place}: 2 of 2 mutants survive tests/test_paid.py",
    ]  # fmt: skip
    test = project.parent.parent / "tests" / "test_paid.py"
    test.write_text(test.read_text() + "    assert paid(0.5) and not paid(0.49)\n")
    assert tried() == 0
    assert project.read_bytes() == before


def test_a_bug_of_a_table_changes_its_part_of_a_line_which_must_be_there_once(mutants, project, tmp_path):
    table, root, text = tmp_path / "bugs.txt", project.parent.parent, project.read_bytes()
    table.write_text("paid.py: the limit itself is not paid\n- part >= 0.5\n+ part > 0.5\n")
    (bug,) = mutants.bugs(table, root)[project]
    assert bug.line == 2
    assert bug.of(text) == text.replace(b">=", b">")
    table.write_text("paid.py: the limit itself is not paid\n- part\n+ half\n")
    with pytest.raises(ValueError, match=r"paid\.py must have a bug's line once, got 2 times '- part'"):
        mutants.bugs(table, root)


def test_what_fails_without_the_compiler_is_left_out(mutants, tried, project, monkeypatch, capsys):
    monkeypatch.setattr(mutants, "_is_compiled", lambda *_: True)
    test = project.parent.parent / "tests" / "test_paid.py"
    test.write_text(f"{test.read_text()}\ndef test_compiled():\n    assert False\n")
    assert tried() == 2
    assert "tests/test_paid.py without 1 tests that need the compiler" in capsys.readouterr().out


def test_tests_that_fail_without_a_change_prove_nothing(tried, project):
    project.write_text("def paid(part):\n    return part >= 0.95\n")
    with pytest.raises(ValueError, match=r"must pass before a change, got tests/test_paid\.py: they failed"):
        tried()


def test_ctrl_c_leaves_neither_a_changed_module_nor_a_copy(
    mutants, tried, project, monkeypatch, tmp_path_factory
):
    copies = tmp_path_factory.mktemp("copies")
    monkeypatch.setattr("tempfile.tempdir", str(copies))
    runs = []

    def run(trial, limit_s):
        runs.append(trial.module.read_text())
        if limit_s is not None:
            raise KeyboardInterrupt
        return mutants.PASSED

    monkeypatch.setattr(mutants.Trial, "run", run)
    before = project.read_text()
    with pytest.raises(KeyboardInterrupt):
        tried()
    assert runs == [before, before.replace(">=", ">")]
    assert project.read_text() == before
    assert list(copies.iterdir()) == []
