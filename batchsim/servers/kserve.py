"""KServe: the batcher of an InferenceService."""

from collections.abc import Mapping
from typing import Any

from batchsim import _check
from batchsim._format import brief, several
from batchsim.scenario.rules import LARGEST_BATCH, PullThenWait
from batchsim.servers.formats.document import Document, Place, refused
from batchsim.servers.formats.keyed_text import Places, parse_yaml, yaml_of
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


KIND, API = "InferenceService", "serving.kserve.io/v1beta1"
HEAD = {"apiVersion": API, "kind": KIND, "metadata": {"name": "model"}}
PREDICTOR = "spec.predictor"
BATCHER = f"{PREDICTOR}.batcher"
REPLICAS = f"{PREDICTOR}.minReplicas"
# The keys that each path may have. A predictor takes those of a component, of a model server and of a pod.
KNOWN = {
    "": "apiVersion kind metadata spec status",
    "spec": "predictor transformer explainer",
    PREDICTOR: """
    annotations batcher canaryTrafficPercent containerConcurrency deploymentStrategy labels logger
    maxReplicas minReplicas scaleMetric scaleMetricType scaleTarget autoScaling timeout huggingface
    lightgbm model onnx paddle pmml pytorch sklearn storageUris tensorflow triton workerSpec xgboost
    activeDeadlineSeconds affinity automountServiceAccountToken containers dnsConfig dnsPolicy
    enableServiceLinks ephemeralContainers hostAliases hostIPC hostNetwork hostPID hostUsers hostname
    imagePullSecrets initContainers nodeName nodeSelector os overhead preemptionPolicy priority
    priorityClassName readinessGates resourceClaims resources restartPolicy runtimeClassName
    schedulerName schedulingGates securityContext serviceAccount serviceAccountName setHostnameAsFQDN
    shareProcessNamespace subdomain terminationGracePeriodSeconds tolerations topologySpreadConstraints
    volumes
    """,
    BATCHER: "maxBatchSize maxLatency timeout",
}


def _read(document: Document, text: str, which: str | None) -> None:
    """Fill a document with the InferenceService called `which`; None if the text has one."""
    found: dict[str, tuple[Any, Places]] = {}
    for content, places in parse_yaml(text):
        if isinstance(content, dict) and content.get("kind") == KIND:
            about = content.get("metadata")
            name = about.get("name") if isinstance(about, dict) else None
            found[str(name or f"number {len(found) + 1}")] = content, places
    if not found:
        raise ValueError(f"a KServe YAML must have a document of kind {KIND}, got none")
    if (which is None and len(found) > 1) or (which is not None and which not in found):
        raise ValueError(f"which must name one of the services {several([*found])}, got {brief(which)}")
    content, places = next(iter(found.values())) if which is None else found[which]
    _read_keys(document, content, "", places)
    if tuple(BATCHER.split(".")) not in places:
        raise ValueError(f"{BATCHER} must be there for KServe to batch, got none")


def _read_keys(document: Document, content: Any, path: str, places: Places) -> None:
    if not isinstance(content, dict):
        place: Place | None = places.get(tuple(path.split(".")))
        raise refused(f"{path or 'the document'} must have keys, got {content!r}", place)
    known = KNOWN[path].split()
    for key, value in content.items():
        inner = f"{path}.{key}".strip(".")
        if key not in known:
            document.put_unknown(inner, known, places.get(tuple(inner.split("."))))
        elif inner in KNOWN:
            _read_keys(document, value, inner, places)
        elif path == BATCHER or inner == REPLICAS:
            document.put(key, value, places.get(tuple(inner.split("."))))
        elif HEAD.get(inner) != value:
            document.unused[inner] = value


def _write(settings: dict[str, Any], unused: Mapping[str, Any]) -> str:
    """Return an InferenceService; without its model if that is unknown."""
    content: dict[str, Any] = dict(HEAD)
    batcher = {key: settings.pop(key) for key in KNOWN[BATCHER].split() if key in settings}
    replicas = {REPLICAS: settings.pop("minReplicas")} if "minReplicas" in settings else {}
    for path, value in {**unused, **replicas, BATCHER: batcher}.items():
        *steps, last = path.split(".")
        part = content
        for step in steps:
            part = part.setdefault(step, {})
        part[last] = value
    return yaml_of(content)


SERVER = Server(
    "kserve", "2026-06", kserve, None, ("timeout",),
    title="KServe", routing="random",  # kube-proxy's
    words=Words("maxBatchSize", "maxLatency", whole=True, least=1, replicas="minReplicas"),
    formats=(
        Format(
            "a KServe InferenceService", "inference-service.yaml", (".yaml", ".yml"),
            rf"^[ \t]*kind\s*:\s*['\"]?{KIND}\b|\bmaxLatency\b|\bmaxBatchSize\b", _read, _write,
        ),
    ),
)  # fmt: skip
