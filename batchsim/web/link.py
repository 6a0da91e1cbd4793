"""An object file of LLVM as a module of its own: no linker is installed with Numba.

LLVM writes every address into an object file as if it were the only one, from 0 on, so a single one needs
nothing but a memory and its exports. WebAssembly's tool conventions, "Linking", describe the file.
"""

import re
from collections.abc import Collection, Iterator

MAGIC = b"\0asm\1\0\0\0"
TYPES, IMPORTS, FUNCTIONS, TABLES, MEMORIES, GLOBALS, EXPORTS, ELEMENTS = 1, 2, 3, 4, 5, 6, 7, 9
CODE, DATA, DATA_COUNT = 10, 11, 12
ORDER = (TYPES, FUNCTIONS, TABLES, MEMORIES, GLOBALS, EXPORTS, ELEMENTS, DATA_COUNT, CODE, DATA)
# A memory whose pages hold the data; the place of the stack, if a function uses it; and a table of functions,
# if some are called by their address.
KNOWN = re.compile(
    rb"[\x01-\x03]\x03env\x0f__linear_memory\x02\x00([\x00-\x7e])"
    rb"(\x03env\x0f__stack_pointer\x03\x7f\x01)?(?:\x03env\x19__indirect_function_table\x01\x70\x00([\x00-\x7e]))?"
)
PAGE = 65_536  # bytes; the stack has one, between the data and the heap
SYMBOLS = 8  # the part of the section "linking" with the symbols
FUNCTION, DATUM, SECTION = 0, 1, 3  # kinds of symbols
UNDEFINED, NAMED = 0x10, 0x40  # flags of symbols


def linked(code: bytes, names: Collection[str]) -> bytes:
    """Return an object file as a module that exports functions, `memory` and `__heap_base`.

    ValueError if it needs more than a memory, a stack and a table, or lacks one of the functions.
    """
    sections, symbols = {}, b""
    for number, body in parts(code[len(MAGIC) :]):
        if number:
            sections[number] = body
        elif body.startswith(b"\7linking"):
            symbols = dict(parts(body[9:]))[SYMBOLS]  # behind the name and a version
    imported = sections.pop(IMPORTS)
    found = KNOWN.fullmatch(imported)
    if not found or not sections.keys() <= set(ORDER):
        raise ValueError(
            f"the loops must need a memory, a stack and a table alone, got {imported!r}, {[*sections]}"
        )
    places = dict(functions(symbols))
    if missing := [name for name in names if name not in places]:
        raise ValueError(f"the object must define {', '.join(missing)}, got {', '.join(places)}")
    pages, uses_stack = found[1][0] + 1, found[2] is not None
    top = b"\x41" + signed(pages * PAGE) + b"\x0b"
    sections[MEMORIES] = b"\1\0" + unsigned(pages)
    if found[3]:
        sections[TABLES] = b"\1\x70\0" + unsigned(found[3][0] + 1)  # the first address, 0, has no function
    sections[GLOBALS] = (b"\2\x7f\1" + top if uses_stack else b"\1") + b"\x7f\0" + top
    exports = {"memory": b"\2\0", "__heap_base": b"\3" + unsigned(uses_stack)}
    exports |= {name: b"\0" + unsigned(places[name]) for name in names}
    entries = (sized(name.encode()) + what for name, what in exports.items())
    sections[EXPORTS] = unsigned(len(exports)) + b"".join(entries)
    return MAGIC + b"".join(bytes([each]) + sized(sections[each]) for each in ORDER if each in sections)


def parts(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the parts of a file, or of a section: a number, a size, and so many bytes."""
    at = 0
    while at < len(content):
        number = content[at]
        size, at = number_at(content, at + 1)
        yield number, content[at : at + size]
        at += size


def functions(symbols: bytes) -> Iterator[tuple[str, int]]:
    """Yield the names and the places of the functions that a table of symbols defines."""
    count, at = number_at(symbols, 0)
    for _ in range(count):
        kind = symbols[at]
        flags, at = number_at(symbols, at + 1)
        place, name = 0, b""
        if kind != DATUM:
            place, at = number_at(symbols, at)
        if kind == DATUM or (kind != SECTION and (not flags & UNDEFINED or flags & NAMED)):
            size, at = number_at(symbols, at)
            name, at = symbols[at : at + size], at + size
        if kind == DATUM and not flags & UNDEFINED:
            for _ in range(3):  # its segment, its offset and its size
                _, at = number_at(symbols, at)
        if kind == FUNCTION and not flags & UNDEFINED:
            yield name.decode(), place


def number_at(content: bytes, at: int) -> tuple[int, int]:
    """Return the unsigned LEB128 number at a place, and the place behind it."""
    value = shift = 0
    while content[at] & 0x80:
        value |= (content[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return value | content[at] << shift, at + 1


def unsigned(value: int) -> bytes:
    """Return a number as unsigned LEB128.

    >>> unsigned(300).hex(), number_at(unsigned(300), 0)
    ('ac02', (300, 2))
    """
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + unsigned(rest) if rest else bytes([low])


def signed(value: int) -> bytes:
    """Return a number, at least 0, as signed LEB128, whose last byte is below 64."""
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + signed(rest) if rest or low & 0x40 else bytes([low])


def sized(content: bytes) -> bytes:
    """Return bytes behind their number."""
    return unsigned(len(content)) + content
