"""How often `tune` selects a good setting, on random problems.

Their truth is known from runs a hundred times longer.

`make selection` writes the tables that `make validate` takes for VALIDATION.md.
`python benchmarks/selection.py 60` runs fewer problems, and Ctrl-C ends with those that are solved. With
`sim-tools` installed (the extra `benchmark`), KN++ and OCBA-m solve the same problems.
"""

import argparse
import importlib.util
import itertools
import math
import multiprocessing
import sys
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats

import batchsim as bs

TABLES = Path(__file__).parents[1] / "tools/validation/selection.md"
REQUESTS, LONGER = 20_000, 100
ZONE = 0.05  # of the latency: the indifference zone of KN++
KINDS = ("Poisson", "regular", "bursty", "on and off", "clients")
PIECE = 2_000  # requests of one observation of KN++ and OCBA-m
MOST = 4_000_000  # requests after which KN++ is stopped


@dataclass
class Problem:
    """A scenario, its grid, the p99 of each setting in a long run, and a limit."""

    number: int
    kind: str
    scenario: bs.Scenario
    over: dict
    truth: dict
    limit_ms: float

    @property
    def best_ms(self):
        return min(self.truth.values())


def settings(over):
    return [*itertools.product(*over.values())]


def at(scenario, over, setting):
    return scenario.replace(dict(zip(over, setting, strict=True)))


def p99_of(scenario, key, requests, seed):
    return bs.simulate(scenario, requests, seed, warmup=0.1, keep="requests").metrics.number(key)


def problem(number):
    rng = np.random.default_rng([35, number])
    kind, load, servers = KINDS[number % 5], rng.uniform(0.3, 0.97), int(rng.integers(1, 4))
    if tokens := number % 10 == 9:
        load = min(load, 0.9)
    fixed_ms = 10 ** rng.uniform(0, 1)
    per_item_ms = fixed_ms * rng.uniform(0.02, 0.2)
    service = bs.Affine(fixed_ms, per_item_ms)
    if (cv := rng.choice([0, 0, 0.2, 0.5])) and not tokens:
        service = service.with_noise(float(cv))
    most_per_s = servers * 32 / (fixed_ms + 32 * per_item_ms) * 1000
    over = {
        "max_batch_size": [4, 8, 16, 32],
        "max_wait_ms": [round(fixed_ms * part, 2) for part in (0, 0.2, 0.5, 1, 2, 4)],
    }
    more = {}
    rule = bs.SizeOrWait(32, 0)
    if tokens:
        kind, service, servers = "tokens", bs.StepTime(7, 10, 0.1), 1
        more = {"tokens": bs.Tokens(prompt=200, output=bs.Geometric(50))}
        rule = bs.Continuous()
        over = {"max_num_seqs": [8, 16, 32, 64], "max_num_batched_tokens": [256, 1024, 4096]}
        most = bs.Scenario(bs.Poisson(1), rule, service, **more)
        most_per_s = most.replace(max_num_seqs=64).saturation_per_s
    rate = load * most_per_s
    workload = {
        "Poisson": lambda: bs.Poisson(rate), "tokens": lambda: bs.Poisson(rate),
        "regular": lambda: bs.Gamma(rate, 0.5),
        "bursty": lambda: bs.Gamma(rate, float(rng.uniform(1.5, 2.5))),
        "on and off": lambda: bs.OnOff(1.4 * rate, 0.6 * rate, 50 / rate, 50 / rate),
        "clients": lambda: bs.ClosedLoop(max(int(40 * load * servers), 4), fixed_ms / 1000),
    }[kind]()  # fmt: skip
    scenario = bs.Scenario(workload, rule, service, servers=servers, **more)
    truth = {}
    for setting in settings(over):
        try:
            point = at(scenario, over, setting)
        except ValueError:  # too few clients for a batch ever to fill
            continue
        truth[setting] = p99_of(point, KEY[tokens], LONGER * REQUESTS, 10**9) if point.stable else math.inf
    best_ms = min(truth.values())
    return Problem(
        number, kind, scenario, over, truth, best_ms * 10 ** rng.uniform(math.log10(1.02), math.log10(5))
    )


KEY = {False: "p99_ms", True: "ttft_p99_ms"}


def of_tune(case):
    key = KEY[case.kind == "tokens"]
    slo = bs.SLO(**{key: case.limit_ms})
    found = bs.tune(case.scenario, slo, case.over, REQUESTS, 7 * case.number, progress=False)
    chosen_ms, statement = case.truth[tuple(found.knobs[name] for name in case.over)], found.statement
    holds = None
    if statement is not None and statement.settings > 1:
        rows = found.candidates[found.candidates["better_by_ms"] <= statement.within_ms]
        rivals = [case.truth[tuple(row[name] for name in case.over)] for _, row in rows.iterrows()]
        holds = chosen_ms - min(rivals, default=chosen_ms) <= statement.within_ms * (1 + 1e-9)
    return {
        "chosen_ms": chosen_ms, "requests": found.requests_simulated, "met": found.met, "holds": holds,
        "within": math.nan if holds is None else statement.within_ms / chosen_ms,
        "grid": REQUESTS * sum(map(math.isfinite, case.truth.values())),
        "covers": statement and statement.settings / (statement.settings + statement.left_out),
    }  # fmt: skip


class Model:
    """The settings of a problem as `sim-tools` asks for them: each call observes the p99 of one short run."""

    def __init__(self, case):
        self.case, self.observers, self.requests = case, [], 0
        self.designs = [setting for setting, ms in case.truth.items() if math.isfinite(ms)]
        self.counts = Counter()

    def register_observer(self, observer):
        self.observers.append(observer)

    def simulate(self, design):
        self.counts[design] += 1
        self.requests += PIECE
        if self.requests > MOST:
            raise TimeoutError
        point = at(self.case.scenario, self.case.over, self.designs[design])
        value = p99_of(point, KEY[self.case.kind == "tokens"], PIECE, 2 * 10**9 + self.counts[design])
        for each in self.observers:
            each.feedback(self, design, value)


def of_field(case, spent):
    """Return what KN++ and OCBA-m choose and spend; OCBA-m gets the requests that `tune` spent."""
    from sim_tools.ovs.fixed_budget import OCBAM
    from sim_tools.ovs.indifference_zone import KNPlusPlus

    found = {}
    model = Model(case)
    solver = KNPlusPlus(model, len(model.designs), ZONE * case.best_ms, n_0=10, obj="min")
    try:
        solver.reset()
        solver._initialisation()
        while len(solver._contenders) > 1:  # as its solve(), which does not end where two are equal
            solver._screening()
            solver._sequential_replication()
            solver._update()
    except TimeoutError:
        pass
    chosen = max(solver._contenders, key=lambda each: solver._means[each], default=None)
    found["KN++"] = {
        "chosen_ms": math.inf if chosen is None else case.truth[model.designs[chosen]],
        "requests": model.requests,
    }
    model = Model(case)
    count = len(model.designs)
    solver = OCBAM(model, count, max(spent // PIECE, 6 * count), min(10, count), n_0=5, m=2, obj="min")
    best = int(max(solver.solve(), key=lambda each: solver._means[each]))
    found["OCBA-m"] = {"chosen_ms": case.truth[model.designs[best]], "requests": model.requests}
    return found


def solve(number, field):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case = problem(number)
        rows = {"tune": of_tune(case)}
        if field and len([ms for ms in case.truth.values() if math.isfinite(ms)]) > 2:
            rows |= of_field(case, rows["tune"]["requests"])
    return case, rows


def share(values):
    values = [*values]
    return f"{sum(values)} of {len(values)}" if values else "none"


def least(count, of, chance=0.05):
    """Return an end of the interval of a true share, one-sided at 95 % (Clopper and Pearson)."""
    more = chance > 0.5
    if not of or (count == of if more else count == 0):
        return f"{1 if more else 0:.0%}"
    return f"{stats.beta.ppf(chance, count + more, of - count + (not more)):.1%}"


def of_procedure(name, solved):
    """Return a row of the first table."""
    runs = [(case, rows[name], rows["tune"]["grid"]) for case, rows in solved if name in rows]
    spent = sum(row["requests"] for _, row, _ in runs) / sum(grid for *_, grid in runs)
    cells = [f"{spent:.3f}"]
    for part in (ZONE, 0.01):
        cells.append(share(row["chosen_ms"] <= (1 + part) * case.best_ms for case, row, _ in runs))
    cells.append(share(row["chosen_ms"] <= case.limit_ms for case, row, _ in runs))
    return f"| {name} | {' | '.join(cells)} |"


def of_statements(name, solved):
    """Return a row of the second table."""
    runs = [(case, rows[name]) for case, rows in solved]
    stated = [row for _, row in runs if row["holds"] is not None]
    met = [(case, row) for case, row in runs if row["met"]]
    wrong = [case.number for case, row in met if row["chosen_ms"] > case.limit_ms]
    broken = [case.number for case, row in runs if row["holds"] is False]
    holds, fails = len(stated) - len(broken), len(wrong)
    cells = [
        f"{share(row['holds'] for row in stated)} {broken or ''}, {least(holds, len(stated))} at least",
        f"{np.median([row['within'] for row in stated]):.1%}",
        f"{np.mean([row['covers'] for row in stated]):.0%}",
        str(len(met)),
        f"{fails} {wrong or ''}, {least(fails, len(met), 0.95)} at most",
    ]  # fmt: skip
    return f"| {name} | {' | '.join(cells)} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problems", type=int, nargs="?", default=200)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    field = importlib.util.find_spec("sim_tools") is not None
    solved = []
    with ProcessPoolExecutor(arguments.workers, multiprocessing.get_context("spawn")) as pool:
        try:
            for future in as_completed([pool.submit(solve, n, field) for n in range(arguments.problems)]):
                case, rows = future.result()
                solved.append((case, rows))
                print(case.number, case.kind, rows, file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
    solved.sort(key=lambda each: each[0].number)
    TABLES.write_text(text := tables(solved))
    print(text)


def tables(solved):
    """Return the tables as text."""
    runs = f"full runs of {REQUESTS:,} requests, truth from {LONGER * REQUESTS:,}"
    heads = ["procedure", "requests, of the grid's", "within 5 % of the best", "within 1 %", "feasible"]
    procedures = dict.fromkeys(name for _, rows in solved for name in rows)
    found = table(heads, [of_procedure(name, solved) for name in procedures])
    bound, missed = "bound, of the latency (median)", "met, but truly missed"
    heads = ["", "statement holds", bound, "settings in it", "met", missed]
    stated = table(heads, [of_statements("tune", solved)])
    return "\n".join([f"{len(solved)} problems, {runs}:\n", *found, *stated])


def table(heads, rows):
    return [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *rows, ""]


if __name__ == "__main__":
    main()
