"""Voila's settings for notebooks/app.ipynb: `batchsim app`, and `make app`."""

import logging
import os
import secrets
import sys

from batchsim.web.app import access
from batchsim.web.app.sessions import MOST_BYTES

c = get_config()  # noqa: F821

# This machine alone, unless `make app HOST=... TOKEN=...` says another address: see docs/class.md.
try:
    host, token = access.listening(os.environ.get("BATCHSIM_HOST", ""), os.environ.get("BATCHSIM_TOKEN", ""))
    pages = access.pages(os.environ.get("PAGES") or "40")
except ValueError as error:
    sys.exit(f"make app: {error}")  # any other exception, and Voila would go on without these settings
c.Voila.ip = host
c.Voila.auto_token = True
c.Voila.identity_provider_class = "batchsim.web.app.classroom.ClassAccess"
c.ClassAccess.teacher_token = secrets.token_urlsafe()
if token is not None:
    c.Voila.token = token
    port = int(os.environ.get("PORT") or 8888)
    print(access.instructions(host, port, token, pages))
    projector = f"http://{access.name_of(host)}:{port}/class?teacher_token={c.ClassAccess.teacher_token}"
    print(f"The teacher's projector shows the class's answers: {projector}", flush=True)
c.Voila.tornado_settings = {"headers": access.HEADERS, "websocket_max_message_size": MOST_BYTES}
c.Voila.kernel_websocket_connection_class = "batchsim.web.app.sessions.PageSocket"
c.Sessions.kernel_manager_class = "batchsim.web.app.sessions.PageKernel"
for name in access.HideTokens.LOGGERS:
    logging.getLogger(name).addFilter(access.HideTokens())

# The page: a link may set the explorer's controls, and the theme as `access.prepare` reads it.
c.VoilaConfiguration.template = "offline"
c.VoilaConfiguration.allow_template_override = "NO"
c.VoilaConfiguration.allow_theme_override = "NOTEBOOK"
c.VoilaConfiguration.prelaunch_hook = access.prepare
c.VoilaConfiguration.file_allowlist = []  # no pictures of the folder: they would need no token
c.VoilaConfiguration.show_tracebacks = True
c.VoilaConfiguration.extension_allowlist = [
    "@jupyter-widgets/jupyterlab-manager",
    "@voila-dashboards/widgets-manager8",
    "anywidget",
]
c.VoilaConfiguration.http_keep_alive_timeout = (
    3600  # else an inline script every 10 s, which the page refuses
)

# A session ends with its page, which says so. The kernel of a page that could not (a crash, a lost
# connection) is ended when it has had no socket for ten minutes: less, and a page that a busy machine opens
# slowly would find its kernel gone. An open page keeps its own, however idle.
c.VoilaConfiguration.multi_kernel_manager_class = "batchsim.web.app.sessions.Sessions"
c.Sessions.max_sessions = pages
c.MappingKernelManager.cull_idle_timeout = 600
c.MappingKernelManager.cull_interval = 60

# On a busy machine all takes long, which is no reason to come out blank.
c.VoilaExecutor.startup_timeout = 300
c.VoilaExecutor.iopub_timeout = 300
