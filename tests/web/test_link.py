"""A single object file becomes a module with its data, its stack and its functions in their places."""

import base64
import json
import shutil
import subprocess

import llvmlite.binding as llvm
import pytest

from batchsim.web.link import linked, number_at, parts, signed, unsigned
from batchsim.web.wasm import FEATURES, TARGET

# Two functions, the exported one last: it reads a table by way of the stack.
PRIMES = """
@table = internal constant [4 x i32] [i32 2, i32 3, i32 5, i32 7]
define internal i32 @twice(i32 %x) noinline {
  %y = shl i32 %x, 1
  ret i32 %y
}
define i32 @prime(i32 %i) {
  %kept = alloca [64 x i32]
  %at = getelementptr [64 x i32], ptr %kept, i32 0, i32 %i
  %from = getelementptr [4 x i32], ptr @table, i32 0, i32 %i
  %value = load i32, ptr %from
  store volatile i32 %value, ptr %at
  %back = load volatile i32, ptr %at
  %result = call i32 @twice(i32 %back)
  ret i32 %result
}
"""
# Functions that are called by their addresses, which are in a table.
CHOSEN = """
@both = internal constant [2 x ptr] [ptr @twice, ptr @plus_nine]
define internal i32 @twice(i32 %x) {
  %y = shl i32 %x, 1
  ret i32 %y
}
define internal i32 @plus_nine(i32 %x) {
  %y = add i32 %x, 9
  ret i32 %y
}
define i32 @prime(i32 %i) {
  %odd = and i32 %i, 1
  %from = getelementptr [2 x ptr], ptr @both, i32 0, i32 %odd
  %chosen = load ptr, ptr %from
  %result = call i32 %chosen(i32 %i)
  ret i32 %result
}
"""
OUTSIDE = """
declare i32 @frexp(i32)
define i32 @prime(i32 %i) {
  %y = call i32 @frexp(i32 %i)
  ret i32 %y
}
"""
IN_NODE = """
const module = new WebAssembly.Module(Buffer.from(process.argv[1], "base64"));
const { exports } = new WebAssembly.Instance(module, {});
const { memory, __heap_base, prime } = exports;
console.log(JSON.stringify([[0, 1, 2, 3].map(prime), __heap_base.value, memory.buffer.byteLength]));
"""


def compiled(text):
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(TARGET).create_target_machine(features=FEATURES, opt=0)
    head = f'target triple = "{TARGET}"\ntarget datalayout = "{machine.target_data}"\n'
    return machine.emit_object(llvm.parse_assembly(head + text))


def in_node(text):
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no Node, which runs modules without a browser")
    module = base64.b64encode(linked(compiled(text), ["prime"])).decode()
    told = subprocess.run([node, "--eval", IN_NODE, "--", module], capture_output=True, text=True, check=True)
    return json.loads(told.stdout)


def test_a_function_finds_its_data_its_stack_and_the_functions_that_it_calls():
    assert in_node(PRIMES) == [[4, 6, 10, 14], 131_072, 131_072]  # a page of data, one of stack


def test_a_function_finds_others_at_their_addresses():
    assert in_node(CHOSEN)[0] == [0, 10, 4, 12]


def test_a_module_imports_nothing_and_exports_what_is_named():
    sections = dict(parts(linked(compiled(PRIMES), ["prime"])[8:]))
    assert 2 not in sections
    assert [name in sections[7] for name in (b"memory", b"__heap_base", b"prime", b"twice")] == [1, 1, 1, 0]


def test_an_object_that_needs_a_function_from_outside_is_refused():
    with pytest.raises(
        ValueError, match=r"^the loops must need a memory, a stack and a table alone, got .*frexp"
    ):
        linked(compiled(OUTSIDE), ["prime"])


def test_a_function_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match=r"^the object must define draw, got twice, prime$"):
        linked(compiled(PRIMES), ["draw", "prime"])


@pytest.mark.parametrize("value", [0, 1, 63, 64, 127, 128, 8191, 8192, 65_536, 2**31 - 1])
def test_numbers_are_written_as_they_are_read(value):
    assert number_at(unsigned(value), 0) == (value, len(unsigned(value)))
    assert number_at(signed(value), 0)[0] == value
    assert signed(value)[-1] < 64  # else its sign would be minus
