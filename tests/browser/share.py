"""What part of the machine these tests had: a bar for speed is for a machine of one's own."""

import time

import psutil

BUSY = "user", "nice", "system", "irq", "softirq", "steal"  # a system may lack some


class Share:
    """The part of the processors' time, since this was made, that no other program took."""

    def __init__(self) -> None:
        self.begin_s, self.others_s = time.perf_counter(), self._others_s()

    def __call__(self) -> float:
        passed_s = (time.perf_counter() - self.begin_s) * psutil.cpu_count()
        return 1 - min(max((self._others_s() - self.others_s) / passed_s, 0), 0.99)

    def _others_s(self) -> float:
        """Return the processors' seconds that were not of this process and of all that it started."""
        family, own_s = [psutil.Process(), *psutil.Process().children(recursive=True)], 0.0
        for process in family:
            try:
                own_s += sum(process.cpu_times()[:4])  # its own and, on Linux, those of children that ended
            except psutil.NoSuchProcess:
                continue
        times = psutil.cpu_times()  # of all processors
        return sum(getattr(times, kind, 0.0) for kind in BUSY) - own_s
