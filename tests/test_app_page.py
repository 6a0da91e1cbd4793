"""What the app's pages are sent with, and the settings that send it."""

from pathlib import Path

from traitlets.config.loader import PyFileConfigLoader

from batchsim.app import access
from batchsim.app.sessions import Sessions

SETTINGS = PyFileConfigLoader(
    str(Path(__file__).parents[1] / "notebooks" / ".voila" / "voila.py")
).load_config()


def test_a_page_may_run_scripts_of_files_alone():
    sent = SETTINGS.Voila.tornado_settings["headers"]["Content-Security-Policy"]
    allowed = dict(part.split(" ", 1) for part in sent.split("; "))
    assert allowed["script-src"] == "'self' 'unsafe-eval' blob:"
    assert allowed["default-src"] == "'self'"
    assert allowed["base-uri"] == allowed["object-src"] == "'none'"
    assert "http" not in sent


def test_the_theme_and_the_template_are_not_the_address_s_to_say():
    assert SETTINGS.VoilaConfiguration.allow_template_override == "NO"
    assert SETTINGS.VoilaConfiguration.allow_theme_override == "NOTEBOOK"
    assert SETTINGS.VoilaConfiguration.prelaunch_hook is access.prepare
    assert [access.theme_of(text) for text in ("dark", "light", "", "Dark", '"><script>')] == [
        "dark", "light", "light", "light", "light",
    ]  # fmt: skip


def test_kernels_of_lost_pages_end_and_slow_pages_have_time():
    assert SETTINGS.VoilaConfiguration.multi_kernel_manager_class == f"{Sessions.__module__}.Sessions"
    assert 300 <= SETTINGS.MappingKernelManager.cull_idle_timeout <= 900  # s
    assert "cull_connected" not in SETTINGS.MappingKernelManager
    assert SETTINGS.VoilaExecutor.iopub_timeout >= 60
    assert SETTINGS.Sessions.max_sessions > 30
