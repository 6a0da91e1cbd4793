"""What of a server's file is refused, and where."""

import pytest
from refusals import refusals

from batchsim import servers


@pytest.mark.parametrize(
    ("text", "server", "place", "words"),
    [
        ('name: "a"\nmax_batch_size: "8"', "triton", (2, 17), "integer"),
        ("max_batch_size: 8\ndynamic_batching {\n", "triton", (2, 18), '"}"'),
        ("instance_group [ { kind: KIND_GPUS } ]", "triton", (1, 26), "KIND_GPUS"),
        ("max_batch_size: 8\n  max_batch_size: 9", "triton", (2, 19), "multiple"),
        ("max_batch_size: 8 sequence_batching {}", "triton", (1, 19), "sequence_batching"),
        ("max_batch_size: 0", "triton", (1, 1), "at least 1, got 0; each request is then alone"),
        ("max_batch_size: 8\ndynamic_batching { preferred_batch_size: 9 }", "triton", (2, 20), "at most"),
        ("max_batch_size { value: 8 }\nnum_batch_threads { value: 0 }", "tf_serving", (2, 1), "at least 1"),
        ("max_batch_size { valeu: 8 }\n}", "tf_serving", (2, 1), "identifier"),
        ('a=b\nmodels={"a": {"1.0": {"batchSize" 8}}}', "torchserve", (2, 35), "JSON"),
        ('models={\\\n  "a": {"1.0": {\\\n    "batchSize": 8, 9}}}', "torchserve", (3, 21), "JSON"),
        ('models={\\\n "a": {"1": {"maxBatchDelay": -1}}}', "torchserve", (2, 14), "at least 0, got -1"),
        ("job_queue_size=many\nmodels={}", "torchserve", (1, 1), "job_queue_size must be a whole"),
        ("model_store=\\u00g\nmodels={}", "torchserve", (1, 13), "hexadecimal"),
        ("batchSize: 8\nmaxBatchDelay: [1", "torchserve", (3, 1), "expected"),
        ("batchSize: 8\n\tmaxBatchDelay: 1", "torchserve", (2, 1), "character"),
        ("batchSize: 8\nminWorkers: 1\nbatchSize: 9", "torchserve", (3, 1), "once"),
        ("minWorkers: 2\nbatchSize: 0", "torchserve", (2, 1), "batchSize must be at least 1"),
        ("kind: InferenceService\nspec:\n predictor: {batcher: {maxLatency: .5}}", "kserve", (3, 24), "num"),
        ("import ray\n@serve.batch(max_batch_size=8\ndef f(): ...", "ray_serve", (2, 13), "Python"),
        ("@serve.batch(max_batch_size=8,\n  batch_wait_timeout_s=-1)", "ray_serve", (2, 3), "at least 0"),
        ("  @serve.batch(max_batch_size=SIZE)\n  def f(): ...", "ray_serve", (1, 16), "literal value"),
        ("@batched.dynamically(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)", "batched", (1, 2), "10 arguments"),
    ],
)  # fmt: skip
def test_what_does_not_parse_or_is_out_of_range_is_refused_with_its_place(text, server, place, words):
    with pytest.raises(ValueError, match=words) as error:
        servers.parse(text, server)
    assert str(error.value).startswith(f"line {place[0]}, column {place[1]}: ")


@refusals
def test_what_has_no_place_is_refused_with_the_rule():
    r"""
    servers.parse('dynamic_batching {}', 'triton') -> max_batch_size must be at least 1, got none
    servers.parse('kind: InferenceService\nspec: {predictor: {}}', 'kserve') -> batcher
    servers.parse('kind: Deployment\nmaxLatency: 9', 'kserve') -> InferenceService, got none
    servers.parse('@serve.deployment\nclass A: ...', 'ray_serve') -> call of @serve.batch, got none
    servers.parse('# batchsim: handler=os.exit()\n@serve.batch', 'ray_serve') -> handler
    servers.parse("# batchsim: handlr='blocking'\n@serve.batch", 'ray_serve') -> did you mean 'handler'
    servers.parse('fill_template.py -i m/config.pbtxt triton_max_batch_size:8', None)
        -> have Triton's own settings
    servers.parse('@serve.deployment\nclass A:\n  e = AsyncEngineArgs(max_num_seqs=4)', None)
        -> @serve.batch, got an engine in a program
    servers.parse("kind: RayService\nimport_path: a:b\nenv: {MAX_NUM_SEQS: '4'}", None)
        -> got an engine in a program
    servers.parse('import_path: a:b\nargs: {engine_kwargs: {max_num_seqs: 4}}', None)
        -> as a command, vllm serve
    servers.parse('max_batch_size: 8', 'tritn') -> did you mean 'triton'
    """


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ("optimization { " * 3000, "triton"), (f"models={'{' * 100_000}", "torchserve"),
        ("[" * 1000, "kserve"), (f"maxLatency: {'{a: ' * 1000}", "kserve"), ("(" * 3000, "mosec"),
        (f"append_worker(A{'.a' * 3000})", "mosec"), (f"append_worker(A, {'1 + ' * 3000}1)", "mosec"),
    ],
)  # fmt: skip
def test_a_text_that_nests_too_deep_is_refused(text, server):
    with pytest.raises(ValueError):
        servers.parse(text, server)


def test_aliases_of_aliases_are_neither_walked_nor_printed_one_by_one():
    steps = "".join(f"  a{n + 1}: &a{n + 1} {{x: *a{n}, y: *a{n}}}\n" for n in range(60))
    spec = "spec: {predictor: {batcher: {maxBatchSize: 4}}}\n"
    with pytest.raises(ValueError, match=r"^line 16, column 8: .* at most 30,000 parts, those of aliases"):
        servers.parse(f"kind: InferenceService\nmetadata:\n  a0: &a0 {{z: 1}}\n{steps}{spec}")


def test_a_file_that_is_no_text_or_no_path_is_refused(tmp_path):
    (tmp_path / "config.pbtxt").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"config.pbtxt must be text in UTF-8"):
        servers.read(tmp_path / "config.pbtxt")
    with pytest.raises(TypeError, match="path"):
        servers.read(3)
    with pytest.raises(TypeError, match="text"):
        servers.parse(b"max_batch_size: 8")
