"""What lint finds in a server's settings, and what it must not find."""

import json
import math

import pytest
from places import DATA
from typer.testing import CliRunner

import batchsim as bs
from batchsim import servers
from batchsim.cli import app
from batchsim.servers.linter.finding import Trial, measured
from batchsim.study.tune import tune

V100 = bs.Affine(1.8874, 0.1438)
LINE = bs.Affine(0, 1)
REQUESTS = 20_000


def scenario(rate, service=V100, **parts):
    workload = rate if not isinstance(rate, int) else bs.Poisson(rate)
    return bs.Scenario(workload, bs.SizeOrWait(1, 0), service, **parts)


def lint(server, rate, service=V100, parts=None, **settings):
    asked = scenario(rate, service, **(parts or {}))
    return servers.lint(servers.config(server, **settings), asked, REQUESTS)


PADDED = bs.PaddedTime(2, 0.05, 0.002)
TIMED = {"max_batch_size": 32, "max_queue_delay_microseconds": 10_000}


def SENTENCES(rate):  # as a workload's class
    return bs.Poisson(rate).with_sizes(bs.Lognormal(80, cv=1, at_most=512))


SHARED = {"servers": 8, "devices": 1}
RAY = {"max_batch_size": 32, "max_ongoing_requests": 64}
TWO = {"max_batch_size": 8, "batch_wait_timeout_s": 0.005, "max_concurrent_batches": 2}

# Each with settings in which it is found, and neighbours, all but the same, in which it is not.
FOUND = [
    ("wait-below-t-min", [("ray_serve", 2000, {"batch_wait_timeout_s": 0.002, **RAY})], [
        ("ray_serve", 2000, {"batch_wait_timeout_s": 0.003, **RAY}),
        ("ray_serve", 900, {"batch_wait_timeout_s": 0.002, **RAY}),
        ("ray_serve", 2000, {"batch_wait_timeout_s": 0.002, **RAY, "handler": "blocking"}),
        ("triton", 2000, {"max_batch_size": 32, "max_queue_delay_microseconds": 2000}),
    ]),
    ("wait-too-short", [("ray_serve", 2000, {"batch_wait_timeout_s": 0.0022, **RAY})], [
        ("ray_serve", 2000, {"batch_wait_timeout_s": 0.0027, **RAY}),
        ("ray_serve", 200, {"batch_wait_timeout_s": 0, **RAY}),
    ]),
    ("concurrency-below-size", [
        ("ray_serve", 1000, {}), ("ray_serve", 300, {}),
        ("ray_serve", 900, TWO | {"max_ongoing_requests": 8}),
    ], [
        ("ray_serve", 20, {}), ("ray_serve", 900, TWO | {"max_ongoing_requests": 16}),
        ("ray_serve", 1000, {"max_ongoing_requests": 10}),
        ("ray_serve", 1000, {"handler": "blocking"}),
    ]),
    ("wait-default", [("kserve", 500, {}), ("kserve", 20, {}), ("torchserve", 500, {"batchSize": 8})], [
        ("kserve", 500, {"maxLatency": 2}),
        ("torchserve", 20, {}),
        ("torchserve", 500, {"batchSize": 8, "maxBatchDelay": 1}),
        ("tf_serving", 500, {}), ("triton", 500, {"max_batch_size": 32}), ("litserve", 20, {}),
    ]),
    ("wait-unit", [
        ("torchserve", 500, {"batchSize": 8, "maxBatchDelay": 100_000}),
        ("litserve", 500, {"max_batch_size": 8, "batch_timeout": 50}),
        ("ray_serve", 500, {"max_batch_size": 8, "batch_wait_timeout_s": 10, "max_ongoing_requests": 16}),
    ], [
        ("torchserve", 500, {"batchSize": 8, "maxBatchDelay": 100}),
        ("kserve", 500, {"maxLatency": 5000}),  # the default, typed
        # Batches are full long before.
        ("triton", 4500, {"max_batch_size": 32, "max_queue_delay_microseconds": 100_000_000}),
    ]),
    ("wait-light-load", [
        ("triton", 20, {"max_batch_size": 32, "max_queue_delay_microseconds": 10_000}),
        ("litserve", 20, {"max_batch_size": 8, "batch_timeout": 0.01}),
        ("batched", 20, {"timeout_ms": 10}),
    ], [
        ("triton", 20, {"max_batch_size": 32, "max_queue_delay_microseconds": 100}),
        ("triton", 20, {"max_batch_size": 32}),
        ("triton", 2000, {"max_batch_size": 32, "max_queue_delay_microseconds": 2000}),
        ("litserve", 20, {"max_batch_size": 1, "batch_timeout": 0.01}),
    ]),
    ("wait-too-long", [
        ("triton", 2000, {"max_batch_size": 32, "max_queue_delay_microseconds": 10_000}),
        ("mosec", 1000, {"max_batch_size": 32, "max_wait_time": 20}),
        # More than batches of 10 carry, as each waits in vain for another 6.
        ("ray_serve", 100, {"max_batch_size": 16, "max_ongoing_requests": 10, "batch_wait_timeout_s": 0.3}),
        # Pairs leave at once: the busier the instance, the shorter is the wait for one.
        ("triton", 500, {"max_batch_size": 32, "preferred_batch_size": [2],
                         "max_queue_delay_microseconds": 10_000}),
    ], [
        ("triton", 700, {"max_batch_size": 32, "preferred_batch_size": [2],
                         "max_queue_delay_microseconds": 10_000}),
        ("triton", 2000, {"max_batch_size": 32, "max_queue_delay_microseconds": 3000}),
        ("triton", 4500, {"max_batch_size": 32, "max_queue_delay_microseconds": 10_000}),
    ]),
    ("size-too-small", [
        ("torchserve", 800, {}), ("torchserve", 450, {}), ("litserve", 800, {}), ("mosec", 800, {}),
        ("triton", 2000, {"max_batch_size": 4}),
    ], [
        ("torchserve", 100, {}), ("litserve", 20, {}), ("mosec", 20, {}),
        ("triton", 500, {"max_batch_size": 4}),
        ("triton", 10_000, {"max_batch_size": 32}),  # none is large enough
    ]),
    ("service-through-zero", [
        ("triton", 100, LINE, {"max_batch_size": 32, "max_queue_delay_microseconds": 5000}),
        ("bentoml", 700, LINE, {}),
    ], [
        ("triton", 700, LINE, {"max_batch_size": 1}),
        ("triton", 5, LINE, {"max_batch_size": 32}),
        ("triton", 100, bs.Affine(0.1, 1), {"max_batch_size": 32}),
        ("bentoml", 700, {}),
    ]),
    ("preferred-sizes", [
        ("triton", 2000, {"max_batch_size": 32, "max_queue_delay_microseconds": 2000,
                          "preferred_batch_size": [2]}),
        ("triton", 1000, {"max_batch_size": 32, "max_queue_delay_microseconds": 2000,
                          "preferred_batch_size": [1]}),
    ], [
        # Eight leave at once instead of all after the wait.
        ("triton", 2000, {"max_batch_size": 32, "max_queue_delay_microseconds": 5000,
                          "preferred_batch_size": [8, 32]}),
        ("triton", 2000, {"max_batch_size": 32, "preferred_batch_size": [32]}),
    ]),
    ("size-not-compiled", [
        ("triton", 1200, bs.Affine(2, 0.5).padded_to([1, 8, 16, 32]), {"max_batch_size": 9}),
        ("triton", 890, bs.Affine(2, 0.5).padded_to([1, 8, 16, 32]), {"max_batch_size": 9}),
    ], [
        ("triton", 1500, bs.Affine(2, 0.5).padded_to([1, 8, 16, 32]), {"max_batch_size": 16}),
        ("triton", 100, bs.Affine(2, 0.5).padded_to([1, 8, 16, 32]), {"max_batch_size": 9}),
        ("triton", 1500, bs.Affine(2, 0.5), {"max_batch_size": 9}),
    ]),
    ("padding-waste", [
        ("tf_serving", 1000, {"max_batch_size": 32, "allowed_batch_sizes": [32]}),
        ("triton", 1000, V100.padded_to([32]), {"max_batch_size": 32}),
    ], [
        ("tf_serving", 1000, {"max_batch_size": 32, "allowed_batch_sizes": [2, 4, 8, 16, 32]}),
        ("tf_serving", 1000, {"max_batch_size": 32}),
        ("triton", 1000, bs.Affine(5, 0).padded_to([32]), {"max_batch_size": 32}),  # padding costs nothing
    ]),
    ("length-padding", [
        ("triton", SENTENCES(1250), PADDED, TIMED),
        ("tf_serving", SENTENCES(1250), PADDED, {"max_batch_size": 32, "batch_timeout_micros": 10_000}),
        ("tei", SENTENCES(1250), PADDED, {"max_batch_requests": 32, "padded_model": True}),
    ], [
        ("triton", SENTENCES(50), PADDED, TIMED),  # batches of one or two
        ("triton", bs.Poisson(1250).with_sizes(bs.Uniform(60, 70)), PADDED, TIMED),
        ("triton", SENTENCES(1250), bs.PackedTime(2, 0.05, 0.002), TIMED),
        ("triton", SENTENCES(600), bs.PaddedTime(20, 0.05, 0.00001), TIMED),  # padding costs nothing
        ("tei", SENTENCES(1250), PADDED,
         {"max_batch_requests": 32, "padded_model": True, "max_batch_tokens": 2048}),
    ]),
    ("servers-share-a-device", [
        ("tf_serving", 1500, V100, SHARED, {"max_batch_size": 32, "num_batch_threads": 8}),
        ("triton", 1500, V100, {"servers": 2, "slowdown": {1: 1, 2: 2.2}},
         {"max_batch_size": 32, "count": 2}),
    ], [
        ("tf_serving", 1500, {"max_batch_size": 32, "num_batch_threads": 8}),  # a device each
        ("tf_serving", 1500, V100, {"servers": 1, "devices": 1}, {"max_batch_size": 32}),
        # Half of the time is the host's, which two servers have one each of.
        ("tf_serving", 1500, bs.Affine(4, 0.1), {"servers": 2, "devices": 1, "host_ms": 3},
         {"max_batch_size": 32, "num_batch_threads": 2}),
    ]),
    ("handler-blocks", [("ray_serve", 1500, {"batch_wait_timeout_s": 0.005, **RAY, "handler": "blocking"})], [
        ("ray_serve", 1500, {"batch_wait_timeout_s": 0.005, **RAY}),
        ("ray_serve", 2000, {"batch_wait_timeout_s": 0.002, **RAY, "handler": "blocking"}),
    ]),
    ("latency-limit-as-wait", [("bentoml", 3500, {"max_batch_size": 32, "max_latency_ms": 5})], [
        ("bentoml", 500, {"max_batch_size": 32, "max_latency_ms": 500}),
        ("bentoml", 500, {"max_batch_size": 32}),
        ("bentoml", 9000, {"max_batch_size": 32, "max_latency_ms": 100}),  # it sheds what is too much
    ]),
    ("timeout-below-wait", [
        ("triton", 500, {"max_batch_size": 32, "max_queue_delay_microseconds": 20_000,
                         "default_timeout_microseconds": 5000}),
        ("mosec", 2, {"max_batch_size": 8, "max_wait_time": 5000}),
    ], [
        ("triton", 500, {"max_batch_size": 32, "max_queue_delay_microseconds": 2000,
                         "default_timeout_microseconds": 50_000}),
        ("mosec", 500, {"max_batch_size": 8, "max_wait_time": 5}),
    ]),
    ("queue-limit-below-size", [
        ("torchserve", 500, {"batchSize": 64, "maxBatchDelay": 200, "job_queue_size": 10}),
        ("triton", 2000, {"max_batch_size": 32, "max_queue_delay_microseconds": 5000, "max_queue_size": 4}),
    ], [
        ("torchserve", 500, {"batchSize": 8, "maxBatchDelay": 5, "job_queue_size": 100}),
        ("torchserve", 20, {"batchSize": 64, "maxBatchDelay": 5, "job_queue_size": 10}),  # never so many
    ]),
    ("clients-below-size", [
        ("textbook", bs.ClosedLoop(4), {"max_batch_size": 32, "max_wait_ms": 20}),
    ], [
        ("textbook", bs.ClosedLoop(64), {"max_batch_size": 32, "max_wait_ms": 20}),
        ("textbook", bs.ClosedLoop(4), {"max_batch_size": 32, "max_wait_ms": 0}),
        ("textbook", bs.ClosedLoop(4), {"max_batch_size": 4, "max_wait_ms": 20}),
    ]),
    ("overload", [
        ("triton", 10_000, {"max_batch_size": 32}), ("clipper", 10_000, {"batch_size": 32}),
        ("torchserve", 10_000, {"batchSize": 32, "maxBatchDelay": 1}),
    ], [
        ("triton", 4900, {"max_batch_size": 32}), ("triton", 10_000, {"max_batch_size": 32, "count": 3}),
        ("triton", 2000, {"max_batch_size": 4}),  # the size is to blame
    ]),
]  # fmt: skip


def linted(case):
    server, rate, *more, settings = case
    return lint(server, rate, *more, **settings)


@pytest.mark.parametrize(("code", "case"), [(code, case) for code, cases, _ in FOUND for case in cases])
def test_what_is_wrong_is_found_and_its_change_removes_it(code, case):
    findings = linted(case)
    assert code in findings.codes
    finding = findings[findings.codes.index(code)]
    assert finding.effect >= 1
    if finding.remedy:
        return
    # The numbers are those of runs: of one with the change, and one without.
    server, rate, *more, settings = case
    changed = lint(server, rate, *more, **settings | dict(finding.change))
    assert code not in changed.codes
    for value, of in ((finding.value, findings), (finding.changed_value, changed)):
        result = bs.simulate(of.scenario, REQUESTS) if finding.key != "load" else None
        if finding.key == "load":
            offered = of.scenario.workload.offered_per_s
            assert value == pytest.approx(offered / of.scenario.full_batches_per_s)
        elif finding.key == "loss":
            assert value == pytest.approx(1 - result.metrics.served / REQUESTS)
        else:
            assert value == result.percentile(99, unserved="inf")
    assert finding.changed_value < finding.value


def test_rates_that_differ_little_are_told_apart():
    service = bs.Table({1: 2, 32: 6.5})  # of no larger batch, which would carry more
    carried_per_s = lint("triton", 1, service, max_batch_size=32).scenario.full_batches_per_s
    (found,) = lint("triton", bs.Poisson(1.0001 * carried_per_s), service, max_batch_size=32)
    offered, carried = (word for word in found.sentence.split() if word.endswith("/s"))
    assert found.code == "overload"
    assert offered != carried


@pytest.mark.parametrize(("code", "case"), [(code, case) for code, _, cases in FOUND for case in cases])
def test_what_is_right_is_not_found(code, case):
    assert code not in linted(case).codes


def test_findings_come_with_the_greatest_effect_first():
    found = lint("ray_serve", 300)
    assert found.codes == ("wait-default", "concurrency-below-size")
    assert found[0].effect == found[0].value / found[0].changed_value > found[1].effect > 2
    assert lint("ray_serve", 1000)[0].effect == math.inf
    (idle,) = lint("ray_serve", 900, **TWO, max_ongoing_requests=8)
    assert "admits fewer requests than full batches of 8 on all servers: some servers idle." in idle.sentence


def test_the_least_wait_of_frozen_batches_is_theorys():
    finding = lint("ray_serve", 2000, **RAY, batch_wait_timeout_s=0.002)[0]
    assert "2.149 ms" in finding.sentence
    assert finding.change["batch_wait_timeout_s"] * 1000 > bs.theory.frozen_wait_min_ms(2000, 1.8874, 0.1438)


@pytest.mark.parametrize(("server", "least"), [("kserve", 1), ("mosec", 1), ("torchserve", 1)])
def test_no_wait_is_proposed_that_the_server_takes_for_another(server, least):
    # 0 is 5 s for KServe and 10 ms for mosec.
    words = servers.SERVERS[server].words
    found = lint(server, 20, **{words.size: 8, words.wait: 500})
    assert found[0].change == {words.wait: least}


def test_a_change_of_size_takes_the_listed_sizes_with_it():
    found = lint("tf_serving", 3000, max_batch_size=4, allowed_batch_sizes=[2, 4])
    change = found[found.codes.index("size-too-small")].change
    assert change["allowed_batch_sizes"][:2] == [2, 4]
    assert change["allowed_batch_sizes"][-1] == change["max_batch_size"] >= 8
    listed = servers.config("tf_serving", max_batch_size=8, allowed_batch_sizes=[2, 4, 8])
    trial = Trial(
        servers.SERVERS["tf_serving"], listed, bs.Scenario(bs.Poisson(9), bs.SizeOrWait(), V100), 9, 0
    )
    assert trial.resized(4).change == {"max_batch_size": 4, "allowed_batch_sizes": [2, 4]}


NOISY, MEASURED = bs.Affine(5, 0.25).with_noise(0.3), bs.Table({1: 2, 8: 4, 64: 9})
ASKED = [(20, V100, 1), (400, V100, 3), (1500, V100, 1), (3500, V100, 1), (20, NOISY, 3), (400, NOISY, 1),
         (1500, NOISY, 3), (20, MEASURED, 3), (1500, MEASURED, 1), (3500, MEASURED, 3)]  # fmt: skip


@pytest.mark.parametrize(("rate", "service", "cv"), ASKED)
def test_what_tune_recommends_is_clean(rate, service, cv):
    asked = bs.Scenario(bs.Gamma(rate, cv), bs.SizeOrWait(32, 10), service)
    grid = {"max_batch_size": [8, 32, 64], "max_wait_ms": [0, 1, 2, 5, 10], "servers": [1, 2]}
    best = tune(asked, bs.SLO(p99_ms=100), grid, requests=10_000)
    rule = best.rule
    each = best.scenario.servers
    settings = {"max_batch_size": rule.max_batch_size, "count": each, "gpus": each}
    config = servers.config("triton", **settings, max_queue_delay_microseconds=round(1000 * rule.max_wait_ms))
    found = servers.lint(config, asked)
    assert best.met
    assert not found, found


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_findings_of_a_clean_config_do_not_depend_on_chance(seed):
    config = servers.config("triton", max_batch_size=32, max_queue_delay_microseconds=3000)
    assert not servers.lint(config, scenario(2000), requests=5000, seed=seed)
    assert servers.lint(config, scenario(20), seed=seed).codes == ("wait-light-load",)


def test_the_same_settings_have_the_same_findings():
    assert lint("ray_serve", 300).findings == lint("ray_serve", 300).findings


def test_a_short_trace_proves_nothing_but_is_no_error():
    assert not lint("triton", bs.Trace([0.0, 0.5, 1.0]), max_batch_size=8, max_queue_delay_microseconds=9000)


def test_notes_tell_what_no_number_shows_and_are_no_findings():
    found = lint("triton", 500, max_batch_size=8, max_queue_size=500)
    assert (len(found), [note.code for note in found.notes]) == (0, ["pre-forming-off"])
    found = lint("litserve", 500, max_batch_size=8, batch_timeout=0.002, accelerator="cuda")
    assert [note.code for note in found.notes] == ["unused"]
    assert not lint("triton", 500, max_batch_size=8).notes
    assert [note.code for note in lint("tf_serving", 500).notes] == ["threads-default"]
    assert not lint("tf_serving", 500, num_batch_threads=1).notes


def test_threads_that_are_one_per_core_are_proved_where_the_cores_are_said():
    left, shared = servers.config("tf_serving", max_batch_size=32), scenario(1500, V100, servers=8, devices=1)
    assert servers.lint(left, shared, REQUESTS).codes == ()
    found = servers.lint(left, shared, REQUESTS, cores=8)
    said = servers.config("tf_serving", max_batch_size=32, num_batch_threads=8)
    assert found.codes == ("servers-share-a-device",)
    assert found[0] == servers.lint(said, shared, REQUESTS)[0]
    assert not found.notes
    # What the file says goes before, and other servers have no such default.
    assert (
        servers.lint(servers.config("tf_serving", num_batch_threads=1), shared, REQUESTS, cores=8).codes == ()
    )
    assert servers.lint(servers.config("triton", max_batch_size=32), shared, REQUESTS, cores=8).codes == ()
    with pytest.raises(ValueError, match="cores must be at least 1, got 0"):
        servers.lint(left, shared, REQUESTS, cores=0)
    assert not lint("ray_serve", 20, handler="blocking", batch_wait_timeout_s=0).notes


def test_a_config_or_scenario_that_is_none_is_refused():
    config = servers.config("triton", max_batch_size=8)
    with pytest.raises(TypeError, match="config must be a ServerConfig"):
        servers.lint(bs.SizeOrWait(8, 0), scenario(20))
    with pytest.raises(TypeError, match="scenario must be a Scenario"):
        servers.lint(config, bs.Poisson(20))
    with pytest.raises(ValueError, match="must have the settings of its rule"):
        servers.lint(servers.ServerConfig("triton", bs.SizeOrWait(8, 0)), scenario(20))
    with pytest.raises(ValueError, match="requests must be at least 1"):
        servers.lint(config, scenario(20), requests=0)


# The command.


@pytest.fixture
def shell(tmp_path):
    """Run `batchsim lint` on a server's file of these settings."""

    def run(server, *arguments, **settings):
        path = tmp_path / servers.file_name(server)
        path.write_text(servers.write(server, servers.config(server, **settings)))
        return CliRunner().invoke(app, ["lint", str(path), *arguments])

    return run


def test_how_servers_share_a_device_is_a_note_with_the_range_until_it_is_measured():
    config = servers.config("triton", max_batch_size=32, count=2)
    for rate, at_none in ((3500, False), (6000, False), (20_000, True)):  # carried at both ends, one, none
        found = servers.lint(config, scenario(rate), REQUESTS)
        assert ("overload" in found.codes) == at_none
        assert [note.code for note in found.notes] == ["sharing-not-measured"]
        own = bs.Scenario(bs.Poisson(rate), config.rule, scenario(rate).service, servers=2)
        for each in (own, own.replace(devices=1)):
            p99_ms = bs.simulate(each, REQUESTS).percentile(99)
            expected = measured("p99_ms", p99_ms) if each.stable else "overload if"
            assert expected in found.notes[0].sentence
    assert not servers.lint(config, scenario(3500).replace(host_ms=0.5), REQUESTS).notes
    assert not servers.lint(
        servers.config("triton", max_batch_size=32, count=2, gpus=2), scenario(3500), REQUESTS
    ).notes


def test_more_triton_instances_are_proposed_on_a_gpu_each():
    (finding,) = servers.lint(servers.config("triton", max_batch_size=32), scenario(10_000), REQUESTS)
    assert finding.change == {"count": 3, "gpus": 3}


LOAD = ["--rate-per-s", "500", "--fixed-ms", "1.8874", "--per-item-ms", "0.1438"]


def test_the_command_exits_with_1_where_it_found_something_and_0_where_not(shell):
    done = shell("kserve", *LOAD)
    assert done.exit_code == 1
    assert "wait-default" in done.output
    assert "each change:" in done.output  # and a table, as the other commands have
    done = shell("kserve", *LOAD, maxLatency=2)
    assert done.exit_code == 0
    assert "nothing found" in done.output
    assert "as they are" in done.output


def test_the_command_prints_json_like_pythons_answer(shell):
    done = shell("kserve", *LOAD, "--json")
    answer = json.loads(done.output)
    finding = servers.lint(servers.config("kserve"), scenario(500))[0]
    assert answer["findings"][0]["changed_value"] == finding.changed_value
    assert answer["scenario"]["rule"]["max_wait_ms"] == 5000


def test_the_command_reads_a_scenario_and_its_settings_from_toml(shell, tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(scenario(500, servers=2).to_toml() + "\n[simulate]\nrequests = 20000\nseed = 1\n")
    done = shell("kserve", "--scenario", str(path), "--json")
    found = servers.lint(servers.config("kserve"), scenario(500), requests=20_000, seed=1)
    assert json.loads(done.output)["findings"][0]["value"] == found[0].value


def test_the_command_takes_shared_devices_for_the_files_servers(shell):
    sharing = [*LOAD[2:], "--rate-per-s", "1500", "--devices", "1"]
    done = shell("tf_serving", *sharing, max_batch_size=32, num_batch_threads=8)
    assert (done.exit_code, "servers-share-a-device" in done.output) == (1, True)
    sharing = ["--rate-per-s", "1500", *LOAD[2:]]
    for more, noted in (([], True), (["--devices", "1"], False), (["--host-ms", "0.5"], False)):
        done = shell("triton", *sharing, *more, max_batch_size=32, count=2)
        assert ("was not measured" in done.output) == noted, done.output


@pytest.mark.parametrize(
    "arguments", [[], ["no-such-file", *LOAD], ["FILE", *LOAD, "--max-wait-ms", "5"], ["FILE"]]
)
def test_bad_input_exits_with_2(arguments, tmp_path):
    path = tmp_path / "config.pbtxt"
    path.write_text("max_batch_size: 8 dynamic_batching {}")
    given = [str(path) if each == "FILE" else each for each in arguments]
    assert CliRunner().invoke(app, ["lint", *given]).exit_code == 2


def test_a_file_that_does_not_parse_exits_with_2_and_says_where(tmp_path):
    path = tmp_path / "config.pbtxt"
    path.write_text("max_batch_size: 8 dynamic_batching {")
    done = CliRunner().invoke(app, ["lint", str(path), *LOAD])
    assert (done.exit_code, "line 1" in done.output) == (2, True)


@pytest.mark.parametrize("server", ["triton", "tf_serving", "torchserve", "kserve"])
def test_a_file_is_linted_as_its_settings_are(server, tmp_path):
    settings = {"max_batch_size": 8} if server == "triton" else {}
    text = servers.write(server, servers.config(server, **settings))
    path = tmp_path / servers.file_name(server)
    path.write_text(text)
    read = servers.read(path)
    found = servers.lint(read, scenario(800))
    assert found.codes == servers.lint(servers.config(server, **read.settings), scenario(800)).codes
    assert not [note for note in found.notes if note.code == "unknown"]


EXAMPLES = sorted(path for path in (DATA / "servers").glob("*/*") if path.parent.name in servers.SERVERS)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: "-".join(path.parts[-2:]))
def test_each_servers_example_file_is_linted(path):
    read = servers.read(path)
    found = servers.lint(read, scenario(800), REQUESTS)
    assert found.config is read
    assert all(set(finding.change) <= set(servers.SERVERS[read.server].settings) for finding in found)


def test_a_key_that_the_server_does_not_have_is_noted():
    read = servers.parse("@serve.batch(max_batch_size=8, batch_wait_timeout_s=0.002, max_batchs=3)")
    notes = {note.code: note.sentence for note in servers.lint(read, scenario(20)).notes}
    assert "max_batch_size" in notes["unknown"]


def test_a_trace_is_judged_whole_or_the_part_is_named():
    times_s = [*(each / 20 for each in range(60_000)), *(3000 + each / 4000 for each in range(3000))]
    config = servers.config("triton", max_batch_size=32, max_queue_delay_microseconds=10_000)
    whole, part = (servers.lint(config, scenario(bs.Trace(times_s)), count) for count in (None, 50_000))
    now_ms = bs.simulate(whole.scenario).percentile(99)
    assert (whole[0].key, whole[0].value) == ("p99_ms", pytest.approx(now_ms, rel=1e-9))
    assert part[0].value < now_ms - 0.5
    assert "part-of-trace" not in {note.code for note in whole.notes}
    assert "by the first 50,000 of the trace's 63,000 requests" in repr(part)
