"""Compare real runs on this machine with their simulation, for VALIDATION.md. Run by `make fidelity`.

On an otherwise quiet machine, for a quarter of an hour. What there is after each run stands in
`validation/fidelity*.partial.md`; VALIDATION.md is written at the end of each part.
"""

import sys
from argparse import ArgumentParser

from validation import fidelity, pages
from validation.page import real_runs

if __name__ == "__main__":
    arguments = ArgumentParser()
    arguments.add_argument("--seconds", type=float, default=15.0, help="of each run")
    arguments.add_argument("--dry", action="store_true", help="write nothing into VALIDATION.md")
    arguments.add_argument("--repeats", type=int, default=fidelity.REPEATS, help="of each run")
    arguments.add_argument("--lengths", action="store_true", help="only requests of different lengths")
    given = arguments.parse_args()
    for part in fidelity.PARTS[1 if given.lengths else 0 :]:
        *_, tables = part
        partial = tables.with_suffix(".partial.md")  # of a run that goes on, or was interrupted
        runs = fidelity.Runs(given.seconds, keep=partial.write_text, part=part, repeats=given.repeats)
        try:
            runs.run()
        except KeyboardInterrupt:
            sys.exit(f"interrupted: what there was is in {partial}")
        print(runs.text())
        if not given.dry:
            tables.write_text(runs.text())
            pages.write(fidelity.put_into(pages.whole(), real_runs(), "The intervals themselves"))
            partial.unlink(missing_ok=True)
        words = ("within", "**misses**", "disturbed")
        print(*(f"{sum(row.verdict == word for row in runs.rows)} {word}" for word in words))
