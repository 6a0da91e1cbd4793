"""Java's .properties, as its documentation has them, and JSON, with the place of each letter."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsim.servers.formats.document import place_in
from batchsim.servers.formats.keyed_text import parse_json, parse_properties


def pairs(text):
    return [(key, node.value) for key, node, _ in parse_properties(text)]


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


def test_each_letter_of_a_value_has_its_place():
    text = "# x\n  key = a\\\n   b\\u0063d"
    ((key, node, places),) = parse_properties(text)
    assert (key, place_in(text, node.at), node.value) == ("key", (2, 3), "abcd")
    assert [place_in(text, at) for at in places] == [(2, 9), (3, 4), (3, 5), (3, 11), (3, 12)]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.dictionaries(st.text(), inner)
)


@given(VALUES, st.sampled_from([None, 1]))
def test_each_key_of_json_has_its_place(value, indent):
    text = json.dumps(value, indent=indent)

    def check(node, value):
        assert (node.value, json.loads(text[slice(*node.span)])) == (value, value)
        assert [*node.items] == [*(value if isinstance(value, dict) else ())]
        for key, inner in node.items.items():
            assert json.JSONDecoder().raw_decode(text, inner.at)[0] == key
            check(inner, value[key])

    check(parse_json(text), value)


def test_an_escape_that_is_none_is_refused_with_its_place():
    with pytest.raises(ValueError, match=r"line 2, column 4: \\u must .* got '12'"):
        pairs("a=1\nb =\\u12")
