"""The WebAssembly module and its engine in Node, for the tests of the page."""

import base64
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
ENGINE = Path(bs.__file__).parent / "web" / "js" / "engine.js"
TYPES = {"Float64Array": float, "Int32Array": np.int32, "Uint8Array": np.uint8}
NODE = shutil.which("node")


@functools.cache
def module():
    """The module's file, built unless an earlier test has done so."""
    pytest.importorskip("ziglang", reason="the module is linked by ziglang: pip install batchsim[web]")
    from batchsim.web import wasm

    return wasm.built(ROOT / "build" / "web")


def descriptions():
    from batchsim.scenario.rules import RULES
    from batchsim.web.calls import call

    return {"rules": {rule.__name__: {"call": call(rule)} for rule in RULES}}


def in_node(calls, folder):
    """Run calls of the engine in one process of Node; return what each returned."""
    if NODE is None:
        pytest.skip("there is no Node, which runs the page's engine without a browser")
    jobs = folder / "jobs.json"
    jobs.write_text(json.dumps(plain({"descriptions": descriptions(), "calls": calls})))
    script = Path(__file__).with_name("web_engine.mjs")
    command = [NODE, str(script), ENGINE.as_uri(), str(module()), str(jobs)]
    told = subprocess.run(command, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    return [unpacked(json.loads(line)) for line in told.stdout.splitlines()]


def plain(value):
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return "Infinity" if value == math.inf else value


def unpacked(value):
    if not isinstance(value, dict):
        return value
    if "bytes" in value:
        return np.frombuffer(base64.b64decode(value["bytes"]), TYPES[value["type"]])
    return {name: unpacked(each) for name, each in value.items()}
