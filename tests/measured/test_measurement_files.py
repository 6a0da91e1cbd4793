import os
import re

import pytest

from batchsim.measured.measurement import Measurement

# As `perf_analyzer -f` writes: microseconds, rows by rising throughput.
HEADER = (
    "Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,Server Compute Input,"
    "Server Compute Infer,Server Compute Output,Client Recv,p50 latency,p90 latency,p95 latency,p99 latency\n"
)
ONE = (
    HEADER
    + "1,102.5,110,950,20,150,8200,10,5,9400,9700,9800,9900\n2,115,110,950,7600,150,8500,10,5,1,1,1,1\n"
)
EIGHT = HEADER + "1,400,120,1400,25,450,17400,50,5,19000,19300,19400,19500\n"


@pytest.fixture
def write(tmp_path):
    def write(text, name="curve.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def refused(message):
    return pytest.raises(ValueError, match=f"^{re.escape(message)}")


# CSV.


def test_a_row_a_sample_is_read(write):
    path = write("batch_size,ms\n1,2.0\n4,5.0\n1,2.1\n1,2.2\n4,5.5\n")
    os.utime(path, (0, 1_767_225_600))
    read = Measurement.from_csv(path)
    assert read.batch_sizes == (1, 4)
    assert read.samples_ms == ((2.0, 2.1, 2.2), (5.0, 5.5))
    assert read.repeats == 2
    assert read.model == "curve"
    assert read.measured_at == "2026-01-01T00:00:00+00:00"
    assert read.first_call_s == ()
    assert read.copy is None
    assert read.median_ms == {1: 2.1, 4: 5.25}


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("batch_size,latency_us\n8,3500\n", {}),
        ("Batch,note,avg latency (ms)\n8,first,3.5\n", {}),
        ("size,seconds\n8,0.0035\n\n", {}),
        ("\N{ZERO WIDTH NO-BREAK SPACE}Batch Size, ms\n8, 3.5\n", {}),
        ("batch_size,p50_ms,p99_ms\n8,3.5,9\n", {"column": "p50_ms"}),
        ("batch_size,ms,p99_ms\n8,3.5,9\n", {}),
        ("batch_size,time\n8,3500000\n", {"unit": "ns"}),
        ("batch_size,time,other\n8,3.5,1\n", {"unit": "ms", "column": "time"}),
    ],
)
def test_the_header_or_the_caller_says_the_column_and_the_unit(write, text, options):
    assert Measurement.from_csv(write(text), **options).median_ms == {8: pytest.approx(3.5)}


def test_a_name_and_a_device_can_be_given_and_a_read_curve_is_saved_and_loaded(write, tmp_path):
    read = Measurement.from_csv(write("batch_size,ms\n1,2\n8,3\n"), model="resnet", device="a T4")
    read.save(tmp_path / "curve.json")
    assert Measurement.load(tmp_path / "curve.json") == read
    assert repr(read).startswith("Measurement: resnet on a T4, 1 repeats, 20")
    assert "compile_s" not in repr(read)


@pytest.mark.parametrize(
    ("text", "options", "rule"),
    [
        ("", {}, " must have a header line, got an empty line or file"),
        ("batch_size,ms\n", {}, " must have at least one row below its header, got none"),
        ("rate,ms\n1,2\n", {}, " must have a column 'batch_size', got the columns rate, ms"),
        ("batch_size,time\n1,2\n", {}, " must have a column of times with its unit, such as 'ms', got"),
        (
            "batch_size,p50_ms,p99_ms\n1,2,3\n",
            {},
            ": column must name the times, got p50_ms, p99_ms",
        ),
        (
            "batch_size,ms\n1,2\n",
            {"column": "us"},
            " must have a column 'us', got the columns batch_size, ms",
        ),
        ("batch_size,time\n1,2\n", {"column": "time"}, ": the unit of column 'time' must be in its name"),
        ("batch_size,ms\n1,2\n2\n", {}, ", line 3: must have 2 fields, got 1"),
        ("batch_size,ms\n1,fast\n", {}, ", line 2: a number must be a number, got 'fast'"),
        ("batch_size,ms\n1,0\n", {}, ", line 2: a number must be greater than 0, got 0.0"),
        ("batch_size,ms\n1,nan\n", {}, ", line 2: a number must be a number, got nan"),
        ("batch_size,ms\n1.5,2\n", {}, ", line 2: a batch size must be a whole number, got '1.5'"),
        ("batch_size,ms,ms\n1,2,3\n", {}, ": columns must differ, got batch_size, ms, ms"),
        (b"\xff\xfe\x00", {}, " must be text in UTF-8, got"),
    ],
)
def test_a_csv_file_that_is_no_measurement_says_what_it_lacks(write, text, options, rule):
    path = write(text)
    with refused(f"{path}{rule}"):
        Measurement.from_csv(path, **options)


def test_an_unknown_unit_is_refused(write):
    with refused("unit must be one of s, ms, us, ns, got 'hours'"):
        Measurement.from_csv(write("batch_size,ms\n1,2\n"), unit="hours")


# perf_analyzer.


def test_a_file_a_batch_size_is_the_servers_computing_of_one_client(write):
    files = {1: write(ONE, "one.csv"), 8: write(EIGHT, "eight.csv")}
    read = Measurement.from_perf_analyzer(files, model="resnet")
    assert read.median_ms == {1: pytest.approx(8.36), 8: pytest.approx(17.9)}
    assert read.copy is True
    assert read.model == "resnet"
    alone = Measurement.from_perf_analyzer(files, copy=False)
    assert alone.median_ms == {1: pytest.approx(8.2), 8: pytest.approx(17.4)}
    assert alone.copy is False


def test_one_file_is_of_one_batch_size_and_more_clients_can_be_asked_for(write):
    path = write(ONE)
    assert Measurement.from_perf_analyzer(path, 4).median_ms == {4: pytest.approx(8.36)}
    assert Measurement.from_perf_analyzer(path, concurrency=2).median_ms == {1: pytest.approx(8.66)}


def test_a_column_of_batch_sizes_and_units_in_the_header_are_heeded(write):
    names = "Batch,Concurrency,Server Compute Input (ms),Server Compute Infer (ms),Server Compute Output (ms)"
    path = write(f"{names}\n1,1,0.05,1.9,0\n8,1,0.15,4.8,0.05\n8,2,0.2,5,0.05\n")
    assert Measurement.from_perf_analyzer(path).median_ms == pytest.approx({1: 1.95, 8: 5.0})


@pytest.mark.parametrize(
    ("text", "options", "rule"),
    [
        ("batch_size,ms\n1,2\n", {}, " must have a column 'Concurrency'"),
        (
            HEADER.replace("Concurrency", "Request Rate") + EIGHT.splitlines()[1],
            {},
            " must have a column 'Conc",
        ),
        ("Concurrency,Server Compute\n1,100\n", {}, " must have a column 'Server Compute Input', got"),
        (EIGHT, {"concurrency": 4}, " must have a row with a concurrency of 4, got 1"),
        (EIGHT + EIGHT.splitlines()[1], {}, ": batch sizes must differ, got 8 twice"),
    ],
)
def test_a_file_that_is_not_perf_analyzers_says_what_it_lacks(write, text, options, rule):
    path = write(text)
    with refused(f"{path}{rule}"):
        Measurement.from_perf_analyzer(path, 8, **options)


def test_no_files_are_refused():
    with refused("files must not be empty, got {}"):
        Measurement.from_perf_analyzer({})


def test_a_file_that_is_missing_is_an_os_error(tmp_path):
    for read in (Measurement.from_csv, Measurement.from_perf_analyzer):
        with pytest.raises(FileNotFoundError):
            read(tmp_path / "none.csv")
