"""How a loop calls a function at an address, with more than fits into a few arguments.

The rest is in `cells` of 8 bytes, value by value: a number in one, an array as its address and its shape.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, attr-defined"

from collections.abc import Iterator
from typing import Any

import numpy as np

from batchsim.engines.compiled.backend import (
    if_unlikely,
    intrinsic,
    make_array,
    populate_array,
    types,
    unpack_tuple,
)


def fields_of(kind: Any) -> tuple[Any, ...]:
    """Return the types of a tuple's fields."""
    return tuple(kind)


def cells_of(kind: Any) -> int:
    """Return how many cells a value of a type takes."""
    if isinstance(kind, types.BaseTuple):
        return sum(map(cells_of, fields_of(kind)))
    return 1 + kind.ndim if isinstance(kind, types.Array) else 1


def _flat(values: tuple[Any, ...]) -> Iterator[np.ndarray]:
    for value in values:
        if isinstance(value, tuple):
            yield from _flat(value)
            continue
        found = np.asarray(value)
        if found.dtype.kind not in "biuf" or found.itemsize > 8 or not found.flags.c_contiguous:
            raise TypeError(f"a rule's params must be numbers and arrays of numbers, got {value!r}")
        yield found


def with_space(values: tuple[Any, ...], count: int) -> np.ndarray:
    """Return `count` free cells, then the values, and behind them the contents of their arrays."""
    flat = list(_flat(values))
    contents = [each.tobytes() for each in flat]
    contents = [each + bytes(-len(each) % 8) for each in contents]
    behind = count + sum(1 + each.ndim for each in flat)
    cells = np.zeros(behind + sum(map(len, contents)) // 8, np.int64)
    for value, content in zip(flat, contents, strict=True):
        own = np.frombuffer(content, np.int64)
        if value.ndim:
            cells[behind : behind + own.size] = own
            own, behind = np.array([cells[behind:].ctypes.data, *value.shape]), behind + own.size
        cells[count : count + own.size] = own
        count += own.size
    return cells


def _cell(context, builder, cells, place, kind):
    pointer = builder.gep(cells, [context.get_constant(types.intp, place)])
    return builder.bitcast(pointer, context.get_data_type(kind).as_pointer())


def store(context, builder, cells, place, kind, value, arrays):
    """Write a tuple's numbers, or where its arrays are, to cells from a place on, as code of LLVM."""
    if isinstance(kind, types.BaseTuple):
        for number, each in enumerate(fields_of(kind)):
            field = builder.extract_value(value, number)
            store(context, builder, cells, place, each, field, arrays)
            place += cells_of(each)
    elif isinstance(kind, types.Array) and arrays:
        array = make_array(kind)(context, builder, value)
        address = builder.ptrtoint(array.data, context.get_value_type(types.intp))
        for number in (address, *unpack_tuple(builder, array.shape)):
            builder.store(number, _cell(context, builder, cells, place, types.intp))
            place += 1
    elif not isinstance(kind, types.Array) and not arrays:
        data = context.data_model_manager[kind].as_data(builder, value)
        builder.store(data, _cell(context, builder, cells, place, kind))


def _read(context, builder, cells, place, kind):
    if isinstance(kind, types.BaseTuple):
        fields = []
        for each in fields_of(kind):
            fields.append(_read(context, builder, cells, place, each))
            place += cells_of(each)
        return context.make_tuple(builder, kind, fields)
    if not isinstance(kind, types.Array):
        data = builder.load(_cell(context, builder, cells, place, kind))
        return context.data_model_manager[kind].from_data(builder, data)
    pointers = (_cell(context, builder, cells, place + k, types.intp) for k in range(1 + kind.ndim))
    address, *shape = map(builder.load, pointers)
    item = context.get_data_type(kind.dtype)
    strides = [context.get_constant(types.intp, context.get_abi_sizeof(item))]
    for length in shape[:0:-1]:
        strides.insert(0, builder.mul(strides[0], length))
    array, data = make_array(kind)(context, builder), builder.inttoptr(address, item.as_pointer())
    populate_array(array, data, shape, strides, strides[-1], None)
    return array._getvalue()


def _writer(arrays: bool) -> Any:
    def write(typing, cells, value):
        def code(context, builder, signature, given):
            pointer = make_array(signature.args[0])(context, builder, given[0]).data
            store(context, builder, pointer, 0, signature.args[1], given[1], arrays)
            return context.get_dummy_value()

        return types.void(cells, value), code

    return intrinsic(write)


# Write a tuple's numbers, or where its arrays are, to the first cells.
write_numbers, write_arrays = _writer(False), _writer(True)


def _reader(typing, cells):
    def code(context, builder, signature, given):
        pointer = context.get_value_type(types.CPointer(types.int64))
        return _read(context, builder, builder.bitcast(given[0], pointer), 0, signature.return_type)

    return cells.dtype(cells), code


# Return the values in the cells at an address, whose types are that of the pointer.
read: Any = intrinsic(_reader)


def caller(result: Any, *kinds: Any) -> Any:
    """Return a function that calls another one at an address, with arguments of some types and cells.

    With Numba's own convention, so the loop raises what that function raises.
    """

    def call(typing, address, arguments, cells):
        taken = (*kinds, types.voidptr)

        def code(context, builder, signature, given):
            convention = context.call_conv
            function = builder.inttoptr(given[0], convention.get_function_type(result, taken).as_pointer())
            data = make_array(signature.args[2])(context, builder, given[2]).data
            pointer = builder.bitcast(data, context.get_value_type(types.voidptr))
            numbers = zip(unpack_tuple(builder, given[1]), signature.args[1], kinds, strict=True)
            values = [*(context.cast(builder, *number) for number in numbers), pointer]
            status, value = convention.call_function(builder, function, result, taken, values)
            with if_unlikely(builder, status.is_error):
                convention.return_status_propagate(builder, status)
            return value

        return result(address, arguments, cells), code

    return intrinsic(call)


def address_of(function: Any, result: Any, *kinds: Any) -> int:
    """Return the address of a compiled function with these types; compile it first."""
    function.compile(kinds)
    found = function.overloads[kinds]
    assert found.signature.return_type == result, found.signature
    return int(found.library.get_pointer_to_function(found.fndesc.llvm_func_name))
