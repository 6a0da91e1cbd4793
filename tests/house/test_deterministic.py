"""The inputs of a test are the same whatever ran before it, and `make fuzz` asks for more of them."""

import subprocess
import sys
import textwrap

import examples
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import TESTS

DRAWN_TWICE = """
    import importlib
    from hypothesis import given, settings, strategies as st

    def drawn():
        values = []

        @settings(derandomize=True, max_examples=200, database=None)
        @given(whole=st.integers(), number=st.floats())
        def draw(whole, number):
            values.append(repr((whole, number)))

        draw()
        return values

    before = drawn()
    importlib.import_module("local_module")
    print(drawn() == before)
"""


@pytest.mark.parametrize(("guard", "same"), [("import examples", True), ("", False)])
def test_only_under_our_guard_are_inputs_the_same_whatever_module_is_loaded_before(tmp_path, guard, same):
    # If hypothesis draws the same without it, the guard in examples.py is no longer needed.
    constants = [[10**6 + k, k + 0.123] for k in range(100)]
    (tmp_path / "local_module.py").write_text(f"CONSTANTS = {constants}\n")
    path = f"import sys; sys.path[:0] = {[str(tmp_path), str(TESTS / 'helpers')]}\n"
    program = path + guard + textwrap.dedent(DRAWN_TWICE)
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"{same}\n", "")


@pytest.mark.parametrize("own", [{}, {"max_examples": 7}], ids=repr)
def test_fuzzing_multiplies_the_examples_of_each_property(own):
    drawn = []

    @settings(**own, derandomize=True, database=None)
    @given(st.integers())
    def draw(value):
        drawn.append(value)

    draw()
    usual = len(drawn)
    drawn.clear()
    examples.multiply({draw, DRAWN_TWICE.format, None}, 3)
    draw()
    assert (usual, len(drawn)) == (own.get("max_examples", 100), 3 * usual)
