"""`batchsim init`: a scenario file to start from."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import typer

from batchsim._files import replacing
from batchsim.cli.flags import OUTPUT, Command, argument, check_output
from batchsim.scenario.rules import RULES


@dataclass
class Init(Command):
    """Write a scenario in TOML to start from: a comment for every knob, and ready to run."""

    path: Path = argument("The file to write.", Path("scenario.toml"))
    force: bool = OUTPUT.option("Overwrite an existing file.", False, "--force")

    def run(self) -> None:
        check_output("The file", self.path)
        if self.path.is_file() and not self.force:
            raise ValueError(f"{self.path} already exists: choose another name, or --force")
        template = files("batchsim.cli").joinpath("scenario.toml").read_text(encoding="utf-8")
        text = template.replace("# OTHER_RULES\n", "\n".join(_other_rules()))
        with replacing(self.path) as file:
            file.write(text.replace("THIS_FILE", os.fspath(self.path)).encode())
        typer.echo(f"Wrote {self.path}. Next: batchsim simulate {self.path}")


def _other_rules() -> Iterator[str]:
    """Yield the rules that the template does not use, commented out, each as it describes itself."""
    for rule in RULES[1:]:
        rows = [(f'kind = "{rule.__name__}"', (rule.__doc__ or "").partition("\n")[0].rstrip("."))]
        for name, parameter in rule.parameters().items():
            usual = list(parameter.usual) if parameter.kind == "sizes" else f"{parameter.usual:g}"
            rows.append((f"{name} = {usual}", parameter.about))
        yield "# [rule]"
        yield from (f"# {key:<23} # {about[:1].lower()}{about[1:]}" for key, about in rows)
        yield ""
