"""Files of traces: CSV, JSON lines and Parquet, and the unit of their numbers."""

import csv
import io
import json
import math

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

import batchsim as bs

# Reading CSV files.


@pytest.fixture
def written(tmp_path):
    def write(content, name="trace.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_the_first_column_is_read_as_seconds(written):
    trace = bs.Trace.from_csv(written("t_s,size\n1.5,7\n2,8\n\n4.25,9\n"))
    assert trace.times_s.tolist() == [0, 0.5, 2.75]


def test_a_column_is_found_by_its_name(written):
    path = written("size, at ,x\r\n7, 1.5 ,a\r\n8,2,b\r\n")
    assert bs.Trace.from_csv(path, "at", unit="s").times_s.tolist() == [0, 0.5]
    assert bs.Trace.from_csv(str(path), column="size", unit="s").times_s.tolist() == [0, 1]


def test_a_byte_order_mark_is_not_part_of_the_name(written):
    assert bs.Trace.from_csv(written(b"\xef\xbb\xbft\n1\n2\n"), "t", unit="s").times_s.tolist() == [0, 1]


def test_a_speedup_divides_the_times(written):
    path = written("at_s\n10\n12\n18\n")
    assert bs.Trace.from_csv(path, speedup=4).times_s.tolist() == [0, 0.5, 2]
    far = written("at_s\n0\n4e12\n")  # at most 1e12 s, once they are divided
    assert bs.Trace.from_csv(far, speedup=4).times_s.tolist() == [0, 1e12]
    with pytest.raises(ValueError, match=r"at most 1e\+12 s from 0, got .4e12."):
        bs.Trace.from_csv(far, speedup=3.9)
    for speedup, message in [(0, "greater than 0, got 0"), (math.nan, "a number, got nan")]:
        with pytest.raises(ValueError, match="speedup must be " + message):
            bs.Trace.from_csv(path, speedup=speedup)


def test_timestamps_are_read_to_100_ns_exactly(written):
    rows = ["2023-11-16 18:15:46.6805900", "2023-11-16 18:15:46.6805901", "2023-11-16 19:15:46.6805911"]
    trace = bs.Trace.from_csv(written("when\n" + "\n".join(rows) + "\n"))
    assert trace.times_s.tolist() == [0, 1e-7, 3600.0000011]


@pytest.mark.parametrize(
    "rows",
    [
        ["2023-12-31 23:59:59", "2024-01-01 00:00:01.5"],
        ["2023-12-31T23:59:59Z", "2024-01-01T00:00:01.500000Z"],
        ["2023-12-31T23:59:59+00:00", "2024-01-01T02:00:01.5+02:00"],
        ["2023-12-31 23:59:59", "2024-01-01T00:00:01.500"],
    ],
)
def test_timestamps_come_in_several_spellings(written, rows):
    assert bs.Trace.from_csv(written("when\n" + "\n".join(rows))).times_s.tolist() == [0, 2.5]


def test_a_missing_column_is_told_with_those_there_are(written):
    path = written("TIMESTAMP,ContextTokens\n1,2\n")
    with pytest.raises(ValueError, match=r"must have a column 'TIMESTAMPS', got .*TIMESTAMP, ContextTokens"):
        bs.Trace.from_csv(path, "TIMESTAMPS")
    with pytest.raises(ValueError, match="did you mean 'TIMESTAMP'"):
        bs.Trace.from_csv(path, "TIMESTAMPS")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "must have a header line, got an empty line or file"),
        ("\n1\n", "must have a header line, got an empty line or file"),
        ("t\n", "must have at least one row below its header, got none"),
        ("1.0\n2.0\n", "line 1: must name the columns, got '1.0'"),
        ("2023-11-16 18:15:46.68,3\n2023-11-16 18:15:47,4\n", "line 1: must name the columns, got '2023"),
        ("t,x\n1,2\n3\n", "line 3: must have 2 fields, got 1"),
        ("t,x\n1,2\n3,4,5\n", "line 3: must have 2 fields, got 3"),
        ("t\n1\nsoon\n", "line 3: must be a number of seconds, got 'soon'"),
        ("t\n1\n\n\nnan\n", "line 5: must be a number of seconds, got 'nan'"),
        ("t\n1\ninf\n", "line 3: must be a number of seconds, got 'inf'"),
        ("t,x\n1,a\n,b\n", "line 3: must be a number of seconds, got ''"),
        ("t\nsoon\n1\n", "line 2: must be a number of seconds or an ISO 8601 timestamp, got 'soon'"),
        ("t\n1\n2023-11-16 18:15:46\n", "line 3: must be a number of seconds, got '2023-11-16 18:15:46'"),
        ("t\n2023-11-16 18:15:46\n1\n", "line 3: must be .* or an ISO 8601 timestamp, got '1'"),
        ("t\n2023-11-16 18:15:46\n2023-11-16\n", "line 3: must be .* timestamp, got '2023-11-16'"),
        ("t\n2023-11-16 18:15:06\n2023-11-16 18:15:4\n", "line 3: must be .* timestamp, got .*15:4'"),
        ("t\n2023-11-16 18:15:06\n2023-13-16 18:15:40\n", "line 3: must be .* timestamp, got .*-13-"),
        ("t\n9999-11-16 18:15:06\n", "line 2: must be .* timestamp, got '9999"),
        ("t\n0001-11-16 18:15:06\n", "line 2: must be .* timestamp, got '0001"),
        ("at\n0\n1_000\n", "line 3: must be a number of seconds, got '1_000'"),  # which float() accepts
        (b"\x89PNG\r\n\x1a\n\x00\x00\xff", "must be text in UTF-8, got"),
        (b"\x1f\x8b\x08\x00\xff\xfe", "must be text in UTF-8, got"),
        ("t\n1\n".encode("utf-16"), "must be text in UTF-8, got"),
        (b"\x00" * 64, "must "),
        ('t\n"' + "9" * 200_000, "line 2: must be CSV, got field larger than field limit"),
    ],
)
def test_a_bad_file_is_refused_by_its_line(written, content, message):
    path = written(content, "bad.csv")
    with pytest.raises(ValueError, match=rf"bad\.csv.*{message}"):
        bs.Trace.from_csv(path)


@pytest.mark.parametrize(
    ("content", "where", "times"),
    [
        ("t_s,n\n1,5\n3,6\n2,7\n", r"1 of 3 times go back, the first in line 4 \('2' after '3'\)", [0, 1, 2]),
        ("t,n\n2024-01-01T00:00:05,6\n2024-01-01T00:00:04,5\n", r"line 3 \('2024.*04' after", [0, 1]),
        ('t_s,n,x\n1,6,"a\nb"\n0,5,c\n', r"line 4 \('0' after '1'\)", [0, 1]),
        ("t_ns,n\n1700000000000000004,6\n1700000000000000001,5\n", "line 3", [0, 3e-9]),
        ("timestamp,n\n1700000009,6\n1700000001,5\n", "line 3", [0, 8]),
    ],
)
def test_a_log_that_goes_back_is_sorted_with_a_warning(written, content, where, times):
    with pytest.warns(UserWarning, match=rf"{where}.* all are sorted; lengths of `Tokens` keep"):
        trace = bs.Trace.from_csv(written(content), size_column="n")
    assert trace.times_s.tolist() == times
    sizes = [5, 7, 6] if len(times) == 3 else [5, 6]
    assert trace.sizes.values.tolist() == sizes


@pytest.mark.parametrize(
    ("content", "column"),
    [
        ("id,arrival_s\n0,1\n1,3\n2,4\n", "arrival_s"),
        (",at\n0,1\n1,3\n2,4\n", "at"),
        ("request,Timestamp,Elapsed time,Finish time\nx,5,1,6\ny,6,1,8\n", "Timestamp"),
        ("latency_ms,sent\n5,1\n5,3\n", "sent"),
        ("time,arrival_time\n1,2\n4,5\n", "arrival_time"),
        ("t,ts\n1,2\n4,5\n", "t"),
        ("x,y\n1,2\n4,5\n", "x"),
        ("x\n0\n1\n2\n", "x"),
        ("kind_at,s\na,1\nb,2\n", "s"),
    ],
)
def test_the_column_of_arrivals_is_the_one_that_says_so(written, content, column):
    assert bs.Trace.from_csv(written(content), unit="s") == bs.Trace.from_csv(
        written(content), column, unit="s"
    )
    keys, *rows = (line.split(",") for line in content.split())
    if " " not in content:
        path = written(lines(*(dict(zip(keys, row, strict=True)) for row in rows)), "as.jsonl")
        assert bs.Trace.from_file(path, unit="s") == bs.Trace.from_file(path, column, unit="s")


@pytest.mark.parametrize(
    "content",
    [
        "x,y\n0,5\n1,6\n2,8\n",  # a counter
        "x,y\n3,5\n1,6\n2,8\n",
        "row,x\n3,5\n4,6\n",
        "request_id\n3\n4\n",
        "size,began_at,started_at\n1,3,4\n1,5,6\n",
    ],
)
def test_a_column_that_may_be_a_counter_or_another_time_must_be_named(written, content):
    with pytest.raises(ValueError, match=r"column must name the arrivals, got none, and the columns"):
        bs.Trace.from_csv(written(content))


def test_a_file_that_is_not_there_is_said_so(tmp_path):
    with pytest.raises(FileNotFoundError):
        bs.Trace.from_csv(tmp_path / "none.csv")


def test_a_numeric_name_is_a_name_when_it_is_asked_for(written):
    assert bs.Trace.from_csv(written(",0\n0,5\n1,7\n"), "0", unit="s").times_s.tolist() == [0, 2]


def test_the_azure_trace_is_read_as_it_is(shared_data):
    path = shared_data / "traces" / "AzureLLMInferenceTrace_conv.csv"
    trace = bs.Trace.from_csv(path)
    assert trace.max_requests == 19_366
    assert trace.times_s[-1] == pytest.approx(3502, abs=1)
    assert trace.offered_per_s == pytest.approx(5.53, abs=0.005)
    gaps = np.diff(trace.times_s)
    assert gaps.std() / gaps.mean() == pytest.approx(1.09, abs=0.01)
    # Every time is a whole number of 100 ns ticks, and the exact one.
    with open(path, newline="") as file:
        stamps = [row["TIMESTAMP"] for row in csv.DictReader(file)]
    ticks = [ticks_of(stamp) for stamp in stamps]
    assert trace.times_s.tolist() == [(tick - ticks[0]) / 10**7 for tick in ticks]
    assert bs.Trace.from_csv(path, "TIMESTAMP", speedup=100).offered_per_s == pytest.approx(553, abs=0.5)


def ticks_of(stamp):
    """100 ns ticks since midnight of the 16th, by hand."""
    day, clock = stamp.split()
    hours, minutes, seconds = clock.split(":")
    whole, fraction = seconds.split(".")
    minutes = (int(day[-2:]) - 16) * 1440 + int(hours) * 60 + int(minutes)
    return (minutes * 60 + int(whole)) * 10**7 + int(fraction.ljust(7, "0"))


def test_the_mooncake_trace_is_read_as_it_is(shared_data):
    trace = bs.Trace.from_csv(shared_data / "traces" / "mooncake_synth.csv")
    assert trace.max_requests == 3993
    assert trace.offered_per_s == pytest.approx(3.9, abs=0.05)


def test_a_csv_column_must_be_named_by_text_and_stand_there_once(tmp_path):
    path = tmp_path / "twice.csv"
    path.write_text("at,at\n0,1\n")
    with pytest.raises(TypeError, match="column must be a name, got 1"):
        bs.Trace.from_csv(path, column=1)
    with pytest.raises(ValueError, match="must have one column 'at', got 2"):
        bs.Trace.from_csv(path, column="at")


@pytest.mark.parametrize(
    ("times", "unit"),
    [
        (["1700000000000", "1700000000500"], "ms"),
        (["1700000000000000", "1700000000500000"], "us"),
        (["1.7e18", "1.7000000005e18"], "ns"),
        (["1700000000.25", "1700000000.75"], "s"),
    ],
)
def test_times_since_1970_are_read_in_their_unit_and_say_so(written, times, unit):
    path = written("when\n\n" + "\n".join(times), "epoch.csv")
    trace = bs.Trace.from_csv(path)
    assert trace.times_s.tolist() == [0, 0.5]
    assert repr(trace) == f"Trace(2 arrivals in 0.5 s, 2/s, read as {unit}: since 1970)"
    assert bs.Trace.from_csv(path, unit=unit) == trace


def test_nanoseconds_since_1970_keep_all_their_digits(written):
    rows = [1_700_000_000_000_000_001, 1_700_000_000_000_000_004, 1_700_000_001_000_000_001]
    trace = bs.Trace.from_csv(written("t\n" + "\n".join(map(str, rows))))
    assert trace.times_s.tolist() == [0, 3e-9, 1]


def test_a_speedup_that_would_convert_the_unit_again_is_warned_of(written):
    path = written("when\n1700000000000\n1700000000500\n")
    with pytest.warns(UserWarning, match="read as milliseconds .* then replayed 1000 times faster"):
        assert bs.Trace.from_csv(path, speedup=1000).times_s.tolist() == [0, 0.0005]
    assert bs.Trace.from_csv(path, speedup=1000, unit="ms").times_s.tolist() == [0, 0.0005]


def test_a_time_too_far_away_to_be_in_any_unit_is_refused_by_its_line_alone(written):
    with pytest.raises(ValueError, match=r"far\.csv, line 3: must be seconds, .*, got '1e30'$"):
        bs.Trace.from_csv(written("t\n0\n1e30\n", "far.csv"))


@pytest.mark.parametrize("zone", ["Z", "z", "+00:00", "-05:30", "+02"])
def test_timestamps_with_a_zone_and_without_are_not_mixed(written, zone):
    with_zone, without = f"2024-01-01T12:00:00{zone}", "2024-01-01T12:00:01"
    for rows, rule in (
        ([with_zone, without], "have a time zone"),
        ([without, with_zone], "have no time zone"),
    ):
        path = written("when\n\n" + "\n".join([rows[0], *rows]), "zones.csv")
        with pytest.raises(ValueError, match=rf"zones\.csv, line 5: must {rule}, as line 3, got"):
            bs.Trace.from_csv(path)


@pytest.mark.parametrize("path", [1.5, None, b"trace.csv", "", io.StringIO("t\n1\n")])
def test_a_trace_is_read_from_a_path_alone(path):
    with pytest.raises((TypeError, ValueError), match=r"path must "):
        bs.Trace.from_csv(path)


@pytest.mark.parametrize("whole", [int, np.int64])
def test_a_descriptor_is_no_path_and_stays_open(written, whole):
    with written("t\n1\n").open() as file:
        with pytest.raises(TypeError, match="path must be a file's path, got"):
            bs.Trace.from_csv(whole(file.fileno()))
        assert file.read() == "t\n1\n"


# The unit of the numbers.


MILLISECONDS = [0, 0, 1500, 2000]


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("timestamp_ms", "ms"), ("arrivalMs", "ms"), ("time (ms)", "ms"), ("millis", "ms"),
        ("Milliseconds", "ms"),
        ("time_us", "us"), ("t [\N{MICRO SIGN}s]", "us"), ("start_time_ns", "ns"),
        ("nanoseconds since start", "ns"),
        ("arrival_s", "s"), ("seconds", "s"), ("startSec", "s"),
    ],
)  # fmt: skip
def test_a_columns_name_tells_the_unit_and_the_trace_says_so(written, name, unit):
    trace = bs.Trace.from_csv(written(f"{name}\n" + "\n".join(map(str, MILLISECONDS))))
    factor = {"s": 1, "ms": 1e3, "us": 1e6, "ns": 1e9}[unit]
    assert trace.times_s.tolist() == [each / factor for each in MILLISECONDS]
    assert repr(trace).endswith(f", read as {unit}: column {name!r})")


@pytest.mark.parametrize("name", ["t", "timestamp", "items", "bus", "sum", "seconds_ms", "column"])
def test_where_nothing_tells_the_unit_seconds_are_assumed_and_that_is_said(written, name):
    path = written(f"{name}\n" + "\n".join(map(str, MILLISECONDS)), "some.csv")
    with pytest.warns(
        UserWarning, match=r"some\.csv: .* seconds are assumed: 0\.0015 .* 1\.5 if milliseconds"
    ):
        trace = bs.Trace.from_csv(path)
    assert trace.times_s.tolist() == MILLISECONDS
    assert repr(trace).endswith(", read as s: assumed)")


@pytest.mark.parametrize(("unit", "factor"), [("s", 1), ("ms", 1e3), ("us", 1e6), ("ns", 1e9)])
def test_a_unit_that_is_given_is_taken_without_a_word(written, unit, factor):
    path = written("timestamp_ms\n" + "\n".join(map(str, MILLISECONDS)))
    trace = bs.Trace.from_csv(path, speedup=2, unit=unit)
    assert trace.times_s.tolist() == [each / factor / 2 for each in MILLISECONDS]
    assert "read as" not in repr(trace)


@pytest.mark.parametrize("rows", ["5\n", "5\n5\n"])
def test_one_instant_is_the_same_in_every_unit(written, rows):
    assert bs.Trace.from_csv(written("t\n" + rows)).times_s[-1] == 0


@pytest.mark.parametrize(
    ("content", "unit", "error", "message"),
    [
        ("t\n0\n1\n", "sec", ValueError, "unit must be one of s, ms, us, ns, got 'sec'"),
        ("t\n0\n1\n", 1000, ValueError, "unit must be one of s, ms, us, ns, got 1000"),
        (
            "t\n2024-01-01 00:00:00\n",
            "ms",
            ValueError,
            "unit must be None for timestamps, got 'ms' for '2024-",
        ),
        ("at_s\n1700000000000\n1700000000500\n", None, ValueError, "unit must be given, .*'ms' or .*'s'"),
        (
            "t\n1700000000000000\n1700000000500000\n",
            "ms",
            ValueError,
            "line 2: must be milliseconds, at most",
        ),
    ],
)
def test_a_unit_that_cannot_be_is_refused(written, content, unit, error, message):
    with pytest.raises(error, match=message):
        bs.Trace.from_csv(written(content), unit=unit)


# JSON lines, and Parquet.


def lines(*objects):
    return "\n".join(json.dumps(each) for each in objects) + "\n"


def test_mooncakes_json_lines_are_milliseconds(written):
    rest = {"input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}
    path = written(lines(*({"timestamp": each, **rest} for each in MILLISECONDS)), "trace.jsonl")
    for trace in (bs.Trace.from_jsonl(path), bs.Trace.from_file(path)):
        assert trace.times_s.tolist() == [0, 0, 1.5, 2]
        assert repr(trace).endswith(", read as ms: column 'timestamp')")


def test_a_key_of_json_lines_is_read_with_a_unit_and_blank_lines_are_not(written):
    path = written("\n" + lines({"id": "a", "at": 5.5}, {"at": "6.5", "id": "b"}) + "\n", "x.ndjson")
    assert bs.Trace.from_jsonl(path, "at", unit="s").times_s.tolist() == [0, 1]
    with pytest.warns(UserWarning, match="seconds are assumed"):
        assert bs.Trace.from_file(path, "at").times_s.tolist() == [0, 1]


def test_json_lines_hold_timestamps_and_long_numbers_too(written):
    stamps = [{"when": "2024-01-01T00:00:00Z"}, {"when": "2024-01-01T00:00:01.5Z"}]
    assert bs.Trace.from_jsonl(written(lines(*stamps))).times_s.tolist() == [0, 1.5]
    long = [{"t": 1_700_000_000_000_000_001}, {"t": 1_700_000_000_000_000_004}]
    assert bs.Trace.from_jsonl(written(lines(*long))).times_s.tolist() == [0, 3e-9]


QWEN = [
    {"chat_id": k, "timestamp": 0.5 * k, "input_length": 40, "output_length": 9, "hash_ids": [3 * k, 1, 2]}
    for k in range(9)
]


@pytest.mark.filterwarnings("error")
def test_qwens_traces_have_mooncakes_keys_and_seconds(written):
    path = written(lines(*QWEN), "trace.jsonl")
    assert bs.Trace.from_file(path).offered_per_s == 2
    mooncake = [{key: each[key] for key in each if key != "chat_id"} for each in QWEN]
    whole = lines(*({**each, "timestamp": int(each["timestamp"])} for each in mooncake))
    assert bs.Trace.from_jsonl(written(whole)).offered_per_s == 2000
    with pytest.warns(UserWarning, match="unknown unit .*2 requests a second, or 2,000 if milliseconds"):
        bs.Trace.from_jsonl(written(lines(*mooncake)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "must have at least one line with an object, got none"),
        ("t\n1\n", r"line 1: must be JSON, got .* \(Expecting value"),
        ("[1, 2]\n", r"line 1: must be a JSON object, got '\[1, 2\]'"),
        ('{"t": 1}\n{"t": 2', "line 2: must be JSON"),
        ('{"t": 1}\n{"u": 2}', "line 2: must have the key 't', got the keys u"),
        ('{"t": 1}\n{"t": null}', "line 2: must be a number of seconds, got 'null'"),
        ('{"t": 1}\n{"t": true}', "line 2: must be a number of seconds, got 'true'"),
        ('{"t": 1}\n{"t": NaN}', "line 2: must be a number of seconds, got 'NaN'"),
        ('{"t": [1]}\n', "line 1: must be a number of seconds or an ISO 8601 timestamp"),
        ("{}", "line 1: must have a key, got the keys none"),
        ("[" * 100_000, "line 1: must be JSON, .*nested too deeply"),
        (b"\x89PNG\r\n\xff", "must be text in UTF-8"),
    ],
)
def test_bad_json_lines_are_refused_by_their_line(written, content, message):
    with pytest.raises(ValueError, match=rf"bad\.jsonl.*{message}"):
        bs.Trace.from_jsonl(written(content, "bad.jsonl"))


@pytest.mark.parametrize(
    ("column", "times"),
    [
        (pyarrow.array(MILLISECONDS), MILLISECONDS),
        (pyarrow.array([0.5, 1.25]), [0, 0.75]),
        (pyarrow.array([1_700_000_000_000_000_001, 1_700_000_000_000_000_004]), [0, 3e-9]),
        (pyarrow.array([0, 1_500_000], pyarrow.timestamp("us")), [0, 1.5]),
        (pyarrow.array([0, 1_500_000_001], pyarrow.timestamp("ns", tz="UTC")), [0, 1.500000001]),
        (pyarrow.array(["2024-01-01 00:00:00", "2024-01-01 00:00:02"]), [0, 2]),
    ],
    ids=str,
)
def test_parquet_is_read_as_numbers_or_timestamps(tmp_path, column, times):
    path = tmp_path / "trace.parquet"
    parquet.write_table(pyarrow.table({"id": list(range(len(column))), "at": column}), path)
    short = pyarrow.types.is_integer(column.type) and column[-1].as_py() < 1e6
    unit = "s" if short or pyarrow.types.is_floating(column.type) else None
    for read in (bs.Trace.from_parquet, bs.Trace.from_file):
        assert read(path, "at", unit=unit).times_s.tolist() == times


@pytest.mark.filterwarnings("ignore")
def test_bad_parquet_is_refused(tmp_path):
    path = tmp_path / "bad.parquet"
    for name, cells, message in [
        ("t", pyarrow.array([1, None]), "row 2: must be a number of seconds, got ''"),
        ("t", pyarrow.array([], pyarrow.int64()), "must have at least one row, got none"),
        ("t", pyarrow.array([[1], [2]]), "must be a Parquet file of numbers or timestamps, got"),
    ]:
        parquet.write_table(pyarrow.table({name: cells}), path)
        with pytest.raises(ValueError, match=message):
            bs.Trace.from_parquet(path)
    parquet.write_table(pyarrow.table({"x": pyarrow.array([], pyarrow.float64()), "y": [*""]}), path)
    with pytest.raises(ValueError, match="at least one row, got none"):
        bs.Trace.from_parquet(path)
    parquet.write_table(pyarrow.table({"t": cells}), path)
    with pytest.raises(ValueError, match="must have a column 'at', got the columns t"):
        bs.Trace.from_parquet(path, "at")
    (tmp_path / "text.parquet").write_text("t\n1\n")
    with pytest.raises(ValueError, match="must be a Parquet file"):
        bs.Trace.from_file(tmp_path / "text.parquet")
    parquet.write_table(pyarrow.table({"t": [1.0, 2.0]}), path)
    whole = path.read_bytes()
    for place in range(4, len(whole)):
        path.write_bytes(whole[:place] + bytes([place % 256]) + whole[place + 1 :])
        try:
            bs.Trace.from_parquet(path, unit="s")
        except ValueError as error:  # Arrow's is an OSError, without a name, with a byte of the file
            said = str(error)
            assert said.isprintable(), said


@pytest.mark.parametrize(
    ("column", "message"),
    [(np.zeros(2_000_000), "at most 16 rows a byte, got 2,000,000"), (["1" * 10**6] * 300, "short texts")],
    ids=["rows", "text"],
)
def test_a_small_parquet_of_many_rows_or_long_texts_is_refused(tmp_path, column, message):
    path = tmp_path / "bomb.parquet"
    parquet.write_table(pyarrow.table({"id": [0] * len(column), "t": column}), path)
    assert path.stat().st_size < 10**5
    for name in (None, "t"):
        with pytest.raises(ValueError, match=rf"bomb\.parquet must have {message}"):
            bs.Trace.from_parquet(path, name, unit="s")


def test_another_format_read_as_csv_is_refused_with_its_reader(written, tmp_path):
    rest = {"input_length": 1, "output_length": 2, "hash_ids": [0, 1, 2]}
    with pytest.raises(ValueError, match=r"JSON lines: Trace\.from_jsonl"):
        bs.Trace.from_csv(written(lines({"timestamp": 0, **rest}, {"timestamp": 9, **rest})))
    parquet.write_table(pyarrow.table({"t": np.arange(1000.0)}), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"Parquet: Trace\.from_parquet"):
        bs.Trace.from_csv(tmp_path / "t.parquet")
