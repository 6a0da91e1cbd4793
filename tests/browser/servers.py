"""Jupyter servers on the loopback that live as long as a `with`, away from the user's own settings."""

import contextlib
import os
import random
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
TOKEN = "of-the-tests-alone"
COMMANDS = {
    "lab": ["jupyterlab", "--LabApp.app_settings_dir={settings}", "--LanguageServerManager.autodetect=False"],
    "notebook": ["notebook"],
}
JUPYTER = ["--ip=127.0.0.1", "--port={port}", "--ServerApp.port_retries=0", "--no-browser", "--allow-root"]
JUPYTER += ["--LabApp.expose_app_in_browser=True", "--JupyterNotebookApp.expose_app_in_browser=True"]


@dataclass(frozen=True)
class Server:
    """A running server: its address, the folder whose files it serves, and its process."""

    kind: str
    url: str
    folder: Path
    pid: int

    def address(self, file_name: str = "", query: str = "") -> str:
        """Return the address of a notebook of the folder; of the app."""
        place = {"lab": f"lab/workspaces/{Path(file_name).stem}/tree/", "notebook": "notebooks/", "app": ""}[
            self.kind
        ]
        return f"{self.url}{place}{file_name}?token={TOKEN}{query}"

    def kernels(self, name: str = "*") -> set[Path]:
        """Return the files that say how to talk to each kernel, or to the one of a name."""
        return set((self.folder.parent / "runtime").rglob(f"kernel-{name}.json"))


def own_address() -> str:
    """Return an address of this machine that is not the loopback's, "" if it has none."""
    addresses = [each for found in psutil.net_if_addrs().values() for each in found]
    found = [each.address for each in addresses if each.family == socket.AF_INET]
    return next((address for address in found if not address.startswith("127.")), "")


def free_port() -> int:
    """Return a port that nobody listens on.

    Not one that the system would choose: it gives those to every socket that another test opens meanwhile.
    """
    while True:
        with socket.socket() as free, contextlib.suppress(OSError):
            port = random.SystemRandom().randrange(11_000, 32_000)
            free.bind(("0.0.0.0", port))
            return port


@contextlib.contextmanager
def running(kind: str, home: Path, *options: str, host: str = ""):
    """Run JupyterLab, Notebook 7 ("notebook") or the app ("app"), with all that it writes in `home`.

    `host`: what the app listens on besides this machine.
    """
    for name in ("files", "settings", "runtime"):
        (home / name).mkdir(parents=True)
    shutil.copy(ROOT / "notebooks" / ".lab" / "overrides.json", home / "settings")
    port = free_port()
    if kind == "app":
        command = app(port)
    else:
        said = [sys.executable, "-m", *COMMANDS[kind], *JUPYTER, f"--IdentityProvider.token={TOKEN}"]
        command = [part.format(port=port, settings=home / "settings") for part in said]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, *options],
            cwd=home / "files",
            env=environment(home) | {"BATCHSIM_HOST": host, "BATCHSIM_TOKEN": TOKEN},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        url = f"http://127.0.0.1:{port}/"
        wait_for(url, process, home / "log")
        yield Server(kind, url, home / "files", process.pid)
    finally:
        stop(process)


def app(port: int) -> list[str]:
    """Return what `make app` runs, with the Jupyter of these tests."""
    dry_run = ["make", "-n", "-C", str(ROOT), "app", f"PORT={port}", f"BIN={Path(sys.executable).parent}"]
    said = subprocess.run(dry_run, capture_output=True, text=True, check=True).stdout
    (last,) = [line for line in said.splitlines() if "batchsim app" in line]
    return ["sh", "-c", f'cd {ROOT} && exec {last} -- --no-browser "$@"', "app"]


def environment(home: Path) -> dict[str, str]:
    """Return the environment of a server that keeps to its own folder."""
    own = {
        "JUPYTER_CONFIG_DIR": home / "config",
        "JUPYTER_DATA_DIR": home / "data",
        "JUPYTER_RUNTIME_DIR": home / "runtime",
        "JUPYTERLAB_SETTINGS_DIR": home / "user-settings",
        "JUPYTERLAB_WORKSPACES_DIR": home / "workspaces",
        "IPYTHONDIR": home / "ipython",
        "TMPDIR": home / "runtime",  # where Voila keeps what the others keep in the runtime folder
    }
    return {**os.environ, **{name: str(path) for name, path in own.items()}}


def wait_for(url: str, process: subprocess.Popen, log: Path, seconds: float = 180) -> None:
    for _ in range(int(seconds * 10)):
        try:
            urllib.request.urlopen(url, timeout=10).close()
        except urllib.error.HTTPError as refused:
            refused.close()  # it answers
        except OSError:
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
            continue
        return
    raise TimeoutError(log.read_text())


def stop(process: subprocess.Popen) -> None:
    """End a server and its kernels, which have process groups of their own."""
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10)
    _, alive = psutil.wait_procs(family, timeout=3)
    for survivor in alive:
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            survivor.kill()
    process.wait()
