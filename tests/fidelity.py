"""Compare real runs on this machine with their simulation, for VALIDATION.md. Run by `make fidelity`.

On an otherwise quiet machine, for twelve minutes. What there is after each run stands in
`oracles/fidelity.partial.md`; VALIDATION.md is written at the end.
"""

import sys
from argparse import ArgumentParser
from pathlib import Path

from oracles import fidelity

if __name__ == "__main__":
    arguments = ArgumentParser()
    arguments.add_argument("--seconds", type=float, default=15.0, help="of each run")
    arguments.add_argument("--dry", action="store_true", help="write nothing into VALIDATION.md")
    given = arguments.parse_args()
    runs, interrupted = fidelity.Runs(given.seconds, keep=fidelity.PARTIAL.write_text), False
    try:
        runs.run()
    except KeyboardInterrupt:
        interrupted = True
    text, rows = runs.text(), runs.rows
    print(text)
    if not given.dry and not interrupted:
        fidelity.TABLES.write_text(text)
        page = Path(__file__).parent.parent / "VALIDATION.md"
        page.write_text(fidelity.put_into(page.read_text(), text, "The intervals themselves"))
        fidelity.PARTIAL.unlink(missing_ok=True)
    words = ("within", "**misses**", "disturbed")
    print(*(f"{sum(row.verdict == word for row in rows)} {word}" for word in words))
    if interrupted:
        sys.exit(f"interrupted: what there was is in {fidelity.PARTIAL}")
