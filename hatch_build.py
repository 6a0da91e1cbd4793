"""What a build adds: the course in the wheel, and absolute links in the description that PyPI shows."""

import re
import runpy
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

ROOT = Path(__file__).parent
LINK = re.compile(r"\]\((?!https?://|#)([^)#\s]+)")


class Course(BuildHookInterface):
    """Packs the files that `batchsim lab`, `app` and `book` need, unless the package is used in place."""

    PLUGIN_NAME = "custom"

    def initialize(self, version, build_data):
        """Add the files of batchsim/web/course_files.py below batchsim/course/."""
        if self.target_name == "wheel" and version != "editable":
            course = runpy.run_path(str(ROOT / "batchsim" / "web" / "course_files.py"))
            for name, path in course["files"](ROOT, course["PACKED"]):
                build_data["force_include"][str(path)] = f"batchsim/course/{name}"


class Description(MetadataHookInterface):
    """Lets each link of README.md lead to its page of the book, as README.md itself is read elsewhere."""

    PLUGIN_NAME = "custom"

    def update(self, metadata):
        """Set the description."""
        pages = runpy.run_path(str(ROOT / "docs" / "book" / "pages.py"))
        site = metadata["urls"]["Documentation"] + "en/latest/"

        def lead(link):
            return f"]({site}{pages['address'](link[1])}"

        text = LINK.sub(lead, (ROOT / "README.md").read_text(encoding="utf-8"))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
