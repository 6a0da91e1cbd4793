"""Servers that are set up in Python: their calls, with the parameters that they have."""

from batchsim.servers.formats.document import Document, Format
from batchsim.servers.formats.python_calls import Call, Callee, PythonForm

_ANY = r"(\w+\.)*"

# Ray Serve.

RAY_SERVE = PythonForm(
    (
        Callee(
            "@serve.batch", r"(ray\.)?(serve\.)?batch",
            ("_func", "max_batch_size", "batch_wait_timeout_s", "max_concurrent_batches", "batch_size_fn"),
        ),
    ),
    '''from ray import serve


@serve.deployment({around})
class Model:
    @serve.batch({batching})
    async def predict(self, requests: list) -> list:
        raise NotImplementedError("one answer for each request")

    async def __call__(self, request):
        return await self.predict(request)
''',
    Callee(
        "@serve.deployment", r"(ray\.)?(serve\.)?deployment",
        (
            "_func_or_class", "name", "version", "num_replicas", "ray_actor_options",
            "placement_group_bundles", "placement_group_strategy", "placement_group_bundle_label_selector",
            "max_replicas_per_node", "user_config", "max_ongoing_requests", "max_queued_requests",
            "backpressure_config", "autoscaling_config", "graceful_shutdown_wait_loop_s",
            "graceful_shutdown_timeout_s", "health_check_period_s", "health_check_timeout_s",
            "logging_config", "request_router_config", "max_constructor_retry_count",
            "gang_scheduling_config", "deployment_actors", "rolling_update_percentage", "max_surge_percent",
        ),
    ),
    by_class=True, renamed={"max_concurrent_queries": "max_ongoing_requests"},
)  # fmt: skip


# BentoML.


def _bentoml(document: Document) -> None:
    if "batchable" not in document.said:
        size = document.settings.get("max_batch_size")
        document.unused |= {} if size is None else {"max_batch_size": size}
        document.settings["max_batch_size"] = 1
        document.notes.append("batchable is not True: each request is computed by itself")


BENTOML = PythonForm(
    (
        Callee(
            "@bentoml.api", r"(bentoml\.)?api",
            (
                "_func", "route", "name", "input_spec", "output_spec", "batchable", "batch_dim",
                "max_batch_size", "max_latency_ms",
            ),
            needed={"batchable": True},
        ),
    ),
    '''import bentoml


@bentoml.service({around})
class Model:
    @bentoml.api({batching})
    def predict(self, inputs: list) -> list:
        raise NotImplementedError("one output for each input")
''',
    Callee(
        "@bentoml.service", r"(bentoml\.)?service",
        (
            "_inner", "name", "image", "description", "path_prefix", "envs", "labels", "cmd",
            "service_class", "traffic", "extra_ports", "backlog", "max_runner_connections",
            "runner_connection", "resources", "workers", "replicate_process", "threads", "metrics", "logging",
            "ssl", "http", "grpc", "runner_probe", "tracing", "monitoring", "endpoints",
        ),
        {"name": "service.name"},
    ),
    by_class=True, settle=_bentoml,
)  # fmt: skip


# LitServe.


def _litserve(document: Document) -> None:
    if document.settings.get("devices") == "auto":
        document.unused["devices"] = document.settings.pop("devices")
        document.notes.append("devices='auto' is every device there, one here")


def _is_lit_api(call: Call) -> bool:
    name = call.callee.rpartition(".")[2]
    if any(base.rpartition(".")[2] == "LitAPI" for base in call.bases):
        return True
    # A class of another file, or the call of LitAPI's own __init__ by one that is here.
    is_class = name == "__init__" or (name[:1].isupper() and name != "LitServer")
    return is_class and bool({"max_batch_size", "batch_timeout"} & {*call.keywords})


LITSERVE = PythonForm(
    (
        Callee(
            "a LitAPI", _ANY + "LitAPI",
            (
                "max_batch_size", "batch_timeout", "api_path", "stream", "loop", "spec", "mcp",
                "enable_async",
            ),
        ),
    ),
    '''import litserve as ls


class Model(ls.LitAPI):
    def setup(self, device):
        pass

    def predict(self, inputs):
        raise NotImplementedError("one output for each input")


if __name__ == "__main__":
    server = ls.LitServer(Model({batching}){+around})
    server.run(port=8000)
''',
    Callee(
        "LitServer", _ANY + "LitServer",
        (
            "_lit_api", "accelerator", "devices", "workers_per_device", "timeout", "healthcheck_path",
            "info_path", "shutdown_path", "enable_shutdown_api", "model_metadata", "spec",
            "max_payload_size", "track_requests", "callbacks", "middlewares", "loggers", "fast_queue",
            "disable_openapi_url", "max_batch_size", "batch_timeout", "stream", "api_path", "loop",
            "restart_workers",
        ),
    ),
    also=_is_lit_api, settle=_litserve,
)  # fmt: skip


# mosec.

MOSEC = PythonForm(
    (
        Callee(
            "append_worker", r"(.*\.)?append_worker",
            (
                "_worker", "num", "max_batch_size", "max_wait_time", "start_method", "env", "timeout",
                "route",
            ),
            {"timeout": "append_worker.timeout"},  # of a worker, where the setting is of the server
        ),
    ),
    '''from mosec import Server, Worker


class Inference(Worker):
    def forward(self, data: list) -> list:
        raise NotImplementedError("one output for each input")


if __name__ == "__main__":
    server = Server()
    server.append_worker(Inference{+batching})
    server.run()
''',
)  # fmt: skip


# mixedbread's batched.

BATCHED = PythonForm(
    (
        Callee(
            "@batched.dynamically", r"(batched\.)?(aio\.)?dynamically",
            (
                "_func", "batch_size", "timeout_ms", "small_batch_threshold", "max_batch_length",
                "priority_strategy", "cache", "batch_item_cls", "pad_tokens", "padding_side",
            ),
        ),
    ),
    '''import batched


@batched.dynamically({batching})
def predict(inputs: list) -> list:
    raise NotImplementedError("one output for each input")
''',
)  # fmt: skip


# Clipper.


_NAMED = {"name": "model", "input_type": "doubles"}

CLIPPER = PythonForm(
    (
        Callee(
            "deploy_python_closure", r"(.*\.)?deploy_python_closure",
            (
                "_clipper_conn", "name", "version", "input_type", "_func", "base_image", "labels",
                "registry", "num_replicas", "batch_size", "pkgs_to_install",
            ),
            needed=_NAMED | {"version": 1},
        ),
        Callee(
            "deploy_model", r"(.*\.)?deploy_model",
            ("name", "version", "input_type", "image", "labels", "num_replicas", "batch_size"),
            needed=_NAMED | {"version": 1},
        ),
    ),
    '''from clipper_admin import ClipperConnection, DockerContainerManager
from clipper_admin.deployers.python import deploy_python_closure


def predict(inputs):
    raise NotImplementedError("one output for each input")


clipper_conn = ClipperConnection(DockerContainerManager())
clipper_conn.connect()
clipper_conn.register_application({around})
deploy_python_closure(clipper_conn, func=predict{+batching})
clipper_conn.link_model_to_app("model", "model")
''',
    Callee(
        "register_application", r"(.*\.)?register_application",
        ("name", "input_type", "default_output", "slo_micros"),
        needed=_NAMED | {"default_output": "-1.0", "slo_micros": 100_000},
    ),
)  # fmt: skip


# The textbook's batcher.

TEXTBOOK = PythonForm(
    (
        Callee(
            "InferenceBatcher", _ANY + "InferenceBatcher",
            ("_model_fn", "max_batch_size", "max_wait_ms", "_clock"),
        ),
    ),
    '''import batchsim as bs


def model_fn(inputs):
    raise NotImplementedError("one output for each input")


batcher = bs.InferenceBatcher(model_fn{+batching})
''',
)  # fmt: skip


def _format(server: str, title: str, file: str, signs: str, form: PythonForm) -> Format:
    return Format(server, title, file, (".py",), signs, form.read, form.write)


FORMATS = (
    _format(
        "ray_serve", "a Ray Serve deployment", "model.py",
        r"\bserve\.(batch|deployment)\b|\bfrom ray\b|\bimport ray\b|\bbatch_wait_timeout_s\b", RAY_SERVE,
    ),
    _format("bentoml", "a BentoML service", "service.py", r"\bbentoml\b|\bbatchable\b", BENTOML),
    _format(
        "litserve", "a LitServe server", "server.py",
        r"\bLit(API|Server)\b|\blitserve\b|\bbatch_timeout\s*=", LITSERVE,
    ),
    _format("mosec", "a mosec server", "server.py", r"\bmosec\b|\bappend_worker\b", MOSEC),
    _format("batched", "a function for batched", "model.py", r"\bbatched\.|\bdynamically\b", BATCHED),
    _format(
        "clipper", "a deployment on Clipper", "deploy.py",
        r"\bclipper_|\bdeploy_python_closure\b|\bslo_micros\b", CLIPPER,
    ),
    _format("textbook", "the textbook's batcher", "batcher.py", r"\bInferenceBatcher\b", TEXTBOOK),
)  # fmt: skip
