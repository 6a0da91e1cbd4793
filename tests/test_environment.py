"""environment.yml and pyproject.toml name the same packages, with compatible ranges."""

import json
import os
import re
import runpy
import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import batchsim

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
