"""The project's own notebooks: those that git knows, and not what JupyterLab or a reader left beside them."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent


def notebooks(*patterns: str) -> list[Path]:
    """Return the notebooks that match patterns of paths; in a copy without git, all but hidden ones."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--", *(f":(glob){pattern}" for pattern in patterns)],
            cwd=ROOT, capture_output=True, check=True, text=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        paths = {path.relative_to(ROOT) for pattern in patterns for path in ROOT.glob(pattern)}
        found = [path for path in paths if not any(part.startswith(".") for part in path.parts)]
    else:
        found = [Path(name) for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]
    return [ROOT / path for path in sorted(found)]
