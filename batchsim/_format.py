"""Numbers, durations, lists and tables as text for people."""

import html
import math
import reprlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

MINUS, INFINITE, NONE = "\N{MINUS SIGN}", "∞", "\N{EN DASH}"
UNITS = ((1000.0, "s", 1000.0), (1.0, "ms", 1.0), (0.0, "µs", 0.001))  # the least ms, the unit, and its ms


def number(value: float, digits: int = 3) -> str:
    """Return a number with `digits` significant digits, and all digits before its point.

    >>> number(17.5778), number(1398.2), number(0.04), number(97_500.4), number(2.5e-7), number(math.inf)
    ('17.6', '1,398', '0.04', '97,500', '0.00000025', '∞')
    """
    text = fixed(value, digits)
    return text.rstrip("0").rstrip(".") if "." in text else text


def fixed(value: float, digits: int = 3) -> str:
    """Return a number with `digits` significant digits and its final zeros, for columns and labels.

    >>> fixed(12.345), fixed(0.0123456), fixed(1234.6), fixed(7), fixed(999.96, 4), fixed(math.nan)
    ('12.3', '0.0123', '1,235', '7.00', '1,000', '–')
    """
    if math.isnan(value):
        return NONE
    if math.isinf(value):
        return INFINITE if value > 0 else MINUS + INFINITE
    if value == 0:
        return "0"
    power = int(f"{value:.{digits - 1}e}".partition("e")[2])  # after rounding: 9.996 has two digits before
    return f"{value:,.{max(digits - 1 - power, 0)}f}"


def signed(value: float, digits: int = 3) -> str:
    """Return a difference with its sign.

    >>> signed(0.0312), signed(-2.5), signed(0)
    ('+0.0312', '−2.5', '0')
    """
    sign = "" if not value or math.isnan(value) else MINUS if value < 0 else "+"
    return sign + number(abs(value), digits)


def percent(share: float) -> str:
    """Return a fraction as a percentage, with more digits near 0 and 1, and there never rounded towards them.

    A load may be above 1.

    >>> percent(0.698), percent(0.934), percent(0.98996), percent(0.999999), percent(1), percent(0.0026)
    ('70%', '93.4%', '98.9%', '99.99%', '100%', '0.26%')
    >>> percent(1.25), percent(math.inf)
    ('125%', '∞%')
    """
    if math.isnan(share):
        return NONE
    if share == 0 or share >= 1:
        return f"{number(share * 100)}%"
    near = min(share, 1 - share)
    if near >= 0.1:
        return f"{share:.0%}"
    digits = 1 if near >= 0.01 else 2
    step = 10.0 ** (2 + digits)
    whole = math.floor(share * step + 1e-6) if share > 0.5 else math.ceil(share * step - 1e-6)
    return f"{min(max(whole, 1), step - 1) / step:.{digits}%}"


def whole_percent(share: float) -> str:
    """Return a fraction as a whole percentage, or with more digits where it is not quite 0 or 1.

    >>> whole_percent(0.414), whole_percent(0.9967), whole_percent(1)
    ('41%', '99.67%', '100%')
    """
    text = f"{share:.0%}"
    return percent(share) if text in ("0%", "100%") else text


def decimals(value: float, digits: int = 2) -> str:
    """Return a number with `digits` digits after its point, or more where these would all be 0.

    >>> decimals(12.345), decimals(0), decimals(0.000111), decimals(987_654_321, 1), decimals(math.nan)
    ('12.35', '0.00', '0.00011', '987,654,321.0', '–')
    """
    if not math.isfinite(value):
        return fixed(value)
    text = f"{value:.{digits}f}" if value < 1e6 else f"{value:,.{digits}f}"
    return text if not value or float(text.replace(",", "")) else number(value, 2)


def rate(per_s: float, digits: int = 3) -> str:
    """Return a rate.

    >>> rate(1400.2), rate(12.345)
    ('1,400/s', '12.3/s')
    """
    return f"{number(per_s, digits)}/s"


def rates(*per_s: float) -> list[str]:
    """Return rates with the digits that tell them apart.

    >>> rates(10_000, 8_000), rates(1.00004, 1), rates(1, 1)
    (['10,000/s', '8,000/s'], ['1.00004/s', '1/s'], ['1/s', '1/s'])
    """
    found = ([rate(each, digits) for each in per_s] for digits in range(3, 18))
    return next((each for each in found if len({*each}) == len({*per_s})), [rate(each) for each in per_s])


def counted(count: float, noun: str) -> str:
    """Return a count, or a mean count, with its noun, in the plural unless it is one.

    >>> counted(1, "server"), counted(2400, "setting"), counted(1.0004, "request")
    ('1 server', '2,400 settings', '1 request')
    """
    text = f"{count:,}" if isinstance(count, int) else number(count)
    return f"{text} {noun}" + ("" if text == "1" else "es" if noun.endswith("ch") else "s")


def size(count: int) -> str:
    """Return a number of bytes.

    >>> size(2**20), size(3_500_000), size(2**30)
    ('1 MiB', '3.34 MiB', '1,024 MiB')
    """
    return f"{number(count / 2**20)} MiB"


LONGEST = 1_500  # characters of an error
_BRIEF = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = BRIEF = 80  # characters of a value in a message
_BRIEF.maxlist = _BRIEF.maxtuple = _BRIEF.maxdict = _BRIEF.maxset = 20


def brief(value: Any, at_most: int = BRIEF) -> str:
    """Return a value for a message, in at most so many characters.

    >>> brief([1, 2.5, "x"]), len(brief("a" * 1000)), brief(10**5000)
    ("[1, 2.5, 'x']", 80, 'a number of 16,610 bits')
    """
    if type(value) is int and value.bit_length() > 1000:  # Python refuses to print still longer ones
        return f"a number of {value.bit_length():,} bits"
    return brief_text(_BRIEF.repr(value), at_most)


def several(parts: Sequence[str], most: int = 5) -> str:
    """Return the first parts of a list, and the number of the others.

    >>> several(["a", "b"]), several([f"x{n}" for n in range(3000)], 2)
    ('a, b', 'x0, x1 and 2,998 more')
    """
    more = f" and {len(parts) - most:,} more" if len(parts) > most else ""
    return ", ".join(brief_text(part) for part in parts[:most]) + more


def brief_text(text: str, at_most: int = BRIEF) -> str:
    """Return the beginning of a text, as `printable`.

    >>> brief_text("a long word", 7)
    'a long…'
    """
    return printable(text if len(text) <= at_most else f"{text[: at_most - 1]}…")


def printable(text: str) -> str:
    r"""Return a text without characters that a terminal obeys or hides; ends of lines, tabs and spaces stay.

    >>> printable("a\x1b[2J\x9bb\u202ec\n")
    'a[2Jbc\n'
    """
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else " " * letter.isspace() for letter in text
    )


def in_one_line(text: str, at_most: int = LONGEST) -> str:
    """Return the beginning of a text in one line, as `printable`."""
    return brief_text(" ".join(text.split()), at_most)


def listed(parts: Sequence[str], last: str = "and") -> str:
    """Return parts as a list in a sentence.

    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    *first, end = parts
    return f"{', '.join(first)} {last} {end}" if first else end


def ordinal(value: int) -> str:
    """Return "1st", "2nd", ... "11th".

    >>> [ordinal(n) for n in (2, 3, 4, 11, 12, 13, 21, 102, 1112)]
    ['2nd', '3rd', '4th', '11th', '12th', '13th', '21st', '102nd', '1,112th']
    """
    ending = "th" if value % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(value % 10, "th")
    return f"{value:,}{ending}"


def typed(value: float) -> str:
    """Return a number as a person typed it.

    >>> typed(10.0), typed(2.5), typed(0.1 + 0.2)
    ('10', '2.5', '0.3')
    """
    return f"{value:.12g}"


def as_typed(value: float) -> float:
    """Return a number without the last digits that arithmetic left, as of seconds in milliseconds.

    >>> 1000 * 0.0041, as_typed(1000 * 0.0041)
    (4.1000000000000005, 4.1)
    """
    return float(typed(value))


def unit_of(ms: float) -> tuple[str, float]:
    """Return the unit that suits a duration, and its milliseconds.

    >>> unit_of(1000), unit_of(999.9), unit_of(0.02)
    (('s', 1000.0), ('ms', 1.0), ('µs', 0.001))
    """
    return next((unit, size) for least, unit, size in UNITS if ms >= least)


def rounded_unit_of(ms: float) -> tuple[str, float]:
    """Return the unit that suits a duration once it is rounded to three digits, and its milliseconds.

    >>> rounded_unit_of(999.4), rounded_unit_of(999.6)
    (('ms', 1.0), ('s', 1000.0))
    """
    return unit_of(float(f"{ms:.2e}"))


def duration(ms: float) -> str:
    """Return a duration in the unit that suits it.

    >>> duration(12.345), duration(0.05), duration(999.4), duration(999.6), duration(math.inf)
    ('12.3 ms', '50.0 µs', '999 ms', '1.00 s', '∞')
    """
    if not math.isfinite(ms):
        return fixed(ms)
    unit, size = rounded_unit_of(ms)
    return f"{fixed(ms / size)} {unit}"


def typed_duration(ms: float) -> str:
    """Return a duration as a person typed it.

    >>> typed_duration(50.0), typed_duration(2500), typed_duration(0)
    ('50 ms', '2.5 s', '0 ms')
    """
    unit, size = unit_of(ms) if ms else ("ms", 1.0)
    return f"{typed(float(f'{ms / size:.10g}'))} {unit}"


def tick(value: float, _: Any = None) -> str:
    """Return a number as an axis label.

    >>> tick(0.5), tick(999.5), tick(-1000.0), tick(2.5e6)
    ('0.5', '999.5', '-1k', '2.5M')
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def tick_in(unit_ms: float) -> Callable[..., str]:
    """Return a function that labels an axis of milliseconds in units of `unit_ms` milliseconds."""
    return lambda value, _=None: tick(float(f"{value / unit_ms:.10g}"))


SIDES = {"<": "left", ">": "right"}


def aligned(rows: Sequence[Sequence[str]], sides: str) -> list[str]:
    """Return a line for each row, with columns of equal width; `sides` has "<" or ">" for each.

    >>> aligned([["", "mean"], ["Triton", "5"]], "<>")
    ['        mean', 'Triton     5']
    """
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = (zip(row, sides, wide, strict=True) for row in rows)
    return ["  ".join(f"{text:{side}{width}}" for text, side, width in row).rstrip() for row in cells]


def html_table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], sides: str) -> str:
    """Return a table with its texts escaped; `sides` as of `aligned`. Without heads, rows begin with theirs.

    >>> html_table("Waits", ["ms"], [["< 5"]], ">")[-72:]
    '<tbody><tr><td style="text-align:right">&lt; 5</td></tr></tbody></table>'
    """

    def row(texts: Sequence[str], scopes: Sequence[str]) -> str:
        cells = (
            f'<th scope="{scope}" style="text-align:{SIDES[side]}">{html.escape(text)}</th>'
            if scope
            else f'<td style="text-align:{SIDES[side]}">{html.escape(text)}</td>'
            for text, side, scope in zip(texts, sides, scopes, strict=True)
        )
        return f"<tr>{''.join(cells)}</tr>"

    plain = [""] * len(sides)
    head = f"<thead>{row(heads, ['col'] * len(sides))}</thead>" if heads else ""
    body = "".join(row(texts, plain if heads else ["row", *plain[1:]]) for texts in rows)
    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return f"<table>{title}{head}<tbody>{body}</tbody></table>"
