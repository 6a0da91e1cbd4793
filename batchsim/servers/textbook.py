"""The textbook's batcher, `batchsim.InferenceBatcher`."""

from batchsim.scenario.rules import SizeOrWait
from batchsim.servers.formats.python_calls import ANY, Callee, PythonForm
from batchsim.servers.server import Server, Words


def textbook(max_batch_size: int = 32, max_wait_ms: float = 50.0) -> SizeOrWait:
    """Return the rule of `batchsim.InferenceBatcher`.

    A free server takes a batch when max_batch_size requests wait or the oldest has waited max_wait_ms. While
    all servers compute, the queue grows, and the next batch with it.

    >>> textbook(max_batch_size=8, max_wait_ms=5)
    SizeOrWait(max_batch_size=8, max_wait_ms=5)
    """
    return SizeOrWait(max_batch_size, max_wait_ms)


FORM = PythonForm(
    (
        Callee(
            "InferenceBatcher", ANY + "InferenceBatcher",
            ("_model_fn", "max_batch_size", "max_wait_ms", "_clock"),
        ),
    ),
)  # fmt: skip

SERVER = Server(
    "textbook", "batchsim", textbook,
    title="Textbook",
    words=Words("max_batch_size", "max_wait_ms"), unbounded=True,
    formats=(FORM.format("the textbook's batcher", "batcher.py", r"\bInferenceBatcher\b"),),
)  # fmt: skip
