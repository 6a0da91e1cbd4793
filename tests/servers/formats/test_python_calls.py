"""Calls in Python text: their arguments are the real functions', and their values are read as written."""

import ast
import importlib
import inspect
import math
import warnings

import pytest

from batchsim.servers.formats.document import Source
from batchsim.servers.formats.python_calls import Program


def value(text, before=""):
    program = Program(f"{before}\nf({text})")
    return program.value(next(call for call in program.calls if call.callee == "f").node.args[0])


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("8", 8), ("-2.5", -2.5), ("'a' 'b'", "ab"), ("None", None), ("True", True), ("2 * 8 + 1", 17),
        ("20 / 1000", 0.02), ("7 // 2 - 1", 2), ("math.inf", math.inf), ("float('inf')", math.inf),
        ("[1, (2, 3)]", [1, [2, 3]]), ("{'a': 1}", {"a": 1}), ("SIZE", 16), ("2 * SIZE", 32),
    ],
)  # fmt: skip
def test_numbers_texts_lists_and_sums_of_constants_are_values(text, meant):
    assert value(text, "SIZE: int = 4 * 4") == meant


@pytest.mark.parametrize(
    ("text", "before", "meant"),
    [
        ("int(os.environ.get('A', '8'))", "", 8), ("float(os.getenv('A', 0.5))", "", 0.5),
        ("int(SIZE)", "SIZE = '4'", 4), ("float('inf')", "", math.inf),
    ],
)  # fmt: skip
def test_defaults_of_the_environment_are_values(text, before, meant):
    assert value(text, before) == meant


IN_FUNCTION = "SIZE = 4\ndef g({}):\n  {}\n  f(SIZE)"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (IN_FUNCTION.format("", "SIZE = 8"), 8), (IN_FUNCTION.format("", "pass"), 4),
        ("class A:\n  SIZE = 8\n  @f(SIZE)\n  def g(self): ...", 8),
        ("SIZE = 4\nclass A:\n  SIZE = 8\n  def g(self): f(SIZE)", 4),
        ("if __name__ == '__main__':\n  SIZE = 8\n  f(SIZE)", 8),
        (IN_FUNCTION.format("SIZE", "pass"), None), (IN_FUNCTION.format("", "SIZE = 8; SIZE += 1"), None),
        (IN_FUNCTION.format("", "global SIZE; SIZE = 8"), None),
        (IN_FUNCTION.format("", "[(SIZE := 5)]"), None),
        ("SIZE = 4\nif a: SIZE = 8\nf(SIZE)", None), ("SIZE = 4\nlambda SIZE: f(SIZE)", None),
        ("SIZE = 4\nfor SIZE in a: f(SIZE)", None), ("import SIZE\nSIZE = 4\nf(SIZE)", None),
        ("SIZE = 4\n[f(SIZE) for SIZE in a]", None), ("SIZE = 4\ntry: ...\nexcept a as SIZE: f(SIZE)", None),
        ("SIZE = 4\ndef SIZE(): ...\nf(SIZE)", None), ("SIZE = int('x')\nf(SIZE)", None),
        ("SIZE = float('x')\nf(SIZE)", None),
        ("SIZE = 4\ndef g():\n  global SIZE\n  SIZE = 8\nf(SIZE)", None),
    ],
)  # fmt: skip
def test_a_name_has_the_value_that_its_scope_sets_once(text, meant):
    program = Program(text)
    found = program.value(next(call for call in program.calls if call.callee == "f").node.args[0])
    assert (None if isinstance(found, Source) else found) == meant


@pytest.mark.parametrize(
    "text",
    ["size()", "os.environ['A']", "1 / 0", "-'a'", "True + 1", "[a]", "{**b}", "2 ** 99999999", "f'{a}'"],
)
def test_any_other_expression_is_kept_as_it_stands_and_not_computed(text):
    found = value(text)
    assert isinstance(found, Source)
    assert repr(found) == ast.unparse(ast.parse(text, mode="eval").body)


def test_calls_are_found_wherever_they_are_with_what_they_are_of():
    program = Program(
        "@a.b(c())\nclass A(B):\n  @d\n  def e(self):\n"
        "    with f(g(H)) as x: return [i(name='j') for k in x.l()]\n"
    )
    found = [(call.callee, call.label, call.within.name if call.within else "") for call in program.calls]
    assert found == [
        ("a.b", "A", ""), ("c", "c", "A"), ("d", "e", "A"), ("f", "f", "A"), ("g", "H", "A"), ("i", "j", "A"),
        ("x.l", "l", "A"),
    ]  # fmt: skip


REAL = {
    "ray_serve": [("ray.serve", "batch"), ("ray.serve", "deployment")],
    "bentoml": [("bentoml", "api")],
    "litserve": [("litserve", "LitAPI"), ("litserve", "LitServer")],
    "mosec": [("mosec", "Server.append_worker")],
    "batched": [("batched", "dynamically"), ("batched.aio", "dynamically")],
    "textbook": [("batchsim", "InferenceBatcher")],
}
FORMS = {name: importlib.import_module(f"batchsim.servers.{name}").FORM for name in REAL}


def real(module, name):
    """Return a function of a server's package, or skip the test where that is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs
        try:
            found = importlib.import_module(module)
        except ImportError as error:
            pytest.skip(f"{module} is not installed: {error}")
        for part in name.split("."):
            found = getattr(found, part)
    return found


@pytest.mark.parametrize(("server", "place"), [(server, place) for server in REAL for place in REAL[server]])
def test_the_parameters_of_a_call_are_those_of_the_real_function_in_its_order(server, place):
    function = real(*place)
    form = FORMS[server]
    tail = place[1].rpartition(".")[2]
    callees = [*form.batching, *([form.around] if form.around else [])]
    ours = next(callee for callee in callees if callee.title.rpartition(".")[2].removeprefix("a ") == tail)
    theirs = [name.lstrip("_") for name in inspect.signature(function).parameters if name != "self"]
    params = [name.lstrip("_") for name in ours.params]
    assert {*theirs} - {"args", "kwargs"} <= {*params}
    shared = [name for name in params if name in theirs]
    assert shared == [name for name in theirs if name in shared]
