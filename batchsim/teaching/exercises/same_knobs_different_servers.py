"""The exercises of notebooks/09-same-knobs-different-servers.ipynb."""

from functools import cache

from batchsim.scenario import Affine, Poisson, Scenario, SizeOrWait
from batchsim.servers import ray_serve
from batchsim.servers.comparison import compare_servers
from batchsim.teaching.exercises.exercise import SEED, Mistakes, Number
from batchsim.theory import frozen_wait_min_ms

SERVICE = Affine(fixed_ms=1.8874, per_item_ms=0.1438)
MAX_BATCH_SIZE = 32
REQUESTS = 100_000


class ExtraP99(Number, name="09.1"):
    """How much higher the p99 is where the clock starts with the server's take."""

    unit = "ms"
    signed = True
    within = 0.05
    rate_per_s = 1000
    max_wait_ms = 5
    parts = "the p99 of both servers for the same requests, and the difference"
    look = "A busy hour: what do you expect?"

    @classmethod
    @cache  # a run of each
    def p99s_ms(cls) -> tuple[float, float]:
        """Return the p99 of Triton and of TorchServe."""
        scenario = Scenario(Poisson(cls.rate_per_s), SizeOrWait(), SERVICE)
        names = ["triton", "torchserve"]
        found = compare_servers(scenario, names, MAX_BATCH_SIZE, cls.max_wait_ms, REQUESTS, SEED)
        triton, torchserve = (found.results[name].percentile(99) for name in names)
        return triton, torchserve

    def right(self) -> float:
        triton, torchserve = self.p99s_ms()
        return torchserve - triton

    def because(self, right: float) -> str:
        triton, torchserve = self.p99s_ms()
        both = f"p99 is {triton:.1f} ms on Triton and {torchserve:.1f} ms on TorchServe"
        share = f"{right / self.max_wait_ms:.0%} of the wait"
        return f"{both}. The difference is {share}: a request that waited for the server waits once again."

    def mistakes(self, right: float) -> Mistakes:
        triton, torchserve = self.p99s_ms()
        yield -right, "the size is right, but which of the two is slower?"
        yield triton, "that is the p99 on Triton. How much higher is it on TorchServe?"
        yield torchserve, "that is the p99 on TorchServe. How much lower is it on Triton?"
        yield torchserve / triton, "that is the ratio. How many milliseconds is the difference?"
        yield self.max_wait_ms, "that is the whole wait. But some of the slowest wait for less: simulate it."

    def hint(self, answer: float, right: float) -> str:
        setting = f"{self.rate_per_s:,} per second and {self.max_wait_ms} ms"
        return f'compare both at {setting}: to_frame()["p99_ms"].'


class LeastWait(Number, name="09.2"):
    """The wait above which frozen batches are large enough for the server to keep up."""

    unit = "ms"
    within = 0.02
    rate_per_s = 1500
    parts = "the size of a batch, 1 + the arrivals during the wait, and its service time"
    look = "The third team: what do you expect?"

    def right(self) -> float:
        fixed_ms, per_item_ms = SERVICE.fixed_ms, SERVICE.per_item_ms
        return frozen_wait_min_ms(self.rate_per_s, fixed_ms, per_item_ms, MAX_BATCH_SIZE)

    def keeps(self, answer: float) -> bool:
        return self.load(answer) <= 1 + 1e-9

    def load(self, wait_ms: float) -> float:
        rule = ray_serve(MAX_BATCH_SIZE, wait_ms / 1000)
        return Scenario(Poisson(self.rate_per_s), rule, SERVICE).load

    def because(self, right: float) -> str:
        per_ms = self.rate_per_s / 1000
        size = 1 + per_ms * right
        joined = f"in {right:.2f} ms {per_ms * right:.2f} requests join the one that opens a batch"
        return f"{joined}, and batches of {size:.2f} on average carry just {self.rate_per_s:,} per second."

    def mistakes(self, right: float) -> Mistakes:
        for_2000_ms = frozen_wait_min_ms(2000, SERVICE.fixed_ms, SERVICE.per_item_ms, MAX_BATCH_SIZE)
        yield for_2000_ms, f"that is for 2,000 requests per second, but only {self.rate_per_s:,} arrive."

    def hint(self, answer: float, right: float) -> str:
        if answer > 1000:
            return "that is far too long."
        load = self.load(answer)
        far = "it is too short" if load > 1 else "a shorter wait is enough"
        digits = 3 if round(load, 3) != 1 else 5
        return f"with a wait of {answer:g} ms the load is {load:.{digits}f}: {far}."


class TooFewOngoing(Number, name="09.3"):
    """The most that Ray Serve carries with its defaults, which let in fewer than a full batch."""

    unit = "requests per second"
    within = 0.007
    max_batch_size = 10
    ongoing = 5
    wait_ms = 10
    parts = "the time a request spends inside, waiting and computing, and the number of requests inside"
    look = "The third team: what do you expect?"
    otherwise = "how long do {self.ongoing} requests stay inside, from their arrival to their answer?"

    def right(self) -> float:
        rule = ray_serve(self.max_batch_size, self.wait_ms / 1000, max_ongoing_requests=self.ongoing)
        return Scenario(Poisson(1e6), rule, SERVICE).full_batches_per_s

    def because(self, right: float) -> str:
        computes = SERVICE(self.ongoing) * 1000
        each = f"{self.ongoing} requests wait {self.wait_ms} ms and compute for {computes:.1f} ms"
        return f"{each}, then the next {self.ongoing} are admitted: {right:,.0f} per second."

    def mistakes(self, right: float) -> Mistakes:
        size, ongoing = self.max_batch_size, self.ongoing
        for wait_ms in (0, self.wait_ms):
            full = f"that is for batches of {size}, but only {ongoing} requests fit inside."
            yield size / (wait_ms / 1000 + SERVICE(size)), full
        yield 1 / SERVICE(1), f"that is one at a time, but {ongoing} requests share a batch."
        yield ongoing / SERVICE(ongoing), f"batches of {ongoing} are not full, so each waits first."
        yield ongoing / self.wait_ms * 1000, "after the wait, the batch has to be computed, too."
        yield right / ongoing, "those are batches per second. How many requests per second is that?"
