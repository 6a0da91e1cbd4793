"""`python -m batchsim`: the command, by the name of the package."""

from batchsim.cli import app

if __name__ == "__main__":
    app(prog_name="batchsim")
