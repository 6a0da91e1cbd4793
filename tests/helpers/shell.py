"""Commands of the shell, run in the process of the test."""

import json
import math

import pytest
from typer.testing import CliRunner

import batchsim as bs
from batchsim.cli import app

SHORT = ["--requests", "2000"]


def run(*arguments, code=0):
    """What a command prints, once its exit code is as expected."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == code, done.output
    return done


def run_json(*arguments, code=0):
    return json.loads(run(*arguments, "--json", code=code).stdout, parse_constant=pytest.fail)


def refused(*arguments):
    """The one line that says what is wrong."""
    done = run(*arguments, code=2)
    assert done.stdout == ""
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1
    return done.stderr.removeprefix("Error: ").strip()


def graded(*arguments, code=0):
    done = CliRunner().invoke(app, ["grade", *map(str, arguments)])
    assert done.exit_code == code, done.output
    return done


SCENARIO = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))
BASE = ["--rate-per-s", "800", "--max-wait-ms", "10", "--fixed-ms", "5", "--per-item-ms", "0.25"]


def as_json(summary):
    return {key: None if isinstance(x, float) and math.isnan(x) else x for key, x in summary.items()}


OVER = ["--over", "max_batch_size=4,32", "--over", "max_wait_ms=0:10:5"]
