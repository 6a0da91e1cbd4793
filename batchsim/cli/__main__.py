"""`python -m batchsim.cli`."""

from batchsim.cli import app

if __name__ == "__main__":
    app(prog_name="batchsim")
