"""A model and its application."""

from clipper_admin import ClipperConnection, DockerContainerManager
from clipper_admin.deployers import python as python_deployer


def predict(inputs):
    return [str(sum(each)) for each in inputs]


clipper_conn = ClipperConnection(DockerContainerManager())
clipper_conn.start_clipper()
clipper_conn.register_application(name="sums", input_type="doubles", default_output="0.0", slo_micros=50000)
python_deployer.deploy_python_closure(
    clipper_conn, "sums", 3, "doubles", predict, batch_size=16, num_replicas=1
)
clipper_conn.link_model_to_app(app_name="sums", model_name="sums")
