"""KServe's InferenceService: the batcher of its predictor."""

from collections.abc import Mapping
from typing import Any

from batchsim.servers.formats import yaml_text
from batchsim.servers.formats.document import Document, Format, Place, refused

KIND, API = "InferenceService", "serving.kserve.io/v1beta1"
HEAD = {"apiVersion": API, "kind": KIND, "metadata": {"name": "model"}}
PREDICTOR = "spec.predictor"

# Known keys by their path: facts of the format. A predictor has those of a component, of the model
# servers, and of a pod.
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
    f"{PREDICTOR}.batcher": "maxBatchSize maxLatency timeout",
}


def read(document: Document, text: str, which: str | None) -> None:
    """Fill a document with the InferenceService called `which`, which may be left out where it is alone."""
    found: dict[str, tuple[Any, yaml_text.Places]] = {}
    for content, places in yaml_text.documents(text):
        if isinstance(content, dict) and content.get("kind") == KIND:
            name = (content.get("metadata") or {}).get("name", f"number {len(found) + 1}")
            found[str(name)] = content, places
    if not found:
        raise ValueError(f"a KServe YAML must have a document of kind {KIND}, got none")
    if (which is None and len(found) > 1) or (which is not None and which not in found):
        raise ValueError(f"which must name one of the services {', '.join(found)}, got {which!r}")
    content, places = next(iter(found.values())) if which is None else found[which]
    _read(document, content, "", places)
    if (*PREDICTOR.split("."), "batcher") not in places:
        raise ValueError(
            "spec.predictor.batcher must be there, without which KServe does not batch, got none"
        )


def _read(document: Document, content: Any, path: str, places: yaml_text.Places) -> None:
    if not isinstance(content, dict):
        place: Place | None = places.get(tuple(path.split(".")))
        raise refused(f"{path or 'the document'} must have keys, got {content!r}", place)
    known = KNOWN[path].split()
    for key, value in content.items():
        inner = f"{path}.{key}".strip(".")
        if key not in known:
            document.put_unknown(inner, known)
        elif inner in KNOWN:
            _read(document, value, inner, places)
        elif path.endswith("batcher"):
            document.put(key, value, places.get(tuple(inner.split("."))))
        elif HEAD.get(inner) != value:
            document.unused[inner] = value


def write(settings: dict[str, Any], unused: Mapping[str, Any]) -> str:
    """Return an InferenceService, whose model is left out where it is not known."""
    content: dict[str, Any] = dict(HEAD)
    batcher = {key: settings.pop(key) for key in KNOWN[f"{PREDICTOR}.batcher"].split() if key in settings}
    for path, value in {**unused, f"{PREDICTOR}.batcher": batcher}.items():
        *steps, last = path.split(".")
        part = content
        for step in steps:
            part = part.setdefault(step, {})
        part[last] = value
    return yaml_text.text_of(content)


INFERENCE_SERVICE = Format(
    "kserve", "a KServe InferenceService", "inference-service.yaml", (".yaml", ".yml"),
    rf"^\s*kind\s*:\s*['\"]?{KIND}\b|\bmaxLatency\b|\bmaxBatchSize\b", read, write,
)  # fmt: skip
