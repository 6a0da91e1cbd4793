"""The command: `batchsim init | simulate | sweep | tune | capacity | measure | published | lab`.

Exit codes: 0, the objective is met, or there was none; 1, it is not met; 2, bad input, explained in one line
on stderr; 130, Ctrl-C.
"""

import warnings
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import batchsim
from batchsim.cli.capacity import Capacity
from batchsim.cli.flags import Command
from batchsim.cli.init import Init
from batchsim.cli.lab import Lab
from batchsim.cli.measure import Measure
from batchsim.cli.published import Published
from batchsim.cli.simulate import Simulate
from batchsim.cli.sweep import Sweep
from batchsim.cli.tune import Tune

BAD_INPUT, INTERRUPTED = 2, 130
COMMANDS: tuple[type[Command], ...] = (Init, Simulate, Sweep, Tune, Capacity, Measure, Published, Lab)


class _OneLineErrors(TyperGroup):
    """Commands that explain bad input in one line."""

    def invoke(self, ctx: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = _show_warning
            try:
                return super().invoke(ctx)
            except typer.TyperException as error:  # of Typer's own, such as an unknown option
                raise _failed(error.format_message()) from None
            except BrokenPipeError:
                raise  # the reader of our output is gone, as in `| head`: Typer exits silently
            except (ValueError, TypeError, OSError, MemoryError) as error:
                raise _failed(str(error) or type(error).__name__) from None
            except KeyboardInterrupt:
                typer.echo("Interrupted.", err=True)
                raise typer.Exit(INTERRUPTED) from None


def _failed(message: str) -> typer.Exit:
    typer.echo(f"Error: {' '.join(message.split())}", err=True)
    return typer.Exit(BAD_INPUT)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    typer.echo(f"Warning: {' '.join(str(message).split())}", err=True)


app = typer.Typer(
    cls=_OneLineErrors, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
    help="Request batching in model serving: simulate it, draw it, tune it.",
    epilog="Exit codes: 0 met (or no objective), 1 not met, 2 bad input, 130 interrupted.",
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


@app.callback(invoke_without_command=True)
def _top(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        typer.echo(f"batchsim {batchsim.__version__}")
        raise typer.Exit


for _command in COMMANDS:
    app.command(_command.__name__.lower())(_command.as_function())
