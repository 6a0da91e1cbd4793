"""Sphinx's settings for the book: `make book` runs Sphinx on the sources that build.py assembles."""

import inspect
import sys
from pathlib import Path

from docutils.utils.math.latex2mathml import tex2mathml
from traitlets import TraitType

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(HERE)]

from docstrings import to_rst  # noqa: E402

from batchsim import __version__  # noqa: E402

project = "batchsim"
release = version = __version__
author = "the batchsim contributors"
project_copyright = author
extensions = ["myst_nb", "sphinx.ext.autodoc"]
# A dead link is an error: the Makefile turns warnings into errors.
suppress_warnings = []
nitpicky = False  # signatures name types of NumPy and pandas, whose pages are elsewhere

# The lessons have stored outputs: `make notebooks` wrote them, and nbval checks them.
nb_execution_mode = "off"
nb_merge_streams = True
nb_code_prompt_show = "Show the code"
nb_code_prompt_hide = "Hide the code"
# A page has one kind of each output: tables as tables, pictures as pictures, all else as text.
nb_mime_priority_overrides = [("html", "text/html", 0), ("html", "image/png", 10), ("html", "text/plain", 20)]
myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True, "undoc-members": True, "inherited-members": True}
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 90
add_module_names = False
smartquotes = False  # keep="summary" is code, even in prose
default_role = "py:obj"  # single backticks: a link to a public name, else code

html_theme = "furo"
html_title = "batchsim"
html_static_path = [str(HERE / name) for name in ("book.css", "live.js", "access.js")]
html_static_path += [str(ROOT / "batchsim" / "web" / "batchsim.html")]  # the lessons' live figures
html_css_files, html_js_files = ["book.css"], ["access.js", ("live.js", {"defer": "defer"})]
html_copy_source = html_show_sourcelink = False
html_use_index = True
html_domain_indices = False
pygments_style, pygments_dark_style = "a11y-high-contrast-light", "a11y-high-contrast-dark"


def mathml(block):
    """Return the visitor that writes a formula as MathML, which browsers draw without a download."""

    def visit(writer, node):
        from docutils import nodes

        math = tex2mathml(node.astext(), as_block=block)
        writer.body.append(f'<div class="math">{math}</div>' if block else math)
        raise nodes.SkipNode

    return visit, None


def of_others(app, what, name, member, skip, options):
    """Omit members that a class inherits from Python or other packages, which document them."""
    member = getattr(member, "fget", getattr(member, "func", member))
    owner = getattr(member, "__objclass__", member)
    if owner is not member or inspect.isroutine(member) or isinstance(member, TraitType):
        module = getattr(owner, "__module__", None) or ""
        if not module.startswith("batchsim"):
            return True
    return None


def setup(app):
    """Register the writer of formulas and the reader of docstrings."""
    app.add_html_math_renderer("mathml", mathml(False), mathml(True))
    app.config.html_math_renderer = "mathml"
    app.connect("autodoc-skip-member", of_others)
    app.connect("autodoc-process-docstring", lambda app, what, name, it, options, lines: to_rst(lines))
