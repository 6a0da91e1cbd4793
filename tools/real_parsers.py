"""Hold flags.csv, and what `servers.write` writes, against the parsers of vLLM and SGLang themselves.

    pip download --no-deps --only-binary :all: vllm==0.19.0 sglang==0.5.23 -d wheels
    for wheel in wheels/*.whl; do unzip -q "$wheel" '*.py' -d unpacked; done
    pip install msgspec openai        # all else that they import is stubbed here
    python tools/real_parsers.py unpacked vllm
    python tools/real_parsers.py unpacked sglang

Needs neither torch nor a GPU. Exits with 1 if a flag or a setting differs: for these versions none does.
"""

import abc
import argparse
import importlib
import importlib.abc
import importlib.machinery
import shlex
import sys
import tempfile
import types
import warnings
from pathlib import Path

import yaml
from hypothesis import HealthCheck, given, settings

MISSING = {
    "vllm": "torch transformers huggingface_hub safetensors gguf uvloop aiohttp cbor2 pybase64 "
    "openai_harmony partial_json_parser",
    "sglang": "torch torchvision torchao triton transformers huggingface_hub pybase64 setproctitle orjson "
    "fastapi uvicorn starlette sgl_kernel xgrammar compressed_tensors openai_harmony interegular modelscope "
    "partial_json_parser pynvml einops datasets nvidia flashinfer cuda quack aiohttp torch_memory_saver dill",
}
# Modules of SGLang's own that patch what is stubbed.
PATCHES = ("hf_transformers_patches", "hf_transformers_utils", "hf_transformers")


class Kind(abc.ABCMeta):
    """The class of a stubbed module's classes: whatever is asked of them is there."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Stub(name)


def schema(cls, source, handler):
    from pydantic_core import core_schema

    return core_schema.any_schema()


def anything(name):
    if name.startswith("__"):
        raise AttributeError(name)
    if not name[:1].isupper():
        return Stub(name)
    members = {
        "__init__": lambda self, *args, **kwargs: None,
        "__getattr__": lambda self, name: anything(name),
        "__call__": lambda self, *args, **kwargs: Stub.__call__(self, *args, **kwargs),
        "__class_getitem__": classmethod(lambda cls, item: cls),
        "__get_pydantic_core_schema__": classmethod(schema),
    }
    return Kind(name, (), members)


def self_(self, *others):
    return self


class Stub(types.ModuleType):
    """A module that has everything, and does nothing."""

    __path__ = ()
    __version__ = "9.9.9"
    __all__ = ()

    def __getattr__(self, name):
        setattr(self, name, anything(name))
        return vars(self)[name]

    def __call__(self, *args, **kwargs):
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else Stub("made")

    __or__ = __ror__ = __mul__ = __rmul__ = __add__ = __radd__ = __sub__ = __truediv__ = __floordiv__ = self_
    __getitem__ = __deepcopy__ = __enter__ = self_
    __lt__ = __gt__ = __le__ = __ge__ = __exit__ = lambda self, *others: False

    def __iter__(self):
        return iter(())

    __int__ = __index__ = lambda self: 0

    def __mro_entries__(self, bases):
        return (object,)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds, last of all, a stub for each of these modules."""

    def __init__(self, names):
        self.names = set(names)

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in self.names:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return Stub(spec.name)

    def exec_module(self, module):
        pass


def parser_of(server):
    if server == "sglang":
        for name in PATCHES:
            sys.modules[f"sglang.srt.utils.{name}"] = Stub(name)
        from sglang.srt.server_args import ServerArgs

        parser = argparse.ArgumentParser()
        ServerArgs.add_cli_args(parser)
        return parser
    import vllm.platforms

    vllm.platforms.current_platform.device_type = "cuda"
    from vllm.entrypoints.openai.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    return make_arg_parser(FlexibleArgumentParser())


def takes(action):
    if action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction):
        return "switch"
    return {"?": "optional", "*": "list", "+": "list"}.get(action.nargs, "value")


def flags_differ(parser, server):
    from batchsim.servers.formats.command_lines import flags_of

    real = {flag: takes(action) for flag, action in parser._option_string_actions.items()}
    off = {flag for flag in real if flag.startswith("--no-") and "--" + flag[5:] in real}
    real = {flag: how for flag, how in real.items() if flag not in off | {"-h", "--help"}}
    differing = sorted(real.items() ^ flags_of(server).items())
    print(f"{server}: {len(real)} flags, {len(differing)} differ", *differing)
    return bool(differing)


def texts_differ(parser, server):
    import server_settings as texts

    from batchsim import servers

    count, wrong = 0, []

    @settings(max_examples=300, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(texts.configs((server,)))
    def each(config):
        nonlocal count
        for form in texts.ALL[server].formats:
            text = servers.write(server, config, form.file)
            if form.file.endswith(".yaml"):
                content = yaml.safe_load(text)
                if not content:
                    continue
                with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
                    file.write(text)
                    file.flush()
                    named = [] if "model" in content else ["m"]
                    words = parser._pull_args_from_config(["serve", *named, "--config", file.name])[1:]
            else:
                words = shlex.split(text.replace("\\\n", " "), comments=True)[2:]
            said = vars(parser.parse_args(words))
            said["model"] = said.get("model_tag") or said.get("model")
            count += 1
            wrong.extend(
                (name, value, said[name])
                for name, value in config.settings.items()
                if name != "gpu" and said[name] != value
            )

    each()
    print(f"{server}: {count} texts accepted, {len(wrong)} settings differ", *wrong[:9])
    return bool(wrong)


if __name__ == "__main__":
    folder, server = sys.argv[1:]
    warnings.simplefilter("ignore")
    sys.path[:0] = [str(Path(__file__).parents[1] / "tests" / "helpers"), folder]
    importlib.import_module("server_settings")  # before the stubs are found
    sys.meta_path.append(Finder(MISSING[server].split()))
    real_parser = parser_of(server)
    differ = [flags_differ(real_parser, server), texts_differ(real_parser, server)]
    sys.exit(any(differ))
