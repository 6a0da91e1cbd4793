"""Commands of the shell, run in the process of the test."""

import json

import pytest
from typer.testing import CliRunner

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
