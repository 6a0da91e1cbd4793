"""A second simulator, deliberately naive: plain lists, no heap, no processes, no batcher.

At each step it finds the next instant as a minimum over everything that could come, and takes the
four steps of an instant. It shares no code with batchsim, so that the two can be compared.
"""

import math
from dataclasses import dataclass, field

SERVED, REJECTED, TIMED_OUT = 0, 1, 2
FULL, WAIT, BACKLOG, DRAIN, ENOUGH = 0, 1, 2, 3, 4


def after(time_s, seconds):
    """A time so much later, on a clock that counts whole nanoseconds.

    Python's whole numbers have no limit and no rounding: only the duration is rounded, once, half to even.
    """
    if math.inf in (time_s, seconds):
        return math.inf
    return (round(time_s * 1e9) + round(seconds * 1e9)) / 10**9


@dataclass
class Naive:
    requests: int
    service_s: list  # by batch size; index 0 unused
    max_batch_size: int
    max_wait_ms: float = math.inf
    enough: int | None = None  # the (a, b) rule's a; None: the textbook rule
    preferred: tuple | None = None  # sizes that leave at once, as of PreferredSizes
    freezes: bool = False  # the textbook rule, whose batches form whether or not a server is idle
    arrivals_s: list | None = None  # open loop
    clients: int = 0  # closed loop
    think_s: list | None = None
    due_s: list | None = None  # when each may be sent at the earliest
    servers: int = 1
    priority: list | None = None  # the level of each request
    by_level: bool = False  # whether levels, or delays, say who goes first
    queue_limit: int | dict | None = None  # of all, or of each level
    timeout_ms: float | dict | None = None
    timeout_action: str | dict = "reject"
    slowdown: dict | None = None
    devices: int | None = None  # server i computes on device i mod devices; None: each on its own
    host_ms: float = 0.0
    contention: float = 1.0
    noise: list | None = None
    compile_s: dict | None = None  # by shape: seconds that its first batch takes longer
    padding: list | None = None  # the shapes; None: every size is its own
    sizes: list | None = None  # of each request, as it is sent
    largest_size: float = math.inf  # a larger request is rejected, or cut if this `truncates`
    truncates: bool = False
    cost: object = None  # what says the seconds and the shape of a batch from its requests' sizes

    # A row a request.
    arrival: list = field(default_factory=list)
    start: list = field(default_factory=list)
    finish: list = field(default_factory=list)
    batch: list = field(default_factory=list)
    status: list = field(default_factory=list)
    sender: list = field(default_factory=list)
    # A row a batch.
    batch_start: list = field(default_factory=list)
    batch_finish: list = field(default_factory=list)
    size: list = field(default_factory=list)
    server: list = field(default_factory=list)
    trigger: list = field(default_factory=list)
    device_wait: list = field(default_factory=list)

    def begin(self) -> None:
        self.coming = list(self.arrivals_s or [])
        self.thinking = [(0.0, client) for client in range(self.clients)]
        self.waiting: list[int] = []
        self.delayed: list[int] = []  # those of them that have waited too long, and may go on to wait
        self.frozen: list[tuple[list[int], int]] = []
        self.computing: list = [None] * self.servers
        self.compiled: dict = {}  # by shape: from when on its program is there

    def run(self) -> "Naive":
        self.begin()
        while True:
            now = min(self.possible_instants(), default=math.inf)
            if now == math.inf:
                return self
            self.four_steps(now)

    def possible_instants(self):
        yield from self.coming
        if self.someone_may_come():
            next_s = self.due_s[len(self.arrival)] if self.due_s else 0.0
            yield from (max(due, next_s) for due, _ in self.thinking)
        yield from (self.batch_finish[job] for job in self.computing if job is not None)
        for request in self.waiting:
            yield self.expiry(request)
        yield from self.alarms()

    def alarms(self):
        """When time alone changes what the rule does."""
        if self.waiting and (None in self.computing or self.freezes):
            yield self.deadline(self.waiting[0])

    def released(self, now: float, job: int) -> None:
        """What a rule learns from a batch that ends."""

    def someone_may_come(self) -> bool:
        return bool(self.coming) if self.arrivals_s is not None else len(self.arrival) < self.requests

    def deadline(self, request: int) -> float:
        return after(self.arrival[request], self.max_wait_ms / 1000)

    def expiry(self, request: int) -> float:
        timeout_ms = self.of_level(self.timeout_ms, request)
        if timeout_ms is None or request in self.delayed:
            return math.inf
        return after(self.arrival[request], timeout_ms / 1000)

    def level(self, request: int) -> int:
        return 1 if self.priority is None else self.priority[request]

    def of_level(self, limit, request: int):
        """What is the same for all, or said of some levels."""
        return limit.get(self.level(request)) if isinstance(limit, dict) else limit

    def first(self, size: int) -> list[int]:
        """Who goes first: by level, in it those in time, in these the oldest."""
        late = {request: place for place, request in enumerate(self.delayed)}
        return sorted(self.waiting, key=lambda who: (self.level(who), late.get(who, -1), who))[:size]

    def pull(self, size: int) -> list[int]:
        """Take those that go first out of the queue."""
        taken = self.first(size)
        self.waiting = [request for request in self.waiting if request not in taken]
        return taken

    def four_steps(self, now: float) -> None:
        # 1. open-loop arrivals
        while self.coming and self.coming[0] <= now:
            self.coming.pop(0)
            self.enter(now, sender=None)
        # 2. batches end, then look
        answered = []
        for server, job in enumerate(self.computing):
            if job is not None and self.batch_finish[job] <= now:
                self.computing[server] = None
                self.released(now, job)
                answered += [request for request, of in enumerate(self.batch) if of == job]
        self.refused: list[int] = []
        self.look(now)
        answered += self.refused
        # 3. those who waited too long leave
        for request in list(self.waiting):
            if now >= self.expiry(request):
                if self.of_level(self.timeout_action, request) == "delay":
                    self.delayed.append(request)
                    continue
                self.waiting.remove(request)
                self.status[request] = TIMED_OUT
                answered.append(request)
        # 4. closed-loop sends, one by one in client order, each followed by look
        if self.arrivals_s is not None:
            return
        for request in answered:
            self.thinking.append((after(now, self.think_s[request]), self.sender[request]))
        sends = sum(time <= now for time in (self.due_s or [0.0] * self.requests)[len(self.arrival) :])
        due_now = sorted(pair for pair in self.thinking if pair[0] <= now)[:sends]
        self.thinking = [pair for pair in self.thinking if pair not in due_now]
        for _, client in sorted(due_now, key=lambda pair: pair[1]):
            if len(self.arrival) == self.requests:
                return
            request = self.enter(now, sender=client)
            if self.status[request] == REJECTED:
                self.thinking.append((after(now, self.think_s[request]), client))
            self.refused = []
            self.look(now)
            self.thinking += [(after(now, self.think_s[who]), self.sender[who]) for who in self.refused]

    def enter(self, now: float, sender: int | None) -> int:
        request = len(self.arrival)
        limit = self.of_level(self.queue_limit, request)
        full_up = limit is not None and self.all_waiting(self.level(request)) >= limit
        if self.sizes is not None and self.sizes[request] > self.largest_size and not self.truncates:
            full_up = True
        self.arrival.append(now)
        self.start.append(math.nan)
        self.finish.append(math.nan)
        self.batch.append(-1)
        self.status.append(REJECTED if full_up else SERVED)
        self.sender.append(sender)
        if not full_up:
            self.waiting.append(request)
        return request

    def all_waiting(self, level: int) -> int:
        everyone = self.waiting + [request for batch, _ in self.frozen for request in batch]
        return len([request for request in everyone if self.level(request) == level])

    def look(self, now: float) -> None:
        if self.freezes:
            while self.waiting and (why := self.why_now(now)) is not None:
                self.frozen.append((self.pull(self.size_of_next()), why))
            while self.frozen and None in self.computing:
                self.take(now, *self.frozen.pop(0))
            return
        while self.waiting and None in self.computing:
            why = self.why_now(now)
            if why is None:
                return
            self.take(now, self.pull(self.size_of_next()), why)

    def size_of_next(self) -> int:
        fitting = [size for size in self.preferred or () if size <= len(self.waiting)]
        return max(fitting) if fitting else min(len(self.waiting), self.max_batch_size)

    def why_now(self, now: float) -> int | None:
        """Why a batch leaves now; None if none does."""
        oldest = self.waiting[0]
        if self.preferred is not None and len(self.waiting) >= min(self.preferred):
            return FULL if self.size_of_next() == self.max_batch_size else ENOUGH
        if len(self.waiting) >= self.max_batch_size:
            return FULL
        if self.enough is not None and len(self.waiting) >= self.enough:
            before_now = [request for request in self.waiting if self.arrival[request] < now]
            return BACKLOG if len(before_now) >= self.enough else ENOUGH
        if now == self.deadline(oldest):
            return WAIT
        if now > self.deadline(oldest):
            return BACKLOG
        if self.max_wait_ms == math.inf and not self.someone_may_come():
            return DRAIN
        return None

    def take(self, now: float, taken: list[int], why: int) -> None:
        server = self.computing.index(None)
        number, size = len(self.size), self.computed_as(taken)
        self.computing[server] = number
        shape, mean_s = self.in_time(taken, size)
        seconds = mean_s
        if self.noise is not None:
            seconds = seconds * self.noise[number]
        if self.slowdown is not None:
            seconds = seconds * self.slowdown[sum(job is not None for job in self.computing)]
        begin = self.program_is_there(now, shape)
        finish, waited = after(begin, seconds), 0.0
        if self.devices is not None or self.host_ms > 0:
            finish, waited = self.on_device(now, server, number, mean_s, begin)
        finish = max(finish, after(now, 1e-9))  # nothing takes no time
        self.batch_start.append(now)
        self.batch_finish.append(finish)
        self.size.append(len(taken))
        self.server.append(server)
        self.trigger.append(why)
        self.device_wait.append(waited)
        for request in taken:
            self.start[request], self.finish[request] = now, finish
            self.batch[request] = number

    def computed_as(self, taken: list[int]) -> int:
        """As how many a batch is computed: more, where a rule fills it up."""
        return len(taken)

    def size_of(self, request: int) -> int:
        """The size of a request as it is computed."""
        if self.sizes is None:
            return 1
        return min(self.sizes[request], self.largest_size) if self.truncates else self.sizes[request]

    def in_time(self, taken: list[int], size: int):
        """Of which shape a batch is, and how long it takes on average."""
        if self.cost is not None:
            return self.cost([self.size_of(request) for request in taken])
        shape = size if self.padding is None else min(s for s in self.padding if s >= size)
        return shape, self.service_s[size]

    def program_is_there(self, now: float, shape) -> float:
        """When a batch can begin: the first of a shape compiles it, others wait until that is done."""
        if self.compile_s is None:
            return now
        if shape not in self.compiled:
            of = shape[0] if isinstance(shape, tuple) else shape
            self.compiled[shape] = after(now, self.compile_s[of])
        return now if self.compiled[shape] < now else self.compiled[shape]

    def on_device(self, now: float, server: int, number: int, mean_s: float, begin: float):
        """When a batch is done, first on the host, then on the device, and how long it waits between."""
        devices = self.devices or self.servers
        before = [
            self.batch_finish[other]
            for other, by in enumerate(self.server)
            if by % devices == server % devices
        ]
        reaches = after(begin, self.host_ms / 1000)
        seconds = mean_s - self.host_ms / 1000
        if self.noise is not None:
            seconds = seconds * self.noise[number]
        if any(finish > reaches for finish in before):
            return after(max(before), seconds * self.contention), max(before) - reaches
        return after(reaches, seconds), 0.0
