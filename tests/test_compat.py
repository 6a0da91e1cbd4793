"""The core runs without the extras, what needs one names it, and environment.yml has them all."""

import json
import os
import re
import runpy
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions, requires
from pathlib import Path

import pytest
import yaml
from imported import imports
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from places import ROOT

import batchsim
import batchsim as bs
from batchsim import _compat
from batchsim._compat import EXTRAS, MissingPart


@cache
def closure(*extras):
    """Return the installed distributions that the core and these extras bring, directly or not."""
    found, todo = set(), [(name, frozenset()) for name in required(*extras)]
    while todo:
        name, asked = todo.pop()
        if (name, asked) in found:
            continue
        found.add((name, asked))
        try:
            needed = [Requirement(line) for line in requires(name) or []]
        except PackageNotFoundError:  # of another system or Python
            continue
        for need in needed:
            if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in ("", *asked)):
                todo.append((canonicalize_name(need.name), frozenset(need.extras)))
    return {name for name, _ in found}


INSTALLED = packages_distributions()
THREE = bs.Scenario(bs.Trace([0.0, 0.001, 0.002]), bs.SizeOrWait(3, 20), bs.Affine(5, 1))
OF_A_BROWSER = {"js", "pyodide"}  # its Python has them
LIBRARIES = sorted(
    {found.imported for found in imports()} - set(sys.stdlib_module_names) - OF_A_BROWSER | {"voila"}
)


@pytest.mark.parametrize("library", [name for name in LIBRARIES if not name.startswith("batchsim")])
def test_a_library_that_the_core_lacks_is_brought_by_the_extra_that_its_error_names(library):
    packages = {canonicalize_name(name) for name in INSTALLED[library]}
    if not packages & closure():
        assert packages & closure(EXTRAS[library])


def test_every_extra_that_an_error_names_exists():
    assert set(EXTRAS.values()) <= set(DECLARED)


@pytest.fixture(scope="session")
def core(tmp_path_factory):
    """A folder with links to the core's packages alone, as `pip install batchsim` installs them."""
    folder = tmp_path_factory.mktemp("core")
    for name in closure():
        for file in distribution(name).files:
            top = Path(file).parts[0]
            if top not in ("..", "__pycache__") and not (folder / top).exists():
                (folder / top).symlink_to(distribution(name).locate_file(top))
    (folder / "batchsim").symlink_to(ROOT / "batchsim")
    return folder


def run(core, *command):
    """Run a Python that sees the core's packages only."""
    given = f"import sys; sys.path.insert(0, {str(core)!r}); "
    code = given + (command[0] if len(command) == 1 else f"import runpy; sys.argv = {list(command)}; "
                    "runpy.run_module('batchsim', run_name='__main__')")  # fmt: skip
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False
    )


README = """
import batchsim as bs
scenario = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))
result = bs.simulate(scenario, requests=2000, seed=1)
over = {"max_batch_size": [8, 32]}
table = bs.sweep(scenario, over, requests=2000, progress=False)
best = bs.tune(scenario, bs.SLO(p99_ms=50), over)
print(len(result.to_frame()), len(table), best.met, bs.plot(result), bs.heat_map)
extras = "jax", "ipywidgets", "typer", "psutil", "pyarrow", "yaml", "google.protobuf", "tree_sitter"
assert not set(extras) & set(sys.modules)
"""


def test_the_core_alone_simulates_sweeps_tunes_and_plots(core):
    done = run(core, README)
    assert done.returncode == 0, done.stderr  # a first run says there that it compiles
    assert re.match(r"2000 2 True Figure\(", done.stdout)


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        ("bs.explore()", "notebook"),
        ("bs.teaching", "notebook"),
        ("bs.device.load_model", "device"),
        ("bs.servers.parse('batchSize: 8')", "servers"),
        ("bs.servers.parse('dynamic_batching { }')", "servers"),
        ("bs.servers.parse('vllm serve m')", "servers"),
        ("bs.Scenario(bs.Poisson(1), bs.SizeOrWait(), bs.Affine(1, 1)).to_toml()", "shell"),
        ("import batchsim.study.store", "distributed"),
        ("import batchsim.web.app.access", "app"),
    ],
)
def test_a_missing_part_is_an_import_error_of_one_line_that_names_its_extra(core, code, extra):
    done = run(core, f"import batchsim as bs; {code}")
    last = done.stderr.splitlines()[-1]
    assert re.fullmatch(
        rf"[\w.]+MissingPart: [\w-]+ must be installed: pip install 'batchsim\[{extra}\]'", last
    )


@pytest.mark.parametrize(
    ("command", "extra"), [("simulate", "shell"), ("page", "shell"), ("lab", "notebook"), ("app", "app")]
)
def test_a_command_without_the_shell_is_one_line_with_the_extra_that_it_needs(core, command, extra):
    done = run(core, "batchsim", command)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"Error: typer must be installed: pip install 'batchsim[{extra}]'\n"


@pytest.mark.parametrize(
    ("ask", "refusal"),
    [
        (
            lambda: bs.device.replay(THREE, list, inputs=[1, 2, 3]),
            "a run on the wall clock needs a computer with batchsim, got a browser: docs/install.md",
        ),
        (
            lambda: bs.teaching.join("http://class:8888/?token=x"),
            "joining a class needs a computer with batchsim, got a browser: docs/install.md",
        ),
        (
            lambda: _compat.need("nobody", "device"),
            "nobody needs a computer with batchsim, got a browser: pip install 'batchsim[device]'",
        ),
    ],
)
def test_a_browser_lacks_threads_sockets_and_parts_and_says_so(monkeypatch, ask, refusal):
    monkeypatch.setattr(_compat, "IN_BROWSER", True)
    with pytest.raises((MissingPart, RuntimeError), match=re.escape(refusal)):
        ask()


def test_imports_of_others_fail_as_python_lets_them():
    with pytest.raises(ModuleNotFoundError) as error:
        import voila_of_nobody  # noqa: F401
    assert not isinstance(error.value, MissingPart)


# environment.yml and pyproject.toml name the same packages, with compatible ranges.


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DECLARED = PROJECT["optional-dependencies"]
CONDA_NAMES = {"matplotlib-base": "matplotlib", "playwright-python": "playwright"}


def required(*extras):
    """Return the ranges of the packages that the core and these extras name, and the extras of those."""
    found, todo = {}, [*PROJECT["dependencies"], f"{PROJECT['name']}[{','.join(extras)}]"]
    while todo:
        requirement = Requirement(todo.pop())
        if requirement.name == PROJECT["name"]:
            todo += [line for extra in requirement.extras for line in DECLARED[extra]]
        else:
            found[requirement.name] = found.get(requirement.name, SpecifierSet()) & requirement.specifier
    return found


def conda_ranges(name="environment.yml"):
    lines = yaml.safe_load((ROOT / name).read_text())["dependencies"]
    pip = [each for line in lines if isinstance(line, dict) for each in line["pip"]]
    named = [line for line in (*lines, *pip) if isinstance(line, str) and line != "-e ."]
    pairs = [re.split(r"\s+", line, maxsplit=1) for line in named]
    assert len({name for name, *_ in pairs}) == len(pairs), "a package is named twice"
    ranges = {CONDA_NAMES.get(name, name): SpecifierSet("".join(rest)) for name, *rest in pairs}
    return ranges, pip


def test_environment_yml_and_pyproject_name_the_same_packages_and_ranges():
    conda, _ = conda_ranges()
    del conda["pip"]
    del conda["python"]
    tests = map(Requirement, DECLARED["test"])
    assert conda == required("all") | {r.name: r.specifier for r in tests if r.name != PROJECT["name"]}


def test_both_need_the_same_python():
    conda, _ = conda_ranges()
    assert conda["python"] == SpecifierSet(PROJECT["requires-python"])


def test_every_package_has_a_lowest_version():
    ranges = required(*DECLARED)
    assert [name for name, specifier in ranges.items() if ">=" not in str(specifier)] == []


def test_conda_installs_the_package_itself_in_place():
    assert conda_ranges()[1][-1] == "-e ."


def test_what_installs_names_no_registry():
    named = ("pyproject.toml", "environment.yml", "Makefile", ".binder/environment.yml", ".binder/postBuild")
    found = [url for name in named for url in re.findall(r"\w+://[^\s\"]+", (ROOT / name).read_text())]
    assert found == list(PROJECT["urls"].values())


def test_binder_has_what_the_package_and_its_notebooks_need():
    needed = required("app")
    binder = conda_ranges(".binder/environment.yml")[0]
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    needed |= {r.name: r.specifier for r in map(Requirement, build)}
    assert binder == needed | {"python": SpecifierSet(PROJECT["requires-python"]), "pip": SpecifierSet()}


def test_binder_fetches_nothing_once_its_packages_are_there():
    script = (ROOT / ".binder" / "postBuild").read_text()
    assert "pip install --no-index --no-deps --no-build-isolation" in script
    assert os.access(ROOT / ".binder" / "postBuild", os.X_OK)


def test_the_conda_recipe_is_the_core_of_pyproject():
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text())
    needed = dict(line.split(" ", 1) for line in recipe["requirements"]["run"])
    found = {CONDA_NAMES.get(name, name): SpecifierSet(ranges) for name, ranges in needed.items()}
    assert found == required() | {"python": SpecifierSet(PROJECT["requires-python"])}
    (script,) = recipe["build"]["python"]["entry_points"]
    assert script == f"batchsim = {PROJECT['scripts']['batchsim']}"


def test_every_file_that_describes_the_project_says_the_same():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    zenodo = json.loads((ROOT / ".zenodo.json").read_text())
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text())
    versions = {citation["version"], zenodo["version"], recipe["package"]["version"], batchsim.__version__}
    assert len(versions) == 1
    assert str(citation["date-released"]) == zenodo["publication_date"]
    assert citation["title"] == zenodo["title"]
    assert citation["title"].startswith(PROJECT["name"])
    assert {citation["license"], zenodo["license"], recipe["about"]["license"]} == {PROJECT["license"]}
    (author,) = PROJECT["authors"]
    assert [each["name"] for each in citation["authors"] + zenodo["creators"]] == [author["name"]] * 2
    assert re.search(rf"^## {re.escape(batchsim.__version__)} ", (ROOT / "CHANGELOG.md").read_text(), re.M)


def test_the_notices_name_every_source_of_a_published_table_with_its_licence():
    notices = (ROOT / "NOTICES.md").read_text()
    for name in batchsim.published_names():
        source = batchsim.published_source(name)
        repository = "/".join(source.source_url.split("/")[3:5])
        assert re.search(rf"{repository}.*\| {source.licence.split()[0]} \|", notices), name


def test_every_workflow_runs_the_one_script():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    assert {"run": "bash .ci/run"} in workflow["jobs"]["test"]["steps"]


def test_each_link_of_the_description_leads_to_a_page_of_the_book():
    pages = runpy.run_path(str(ROOT / "docs" / "book" / "pages.py"))
    readme = (ROOT / "README.md").read_text()
    links = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", readme)
    found = {pages["address"](link) for link in links}
    assert {"_images/explorer.webp", "lessons/01-why-batch.html", "teachers.html"} <= found
    # What the book has no page for is a file that the reader of an index does not need.
    without = {link for link in links if pages["address"](link) == "index.html"}
    assert without == {"LICENSE", "notebooks/app.ipynb", "notebooks/solutions/"}
