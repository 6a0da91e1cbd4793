"""Clipper: a model container's batches."""

import math
from typing import Any

from batchsim import _check
from batchsim._format import as_typed
from batchsim.scenario.rules import LARGEST_BATCH, LearnedSizes, Rule, SizeOrWait
from batchsim.servers.formats.python_calls import Callee, PythonForm
from batchsim.servers.server import Server, ServerConfig, Words

LEARNED = -1  # the batch_size that selects learning
MOST = 128  # the largest size tried here, or the largest with a known service time; Clipper has no limit


def clipper(batch_size: int = LEARNED, slo_micros: int = 100_000) -> Rule:
    """Return the rule of Clipper (HEAD): a free container takes all that waits, at most batch_size.

    Clipper has no timer. It takes the earliest deadline first, which is the order of arrival if all requests
    have one objective. A batch_size of -1 is learned: the size that, judging by earlier batches, takes no
    longer than the objective, `slo_micros` from a request's arrival. Three details differ: Clipper tries
    larger sizes by a random step, here by its mean; it fits a ridge regression, here least squares; and each
    of its containers learns for itself, here all of them together.

    >>> clipper(slo_micros=20_000)
    LearnedSizes(max_batch_size=128, deadline_ms=20.0)
    >>> clipper(batch_size=16)
    SizeOrWait(max_batch_size=16, max_wait_ms=0)
    """
    deadline_ms = _check.whole("Clipper's slo_micros", slo_micros) / 1000
    if batch_size == LEARNED:
        return LearnedSizes(MOST, deadline_ms)
    return SizeOrWait(_check.whole("Clipper's batch_size", batch_size, at_most=LARGEST_BATCH), 0)


def config(batch_size: int = LEARNED, slo_micros: int = 100_000) -> ServerConfig:
    """Return the meaning of a model and its application: a request that waits `slo_micros` is dropped."""
    rule = clipper(batch_size, slo_micros)
    return ServerConfig("clipper", rule, timeout_ms=slo_micros / 1000)


def _extras(target: ServerConfig) -> dict[str, Any]:
    if not isinstance(target.rule, LearnedSizes):
        return {}
    return {"batch_size": LEARNED, "slo_micros": math.ceil(as_typed(target.rule.deadline_ms * 1000))}


FORM = PythonForm(
    (
        Callee(
            "deploy_python_closure", r"(.*\.)?deploy_python_closure",
            (
                "_clipper_conn", "name", "version", "input_type", "_func", "base_image", "labels",
                "registry", "num_replicas", "batch_size", "pkgs_to_install",
            ),
        ),
        Callee(
            "deploy_model", r"(.*\.)?deploy_model",
            ("name", "version", "input_type", "image", "labels", "num_replicas", "batch_size"),
        ),
    ),
    Callee(
        "register_application", r"(.*\.)?register_application",
        ("name", "input_type", "default_output", "slo_micros"),
    ),
)  # fmt: skip

SERVER = Server(
    "clipper", "HEAD", clipper, config, ("default_output",),
    title="Clipper",
    words=Words(
        "batch_size", timeout="slo_micros", timeout_unit_ms=0.001, others={"deadline_ms": "slo_micros"}
    ),
    extras=_extras,
    formats=(FORM.format(
        "a deployment on Clipper", "deploy.py", r"\bclipper_|\bdeploy_python_closure\b|\bslo_micros\b"
    ),),
)  # fmt: skip
