"""Which file of the repository becomes which page of the book."""

from pathlib import Path

VALIDATION = sorted(path.name for path in (Path(__file__).parents[1] / "validation").glob("*.md"))
PAGES = {
    "docs/book/index.md": "index.md",
    "README.md": "package.md",
    "notebooks/README.md": "teachers.md",
    "docs/install.md": "install.md",
    "docs/explorer.md": "explorer.md",
    "docs/guide.md": "guide.md",
    "docs/servers.md": "servers.md",
    "docs/tuning.md": "tuning.md",
    "docs/extending.md": "extending.md",
    "docs/class.md": "class.md",
    "docs/teaching.md": "teaching.md",
    "docs/glossary.md": "glossary.md",
    "docs/architecture.md": "architecture.md",
    "docs/reliability.md": "reliability.md",
    "VALIDATION.md": "validation.md",
    "benchmarks/README.md": "benchmarks.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "docs/explorer.webp": "explorer.webp",
    **{f"docs/validation/{name}": f"validation-{name}" for name in VALIDATION},
}


def address(path):
    """Return where the built book shows a file of the repository, or its first page if it does not.

    >>> address("docs/guide.md"), address("notebooks/01-why-batch.ipynb"), address("LICENSE")
    ('guide.html', 'lessons/01-why-batch.html', 'index.html')
    """
    page = PAGES.get(path, "index.md")
    if path.startswith("notebooks/") and path[10:12].isdigit():
        page = f"lessons/{path[10:]}"
    return f"_images/{page}" if page.endswith(".webp") else f"{page.rpartition('.')[0]}.html"
