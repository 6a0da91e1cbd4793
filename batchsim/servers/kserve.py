"""KServe: the batcher of an InferenceService."""

from batchsim import _check
from batchsim._format import brief, several
from batchsim.scenario.rules import LARGEST_BATCH, PullThenWait
from batchsim.servers.formats.document import Document, Keys, Node, table
from batchsim.servers.formats.keyed_text import YAML, parse_yaml
from batchsim.servers.server import Format, Server, Words

DEFAULT_MS = 5000  # which also replaces a maxLatency of 0


def kserve(maxBatchSize: int = 32, maxLatency: int = DEFAULT_MS) -> PullThenWait:
    """Return the rule of KServe's batcher, a sidecar of the model server (2026-06); maxLatency is in ms.

    It takes the first request, and sends a batch when it has maxBatchSize or maxLatency is over. Until the
    answer is there, it takes no other; then the clock restarts, however long the next request has waited.
    A maxLatency of 0 means the default of 5 s.

    >>> kserve(maxBatchSize=8, maxLatency=20)
    PullThenWait(max_batch_size=8, max_wait_ms=20)
    """
    size = _check.whole("KServe's maxBatchSize", maxBatchSize, at_most=LARGEST_BATCH)
    return PullThenWait(size, _check.whole("KServe's maxLatency", maxLatency, at_least=0) or DEFAULT_MS)


KIND = "InferenceService"
PREDICTOR, TRANSFORMER = COMPONENTS = "spec.predictor", "spec.transformer"  # each may have a batcher
# The keys that each path may have. A predictor takes those of a component, of a model server and of a pod.
_KNOWN = table("keys.csv", "kserve")
KEYS = {
    component: Keys(
        YAML,
        {path.replace(PREDICTOR, component): tuple(names) for path, names in _KNOWN.items()}
        | {f"{component}.batcher": ("maxBatchSize", "maxLatency", "timeout")},
        {f"{component}.timeout": f"{component}.timeout"},  # not the batcher's
    )
    for component in COMPONENTS
}
TEMPLATE = f"""\
apiVersion: serving.kserve.io/v1beta1
kind: {KIND}
metadata:
  name: model
spec:
  predictor:
    batcher: {{}}
"""


def _read(document: Document, text: str, which: str | None) -> None:
    """Fill a document with the InferenceService called `which`; None if the text has one."""
    found: dict[str, Node] = {}
    for node in parse_yaml(text):
        if isinstance(node.value, dict) and node.value.get("kind") == KIND:
            about = node.value.get("metadata")
            name = about.get("name") if isinstance(about, dict) else None
            found[str(name or f"number {len(found) + 1}")] = node
    if not found:
        raise ValueError(f"a KServe YAML must have a document of kind {KIND}, got none")
    if (which is None and len(found) > 1) or (which is not None and which not in found):
        raise ValueError(f"which must name one of the services {several([*found])}, got {brief(which)}")
    service = next(iter(found.values())) if which is None else found[which]
    for name in ("apiVersion", "kind", "metadata"):  # which tell what it is
        service.items.pop(name, None)
    found_in = [each for each in COMPONENTS if service.find(f"{each}.batcher") is not None]
    if len(found_in) != 1:
        must = f"{COMPONENTS[0]}.batcher must be there for KServe to batch, or that of {COMPONENTS[1]}"
        raise ValueError(f"{must}, got {'both; keep one of them in the text' if found_in else 'none'}")
    KEYS[found_in[0]].read(document, service)


SERVER = Server(
    "kserve", "2026-06", kserve, None, ("timeout",),
    caveats={
        f"{component}.{name}": why for component in COMPONENTS for name, why in {
            "containerConcurrency": "no request waits before the batcher",
            "maxReplicas": "the number of replicas stays minReplicas",
            "canaryTrafficPercent": "all requests go to one revision",
        }.items()
    },
    title="KServe", routing="random",  # kube-proxy's
    words=Words("maxBatchSize", "maxLatency", whole=True, least=1, replicas="minReplicas"),
    formats=(
        Format(
            "a KServe InferenceService", "inference-service.yaml", (".yaml", ".yml"),
            # A container of its own, or a runtime, may run another server's command.
            r"\A(?=[\s\S]*\bbatcher\b|(?![\s\S]*(\bimage\s*:|name\s*:[\s'\"]*(huggingface|vLLM)\b)))"
            rf"[\s\S]*^[ \t]*kind\s*:\s*['\"]?{KIND}\b|\bmaxLatency\b|\bmaxBatchSize\b", _read, TEMPLATE,
        ),
    ),
)  # fmt: skip
