"""mixedbread's batched: @batched.dynamically."""

from batchsim import _check
from batchsim.scenario.rules import LARGEST_BATCH, SleepingPoll
from batchsim.servers.formats.python_calls import Callee, PythonForm
from batchsim.servers.server import Server, Words


def batched(batch_size: int = 32, timeout_ms: float = 5.0) -> SleepingPoll:
    """Return the rule of the loop in batched 0.1.5.

    Unless a full batch waits, the loop sleeps for all of timeout_ms; nothing wakes it. Then it takes the
    q // batch_size full batches that wait, or else the fewer requests that are there, and computes them
    without a look at the queue in between. It takes the oldest first, as `batched.aio.dynamically` does. The
    decorator for threads keeps a heap, which loses the order of arrival: batch sizes and the mean stay the
    same, but if requests are left over, p99 is up to three times as long.

    >>> batched(batch_size=8)
    SleepingPoll(max_batch_size=8, max_wait_ms=5.0)
    """
    size = _check.whole("batched's batch_size", batch_size, at_most=LARGEST_BATCH)
    return SleepingPoll(size, _check.real("batched's timeout_ms", timeout_ms, at_least=0))


FORM = PythonForm(
    (
        Callee(
            "@batched.dynamically", r"(batched\.)?(aio\.)?dynamically",
            (
                "_func", "batch_size", "timeout_ms", "small_batch_threshold", "max_batch_length",
                "priority_strategy", "cache", "batch_item_cls", "pad_tokens", "padding_side",
            ),
        ),
    ),
)  # fmt: skip

SERVER = Server(
    "batched", "0.1.5", batched, None, ("small_batch_threshold", "pad_tokens", "padding_side"),
    title="batched",
    words=Words("batch_size", "timeout_ms"),
    formats=(FORM.format(
        "a function for batched", "model.py",
        r"\b(import|from) batched\b|\bbatched\.(aio|dynamically)\b|\bdynamically\(",
    ),),
)  # fmt: skip
