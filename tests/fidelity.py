"""Compare real runs on this machine with their simulation, for VALIDATION.md. Run by `make fidelity`.

On an otherwise quiet machine, for ten minutes.
"""

from argparse import ArgumentParser
from pathlib import Path

from oracles import fidelity

if __name__ == "__main__":
    arguments = ArgumentParser()
    arguments.add_argument("--seconds", type=float, default=15.0, help="of each run")
    arguments.add_argument("--dry", action="store_true", help="write nothing")
    given = arguments.parse_args()
    text, rows = fidelity.section(given.seconds)
    print(text)
    if not given.dry:
        fidelity.TABLES.write_text(text)
        page = Path(__file__).parent.parent / "VALIDATION.md"
        page.write_text(fidelity.put_into(page.read_text(), text, "The intervals themselves"))
    print(
        *(
            f"{sum(row.verdict == word for row in rows)} {word}"
            for word in ("within", "**misses**", "disturbed")
        )
    )
