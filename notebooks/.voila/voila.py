"""Voila's settings for notebooks/app.ipynb: `make app`."""

import os

from batchsim.app import page

c = get_config()  # noqa: F821

c.Voila.ip = "127.0.0.1"
c.Voila.auto_token = True
c.Voila.tornado_settings = {"headers": page.HEADERS}

# The page: a link may set the explorer's controls, and the theme as `page.prepare` reads it.
c.VoilaConfiguration.template = "offline"
c.VoilaConfiguration.allow_template_override = "NO"
c.VoilaConfiguration.allow_theme_override = "NOTEBOOK"
c.VoilaConfiguration.prelaunch_hook = page.prepare
c.VoilaConfiguration.show_tracebacks = True
c.VoilaConfiguration.extension_denylist = ["@jupyter-notebook/lab-extension"]
c.VoilaConfiguration.http_keep_alive_timeout = (
    3600  # else an inline script every 10 s, which the page refuses
)

# A session ends with its page, which says so. The kernel of a page that could not (a crash, a lost
# connection) is ended when it has had no socket for ten minutes: less, and a page that a busy machine opens
# slowly would find its kernel gone. An open page keeps its own, however idle.
c.VoilaConfiguration.multi_kernel_manager_class = "batchsim.app.sessions.Sessions"
c.Sessions.max_sessions = int(os.environ.get("PAGES", "40"))
c.MappingKernelManager.cull_idle_timeout = 600
c.MappingKernelManager.cull_interval = 60

# On a busy machine all takes long, which is no reason to come out blank.
c.VoilaExecutor.startup_timeout = 300
c.VoilaExecutor.iopub_timeout = 300
