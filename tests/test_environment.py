"""environment.yml and pyproject.toml name the same packages, with compatible ranges."""

import os
import re
import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
CONDA_NAMES = {"matplotlib-base": "matplotlib", "playwright-python": "playwright"}


def required(*extras):
    """Return the ranges of the packages that the core and these extras name, and the extras of those."""
    found, todo = {}, [*PROJECT["dependencies"], f"{PROJECT['name']}[{','.join(extras)}]"]
    while todo:
        requirement = Requirement(todo.pop())
        if requirement.name == PROJECT["name"]:
            todo += [line for extra in requirement.extras for line in EXTRAS[extra]]
        else:
            found[requirement.name] = found.get(requirement.name, SpecifierSet()) & requirement.specifier
    return found


def conda_ranges(name="environment.yml"):
    lines = yaml.safe_load((ROOT / name).read_text())["dependencies"]
    pairs = [re.split(r"\s+", line, maxsplit=1) for line in lines if isinstance(line, str)]
    assert len({name for name, *_ in pairs}) == len(pairs), "a package is named twice"
    ranges = {CONDA_NAMES.get(name, name): SpecifierSet("".join(rest)) for name, *rest in pairs}
    return ranges, [line for line in lines if isinstance(line, dict)]


def test_environment_yml_and_pyproject_name_the_same_packages_and_ranges():
    conda, _ = conda_ranges()
    del conda["pip"]
    del conda["python"]
    tests = map(Requirement, EXTRAS["test"])
    assert conda == required("all") | {r.name: r.specifier for r in tests if r.name != PROJECT["name"]}


def test_both_need_the_same_python():
    conda, _ = conda_ranges()
    assert conda["python"] == SpecifierSet(PROJECT["requires-python"])


def test_every_package_has_a_lowest_version():
    ranges = required(*EXTRAS)
    assert [name for name, specifier in ranges.items() if ">=" not in str(specifier)] == []


def test_conda_installs_the_package_itself_in_place():
    _, sections = conda_ranges()
    assert sections == [{"pip": ["-e ."]}]


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


def test_the_citation_is_of_this_project():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["title"].startswith(PROJECT["name"])
    assert citation["license"] == PROJECT["license"]
