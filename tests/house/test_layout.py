"""tests/ mirrors the package: the tests of a module are found by its name."""

from places import ROOT, TESTS

# These ask something else than what a module does; tests/README.md says what.
APART = {"agreement", "browser", "house", "package", "recipes"}
NO_TESTS = {"data", "helpers", "oracles", "wrong_answers"}
LONGEST = 500  # lines of a file


def files():
    """Yield the files of tests with their place within tests/."""
    for path in sorted(TESTS.rglob("*.py")):
        place = path.relative_to(TESTS)
        if place.parts[0] not in NO_TESTS:
            yield path, place


def mirrored(place):
    """Return the folder whose modules a folder of tests is about: tools/, or one of the package."""
    return ROOT / place.parent if place.parts[0] == "tools" else ROOT / "batchsim" / place.parent


def test_a_file_of_tests_is_named_after_a_module_of_its_package_or_after_the_package():
    wrong = []
    for path, place in files():
        if place.parts[0] not in APART and path.name != "conftest.py":
            package = mirrored(place)
            modules = (module.stem for module in package.glob("*.py") if not module.stem.startswith("__"))
            names = [package.name, *(module.lstrip("_") for module in modules)]
            # test_<module>.py, or test_<module>_<aspect>.py where one file would be too long
            if not any(f"{path.stem}_".startswith(f"test_{name}_") for name in names):
                wrong.append(str(place))
    assert wrong == []


def test_no_file_of_tests_is_longer_than_a_reader_takes_in():
    lines = {str(place): path.read_text().count("\n") for path, place in files()}
    assert {place: count for place, count in lines.items() if count > LONGEST} == {}


def test_folders_of_tests_have_nothing_but_tests():
    apart = {"browser"}  # which has what drives a browser
    named = [place for _, place in files() if place.parts[0] not in apart]
    others = {"conftest.py", "__init__.py"}
    assert [str(place) for place in named if place.name not in others and place.name[:5] != "test_"] == []
