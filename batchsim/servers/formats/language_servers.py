"""Language models' servers: their command lines, and vLLM's YAML."""

from collections.abc import Mapping
from typing import Any

from batchsim.servers.formats import yaml_text
from batchsim.servers.formats.command_lines import CommandLine, Word
from batchsim.servers.formats.document import Document, Format, refused
from batchsim.servers.vllm import SERVER

_VLLM = {
    "-tp": "--tensor-parallel-size", "-dp": "--data-parallel-size", "-pp": "--pipeline-parallel-size",
    "-q": "--quantization", "-n": "--nnodes", "-r": "--node-rank",
}  # fmt: skip
_TOLD_BY = r"(?:^|[\s/])vllm serve(?=\s|$)|\bvllm\.entrypoints\.openai\.api_server\b|\bvllm/vllm-openai\S*"
_THOUSANDS = {letter: 1000**power for power, letter in enumerate("kmgt", 1)}
VLLM = CommandLine(
    "vllm", "vllm serve", _TOLD_BY, "model", positional=True,
    short={**_VLLM, "-O": "--optimization-level"}, glued="-O",
    sized=frozenset({"--max-num-batched-tokens", "--max-model-len", "--kv-cache-memory-bytes"}),
    units=_THOUSANDS | {letter.upper(): 1024**power for power, letter in enumerate("kmgt", 1)},
)  # fmt: skip
VLLM_V0 = CommandLine(
    "vllm_v0", "VLLM_USE_V1=0 vllm serve", _TOLD_BY, "model", positional=True, short=_VLLM
)  # fmt: skip
SGLANG = CommandLine(
    "sglang", "sglang serve", r"(?:^|[\s/])sglang serve(?=\s|$)|\bsglang\.launch_server\b", "model_path",
    short={
        "--model": "--model-path", "--tensor-parallel-size": "--tp-size", "--tp": "--tp-size",
        "--data-parallel-size": "--dp-size", "--dp": "--dp-size",
    }, dashes=False, sized=frozenset({"--max-total-tokens", "--max-prefill-tokens", "--context-length"}),
    units={
        ending: size**power
        for power, letter in enumerate("kMGT", 1)
        for ending, size in ((letter, 1000), (letter.upper() + "i", 1024))
    },
)  # fmt: skip
TGI = CommandLine(
    "tgi", "text-generation-launcher", r"\btext-generation-launcher\b|\btext-generation-inference\S*",
    "model_id", short={"-p": "--port", "-e": "--env"}, dashes=False,
    prefixes=False, variables={"PREFILL_CHUNKING": "prefill_chunking", "ATTENTION": "attention"},
)  # fmt: skip
SETTINGS = [name for name in SERVER.settings if VLLM.has(name)]


def read_yaml(document: Document, text: str, which: str | None) -> None:
    """Fill a document with the file of `vllm serve --config`: flags without their dashes."""
    (content, places), *_ = yaml_text.documents(text)
    if not isinstance(content, dict):
        raise refused(f"a vLLM YAML must have keys, got {content!r}", (1, 1))
    for key, value in content.items():
        place = places.get((str(key),), (1, 1))
        flag, off = VLLM.flag_of(f"--{key}")
        if value is False:  # vLLM leaves such a key out
            document.notes.append(f"{key}: false says nothing to vLLM; no-{key}: true would")
        elif value is not None:
            # The server takes each as a word of its command line.
            value = not off if value is True else VLLM.value(flag, value) if isinstance(value, str) else value
            VLLM.put(document, flag, value, Word(str(key), place))


def write_yaml(settings: dict[str, Any], unused: Mapping[str, Any]) -> str:
    """Return the file of `vllm serve --config`."""
    content: dict[str, Any] = {}
    for name, value in (dict(unused) | settings).items():
        if value is None or not VLLM.has(name):
            continue
        key = name.replace("_", "-")
        content |= {f"no-{key}": True} if value is False else {key: value}
    for name in [each for each in settings if VLLM.has(each)]:
        del settings[name]
    return yaml_text.text_of(content)


_SHELL = (".sh", ".bash")
_V0 = r"\bVLLM_USE_V1=0\b"
FORMATS = (
    Format(
        "vllm", "a command line of vLLM", "vllm-serve.sh", _SHELL,
        rf"\A(?![\s\S]*{_V0})[\s\S]*(\bvllm serve\b|\bvllm\.entrypoints\.|\bvllm/vllm-openai)",
        VLLM.read, VLLM.write,
    ),
    Format(
        "vllm", "a YAML of vLLM", "vllm.yaml", (".yaml", ".yml"),
        rf"^(no[-_])?({'|'.join(name.replace('_', '[-_]') for name in SETTINGS)})\s*:", read_yaml, write_yaml,
    ),
    Format(
        "vllm_v0", "a command line of vLLM with its V0 engine", "vllm-v0-serve.sh", _SHELL, _V0,
        VLLM_V0.read, VLLM_V0.write, _TOLD_BY,
    ),
    Format(
        "sglang", "a command line of SGLang", "sglang-serve.sh", _SHELL,
        r"\bsglang serve\b|\bsglang\.launch_server\b", SGLANG.read, SGLANG.write,
    ),
    Format(
        "tgi", "a command line of Text Generation Inference", "tgi-launch.sh", _SHELL,
        r"\btext-generation-(launcher|inference)\b", TGI.read, TGI.write,
    ),
)  # fmt: skip
