"""Published times of steps: what they were fitted to, and where they are found."""

import csv
import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

import batchsim as bs
from batchsim.cli import app
from batchsim.measured.published import PublishedSteps

NAMES = bs.published_names(tokens=True)
MODELS = {"llama-2-7b": "Llama-2-7b-hf", "llama-3-70b": "Meta-Llama-3-70B", "mistral-7b": "Mistral-7B-v0.1"}
ENGINES = {"vllm": "vLLM", "trt-llm": "TensorRT-LLM"}


def test_the_step_time_of_the_measured_run():
    assert bs.published("llama-3.1-8b/rtx-4090") == bs.StepTime(6.88, 9.997, 0.09631, 1.922e-4, 1.225e-6)


def whole_batch(size, length):
    """The steps of equal requests at once, prompts as long as outputs; their pairs cannot be told from it."""
    tokens = np.r_[size * length, np.full(length - 1, size)]
    reads = np.r_[0, size * (length + np.arange(1, length))]
    return {"tokens": tokens, "reads": reads, "pairs": np.zeros(length)}


@pytest.mark.parametrize("name", [name for name in NAMES if name.split("/")[0] in MODELS])
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
    for source in map(bs.published_source, NAMES):
        assert isinstance(source, PublishedSteps)
        assert re.match(
            r"https://github\.com/[\w-]+/[\w-]+/(blob|tree)/[0-9a-f]{7,40}/\S+$", source.source_url
        )
        assert re.fullmatch(r"(MIT|Apache-2\.0|BSD-3-Clause) \(LICENSE\)", source.licence)
        assert 0 < source.mean_error < 0.07
        assert source.backend.startswith(("vLLM", "TensorRT-LLM"))


def test_they_are_apart_from_the_tables_of_batches():
    assert list(NAMES) == sorted(set(NAMES))
    assert set(NAMES).isdisjoint(bs.published_names())
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
    assert all(f" {name} " in listed for name in (*NAMES, *bs.published_names()))
    assert "steps" not in json.loads(run("nnunet", "--json"))


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match=r"did you mean 'llama-3\.1-8b/rtx-4090'"):
        bs.published("llama-3.1-8b/rtx-490")
