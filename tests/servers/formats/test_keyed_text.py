"""Java's .properties, as its documentation has them, with the place of each letter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsim.servers.formats.keyed_text import parse_properties, property_of


def pairs(text):
    return [(prop.key, prop.value) for prop in parse_properties(text)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Truth = Beauty", [("Truth", "Beauty")]),
        (" Truth:Beauty", [("Truth", "Beauty")]),
        ("Truth\t\t\t:Beauty", [("Truth", "Beauty")]),
        ("fruits   apple, \\\n   banana \\\n  and more", [("fruits", "apple, banana and more")]),
        ("cheeses", [("cheeses", "")]),
        ("# no\n! no\n\n  # no\na=1\r\nb=2\rc=3", [("a", "1"), ("b", "2"), ("c", "3")]),
        ("a==1", [("a", "=1")]),
        ("a=1 # no comment ", [("a", "1 # no comment ")]),
        (r"a\ b\:c=\u0041\t\q", [("a b:c", "A\tq")]),
        ("a=1\\", [("a", "1")]),
        ("a=\\\n# goes on", [("a", "# goes on")]),
        ("", []),
        ("\\\n", []),
    ],
)  # fmt: skip
def test_lines_are_read_as_java_reads_them(text, found):
    assert pairs(text) == found


@given(st.text(st.sampled_from('ab{}": ,\\\n#='), max_size=30).filter(lambda text: text.strip() == text))
def test_what_is_escaped_is_read_as_it_was_but_for_blanks_where_a_line_begins(value):
    ((key, found),) = pairs(property_of("key", value))
    assert key == "key"
    assert found == "".join(
        line.lstrip(" ") if number else line for number, line in enumerate(value.split("\n"))
    )


def test_each_letter_of_a_value_has_its_place():
    (prop,) = parse_properties("# x\n  key = a\\\n   b\\u0063d")
    assert (prop.key, prop.place) == ("key", (2, 3))
    assert prop.value == "abcd"
    assert [prop.value_at(at) for at in range(5)] == [(2, 9), (3, 4), (3, 5), (3, 11), (3, 12)]


def test_an_escape_that_is_none_is_refused_with_its_place():
    with pytest.raises(ValueError, match=r"line 2, column 4: \\u must .* got '12'"):
        parse_properties("a=1\nb =\\u12")
