"""The exercises of notebooks/06-theory-meets-simulation.ipynb."""

from scipy.optimize import brentq

from batchsim.teaching.exercises.exercise import SERVICE, Mistakes, Number
from batchsim.theory import mg1, size_or_wait


class TwiceTheTime(Number, name="06.1"):
    """The rate at which a request takes twice its service time on average, one at a time."""

    unit = "requests per second"
    parts = "the service time D, the fraction of time that the server is busy, λD, and the time in the queue"
    look = "By hand"

    def latency_ms(self, rate_per_s: float) -> float:
        return mg1(rate_per_s, SERVICE(1) * 1000, cv=0).mean_latency_ms

    def right(self) -> float:
        limit_per_s, aim_ms = 1 / SERVICE(1), 2 * SERVICE(1) * 1000
        low, high = 0.01 * limit_per_s, 0.99 * limit_per_s
        return float(brentq(lambda rate: self.latency_ms(rate) - aim_ms, low, high))

    def because(self, right: float) -> str:
        busy = f"at {right:,.0f} requests per second the server is busy {right * SERVICE(1):.1%} of the time"
        mean = f"the mean latency is {self.latency_ms(right):.2f} ms"
        return f"{busy}, and {mean}: as long in the queue as on the server."

    def mistakes(self, right: float) -> Mistakes:
        yield right * SERVICE(1), "that is the server's utilisation. How many requests per second is that?"

    def hint(self, answer: float, right: float) -> str:
        if answer * SERVICE(1) >= 1:
            return "the server cannot keep up: the queue grows without end, and there is no mean."
        mean_ms, alone_ms = self.latency_ms(answer), SERVICE(1) * 1000
        side = "less" if answer < right else "more"
        return f"there the mean latency is {mean_ms:.2f} ms, {side} than twice {alone_ms:.2f} ms."


class EnoughRequests(Number, name="06.2"):
    """The number of requests that makes an interval as narrow as ± 1 %."""

    unit = "requests"
    within = 0.05
    requests, half_width, target = 40_000, 0.05, 0.01
    parts = "how many times too wide the interval is, and the square of that"
    look = "What does 95 % promise?"

    @property
    def times(self) -> float:
        """How many times too wide the interval is."""
        return self.half_width / self.target

    def right(self) -> float:
        return self.requests * self.times**2

    def because(self, right: float) -> str:
        wide = f"± {self.half_width:.0%} is {self.times:g} times too wide"
        return f"{wide}, so you need {self.times:g}² times as many: {right:,.0f}."

    def mistakes(self, right: float) -> Mistakes:
        narrower = f"only {self.times**0.5:.2f} times narrower: the error shrinks with the square root"
        linear = f"{self.times:g} times as many requests make the interval {narrower}."
        yield self.requests * self.times, linear
        yield self.times**2, "that is how many times as many. How many requests is that?"

    def hint(self, answer: float, right: float) -> str:
        if answer <= self.requests:
            return f"{self.requests:,} requests are too few: you need more."
        width = self.target * (right / answer) ** 0.5
        side = "wider than the target," if answer < right else "narrower than you need for"
        from_here = f"± {self.half_width:.0%} at {self.requests:,}"
        return f"{from_here} would become about ± {width:.2%}, {side} ± {self.target:.1%}."


class CostOfAWait(Number, name="06.3"):
    """The increase of the mean latency through a wait of 1 ms, which theory knows exactly."""

    unit = "ms"
    signed = True
    within = 0.1
    rate_per_s = 1000
    max_batch_size = 32
    max_wait_ms = 1
    parts = "the mean latency with the wait minus the mean without it, for the same requests"
    look = "Which of two settings is better?"

    def mean_ms(self, max_wait_ms: float) -> float:
        return size_or_wait(self.rate_per_s, SERVICE, self.max_batch_size, max_wait_ms).mean_latency_ms

    def right(self) -> float:
        return self.mean_ms(self.max_wait_ms) - self.mean_ms(0)

    def because(self, right: float) -> str:
        return (
            f"theory gives {self.mean_ms(self.max_wait_ms):.4f} ms with the wait, {self.mean_ms(0):.4f} ms "
            f"without: {right:.4f} ms more, which is {right / self.max_wait_ms:.0%} of the wait. "
            "The server is busy most of the time, and while it is, no request waits for company."
        )

    def mistakes(self, right: float) -> Mistakes:
        yield -right, "the size is right, but which of the two is slower? compare(a, b) gives b - a."
        yield 0, "some requests find the server idle, and they wait for company."
        yield self.max_wait_ms, "that is the whole wait. A request that finds the server busy waits anyway."
        for wait_ms in (0, self.max_wait_ms):
            yield (
                self.mean_ms(wait_ms),
                "that is the mean latency of one of the two. What is their difference?",
            )
        yield 100 * right / self.mean_ms(0), "that is in percent of the mean latency. How many ms is that?"

    def hint(self, answer: float, right: float) -> str:
        use = 'take compare(a, b)["mean_latency_ms"].difference of two runs with the same seed'
        side = "more" if answer > right else "less"
        return f"{answer:g} ms is {side} than theory gives: {use}, and enough requests for a narrow interval."
