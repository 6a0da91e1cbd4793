"""Write how often intervals hold the truth, for VALIDATION.md. Run by `make coverage`, for half an hour."""

import argparse
import os

from validation import coverage, coverage_sizes, coverage_slow, coverage_tokens, coverage_traces, predicted

if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seeds", type=int, default=300)
    arguments.add_argument("--experiments", type=int, default=200, help="of predictions of real runs")
    arguments.add_argument("--predictions", action="store_true", help="these alone")
    arguments.add_argument("--only", nargs="+", help="these tables alone, by their headings; others stay")
    given = arguments.parse_args()
    if given.only is None:
        predicted.TABLES.write_text(text := predicted.table(given.experiments))
        print(text)
    if given.predictions:
        raise SystemExit
    families = {
        **coverage.FAMILIES, "Traces with bursts": coverage_traces.TRACES, "Days": coverage_traces.DAYS,
        "Sizes": coverage_sizes.CASES, "Traces with sizes": coverage_sizes.TRACES,
        "Token generation": coverage_tokens.CASES, **coverage_slow.FAMILIES,
    }  # fmt: skip
    pairs = coverage.PAIRS | coverage_sizes.PAIRS | coverage_tokens.PAIRS | coverage_slow.PAIRS
    text = coverage.tables(families, pairs, given.seeds, os.cpu_count() or 1, given.only)
    coverage.TABLES.write_text(text)
    print(text)
