"""The shell: its exit codes are for scripts, and what is wrong is told in one line."""

import json
import os
import re
import shlex
import signal
import stat
import subprocess
import sys
import time
import tomllib

import pytest
import typer
from shell import BASE, OVER, SHORT, refused, run, run_json
from typer.testing import CliRunner

import batchsim as bs
from batchsim.cli import _show_warning, app, output

# Bad input: one line that names the place, and exit code 2.


POISSON = ["simulate", "--rate-per-s", "9"]
BAD = [
    (["simulate"], "a workload by --rate-per-s, --workload, --trace or --clients and a service time by"),
    (["simulate", "--rate-per-s", "9"], "a service time by --fixed-ms, --table, --published"),
    (["simulate", "no.toml"], "no.toml: no such file or directory"),
    (["simulate", *BASE, "--rate-per-s", "-5"], "--rate-per-s must be greater than 0, got -5"),
    (["simulate", *BASE, "--rate-per-s", "x"], "Invalid value for '--rate-per-s': must be a number, got 'x'"),
    (["simulate", *BASE, "--max-wait-ms", "nan"], "--max-wait-ms must be a number, got nan"),
    (["simulate", *BASE, "--max-batch-size", "1.5"], "must be a whole number, got '1.5'"),
    (["simulate", *BASE, "--requests", "0"], "--requests must be at least 1, got 0"),
    (["simulate", *BASE, "--warmup", "much"], "Invalid value for '--warmup': must be a number, got 'much'"),
    (["simulate", *BASE, "--engine", "compield"], "got 'compield'; did you mean 'compiled'?"),
    (["simulate", *POISSON[1:], "--service", "Poisson(3)"], "service must be a service of batchsim"),
    (["simulate", *BASE, "--servrs", "2"], "No such option: --servrs"),
    (["tune", *BASE, *OVER, "--indifference", "5%"], "--indifference; it was removed: with more `requests`"),
    (["simulate", *BASE, "--table", "1=2"], "a service must be given once, got --table and --fixed-ms"),
    (["simulate", *BASE, "--clients", "2"], "--rate-per-s needs an open workload, got ClosedLoop"),
    (["simulate", *BASE, "--set", "max_wait=3"], "got 'max_wait'; did you mean 'max_wait_ms'?"),
    (["simulate", *BASE, "--set", "max_wait_ms=3"], "max_wait_ms must be given once, got it again by --set"),
    (["simulate", *BASE, "--set", "servers"], "--set must be knob=value, as workload.cv=2, got 'servers'"),
    (["simulate", *BASE, "--speedup", "3"], "--column, --unit and --speedup must come with --trace"),
    (["simulate", *BASE, "--plot", "a.gif"], "--plot must end in .png or .svg or .pdf, got a.gif"),
    (["simulate", *BASE, "--save", "no/a.npz"], "--save must be in a folder that exists, got no/a.npz"),
    ([*POISSON, "--table", "1=2,1=3"], "batch sizes of a Table must differ"),
    ([*POISSON, "--published", "gpunet-175ms/v100-32gb/fp61"], "did you mean 'gpunet-175ms/v100-32gb/fp16'?"),
    ([*POISSON, "--service", "Afine(5, 1)"], "there is no part 'Afine'; did you mean"),
    ([*POISSON, "--rule", "WaitSinceLast(8, 5)"], "it was removed: Ray Serve now has `FrozenBatches`"),
    ([*POISSON, "--service", "Affine(5)"], "missing a required argument: 'per_item_ms'"),
    ([*POISSON, "--service", "Affine(5, -1)"], "per_item_ms must be at least 0, got -1"),
    (["sweep", *BASE], "an axis must be given, as --over max_batch_size=1,2,4"),
    (["sweep", *BASE, "--over", "max_wait_ms"], "--over must be knob=value, as max_batch_size=1,2,4"),
    (["sweep", *BASE, "--over", "max_wait_ms="], "max_wait_ms must have at least one value"),
    (["sweep", *BASE, "--over", "max_wait_ms=1,nan"], "max_wait_ms must have no NaN"),
    (["sweep", *BASE, "--over", "max_wait_ms=1:2"], "max_wait_ms: a value must be a number"),
    (["sweep", *BASE, "--over", "max_wait_ms=1:2:0"], "max_wait_ms: a range must not fall"),
    (["sweep", *BASE, "--over", "max_wait_ms=1:2:z"], "max_wait_ms: a range must be first:last:step"),
    (["sweep", *BASE, "--over", "max_wait=1", "--over", "max_wait=2"], "must name a knob once, got"),
    (["sweep", *BASE, "--over", "max_wiat_ms=1"], "did you mean 'max_wait_ms'?"),
    (["sweep", *BASE, *OVER, "--csv", "--json"], "one of --csv and --json must be given, got both"),
    (["sweep", *BASE, *OVER, "--value", "p98_ms"], "--value must be a column of numbers, got 'p98_ms'"),
    (["sweep", *BASE, *OVER, "--over", "servers=1", "--plot", "a.png"], "--plot must have one axis or two"),
    (["tune", *BASE, *OVER], "an objective must be given, as --p99-ms 50"),
    ([*POISSON, "--published", "resnet50"], "did you mean 'resnet50/a100-80gb/mixed-fp16', "),
    (["tune", *BASE, *OVER, "--attainment", "0.9"], "an attainment needs --within-ms"),
    (["tune", *BASE, *OVER, "--p99-ms", "9", "--prefer", "fast"], "got 'fast'; did you mean 'fastest'?"),
    (["capacity", *BASE, "--p99-ms", "-3"], "--p99-ms must be greater than 0, got -3"),
    (["capacity", "--clients", "32", "--fixed-ms", "1", "--p99-ms", "9"], "the workload must be open"),
    (["measure", "--model", "mpl"], "there is no model 'mpl'; did you mean 'mlp'?"),
    (["measure", "--batch-sizes", "1;2"], "must be a whole number, got '1;2'"),
    (["simualte"], "No such command 'simualte'"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_bad_input_is_told_in_one_line(arguments, message):
    assert message in refused(*arguments)


TUNE = ["tune", *OVER]


@pytest.mark.parametrize(
    ("table", "arguments", "message"),
    [
        ("[simulate]\nrequests = -50\n", ["simulate"], "{}, [simulate] requests must be at least 1, got -50"),
        ("[simulate]\nrequests = -50\n", ["simulate", "--requests", "-1"], "--requests must be at least 1"),
        ("[simulate]\nwarmup = 2\n", ["simulate", *SHORT], "{}, [simulate] warmup must be less than 1"),
        ("[simulate]\nseed = -2\n", ["simulate", *SHORT], "{}, [simulate] seed must be at least 0, got -2"),
        ("[simulate]\nseed = -2\n", ["capacity", "--p99-ms", "9"], "{}, [simulate] seed must be at least 0"),
        ("[slo]\np99_ms = -1\n", ["capacity", "--p95-ms", "9"], "{}, [slo] p99_ms must be greater than 0"),
        ("[slo]\np99_ms = 50\n", ["capacity", "--p95-ms", "-9"], "--p95-ms must be greater than 0, got -9"),
        ("[slo]\np99_ms = -1\n", ["capacity", "--p99-ms", "-9"], "--p99-ms must be greater than 0, got -9"),
        ("[over]\nservers = []\n", ["sweep", *OVER], "{}, [over] servers must have at least one value"),
        ("[over]\nservers = [1]\n", ["sweep", "--over", "srevers=1"], "a knob must be one of the"),
        ("[over]\nclients = [1]\n", ["sweep"], "{}, [over] clients needs a ClosedLoop, got Poisson"),
        ("[slo]\np99 = 5\n", ["tune"], "{}, [slo]: there is no key 'p99'; did you mean 'p99_ms'?"),
        ("[slo]\np99_ms = 'x'\n", TUNE, "{}, [slo] p99_ms must be a number, got 'x'"),
        ("[slo]\nwithin_ms = 5\n", TUNE, "{}, [slo] within_ms needs an attainment"),
        ("[simulate]\nrequest = 5\n", ["simulate"], "{}, [simulate]: there is no key 'request'; did"),
        ("[sol]\np99_ms = 5\n", ["tune"], "{}, the top level: a scenario has no key 'sol'"),
        ("[over]\nmax_wait_ms = '0:x:1'\n", ["sweep"], "{}, [over] max_wait_ms: a range must be"),
        ("[over]\nmax_wait_ms = 5\n", ["sweep"], "{}, [over] max_wait_ms must be a list of values"),
        ("[over]\nmax_wait_ms = []\n", ["sweep"], "{}, [over] max_wait_ms must have at least one value"),
        ("[over]\nmax_wiat_ms = [1]\n", ["sweep"], "{}, [over] a knob must be one of the scenario's, got"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_of_the_file_only_where_it_is_the_files(file, table, arguments, message):
    file.write_text(file.read_text() + table)
    command, *flags = arguments
    assert refused(command, file, *flags).startswith(message.format(file))


def test_clients_are_swept_in_a_closed_loop_only(file):
    message = refused("sweep", file, "--over", "clients=1,2")
    assert message == "clients needs a ClosedLoop, got Poisson(rate_per_s=800)"
    points = run_json("sweep", file, "--clients", "1", "--over", "clients=1,2", *SHORT)["points"]
    assert [point["clients"] for point in points] == [1, 2]
    over = ["--over", "workload=ClosedLoop(1),ClosedLoop(2)", "--over", "think_s=0,1", "--requests", "500"]
    assert len(run_json("sweep", file, *over)["points"]) == 4


def test_a_file_that_is_no_scenario_is_told_with_its_place(file):
    file.write_text(file.read_text().replace("max_wait_ms = 10", "max_wait_ms = -1"))
    assert refused("simulate", file) == f"{file}, [rule] max_wait_ms must be at least 0, got -1"


# As a program.


def program(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "batchsim", *map(str, arguments)], capture_output=True, text=True, **options
    )


@pytest.mark.skipif(os.name == "nt", reason="a shell as on POSIX")
@pytest.mark.usefixtures("compiled_before")
def test_it_runs_without_stderr():
    command = [sys.executable, "-m", "batchsim", "tune", *BASE, *OVER, *SHORT, "--p99-ms", "1000", "--json"]
    done = subprocess.run(f"{shlex.join(command)} 2>&-", shell=True, capture_output=True, text=True)
    assert done.returncode in (0, 1)
    assert json.loads(done.stdout)["objective"] == {"p99_ms": 1000}


@pytest.mark.usefixtures("compiled_before")
def test_it_runs_as_a_module_and_keeps_its_streams_apart(tmp_path):
    run("simulate", *BASE, *SHORT)  # else the program may have to compile, and says so
    done = program("simulate", *BASE, *SHORT, "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["summary"]["served"] == 2000
    done = program("simulate", *BASE, "--requests", "-1", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: --requests must be at least 1, got -1\n"


def test_help_loads_nothing_heavy():
    heavy = ["jax", "numba", "matplotlib", "pandas", "scipy", "ipywidgets", "pyarrow"]
    code = (
        "import sys\nfrom batchsim.cli import app\n"
        "for args in (['--help'], ['--version'], ['tune', '--help'], ['published', 'nnunet']):\n"
        "    try: app(args)\n    except SystemExit as end: assert not end.code\n"
        f"print([name for name in {heavy} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.endswith("[]\n")


def test_the_version_is_the_packages():
    assert run("--version").stdout == f"batchsim {bs.__version__}\n"


@pytest.mark.parametrize(
    "command", ["init", "simulate", "sweep", "tune", "capacity", "measure", "published", "lab"]
)
def test_every_command_has_a_help(command):
    assert "Usage:" in run(command, "--help").stdout


COMMANDS = typer.main.get_command(app).commands
SEARCHES = ("simulate", "sweep", "tune", "capacity", "lint")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_80_columns_and_cuts_no_name_of_an_option(monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    short, whole = (run(command, option).stdout for option in ("--help", "--help-all"))
    for text in (short, whole):
        assert [line for line in text.splitlines() if len(line) > 80] == []
        assert not re.search("[…<>╭]", text)
        for param in COMMANDS[command].params:
            name = param.opts[0] if param.opts[0][0] == "-" else param.metavar
            assert re.search(rf"{re.escape(name)}(?![\w-])", text)
    if command in SEARCHES:
        examples = re.findall(rf"^  batchsim {command} .*", short, re.M)
        assert len(examples) == 3
        assert short.index(examples[2]) < short.index("Arguments:\n")
        assert len(short.splitlines()) <= 130


@pytest.mark.parametrize("command", ["simulate", "tune", "capacity", "sweep"])
def test_the_examples_of_a_help_run(file, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scenario.toml").write_text(file.read_text())
    (tmp_path / "arrivals.csv").write_text("time_s\n" + "".join(f"{n / 100}\n" for n in range(20)))
    for line in re.findall(rf"^  batchsim ({command} .*)", run(command, "--help").stdout, re.M):
        done = CliRunner().invoke(app, [*line.split(), *([] if "--trace" in line else ["--requests", "500"])])
        assert done.exit_code in (0, 1), done.stderr


def test_without_axes_tune_tries_those_of_the_rule(file):
    axes = run_json("tune", file, "--p99-ms", "50", "--requests", "500")["candidates"]
    assert {each["max_batch_size"] for each in axes} == {1, 2, 4, 8, 16, 32, 64}
    assert {each["max_wait_ms"] for each in axes} == {0, 1, 2, 5, 10, 20}


@pytest.mark.parametrize("word", ["resnet", "Resnet50v2", "gpunt", "bert-l"])
def test_what_published_suggests_is_accepted_everywhere(word):
    for arguments in (["published", word], ["simulate", "--rate-per-s", "1", "--published", word]):
        for name in re.findall(r"'([^']*/[^']*)'", refused(*arguments)):
            assert bs.published(name)
            assert name in run("published", name).stdout


def test_a_mistyped_path_names_the_file_that_is_there(file):
    typed = str(file).replace(".toml", ".tml")
    assert refused("simulate", typed) == f"{typed}: no such file or directory; did you mean {file.name!r}?"
    (file.parent / "notes.md").touch()
    nowhere = file.with_name("nothere.toml")
    assert refused("simulate", nowhere) == f"{nowhere}: no such file or directory", "no far name"
    assert refused("simulate", file.parent) == f"{file.parent}: is a directory"


VALUES = ["-1", "0", "nan", "x", "1.5", "1=2", "nope.json"]


@pytest.mark.parametrize("command", ["simulate", "tune", "capacity"])
def test_an_error_names_options_and_nothing_of_python(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some options name what is written
    made = typer.main.get_command(app)  # once, not at each call
    monkeypatch.setattr("typer.testing._get_command", lambda _: made)
    needed = {"tune": ["--p99-ms", "50", "--over", "servers=1,2"], "capacity": ["--p99-ms", "50"]}
    codes = []
    for param in COMMANDS[command].params:
        if param.opts[0][0] != "-" or param.is_flag or param.opts[0] in ("--set", "--over", "--servers"):
            continue
        for value in VALUES:
            asked = [command, "--rate-per-s", "300", "--fixed-ms", "5", "--requests", "200"]
            done = CliRunner().invoke(app, [*asked, *needed.get(command, ()), param.opts[0], value])
            codes.append(done.exit_code)
            if done.exit_code == 2:
                told = done.stderr.replace(value, "")
                python = r"\b[a-z]+(_[a-z0-9]+)+\b|Errno|\w\(\)|\bbs\.|<class|----"
                assert not re.search(python, re.split(r" must | needs? |, got", told)[0]), told
    assert 200 < codes.count(2) < len(codes), "some values are accepted"


@pytest.mark.usefixtures("compiled_before")
@pytest.mark.skipif(not hasattr(signal, "SIGINT") or os.name == "nt", reason="signals as on POSIX")
def test_ctrl_c_ends_a_sweep_with_130_and_keeps_what_is_finished(file, tmp_path):
    out = tmp_path / "day1"
    code = (  # background jobs ignore the signal, and what they start does
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from batchsim.cli import app; app(prog_name='batchsim')"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", code, "sweep", file, "--over", "max_wait_ms=0:5000:1", "--out", out],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while running.poll() is None and not list(out.glob("points/*.parquet")):
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    output, errors = running.communicate()
    assert (running.returncode, output, errors) == (130, "", "Interrupted.\n")
    assert list(out.glob("points/*.parquet"))


@pytest.mark.skipif(os.name == "nt", reason="pipes as on POSIX")
@pytest.mark.parametrize("arguments", [["published", "--json"], ["published"], ["--help"], []])
def test_a_reader_that_has_had_enough_is_no_error_of_ours(arguments):
    ours, output = os.pipe()
    os.close(ours)
    command = [sys.executable, "-m", "batchsim", *arguments]
    done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True)
    os.close(output)
    assert (done.returncode, done.stderr) == (141, "")


# Exit code 1 is "not met", and nothing else.


@pytest.mark.parametrize(
    "error", [OverflowError("too large"), AttributeError("none"), KeyError(1), EOFError()]
)
def test_an_error_that_nobody_expected_is_one_line_and_70(monkeypatch, file, error):
    def broken(*_, **__):
        raise error

    monkeypatch.setattr("batchsim.study.capacity.capacity", broken)
    done = run("capacity", file, "--p99-ms", "50", code=70)
    assert done.stdout == ""
    assert re.fullmatch(rf"Error: {type(error).__name__}.* --debug .*\n", done.stderr)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_debug_prints_where_an_error_comes_from(tmp_path, place):
    arguments = ["simulate", str(tmp_path / "no.toml")]
    done = run(*arguments[:place], "--debug", *arguments[place:], code=2)
    assert done.stderr.startswith("Traceback")
    assert "read_toml" in done.stderr
    assert done.stderr.splitlines()[-1].endswith("no.toml: no such file or directory")
    assert "Traceback" not in run(*arguments, code=2).stderr


@pytest.mark.parametrize(
    "arguments",
    [["--foo", "simulate"], ["-x"], ["--version=3"], ["--debug", "--foo"], ["simulate", "--foo"]],
)
def test_an_unknown_option_is_told_in_one_line_wherever_it_stands(arguments):
    assert arguments[-1].partition("=")[0] in refused(*arguments) or "--foo" in refused(*arguments)


@pytest.mark.parametrize("arguments", [[], ["--debug"]])
def test_without_a_command_there_is_help(arguments):
    assert "Usage:" in run(*arguments).stdout


@pytest.mark.skipif(os.name == "nt", reason="signals as on POSIX")
def test_nobody_warns_after_an_interrupt():
    code = (
        "import threading, warnings\nfrom batchsim.cli import app\n"
        "def late():\n    threading.main_thread().join()\n    warnings.warn('late')\n"
        "@app.command()\ndef work():\n"
        "    warnings.warn('in time')\n    threading.Thread(target=late).start()\n"
        "    raise KeyboardInterrupt\n"
        "app(['work'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "Warning: in time\nInterrupted.\n")


# Files that are written.


@pytest.mark.skipif(os.name == "nt", reason="links and modes as on POSIX")
def test_a_saved_file_keeps_its_mode_and_a_link_is_followed(file, tmp_path):
    path, link = tmp_path / "best.toml", tmp_path / "link.toml"
    path.touch(0o600)
    link.symlink_to(path.name)
    arguments = ["tune", file, *SHORT, "--over", "max_wait_ms=0,5", "--p99-ms", "1000"]
    done = CliRunner().invoke(app, [*map(str, arguments), "--save", str(link)])
    assert done.exit_code in (0, 1)
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "[rule]" in path.read_text()


@pytest.mark.skipif(os.name == "nt", reason="/dev as on POSIX")
def test_a_scenario_is_written_to_standard_output(tmp_path):
    text = program("init", "/dev/fd/1", cwd=tmp_path).stdout
    assert tomllib.loads(text.partition("Wrote /dev/fd/1")[0])
    assert list(tmp_path.iterdir()) == []


# What was a traceback.


def test_a_log_in_whole_seconds_may_be_one_instant(tmp_path):
    (tmp_path / "s.csv").write_text("t\n0\n0\n")
    trace = ["--trace", tmp_path / "s.csv", "--fixed-ms", "5"]
    for command in ("tune", "capacity"):
        over = ["--over", "max_batch_size=1,2"] if command == "tune" else []
        assert "span" in refused(command, *trace, "--p99-ms", "1", *over)


@pytest.mark.parametrize("service", ["5", "none", "'x'", "[1]", "inf", "Poisson(3)"])
@pytest.mark.parametrize("command", ["simulate", "tune", "sweep", "capacity"])
def test_what_is_no_service_time_is_refused(file, command, service):
    objective = ["--p99-ms", "9"] if command in ("tune", "capacity") else []
    over = ["--over", "max_batch_size=1,2"] if command in ("tune", "sweep") else []
    for where in ([file], ["--rate-per-s", "9"]):
        if service != "none" or where != [file]:
            assert "service" in refused(command, *where, "--service", service, *objective, *over)


def test_a_descriptor_is_no_path_to_a_trace():
    assert "path must be a file's path, got 1" in refused("simulate", "--workload", "Trace.from_csv(1)")
    os.fstat(1)


EVIL = "\x1b]0;a\x07\x9b31m\u202e\u2028" + "k" * 100_000
SHOWN = [
    (["simulate", "--nonsense" + EVIL], ""),
    (["simulate", "--set", f"{EVIL}=1", *BASE], ""),
    (["simulate", EVIL[:90]], ""),
    (["simulate", "a.csv"], f"[workload]\n{json.dumps(EVIL)} = 1\n"),
    (["simulate", "--trace", "a.csv", "--fixed-ms", "5", "--column", "x"], f"{EVIL[:90]},b\n1,2\n"),
    (["simulate", *BASE, *SHORT, "--server-config", "a.csv", "--server", "torchserve"], f"{EVIL}=1"),
    (["grade", "a.csv"], json.dumps({"format": "batchsim progress", "version": EVIL, "batchsim": EVIL})),
]


@pytest.mark.parametrize(("arguments", "text"), SHOWN, ids=map(str, range(len(SHOWN))))
def test_what_comes_from_outside_reaches_a_terminal_as_letters(tmp_path, monkeypatch, arguments, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text(text, "utf-8")
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code in (0, 1, 2), done.output
    assert all(letter.isprintable() or letter == "\n" for letter in done.output)
    assert len(done.stderr) <= 2_000


def test_what_is_printed_and_warned_of_is_letters(capsys):
    output.echo(EVIL)
    _show_warning(EVIL)
    said = "".join(capsys.readouterr())
    assert all(letter.isprintable() or letter == "\n" for letter in said)


SHARED = [
    "--rate-per-s",
    "3000",
    "--fixed-ms",
    "5",
    "--per-item-ms",
    "0.25",
    "--servers",
    "2",
    "--devices",
    "1",
]


def test_advice_is_in_the_words_of_a_shell(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [n / 20 for n in range(400)] + [20 + n / 400 for n in range(400)]
    (tmp_path / "t.csv").write_text("t\n" + "\n".join(map(str, rows)))
    (tmp_path / "config.pbtxt").write_text(
        "max_batch_size: 8\ndynamic_batching {}\ninstance_group [ { count: 2 kind: KIND_GPU gpus: [0] } ]"
    )
    service = ["--fixed-ms", "5"]
    told = run("simulate", "--trace", "t.csv", *service)
    assert "DRIFTING" in told.stdout
    assert "pass --unit s or --unit ms" in told.stderr
    others = [
        run("simulate", "--rate-per-s", "3000", *service, "--max-batch-size", "8", "--warmup", "auto"),
        run("lint", "config.pbtxt", "--rate-per-s", "300", *service, "--requests", "2000", code=0),
        run("tune", *SHARED, "--p99-ms", "20", *SHORT, code=1),
        run("capacity", "--workload", "Diurnal(80, 2, 60)", *service, "--p99-ms", "50", *SHORT, code=1),
        run("simulate", "--workload", "Diurnal(80, 2, 60)", *service, *SHORT),
    ]
    for done in (told, *others):
        assert not re.search(r"\bbs\.|\b\w+\(\)|\b(requests|unit|cores)=", done.output), done.output
    assert "takes --requests 384000" in others[3].stdout
    assert "servers on the same device" not in others[2].stdout


def test_a_run_that_serves_nobody_and_a_search_without_a_frontier_print_no_empty_numbers():
    nobody = run("simulate", "--rate-per-s", "99", "--fixed-ms", "5", "--timeout-ms", "0", *SHORT).stdout
    assert "0 served, 2,000 timed out" in nobody
    assert "nan" not in nobody
    beyond = ["tune", "--rate-per-s", "1e6", "--fixed-ms", "5", "--p99-ms", "50", *SHORT]
    assert "Pareto" not in run(*beyond, code=1).stdout
