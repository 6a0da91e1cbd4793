"""Write how often intervals hold the truth, for VALIDATION.md. Run by `make coverage`, for half an hour."""

import argparse
import os

from oracles import coverage

if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seeds", type=int, default=300)
    text = coverage.tables(arguments.parse_args().seeds, os.cpu_count() or 1)
    coverage.TABLES.write_text(text)
    print(text)
