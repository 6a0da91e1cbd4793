"""`batchsim` and `python -m batchsim`: the command."""

import os
import sys

from batchsim._compat import MissingPart, need

NEEDED = {"lab": "notebook", "app": "app"}  # the extras of commands to which the shell alone is no use


def main() -> None:
    """Run the command; one line and exit code 2 without the extra `shell`."""
    if sys.stderr is None:  # closed, as by `2>&-`: warnings would go to stdout, and bars fail
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    try:
        need("typer", NEEDED.get("".join(sys.argv[1:2]), ""))
        from batchsim.cli import app
    except MissingPart as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(2)
    app(prog_name="batchsim")


if __name__ == "__main__":
    main()
