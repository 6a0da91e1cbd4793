"""Protocol buffers' text format: our tables are the servers' own messages, and each key has its place."""

import importlib.util
import math
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, json_format, text_format
from hypothesis import given, settings
from hypothesis import strategies as st
from places import DATA

from batchsim.servers import parse
from batchsim.servers.formats import text_proto
from batchsim.servers.formats.document import Document
from batchsim.servers.registry import ALL
from batchsim.servers.tf_serving import SCHEMA as TF_SERVING
from batchsim.servers.triton import SCHEMA

CONFIG = SCHEMA.message("ModelConfig")
EXAMPLE = DATA / "servers" / "triton" / "config.pbtxt"


def parsed(text):
    """Return the tree of a text, and the document that has its unknown keys."""
    server = ALL["triton"]
    document = Document(server, server.formats[0], text)
    return text_proto.parse(text, CONFIG, document), document


@pytest.fixture(scope="module")
def theirs():
    """Triton's own module of messages, which alone of its client is loaded."""
    package = importlib.util.find_spec("tritonclient")
    if package is None:
        pytest.skip("tritonclient, with Triton's own messages, is not installed")
    path = Path(package.submodule_search_locations[0]) / "grpc" / "model_config_pb2.py"
    spec = importlib.util.spec_from_file_location("model_config_pb2", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def described(message, prefix=""):
    """Yield each message below one, with its fields as (name, type, repeated, choice), in any order."""
    name = prefix + message.name
    choices = [choice.name for choice in message.oneof_decl]
    kinds = descriptor_pb2.FieldDescriptorProto.Type
    yield (
        name,
        message.options.map_entry,
        {
            field.name: (
                field.type_name.split(".", 2)[-1] or kinds.Name(field.type),
                field.label == field.LABEL_REPEATED,
                choices[field.oneof_index] if field.HasField("oneof_index") else "",
            )
            for field in message.field
        },
        {enum.name: [(value.name, value.number) for value in enum.value] for enum in message.enum_type},
    )
    for inner in message.nested_type:
        yield from described(inner, f"{name}.")


def file_of(descriptor):
    found = descriptor_pb2.FileDescriptorProto()
    descriptor.CopyToProto(found)
    return found


def test_the_table_of_tritons_messages_is_its_own_definition(theirs):
    ours = file_of(CONFIG.DESCRIPTOR.file)
    mine = {name: rest for message in ours.message_type for name, *rest in described(message)}
    own = {
        name: rest
        for message in file_of(theirs.DESCRIPTOR).message_type
        for name, *rest in described(message)
    }
    assert own.keys() == mine.keys()
    for name, rest in own.items():
        assert mine[name] == rest, name


def test_both_definitions_stand_beside_each_other_in_one_process(theirs):
    text = EXAMPLE.read_text()
    own = text_format.Parse(text, theirs.ModelConfig())
    mine, document = parsed(text)
    assert document.unknown == {}
    assert mine.value["dynamic_batching"]["max_queue_delay_microseconds"] == 5000
    assert own.dynamic_batching.max_queue_delay_microseconds == 5000


VALUES = {
    "TYPE_BOOL": st.booleans(), "TYPE_STRING": st.text(max_size=8),
    "TYPE_INT32": st.integers(-(2**31), 2**31 - 1), "TYPE_UINT32": st.integers(0, 2**32 - 1),
    "TYPE_INT64": st.integers(-(2**63), 2**63 - 1), "TYPE_UINT64": st.integers(0, 2**64 - 1),
    "TYPE_FLOAT": st.floats(width=32, allow_nan=False), "TYPE_DOUBLE": st.floats(allow_nan=False),
}  # fmt: skip


@st.composite
def contents(draw, name="ModelConfig", depth=0):
    """Any content of a message, as dictionaries and lists."""
    given_, chosen = {}, set()
    fields = SCHEMA.messages[name].split()
    for text in draw(st.lists(st.sampled_from(fields), max_size=5, unique=True)) if fields else ():
        field, many, key, value, plain, choice = text_proto._FIELD.fullmatch(text).groups()
        kind = value or plain
        if choice in chosen or (kind in SCHEMA.messages and depth > 2):
            continue
        chosen |= {choice} - {None}
        values = VALUES.get(f"TYPE_{kind.upper()}")
        if kind in SCHEMA.messages:
            values = contents(kind, depth + 1)
        elif kind in SCHEMA.enums:
            values = st.sampled_from(SCHEMA.enums[kind].split())
        if key:
            given_[field] = draw(
                st.dictionaries(VALUES[f"TYPE_{key.upper()}"], values, min_size=1, max_size=2)
            )
        else:
            given_[field] = draw(st.lists(values, min_size=1, max_size=2) if many else values)
    return given_


@settings(max_examples=60, deadline=None)
@given(contents())
def test_any_content_is_read_as_it_was_with_the_span_of_each_value(content):
    message = json_format.ParseDict(content, CONFIG())
    text = text_format.MessageToString(message, use_short_repeated_primitives=True)
    root, document = parsed(text)
    assert (root.value, document.unknown, root.items.keys()) == (content, {}, content.keys())
    for name, node in root.items.items():  # of the spans that were found, the same message
        spans = [f"{name} {text[slice(*each.span)]}" for each in (node, *node.more)]
        again = text_format.Parse("\n".join(each.replace(" ", ": ", 1) for each in spans), CONFIG())
        assert text_proto.plain(again) == {name: content[name]}


TEXTS = """\
# a comment
name: "a" 'b'  # texts in a row are one; "quoted" # twice
instance_group [ { count: 1 }, < kind: KIND_CPU count: 2 > ]
instance_group: { count: 0x10 };
dynamic_batching < preferred_batch_size: [4, 8] preferred_batch_size: 16, priority_levels: 2; >
optimization { cuda { graph_spec { input { key: "x" value { dim: -1 } } } } priority: 1 }
model_metrics { metric_control { histogram_options { buckets: [ 0.1, 1e3, -inf, 2f ] } } }
unknown_message { max_batch_size: 3 more { name: "}" } [some.kind] { x: 1 } list: [ 1, "]" ] }
unknown_list: [ 1, 2 ]
unknown_number: -5
dynamic_batchign: 5
max_batch_size: 8
"""


def test_all_of_the_grammar_is_understood_beside_keys_that_are_unknown():
    root, document = parsed(TEXTS)
    content = root.value
    assert content["name"] == "ab"
    assert [group.get("count") for group in content["instance_group"]] == [1, 2, 16]
    assert content["dynamic_batching"] == {"preferred_batch_size": [4, 8, 16], "priority_levels": 2}
    assert content["optimization"]["priority"] == "PRIORITY_MAX"
    assert content["model_metrics"]["metric_control"][0]["histogram_options"]["buckets"] == [
        0.1,
        1e3,
        -math.inf,
        2,
    ]
    assert content["max_batch_size"] == 8
    assert document.strange == {
        "unknown_message": (8, 1), "unknown_list": (9, 1), "unknown_number": (10, 1),
        "dynamic_batchign": (11, 1),
    }  # fmt: skip
    lines = TEXTS.splitlines()
    levels = root.find("dynamic_batching.priority_levels")
    assert document.place(levels) == (5, lines[4].index("priority_levels") + 1)
    assert TEXTS[slice(*root.find("dynamic_batching.preferred_batch_size").span)] == "[4, 8]"
    dim = root.find("optimization.cuda.graph_spec.input.value.dim")
    assert document.place(dim) == (6, lines[5].index("dim") + 1)


def test_a_default_that_is_given_is_told_from_one_that_is_not():
    root, _ = parsed("max_batch_size: 0 dynamic_batching { preserve_ordering: false }")
    assert root.value == {"max_batch_size": 0, "dynamic_batching": {"preserve_ordering": False}}


def test_tensorflow_servings_parameters_are_all_there():
    fields = TF_SERVING.message("BatchingParameters").DESCRIPTOR.fields_by_name
    assert {*fields} == {
        "max_batch_size", "batch_timeout_micros", "max_enqueued_batches", "num_batch_threads",
        "thread_pool_name", "allowed_batch_sizes", "pad_variable_length_inputs",
        "enable_large_batch_splitting", "max_execution_batch_size",
    }  # fmt: skip
    assert {name for name, field in fields.items() if field.message_type is None} == {
        "allowed_batch_sizes", "pad_variable_length_inputs",
    }  # fmt: skip


@pytest.mark.parametrize("size", ["${size}", "SIZE_OF_BATCH"])
def test_a_template_of_a_config_is_named(size):
    with pytest.raises(ValueError, match=r"line 1, column 17: .*; a template must be filled in first"):
        parse(f"max_batch_size: {size}\ndynamic_batching {{}}", "triton")
