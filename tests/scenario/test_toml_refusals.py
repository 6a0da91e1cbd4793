"""What a scenario's file must not say is refused with its place."""

import dataclasses
import re

import pytest
from refusals import rows
from scenarios import BY_HAND, part, refused, with_table

import batchsim as bs
from batchsim.scenario import OpenLoop, Rule, Service
from batchsim.scenario.toml import KINDS, keys_of, kind_of

TABLES = rows("""
[rule] ; kind = "SizeOrWait" ; max_batchsize = 8
    -> [rule]: SizeOrWait ... 'max_batchsize'; did you mean 'max_batch_size'?
[rule] ; kind = "SizeOrWait" ; servers = 2 -> [rule]: SizeOrWait ... 'servers'; ... above the first [table]
[rule] ; kind = "SizeOrWait" ; max_batch_size = 0 -> [rule] max_batch_size must be at least 1, got 0
[rule] ; kind = "SizeOrWait" ; max_batch_size = 8.0 -> [rule] max_batch_size must be a whole number, got 8.0
[rule] ; kind = "SizeOrWait" ; max_batch_size = true -> [rule] max_batch_size must be a whole number, got True
[rule] ; kind = "SizeOrWait" ; max_wait_ms = nan -> [rule] max_wait_ms must be a number, got nan
[rule] ; kind = "SizeOrWait" ; max_wait_ms = "5" -> [rule] max_wait_ms must be a number, got '5'
[rule] ; kind = "SizeOrWait" ; max_wait_ms = 2026-01-01
    -> [rule] max_wait_ms must be a number, got datetime.date(2026, 1, 1)
[rule] ; kind = "AtLeast" ; max_batch_size = 8
    -> [rule] must have 'min_batch_size' for AtLeast, got max_batch_size
[rule] ; kind = "sizeorwait"
    -> [rule] kind must be one of SizeOrWait, ..., got 'sizeorwait'; did you mean 'SizeOrWait'?
[rule] ; kind = "WaitSinceLast" ; max_wait_ms = 5
    -> [rule] kind must ... got 'WaitSinceLast'; it was removed: ... `FrozenBatches`...
[rule] ; kind = "Affine" -> [rule] kind must be one of SizeOrWait, ..., got 'Affine'
[rule] ; kind = 5 -> [rule] kind must be one of SizeOrWait, ..., got 5
[rule] ; kind = ["AtLeast"]
    -> [rule] kind must be one of SizeOrWait, ..., got ['AtLeast']; did you mean 'AtLeast'?
[rule] ; max_batch_size = 8 -> [rule] must have a kind, one of SizeOrWait, ..., got max_batch_size
[rule] -> [rule] must have a kind, one of SizeOrWait, ..., got no keys
[workload] ; kind = "Poisson" -> [workload] must have 'rate_per_s' for Poisson, got no keys
[workload] ; kind = "Gamma" ; rate_per_s = 9 -> [workload] must have 'cv' for Gamma, got rate_per_s
[workload] ; kind = "Poisson" ; rate_per_s = inf -> [workload] rate_per_s must be finite, got inf
[workload] ; kind = "Trace" ; times_s = [1, nan] -> [workload] times_s must be finite, got nan at index 1
[workload] ; kind = "Trace" ; times_s = "1" -> [workload] times_s must be numbers of seconds, got '1'
[workload] ; kind = "Trace" ; times_s = [1] ; path = "a.csv"
    -> [workload] must have 'times_s' or 'path', got both
[workload] ; kind = "Trace" ; column = "a" -> [workload] must have 'path' for Trace, got column
[workload] ; kind = "Trace" ; path = 5 -> [workload] path must be the name of a file, got 5
[workload] ; kind = "Trace" ; path = "" -> [workload] path must be the name of a file, got ''
[workload] ; kind = "Trace" ; path = "none.csv"
    -> [workload] path must be a file that can be read, got [Errno 2] No such file or directory: 'none.csv'
[workload] ; kind = "Trace" ; path = "none.csv" ; speedup = 0
    -> [workload] speedup must be greater than 0, got 0
[service] ; kind = "Table" ; points_ms = {1 = 2, "1.5" = 3}
    -> [service] points_ms: a key must be a whole number, got '1.5'
[service] ; kind = "Table" ; points_ms = {1 = 2, 01 = 3}
    -> [service] points_ms: a key must be a whole number, got '01'
[service] ; kind = "Table" ; points_ms = {0 = 2} -> [service] a batch size must be at least 1, got 0
[service] ; kind = "Table" ; points_ms = {32 = -2}
    -> [service] the time of batch size 32 must be greater than 0, got -2
[service] ; kind = "Table" ; points_ms = 2 -> [service] a Table must be given as {batch_size: ms}, got 2
[service] ; kind = "Affine" ; fixed_ms = 1 ; per_item_ms = 1 ; noise = 0.5
    -> [service.noise] must be a table, got 0.5
[service] ; kind = "Affine" ; fixed_ms = 1 ; per_item_ms = 1 ; noise = {cv = -1}
    -> [service.noise] cv must be at least 0, got -1
[service] ; kind = "Affine" ; fixed_ms = 1 ; per_item_ms = 1 ; noise = {cv = 1, form = "lognormal"}
    -> [service.noise]: Noise ... 'form'; known: correlation, cv, memory_batches, shape
[service] ; kind = "Affine" ; fixed_ms = 1 ; per_item_ms = 1 ; padding = 8
    -> [service] padded sizes must be a list of sizes, got 8
[service] ; kind = "published" ; name = "gpunet-175ms/v100-32gb/fp61"
    -> [service] ... 'gpunet-175ms/v100-32gb/fp61'; did you mean 'gpunet-175ms/v100-32gb/fp16'?
""")


HUGE = (
    f'[workload] ; kind = "Poisson" ; rate_per_s = {"9" * 400}',
    "[workload] rate_per_s must be finite, got a number too large for a float",
)


@pytest.mark.parametrize(("table", "message"), [*TABLES, HUGE])
def test_a_table_is_refused_with_its_place(table, message, tmp_path):
    table = table.replace(" ; ", "\n")
    with refused(message):
        part(table)
    text = with_table(**{table.strip("[")[: table.strip("[").index("]")]: table})
    (tmp_path / "scenario.toml").write_text(text)
    if "none.csv" not in table:  # which is sought beside the file
        with refused(f"{tmp_path / 'scenario.toml'}, {message}"):
            bs.Scenario.from_toml(tmp_path / "scenario.toml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (with_table(rule=None), "the top level must have 'rule' for ... got workload, service"),
        ("\n", "the top level must have 'workload' for ... got no keys"),
        ("server = 2\n" + with_table(), "the top level: ... 'server'; did you mean 'servers'?"),
        ("servers = 2.5\n" + with_table(), "servers must be a whole number, got 2.5"),
        ("servers = 0\n" + with_table(), "servers must be at least 1, got 0"),
        ("timeout_ms = nan\n" + with_table(), "timeout_ms must be a number, got nan"),
        ("queue_limit = inf\n" + with_table(), "queue_limit must be a whole number, got inf"),
        ("slowdown = 2\n" + with_table(), "slowdown must be {busy servers: factor}, got 2"),
        (
            with_table(rule="", x="[slowdown]\none = 1"),
            "the top level must have 'rule' for ... got workload, service, slowdown",
        ),
        (with_table(x="[slowdown]\none = 1"), "[slowdown] a key must be a whole number, got 'one'"),
        (
            with_table(x="[slowdown]\n1 = 1\ntimeout_ms = 5"),
            "[slowdown] a key must be a whole number, got 'timeout_ms'; ... above the first [table]",
        ),
        (
            "servers = 2\n" + with_table(x="[slowdown]\n1 = 1"),
            "slowdown must have a factor for each of 1..2 busy servers, got none for 2",
        ),
        (
            with_table(service='[service]\nkind = "Table"\npoints_ms = {1 = 2, 8 = 3}'),
            "batch_size must be at most the Table's largest size, 8, got 9",
        ),
        ("workload = 5\n" + with_table(workload=None), "[workload] must be a table, got 5"),
        (with_table(rule="[[rule]]\nx = 1"), "[rule] must be a table, got [{'x': 1}]"),
    ],
)
def test_a_scenario_is_refused_with_the_reason(text, message):
    with refused(message):
        bs.Scenario.from_toml(text)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (BY_HAND + "x\n", r"\(at line 23, column 2\)"),
        (BY_HAND + "[rule]\n", r"Cannot declare .*\(at line 23, column 6\)"),
        ("servers = 1\nservers = 2\n", r"Cannot overwrite a value \(at line 2, column 12\)"),
        ("servers = " + "9" * 5000 + "\n", "4300 digits"),
        ("x = " + "[" * 100_000 + "\n", "(recursion|nested)"),
        ("servers = 1\0\n", r"\(at line 1, column 12\)"),
    ],
)
def test_what_is_not_toml_is_refused_with_its_line(tmp_path, text, fault):
    with pytest.raises(ValueError, match=f"^the text must be TOML: .*{fault}"):
        bs.Scenario.from_toml(text)
    path = tmp_path / "scenario.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"^{re.escape(str(path))} must be TOML: .*{fault}"):
        bs.Scenario.from_toml(path)


def test_every_workload_rule_and_service_of_batchsim_has_a_kind():
    bases = {"workload": (OpenLoop, bs.ClosedLoop), "rule": Rule, "service": Service}
    for part_name, base in bases.items():
        classes = [cls for cls in vars(bs).values() if isinstance(cls, type) and issubclass(cls, base)]
        public = {cls.__name__ for cls in classes} - {"OpenLoop", "Rule"}
        assert public
        assert public <= KINDS[part_name].keys()
        assert all(getattr(bs, name) is KINDS[part_name][name][0] for name in public)


def test_a_name_means_one_kind():
    names = [name for kinds in KINDS.values() for name in kinds]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("part", KINDS)
def test_a_kind_is_written_under_the_name_of_its_class(part):
    for name, (maker, *_) in KINDS[part].items():
        if isinstance(maker, type):
            assert maker.__name__ == name
            assert keys_of(maker).keys() == {f.name for f in dataclasses.fields(maker)}


def test_a_subclass_of_the_same_name_is_another_kind():
    @dataclasses.dataclass(frozen=True)
    class Poisson(bs.Poisson):
        pass

    with pytest.raises(TypeError, match=r"workload must be one of Poisson, .* to be written"):
        kind_of("workload", Poisson(9))


def test_a_measurement_and_a_published_table_are_written_as_tables():
    assert kind_of("service", bs.published("gpunet-175ms/v100-32gb/fp16")) == "Table"
