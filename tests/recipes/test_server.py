"""CONTRIBUTING's recipe for a server, followed literally in a copy of the package."""

import re

import pytest
from places import ROOT
from project_copies import CONTRIBUTING, changed, copied, python

import batchsim

pytestmark = pytest.mark.plain  # a copy compiles each loop again

# An invented server with its own names, a rounded wait, a limit, and a YAML file.
ACME = """
from batchsim import _check
from batchsim.scenario.rules import SizeOrWait
from batchsim.servers.formats.keyed_text import YAML, parse_yaml
from batchsim.servers.formats.document import Keys
from batchsim.servers.server import Format, Server, ServerConfig, Words


def acme(group: int = 1, linger: int = 5) -> SizeOrWait:
    return SizeOrWait(_check.whole("Acme's group", group), _check.whole("Acme's linger", linger, at_least=0))


def config(*, lanes: int = 1, backlog: int = 64, **settings: int) -> ServerConfig:
    return ServerConfig("acme", acme(**settings), lanes, backlog)


KEYS = Keys(YAML, {"": ["group", "linger", "lanes", "backlog", "colour"]})


def read(document, text, which):
    KEYS.read(document, parse_yaml(text)[0])


SERVER = Server(
    "acme", "1.0", acme, config, ("colour",),
    words=Words("group", "linger", whole=True, servers="lanes", queue="backlog"),
    formats=(Format("an Acme YAML", "acme.yaml", (".yaml",), "^(linger|backlog):", read, ""),),
    notes=lambda settings: [("grey", "Acme is grey unless colour is set.")] * ("colour" not in settings),
)
"""

PROGRAM = """
from typer.testing import CliRunner

import batchsim as bs
from batchsim import servers
from batchsim.cli import app

# The preset.
assert servers.acme(8) == bs.SizeOrWait(8, 5)
config = servers.config("acme", group=8, lanes=2, colour="red")
assert (config.rule.max_batch_size, config.servers, config.queue_limit) == (8, 2, 64)
assert config.unused == {"colour": "red"}

# Its file: read, with the place of a wrong value, and written back.
found = servers.parse("group: 8\\nlinger: 20\\nlanse: 3\\ncolour: red\\n")
assert (found.server, found.rule, found.unknown) == ("acme", bs.SizeOrWait(8, 20), {"lanse": "lanes"})
try:
    servers.parse("linger: -1")
except ValueError as error:
    assert "line 1, column 1: Acme's linger must be at least 0, got -1" in str(error)
else:
    raise AssertionError("a negative wait was accepted")
assert servers.edited(found.text, bs.SizeOrWait(9, 20)).text == found.text.replace("8", "9")

# Any scenario as its file.
scenario = bs.Scenario(bs.Poisson(300), bs.SizeOrWait(8, 2.5), bs.Affine(2, 0.1), servers=2, queue_limit=99)
text = servers.write_all(scenario).texts["acme"]
assert "linger is a whole number: 3, where 2.5 ms was requested" in text
assert servers.parse(text).scenario(scenario.workload, scenario.service) == scenario.replace(max_wait_ms=3)

# The comparison and the linter.
compared = bs.compare_servers(scenario, ["triton", "acme"], requests=400)
assert [*compared.results] == ["triton", "acme"]
assert "acme" in bs.compare_servers(scenario, requests=400).results
linted = servers.lint(servers.config("acme", group=8, linger=9000), scenario.replace(servers=1), 2000)
assert "wait-unit" in linted.codes
assert ("grey", "Acme is grey unless colour is set.") in [(note.code, note.sentence) for note in linted.notes]

# The shell.
open("acme.yaml", "w").write("group: 8\\nlinger: 9000\\n")
traffic = ["--rate-per-s", "300", "--fixed-ms", "2", "--per-item-ms", "0.1", "--requests", "2000"]
done = CliRunner().invoke(app, ["lint", "acme.yaml", *traffic])
assert (done.exit_code, "wait-unit" in done.output) == (1, True), done.output
done = CliRunner().invoke(app, ["simulate", "--server-config", "acme.yaml", "--engine", "simpy", *traffic])
assert done.exit_code == 0, done.output
"""


def insert(file, before, line):
    """Add a line to a file, in front of the only occurrence of a text."""
    text = file.read_text(encoding="utf-8")
    assert text.count(before) == 1
    file.write_text(text.replace(before, line + before), encoding="utf-8")


@pytest.fixture(scope="module")
def recipe():
    """The recipe's row without its tests: what to change."""
    (row,) = re.findall(r"^\| a server \|(.*)\|$", CONTRIBUTING, re.MULTILINE)
    return row.partition("Tests:")[0]


def test_a_server_is_added_in_the_files_of_the_recipe(tmp_path, recipe):
    folder = copied(tmp_path, "batchsim") / "batchsim" / "servers"
    (folder / "acme.py").write_text(f'"""Acme."""\n{ACME}', encoding="utf-8")
    registry, package = folder / "registry.py", folder / "__init__.py"
    insert(registry, "triton tf_serving", "acme ")
    insert(package, "from batchsim.servers.batched ", "from batchsim.servers.acme import acme as acme\n")
    files = changed(tmp_path)
    assert len(files) == 3
    assert "three files" in recipe
    assert {f"batchsim/servers/{name}" for name in ("acme.py", "registry.py", "__init__.py")} == files
    assert all(f"`{name}`" in recipe for name in ("servers/", "servers/registry.py", "servers/__init__.py"))
    done = python(tmp_path, "-W", "error", "-c", PROGRAM)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize(
    "path", sorted((ROOT / "batchsim" / "servers").rglob("*.py")), ids=lambda path: path.stem
)
def test_only_its_own_file_and_the_registry_name_a_server(path):
    found = batchsim.servers
    names = {*found.SERVERS, *found.SIZE_SERVERS, *found.TOKEN_SERVERS}
    if path.stem in {"registry", "__init__"}:
        return
    code = re.sub(r'""".*?"""', "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert {name for name in names - {path.stem} if re.search(rf"""["']{name}["']""", code)} == set()
