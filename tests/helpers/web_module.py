"""The page's engine for tests: its module, built once, and calls of it in Node."""

import base64
import fcntl
import functools
import json
import math
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import batchsim as bs

ROOT = Path(bs.__file__).parent.parent
SCRIPTS = Path(bs.__file__).parent / "web" / "js"
CALLS = Path(__file__).with_name("web_calls.mjs")
TYPES = {"Float64Array": float, "Int32Array": np.int32, "Uint8Array": np.uint8}
IN_NODE = """
import { readFileSync } from "node:fs";
const [script, calls_, module, jobs] = process.argv.slice(1);
// As text, because older versions of Node take a file *.js for a script.
const imported = (path) => import(`data:text/javascript,${encodeURIComponent(readFileSync(path, "utf8"))}`);
const { Engine } = await imported(script);
const { answered, read } = await imported(calls_);
const { descriptions, calls } = read(readFileSync(jobs, "utf8"));
const engine = await Engine.load(readFileSync(module), descriptions);
for (const call of calls) console.log(answered(engine, call));
"""


# A size and a wait, a least size, a tuple of sizes, a rule with memory, and one that freezes its batches.
FEW = "SizeOrWait", "AtLeast", "PreferredSizes", "PullThenWait", "FrozenBatches"


@functools.cache
def module(rules=FEW):
    """The module's file with the loops of these rules, or with (), of all, built once."""
    from batchsim.web import wasm

    folder = ROOT / "build" / "web"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:  # one of several processes builds it, the others wait
        fcntl.flock(lock, fcntl.LOCK_EX)
        return wasm.built(folder, rules)


def descriptions():
    """What the engine reads of the page's descriptions."""
    from batchsim.scenario.rules import RULES
    from batchsim.web.calls import call

    return {"rules": {rule.__name__: {"call": call(rule)} for rule in RULES}}


def written(calls):
    """Descriptions and calls as JSON in which infinity is a word."""
    return json.dumps(worded({"descriptions": descriptions(), "calls": calls}))


def worded(value):
    if isinstance(value, dict):
        return {name: worded(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [worded(each) for each in value]
    return "Infinity" if value == math.inf else value


def unpacked(value):
    """What a call has answered, with arrays as NumPy's."""
    if not isinstance(value, dict):
        return value
    if "bytes" in value:
        return np.frombuffer(base64.b64decode(value["bytes"]), TYPES[value["type"]])
    return {name: unpacked(each) for name, each in value.items()}


def in_node(calls, folder, rules=FEW):
    """Run calls of the engine in one process of Node; return what each returned."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no Node, which runs the page's engine without a browser")
    jobs = folder / "jobs.json"
    jobs.write_text(written(calls))
    files = map(str, (SCRIPTS / "engine.js", CALLS, module(rules), jobs))
    command = [node, "--input-type=module", "--eval", IN_NODE, "--", *files]
    told = subprocess.run(command, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    return [unpacked(json.loads(line)) for line in told.stdout.splitlines()]
