"""The command: `batchsim init | simulate | sweep | tune | capacity | lint | ... | lab | app | book | page`.

Exit codes: 0: success; 1: an objective is not met, or lint has findings; 2: bad input, even in one file of
several; 70: an unexpected error; 130: Ctrl-C; 141: the reader of the output is gone. An error is one line on
stderr; `--debug` also prints its traceback.
"""

import contextlib
import difflib
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import batchsim
from batchsim import _check
from batchsim._compat import MissingPart
from batchsim._format import in_one_line
from batchsim.cli.course import App, Book, Grade, Lab, Page
from batchsim.cli.files import Init, Lint
from batchsim.cli.flags import DEBUG, DEBUG_OPTION, Command, GroupedCommand
from batchsim.cli.measured import Calibrate, Compare, Loadtest, Measure, Published
from batchsim.cli.output import in_shell
from batchsim.cli.simulate import Capacity, Simulate, Sweep, Tune

# As in sysexits.h; 128 + n stands for signal n.
BAD_INPUT, UNEXPECTED, INTERRUPTED, UNREAD = 2, 70, 130, 141
COMMANDS: tuple[type[Command], ...] = (
    Init, Simulate, Sweep, Tune, Capacity, Lint, Loadtest, Compare, Calibrate, Measure, Published, Grade, Lab,
    App, Book, Page,
)  # fmt: skip


class _OneLineErrors(TyperGroup):
    """Commands whose errors are printed as one line, each kind with its exit code."""

    def make_context(self, info_name: Any, args: list[str], parent: Any = None, **extra: Any) -> Any:
        with _errors():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        with _errors(lambda: ctx.meta.get(DEBUG, False)):
            return super().invoke(ctx)


@contextlib.contextmanager
def _errors(debug: Callable[[], bool] = bool) -> Iterator[None]:
    """Print errors and warnings as one line each, and turn an error into its exit code."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = _show_warning
        try:
            yield
        except typer.TyperException as error:  # such as an unknown option
            option = getattr(error, "option_name", "").strip("-").replace("-", "_")
            raise _failed(error.format_message() + _check.removed(option), BAD_INPUT) from None
        except (BrokenPipeError, SystemExit):  # Rich raises the latter for the former
            # The reader of our output is gone, as in `| head`: discard the rest.
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):  # a stream without a descriptor
                    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            raise typer.Exit(UNREAD) from None
        except KeyboardInterrupt:
            # Other threads still finish their work; suppress their warnings.
            stack.pop_all()
            warnings.simplefilter("ignore")
            typer.echo("Interrupted.", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except typer.Exit:
            raise
        except Exception as error:
            if debug():
                traceback.print_exc()
            if isinstance(error, (ValueError, TypeError, OSError, MemoryError, MissingPart)):
                raise _failed(_in_words(error), BAD_INPUT) from None
            # Not 1, which means "not met".
            what = traceback.format_exception_only(error)[-1]
            raise _failed(f"{what} (unexpected: --debug shows where)", UNEXPECTED) from None


def _in_words(error: Exception) -> str:
    """Return the message of an error; of a file that is missing, with one of nearly the same name."""
    if not isinstance(error, OSError) or not isinstance(error.filename, str | os.PathLike):
        return str(error) or "too little memory"
    path, near = Path(error.filename), ""
    with contextlib.suppress(OSError):
        files = [each.name for each in path.parent.iterdir() if isinstance(error, FileNotFoundError)]
        near = "".join(difflib.get_close_matches(path.name, files, n=1, cutoff=0.8))
    return f"{path}: {str(error.strerror).lower()}" + (f"; did you mean {near!r}?" if near else "")


def _failed(message: str, code: int) -> typer.Exit:
    typer.echo(f"Error: {in_shell(in_one_line(message))}", err=True)
    return typer.Exit(code)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    typer.echo(f"Warning: {in_shell(in_one_line(str(message)))}", err=True)


app = typer.Typer(
    cls=_OneLineErrors, pretty_exceptions_enable=False, rich_markup_mode=None,
    help="Request batching in model serving: simulate it, draw it, tune it.",
    epilog="Exit codes: 0 success, 1 objective not met or lint findings, 2 bad input, 70 unexpected, "
    "130 interrupted.",
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


@app.callback(invoke_without_command=True)
def _top(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    debug: bool = DEBUG_OPTION,
) -> None:
    if version:
        typer.echo(f"batchsim {batchsim.__version__}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


for _command in COMMANDS:
    app.command(_command.__name__.lower(), cls=GroupedCommand)(_command.as_function())
