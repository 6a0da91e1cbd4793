"""Write what real batchers did beside their presets, for VALIDATION.md. Run by `make fidelity-servers`."""

import argparse
import sys

from validation.real_batchers.tables import TABLES, tables

if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=float, default=100, help="of each case")
    arguments.add_argument("--at-once", type=int, default=6, help="cases that run at a time")
    given = arguments.parse_args()
    text = tables(given.seconds, given.at_once, say=lambda row: print(row, end="", flush=True))
    TABLES.write_text(text)
    disturbed, differ = text.count("| disturbed |"), text.count("| **DIFFERS** |")
    print(f"{TABLES}: {text.count('| agrees |')} rows agree, {differ} do not, {disturbed} were disturbed.")
    sys.exit(1 if differ or disturbed else 0)
