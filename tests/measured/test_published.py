"""Published times: where they are found, and what they were fitted to."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from refusals import refusals
from typer.testing import CliRunner

import batchsim as bs
from batchsim.cli import app
from batchsim.measured.published import PublishedSteps

NAMES = bs.published_names()
PAGES = "https://github.com/NVIDIA/DeepLearningExamples/blob/729963dd47e7c8bd462ad10bfac7a7b0b604e6dd/"

with open(Path(bs.__file__).parent / "measured" / "published.csv", encoding="utf-8", newline="") as file:
    ROWS = list(csv.DictReader(file))


def figures(name, column):
    return tuple((int(row["batch_size"]), float(row[column])) for row in ROWS if row["name"] == name)


# What the pages say.


GPUNET = "gpunet-175ms/v100-32gb/fp16"


def test_gpunet_on_a_v100_is_what_its_page_says():
    source = bs.published_source(GPUNET)
    assert source.source_url == PAGES + "PyTorch/Classification/GPUNet/triton/175ms/README.md#L160"
    assert dict(source.service.points_ms) == {
        1: 2.22, 2: 2.77, 4: 3.96, 8: 6.05, 16: 10.33, 32: 19.01, 64: 35.83,
    }  # fmt: skip
    assert [ms for _, ms in source.p99_ms] == [2.3, 2.88, 4.09, 6.16, 10.41, 19.14, 36.11]
    assert [rate for _, rate in source.throughput_per_s] == [
        450.0, 720.0, 1008.0, 1320.0, 1536.0, 1664.0, 1728.0,
    ]  # fmt: skip


def test_nnunet_on_a_v100_is_what_its_page_says():
    source = bs.published_source("nnunet/v100-32gb/fp16")
    assert source.source_url == PAGES + "PyTorch/Segmentation/nnUNet/triton/README.md#L389"
    assert source.service == bs.Table({1: 49.188, 2: 79.247, 4: 139.634})


BACKENDS = {
    "mxnet": ("mxnet", "MXNet, no server"),
    "triton-nvidia-tensorrt": ("trt", "Triton, TensorRT"),
    "triton-onnx-runtime": ("onnx", "Triton, ONNX Runtime"),
    "triton-onnx-runtime-nvidia-tensorrt": ("onnx-trt", "Triton, ONNX Runtime with TensorRT"),
    "triton-onnx-runtime-tensorrt": ("onnx-trt", "Triton, ONNX Runtime with TensorRT"),
    "triton-pytorch": ("pytorch", "Triton, PyTorch"),
    "triton-pytorch-cuda": ("pytorch", "Triton, PyTorch"),
    "triton-tensorflow": ("tf-trt", "Triton, TensorFlow with TensorRT"),
}
RESNET50 = {"ConvNets", "ConvNets-resnet50", "resnet50-v1.5"}  # all are version 1.5
OF_THE_CLIENT = ("ConvNets/triton/resnet50/", "TensorFlow/Classification/ConvNets/triton/")  # pages


def test_the_file_agrees_with_the_collection_it_was_taken_from_row_by_row(shared_data):
    with open(shared_data / "published_latency.csv", encoding="utf-8", newline="") as file:
        collection = list(csv.DictReader(file))
    for row in ROWS:
        place = (row["source_url"], row["batch_size"])
        (there,) = (other for other in collection if (other["source_url"], other["batch_size"]) == place)
        for column in ("latency_ms", "p99_ms", "throughput_per_s", "stat", "licence"):
            assert row[column] == there[column]
        model, device, precision, *variant = row["name"].split("/")
        assert device == there["device"].lower()
        assert precision == {"mixed(FP16)": "mixed-fp16"}.get(there["precision"], there["precision"].lower())
        if there["model"] in RESNET50:
            assert model == "resnet50"
        elif there["model"] == "TFT":
            assert model == "tft-" + there["profile_id"].rpartition("-")[2]
        else:
            assert model == there["model"].lower()
        short, backend = BACKENDS[there["framework"]]
        assert row["backend"] == backend
        assert variant in ([], [short]) or there["profile_id"].endswith(f"-{variant[0]}")


def test_only_the_stated_tables_of_the_collection_are_left_out(shared_data):
    with open(shared_data / "published_latency.csv", encoding="utf-8", newline="") as file:
        collection = list(csv.DictReader(file))
    taken = {row["source_url"] for row in ROWS}
    assert len(ROWS) == sum(row["source_url"] in taken for row in collection)
    left_out = [row for row in collection if row["source_url"] not in taken]
    above_p99 = {
        row["profile_id"]
        for row in collection
        if row["p99_ms"] and float(row["latency_ms"]) > float(row["p99_ms"])
    }
    reasons = {
        "language model": set(),
        "candidates": set(),
        "of the client": set(),
        "above its p99": set(),
        "contradicts itself": set(),
    }
    for row in left_out:
        if row["framework"] == "splitwise-sim":
            reason = "language model"
        elif row["model"] == "WideAndDeep":
            reason = "candidates"
        elif any(page in row["source_url"] for page in OF_THE_CLIENT):
            reason = "of the client"
        elif row["profile_id"] in above_p99:
            reason = "above its p99"
        else:
            reason = "contradicts itself"
        reasons[reason].add((row["profile_id"], row["source_url"]))
    assert {reason: len(tables) for reason, tables in reasons.items()} == {
        "language model": 16,
        "candidates": 8,
        "of the client": 8,
        "above its p99": 4,
        "contradicts itself": 1,
    }
    assert {url.removeprefix(PAGES) for _, url in reasons["contradicts itself"]} == {
        "PyTorch/LanguageModeling/BERT/triton/dist6l/README.md#L484"
    }


# What holds for every table.


@pytest.mark.parametrize("name", NAMES)
def test_a_table_is_its_rows_of_the_file(name):
    source = bs.published_source(name)
    assert source.name == name
    assert type(bs.published(name)) is bs.Table
    assert bs.published(name).points_ms == figures(name, "latency_ms")
    assert source.p99_ms == figures(name, "p99_ms")
    assert source.throughput_per_s == figures(name, "throughput_per_s")
    assert all(bs.published(name)(size) == ms / 1000 for size, ms in figures(name, "latency_ms"))


@pytest.mark.parametrize("name", NAMES)
def test_a_table_runs_alike_in_both_engines_and_its_full_batches_take_its_last_time(name):
    service = bs.published(name)
    largest, last_ms = service.points_ms[-1]
    scenario = bs.Scenario(
        bs.Poisson(1.2 * largest / (last_ms / 1000)), bs.SizeOrWait(largest, last_ms), service
    )
    compiled, simpy = (bs.simulate(scenario, 4 * largest, engine=engine) for engine in ("compiled", "simpy"))
    assert np.array_equal(compiled.finish_s, simpy.finish_s)
    full = compiled.batches.batch_size == largest
    assert full.any()
    computing_ms = (compiled.batches.finish_s - compiled.batches.start_s)[full] * 1000
    assert computing_ms == pytest.approx(last_ms, rel=1e-9)


def test_names_are_sorted_differ_and_are_those_of_the_file():
    assert list(NAMES) == sorted(set(NAMES))
    assert set(NAMES) == {row["name"] for row in ROWS}


def test_a_name_is_a_model_a_device_a_precision_and_sometimes_a_variant():
    name = re.compile(
        r"[a-z0-9-]+/(a30|a40|a100-80gb|t4|v100-16gb|v100-32gb)/(fp16|fp32|mixed-fp16)(/[a-z0-9-]+)?"
    )
    assert [other for other in NAMES if not name.fullmatch(other)] == []


def test_every_table_starts_at_one_request_and_has_two_sizes_or_more():
    for name in NAMES:
        sizes = [size for size, _ in bs.published(name).points_ms]
        assert sizes[0] == 1
        assert len(sizes) >= 2


def test_every_table_is_pinned_to_a_line_of_a_commit_and_has_a_licence():
    line = re.compile(r"https://github\.com/[\w-]+/[\w-]+/blob/[0-9a-f]{40}/\S+#L\d+")
    for source in map(bs.published_source, NAMES):
        assert line.fullmatch(source.source_url)
        assert re.fullmatch(r"(Apache-2\.0|BSD-3-Clause) \(\S+/LICENSE\)", source.licence)
        # The licence is that of a folder above the page.
        assert f"/{source.licence.split('(')[1].removesuffix('LICENSE)')}" in source.source_url
        assert source.stat == "mean"
        assert source.backend


def test_the_rows_of_a_table_come_from_one_place_and_no_two_tables_from_the_same():
    places = {(row["name"], row["source_url"], row["licence"], row["stat"], row["backend"]) for row in ROWS}
    assert len(places) == len(NAMES) == len({url for _, url, *_ in places})


def test_a_client_that_sends_one_batch_at_a_time_sees_size_over_throughput():
    # Little's law with one batch in flight; a rate counts whole batches in a window, hence low by up to 6 %.
    for row in ROWS:
        whole, _, digits = row["latency_ms"].partition(".")
        half_a_digit = 0.5 * 10.0 ** -len(digits)
        assert whole.isdigit()
        between_ms = int(row["batch_size"]) / float(row["throughput_per_s"]) * 1000
        assert float(row["latency_ms"]) == pytest.approx(between_ms, rel=0.055, abs=half_a_digit), row


def test_no_mean_lies_above_its_99th_percentile():
    assert [row for row in ROWS if float(row["latency_ms"]) > float(row["p99_ms"])] == []


# What they take and refuse.


def test_a_published_table_is_a_service_like_any_other():
    service = bs.published(GPUNET)
    assert eval(f"bs.{service!r}") == service
    assert service(12) == pytest.approx((6.05 + 10.33) / 2 / 1000)
    assert service.with_noise(0.1).padded_to([8, 64])(3) == 6.05 / 1000
    with pytest.raises(ValueError, match="at most the Table's largest size, 64, got 65"):
        service(65)


def test_names_are_matched_by_whole_words():
    assert bs.published_names("nnunet") == ("nnunet/t4/fp16", "nnunet/v100-32gb/fp16")
    assert bs.published_names("T4") == tuple(name for name in NAMES if name.split("/")[1] == "t4")
    assert bs.published_names("a100") == bs.published_names("/a100-80gb/") != ()
    assert bs.published_names("fp16/onnx") == tuple(name for name in NAMES if "/fp16/onnx" in name)
    assert bs.published_names("dist4l/t4") == tuple(
        name for name in NAMES if name.startswith("bert-dist4l/t4/")
    )
    assert bs.published_names("dist") == ()
    assert bs.published_names("") == NAMES


@pytest.mark.parametrize("look_up", [bs.published, bs.published_source])
@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("gpunet-175ms/v100-32gb/fp61", ValueError, f"no published table .*; did you mean '{GPUNET}'"),
        ("nnunet/t4", ValueError, "no published table 'nnunet/t4'; did you mean 'nnunet/"),
        ("gpt", ValueError, r"no published table 'gpt'; `batchsim published` lists them"),
        ("", ValueError, r"no published table ''; `batchsim published` lists them"),
        (None, TypeError, "the name of a published table must be a string, got None"),
        (["nnunet/t4/fp16"], TypeError, r"must be a string, got \['nnunet/t4/fp16'\]"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(look_up, name, error, message):
    with pytest.raises(error, match=message):
        look_up(name)


@refusals
def test_unknown_names_of_steps_and_of_power_are_refused_and_a_match_that_is_no_text():
    """
    bs.published_names(4) -> TypeError: match must be a string, got 4
    bs.published("llama-3.1-8b/rtx-490") -> did you mean 'llama-3.1-8b/rtx-4090'
    bs.published_watts("llama-3.1-8b/h100/vllm")
        -> no published table 'llama-3.1-8b/h100/vllm'; did you mean 'llama-3.1
    bs.published_watts("llama-3.1-8b/rtx-4090")
        -> no published table 'llama-3.1-8b/rtx-4090'; did you mean 'llama-3.1-8b
    bs.published_watts("gpt") -> no published table 'gpt'; `batchsim published` lists them
    """


def test_tables_that_measured_the_client_are_gone_and_say_so():
    devices, backends = ("a100-80gb", "a40", "t4", "v100-32gb"), ("", "/tf-trt")
    names = [f"resnet50/{device}/fp16{backend}" for device in devices for backend in backends]
    assert len(set(names) - set(NAMES)) == 8
    for name in names:
        with pytest.raises(ValueError, match=f"'{name}' was removed: .* client"):
            bs.published(name)
    # Those of another source are still here.
    assert all(name.endswith("/mixed-fp16") for name in bs.published_names("resnet50"))
    assert len(bs.published_names("resnet50")) == 3


# Published times of steps: what they were fitted to, and where they are found.


STEPS = bs.published_names(tokens=True)
MODELS = {"llama-2-7b": "Llama-2-7b-hf", "llama-3-70b": "Meta-Llama-3-70B", "mistral-7b": "Mistral-7B-v0.1"}
ENGINES = {"vllm": "vLLM", "trt-llm": "TensorRT-LLM"}


def test_the_step_time_of_the_measured_run():
    assert bs.published("llama-3.1-8b/rtx-4090") == bs.StepTime(6.88, 9.997, 0.09631, 1.922e-4, 1.225e-6)


def whole_batch(size, length):
    """The steps of equal requests at once, prompts as long as outputs; their pairs cannot be told from it."""
    tokens = np.r_[size * length, np.full(length - 1, size)]
    reads = np.r_[0, size * (length + np.arange(1, length))]
    return {"tokens": tokens, "reads": reads, "pairs": np.zeros(length)}


@pytest.mark.parametrize("name", [name for name in STEPS if name.split("/")[0] in MODELS])
def test_those_of_whole_batches_are_fits_of_the_collection(shared_data, name):
    model, gpu, engine = name.split("/")
    gpus = int(gpu.partition("x")[0]) if "x" in gpu else 1
    with open(shared_data.parent / "llm" / "data" / "static_batch.csv", encoding="utf-8") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if row["model"].endswith(MODELS[model]) and row["engine"] == ENGINES[engine]
            if (row["gpu"].lower(), int(row["gpus"])) == (gpu.rpartition("x")[2], gpus)
        ]
    steps = [whole_batch(int(row["batch_size"]), int(row["prompt_and_output_tokens"])) for row in rows]
    ms = [1000 * float(row["latency_s"]) for row in rows]
    source = bs.published_source(name)
    assert source.stat == f"fit to the answers of {len(rows)} whole batches"
    errors, again = np.abs(source.service.errors(steps, ms)), bs.StepTime.fit(steps, ms)
    assert errors.mean() == pytest.approx(source.mean_error, abs=6e-4)
    # Printed to four digits, it is as good as any.
    assert (errors**2).sum() == pytest.approx((again.errors(steps, ms) ** 2).sum(), rel=1e-3)


def test_every_one_has_a_source_a_licence_and_an_error():
    for source in map(bs.published_source, STEPS):
        assert isinstance(source, PublishedSteps)
        assert re.match(
            r"https://github\.com/[\w-]+/[\w-]+/(blob|tree)/[0-9a-f]{7,40}/\S+$", source.source_url
        )
        assert re.fullmatch(r"(MIT|Apache-2\.0|BSD-3-Clause) \(LICENSE\)", source.licence)
        assert 0 < source.mean_error < 0.07
        assert source.backend.startswith(("vLLM", "TensorRT-LLM"))


def test_they_are_apart_from_the_tables_of_batches():
    assert list(STEPS) == sorted(set(STEPS))
    assert set(STEPS).isdisjoint(bs.published_names())
    assert bs.published_names("h100", tokens=True) == ("llama-2-7b/h100/trt-llm", "llama-2-7b/h100/vllm",
        "llama-3.1-8b/h100/trt-llm", "mistral-7b/h100/trt-llm", "mistral-7b/h100/vllm")  # fmt: skip


def test_one_is_a_service_like_any_other():
    service = bs.published("llama-3.1-8b/rtx-4090")
    tokens = bs.Tokens(bs.Uniform(1, 900), bs.Geometric(90))
    scenario = bs.Scenario(bs.Poisson(1), bs.Continuous(), service.with_noise(0.1), tokens=tokens)
    assert bs.Scenario.from_toml(scenario.to_toml()) == scenario
    named = scenario.to_toml().splitlines()
    start = named.index("[service]")
    named[start + 1 : named.index("", start)] = ['kind = "published"', 'name = "llama-3.1-8b/rtx-4090"']
    assert bs.Scenario.from_toml("\n".join(named)).service.cost == service.cost


def test_the_shell_lists_them_with_their_numbers_and_sources():
    def run(*arguments):
        done = CliRunner().invoke(app, ["published", *arguments])
        assert done.exit_code == 0, done.output
        return done.stdout

    source = bs.published_source("llama-3.1-8b/rtx-4090")
    text = run("llama-3.1-8b")
    assert re.search(r"llama-3\.1-8b/rtx-4090 +6\.88 +9\.997 +0\.09631 +0\.0001922 +1\.225e-06 +4\.8%", text)
    assert source.source_url in text
    (found,) = json.loads(run("rtx-4090", "--json"))["steps"]
    assert found["service"] == source.service.cost._asdict()
    assert found["mean_error"] == 0.048
    listed = run()
    assert all(f" {name} " in listed for name in (*STEPS, *bs.published_names()))
    assert "steps" not in json.loads(run("nnunet", "--json"))


# Published power: what its source says, and what physics allows.


WATTS = bs.published_names(watts=True)
MOST_W = {"a100-40gb": 400, "h100": 700, "b200": 1000}  # of one GPU, by its data sheet


def test_the_power_of_llama_on_one_h100_is_what_its_source_says():
    llama = bs.published_watts("llama-3.1-8b/h100")
    assert [*llama.watts] == [*llama.joules] == [8, 16, 32, 64, 96, 128, 192, 255, 383, 511, 691]
    assert (llama.watts[8], llama.joules[8]) == (486.4, 0.4548)
    assert (llama.per, llama.backend) == ("token", "vLLM")
    assert llama.source_url.endswith(
        "/public/data/models/meta-llama__Llama-3.1-8B-Instruct__lm-arena-chat.json"
    )
    assert llama.licence.startswith("Apache-2.0")


def test_the_energy_of_an_image_is_what_its_source_says():
    turbo = bs.published_watts("sdxl-turbo/h100")  # 419.58 J in 1.9746 s
    assert turbo.joules[1] == 419.6
    assert turbo.watts[1] == pytest.approx(419.5822999998927 / 1.9746390342712403, rel=5e-4)
    assert turbo.per == "image"


@pytest.mark.parametrize("name", WATTS)
def test_no_gpu_draws_more_than_its_data_sheet_says(name):
    found, (count, gpu) = bs.published_watts(name), re.fullmatch(r".*/(?:(\d+)x)?(.*)", name).groups()
    most = int(count or 1) * MOST_W[gpu]
    assert found.name == name
    assert [*found.watts] == sorted(found.watts) == [*found.joules]
    assert all(0.2 * most < drawn <= most for drawn in found.watts.values())
    assert len(found.watts) >= (5 if found.per == "token" else 4)
    assert re.match(
        r"https://github\.com/ml-energy/leaderboard(-v2)?/(blob|tree)/[0-9a-f]{40}/\S+$", found.source_url
    )


def test_language_models_gain_much_by_batches_and_image_generators_little():
    gains = {"token": [], "image": []}
    for each in map(bs.published_watts, WATTS):
        gains[each.per].append(each.joules[min(each.joules)] / min(each.joules.values()))
    medians = {per: np.median(found) for per, found in gains.items()}
    assert medians == {"token": pytest.approx(6.9, abs=0.05), "image": pytest.approx(1.3, abs=0.05)}


def test_what_is_published_of_power_is_what_a_scenario_takes():
    llama = bs.published_watts("llama-3.1-8b/h100")
    size, watts = 64, llama.watts[64]
    workload, full = bs.ClosedLoop(size), bs.SizeOrWait(size, float("inf"))
    result = bs.simulate(bs.Scenario(workload, full, bs.Affine(12, 0), watts=llama.watts), 10 * size)
    assert result.summary()["joules_per_request"] == pytest.approx(watts * 0.012 / size)


def test_power_has_names_of_its_own():
    assert len(WATTS) == 61
    assert set(WATTS).isdisjoint({*bs.published_names(), *STEPS})
    with pytest.raises(ValueError, match="no published table"):
        bs.published(WATTS[0])
