"""The layering of docs/architecture.md: imports point down, in no circle; each library has its package."""

import re
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter

import pytest
from imported import FILES, ROOT, imports

from batchsim.scenario.rules import RULES

LONGEST = 500  # lines of a module

# Down the corridor: a room imports from its own step and those above it.
CORRIDOR = [
    [
        "_check",
        "_clock",
        "_compat",
        "_files",
        "_format",
        "_workers",
        "batcher",
    ],
    ["scenario"],
    ["engines"],
    ["result"],
    ["simulate"],
    ["measured"],
    ["theory"],
    ["study", "device", "servers"],
    ["view", "view.cell", "view.scales", "view.scripts", "view.theme", "view.voting"],
    ["view.film"],
    ["view.pictures"],
    ["view.explorer"],
    ["teaching"],
    ["web"],
    ["__init__"],  # the public names
    ["cli", "__main__"],
]
STEP = {room: step for step, rooms in enumerate(CORRIDOR) for room in rooms}

# The only files that import a library, as a function is called or for the type checker's sake included.
ROOMS = {
    "simpy": ["engines/reference/*.py"],
    "numba": ["engines/compiled/*.py", "web/entries.py"],
    "llvmlite": ["web/loops.py", "web/wasm.py"],
    "jax": ["measured/measuring.py", "measured/models.py"],
    "ipywidgets": ["view/explorer/**/*.py", "teaching/**/*.py"],
    "anywidget": ["view/explorer/**/*.py", "teaching/**/*.py", "web/notebook.py"],
    "matplotlib": ["view/**/*.py"],
    "PIL": ["view/pictures/live.py", "web/page.py"],
    "typer": ["cli/*.py"],
    "rich": ["cli/*.py"],
    "jupyter_server": ["web/app/*.py"],
    "tornado": ["web/app/*.py"],
    "google": ["servers/formats/*.py"],
    "yaml": ["servers/formats/*.py"],
    "tree_sitter": ["servers/formats/shell.py"],
    "tree_sitter_bash": ["servers/formats/shell.py"],
}


@cache
def within():
    """Those of the package's own modules."""
    return [found for found in imports() if found.imported in FILES]


def room(name):
    """The package of a module; view has rooms of its own."""
    parts = name.removeprefix("batchsim").strip(".").split(".")
    return ".".join(parts[: 1 + (parts[0] == "view")]) or "__init__"


def climb(pair):
    """How far up the corridor an import points."""
    importer, imported = pair
    return STEP[room(imported)] - STEP[room(importer)]


def circles(imports):
    """Return circles of imports, each begun by an import to remove, until none is left."""
    graph = {name: set() for name in FILES}
    for found in imports:
        graph[found.importer].add(found.imported)
    lines = []
    while True:
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            circle = error.args[1][:0:-1]  # it begins with what is imported, and ends with it again
            first = max(range(len(circle)), key=lambda i: climb((circle[i - 1], circle[i])))
            circle = circle[first - 1 :] + circle[: first - 1] if first else circle[-1:] + circle[:-1]
            graph[circle[0]].remove(circle[1 % len(circle)])
            lines.append(" -> ".join([*circle, circle[0]]))
        else:
            return lines


def none(found):
    if found:
        pytest.fail("\n".join(map(str, found)), pytrace=False)


def test_no_modules_import_each_other_in_a_circle():
    none(circles(found for found in within() if not found.in_function))


def test_an_import_within_a_function_hides_no_circle():
    none(circles(within()))


def test_every_module_stands_in_a_room_of_the_corridor():
    none([name for name in FILES if room(name) not in STEP])


def test_imports_point_down_the_corridor():
    none([found for found in within() if climb(found[:2]) > 0])


def test_rooms_of_the_same_step_do_not_import_each_other():
    rooms = [(found, {room(found.importer), room(found.imported)}) for found in within()]
    none(
        [found for found, two in rooms if len(two) == 2 and any(two <= set(step) for step in CORRIDOR[1:-1])]
    )


@pytest.mark.parametrize("library", ROOMS)
def test_a_library_is_imported_in_its_room_alone(library):
    allowed = {path for pattern in ROOMS[library] for path in ROOT.glob(pattern)}
    none([name for name, imported, _ in imports() if imported == library and FILES[name] not in allowed])


def test_no_module_is_longer_than_a_reader_takes_in():
    lines = {name: len(path.read_text().splitlines()) for name, path in FILES.items()}
    none([f"{name} has {count} lines" for name, count in lines.items() if count > LONGEST])


@pytest.mark.parametrize("rule", RULES[2:], ids=lambda rule: rule.__name__)  # theory has the first two
def test_a_rule_is_named_in_no_other_file_than_contributing_says(rule):
    names = re.compile(rf"\b{rule.__name__}\b")
    named = {str(path.relative_to(ROOT)) for path in ROOT.rglob("*.py") if names.search(path.read_text())}
    assert named >= {"scenario/rules/__init__.py", "__init__.py"}
    rooms = ("engines", "result", "study", "cli", "view/explorer", "view/pictures")
    assert not [name for name in named if name.startswith(rooms)]


ALL_IMPORTED = """
import importlib, pkgutil, sys, types
import batchsim
for found in pkgutil.walk_packages(batchsim.__path__, "batchsim."):
    if not found.name.endswith("__main__"):
        importlib.import_module(found.name)
packages = [sys.modules[name] for name in list(sys.modules) if name.partition(".")[0] == "batchsim"]
public = [(each, name, getattr(each, name)) for each in packages for name in getattr(each, "__all__", ())]
modules = [each for each in public if isinstance(each[2], types.ModuleType)]
print([f"{each.__name__}.{name}" for each, name, module in modules if not hasattr(module, "__all__")])
"""


def test_no_public_name_becomes_a_module_once_all_are_imported():
    told = subprocess.run([sys.executable, "-c", ALL_IMPORTED], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


# NumPy's `int` has 32 bits in a browser, and these functions refuse places of 64 bits there.
NARROW = re.compile(
    r"astype\(int\)|view\(int\)|dtype=int\b|np\.intp\b|np\.(bincount|repeat)\(|np\.\w+\.reduceat\("
)


def test_columns_of_whole_numbers_have_64_bits_everywhere():
    found = [
        (path.name, number)
        for path in sorted(ROOT.rglob("*.py"))
        if path.name != "_compat.py"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if NARROW.search(line) and ">>>" not in line
    ]
    assert found == []
