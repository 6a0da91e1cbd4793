"""What the tests of a run cost, in CPU seconds: the ten dearest, with compilation and processes, and the sum.

Seconds of a clock would say how busy a machine is. Each run adds a line to the file that `CPU_SECONDS` names,
so that `make test` can add up its steps. Nothing fails because of a number.
"""

import os
from pathlib import Path

import pytest

SHOWN = 10  # tests
SOME_S, MUCH_S = 1.0, 10.0  # to be shown, and to need a reason: @pytest.mark.dear("...")


def spent_s() -> float:
    """Return the CPU seconds of this process and of those that it has waited for."""
    return sum(os.times()[:4])


class CpuSeconds:
    """A plugin of pytest; workers of pytest-xdist send what they measure with their reports."""

    def __init__(self, config: pytest.Config) -> None:
        self.config, self.began_s = config, 0.0
        self.of_tests: list[tuple[float, str, str]] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        self.began_s = spent_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]):
        report = yield
        if report.when == "call":  # the last test's teardown would have that of all that tests share
            report.cpu_s = spent_s() - self.began_s
            mark = item.get_closest_marker("dear")
            report.why = mark.args[0] if mark else ""
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self.of_tests.append((report.cpu_s, report.nodeid, report.why))

    def pytest_terminal_summary(self, terminalreporter) -> None:
        if hasattr(self.config, "workerinput"):  # whose numbers the first process has
            return
        sum_s = spent_s()  # by now the workers have ended
        terminalreporter.section(f"{sum_s:,.0f} CPU seconds")
        for cpu_s, test, why in sorted(self.of_tests, reverse=True)[:SHOWN]:
            if cpu_s >= SOME_S:
                why = why or ("dear without a reason" if cpu_s > MUCH_S else "")
                terminalreporter.write_line(f"{cpu_s:6.1f}  {test}" + (f"  ({why})" if why else ""))
        if path := os.environ.get("CPU_SECONDS"):
            with Path(path).open("a", encoding="utf-8") as file:
                file.write(f"{sum_s:.1f} {len(self.of_tests)}\n")
