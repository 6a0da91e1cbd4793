"""The lessons as pages of the book, which have no kernel.

A page shows the solved lesson with stored outputs, but hides each outcome until the reader predicts it. Each
choice of a prediction opens to its verdict; the outcome is folded below it, and so is the solution of each
exercise.
"""

import ast
import html
import re
from urllib.parse import urlencode

import nbformat

# The page's figure in four lessons: the beginning of the cell that it follows, its views, its controls, the
# lesson's own values, and its height in pixels.
KNOBS, SERVICE = "rate_per_s max_batch_size max_wait_ms", {"fixed_ms": 1.85, "per_item_ms": 0.15}
FIGURES = {
    1: ("bs.figure(", "film breakdown", KNOBS,
        {"rate_per_s": 1000, "max_batch_size": 32, "max_wait_ms": 10, **SERVICE}, 900),
    3: ("bs.figure(", "film breakdown", "rate_per_s max_wait_ms",
        {"rate_per_s": 50, "max_batch_size": 3, "max_wait_ms": 4, "fixed_ms": 5, "per_item_ms": 1}, 900),
    4: ("bs.figure(", "map breakdown", KNOBS,
        {"rate_per_s": 100, "max_batch_size": 32, "max_wait_ms": 5, **SERVICE}, 560),
    5: ("display(bs.explore(", "latency load", "rate_per_s",
        {"rate_per_s": 2000, "max_batch_size": 32, "max_wait_ms": 0, **SERVICE}, 480),
}  # fmt: skip
LIVE = re.compile(r"\bbs\.(explore|figure|film)\(")
SOLUTIONS = re.compile(r"The\s+solutions\s+are\s+in\s+\[[^\]]*\]\([^)]*\)\.")
COMMIT = re.compile(
    r"choose\s+an\s+answer\s+and\s+press\s+\*\*Commit\*\*\.\s+The\s+result\s+appears\s+only\s+then\."
)
FOLDED_CODE = re.compile(
    r"Code\s+that\s+only\s+draws\s+is\s+folded:\s+click\s+the\s+three\s+dots\s+to\s+read\s+it\."
)


def for_readers(notebook, number=0):
    """Turn a solved lesson into a page without a kernel, in place; put its number into its title."""
    predicted = False
    if number:
        notebook.cells[0].source = notebook.cells[0].source.replace("# ", f"# Lesson {number}: ", 1)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = reworded(cell.source)
            if "solution" in cell.metadata.get("tags", []):
                cell.source = f"<details><summary>On paper</summary>\n\n{cell.source}\n\n</details>"
            continue
        tags = {tag for tag in cell.metadata.get("tags", []) if tag != "nbval-ignore-output"}
        options = {}
        if cell.source.startswith("predict("):
            cell.outputs = [nbformat.v4.new_output("display_data", {"text/html": prediction(cell.source)})]
            tags |= {"remove-input"}
        elif "solution" in tags:
            what = "what happens" if predicted and "check(" not in cell.source else "a solution"
            options = {"code_prompt_show": f"Show {what}", "code_prompt_hide": f"Hide {what}"}
            tags = tags - {"solution"} | {"hide-cell"}
        elif cell.metadata.get("jupyter", {}).get("source_hidden"):
            tags |= {"hide-input"}
        predicted = cell.source.startswith("predict(")
        if alt := described(cell):
            options["image"] = {"alt": alt}
        if LIVE.search(cell.source):
            cell.outputs.append(note("A stored picture: in a notebook (`make lab`) it is live."))
        if number in FIGURES and cell.source.startswith(FIGURES[number][0]):
            cell.outputs.append(figure(*FIGURES[number][1:]))
        cell.metadata = {"tags": sorted(tags), "mystnb": options}
    return notebook


def reworded(text):
    """Return the text of a lesson, reworded for a page."""
    text = SOLUTIONS.sub("Each has its solution folded below it.", text)
    text = COMMIT.sub("choose an answer, then open it to see whether it is right.", text)
    text = re.sub(r"press\s+\*\*Commit\*\*", "open it", text)
    return FOLDED_CODE.sub("Code that only draws is folded.", text)


def prediction(source):
    """Return a prediction as HTML: its choices are folded, and each opens to its verdict."""
    call = ast.parse(source).body[0].value
    told = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg != "then"}
    asked = {name: ast.literal_eval(value) for name, value in told.items()}
    question, *others = map(ast.literal_eval, call.args)
    asked |= dict(zip(("choices", "answer", "because"), others, strict=False))
    choices = asked["choices"] if isinstance(asked["choices"], dict) else dict.fromkeys(asked["choices"], "")
    parts = [f'<div class="prediction"><p><b>Predict: {html.escape(question)}</b></p>']
    for choice, why in choices.items():
        verdict = f"✓ Right. {asked['because']}" if choice == asked["answer"] else f"✗ Not this one. {why}"
        parts.append(
            f"<details><summary>{html.escape(choice)}</summary><p>{html.escape(verdict)}</p></details>"
        )
    return "\n".join([*parts, "</div>"])


def described(cell):
    """Return the text alternatives of a cell's pictures; "" without a picture."""
    kept = [output.get("metadata", {}).get("image/png", {}) for output in cell.outputs]
    return " ".join(metadata["alt"] for metadata in kept if "alt" in metadata)


def figure(views, controls, values, height_px):
    """Return the page's figure as an output: its frame is filled by live.js, and absent in print."""
    asked = urlencode({"views": views, "controls": controls, **values})
    told = "The same setting, live: move its sliders."
    source = f'data-src="../_static/batchsim.html#{html.escape(asked)}"'
    frame = f'<iframe {source} title="{told}" loading="lazy" height="{height_px}"></iframe>'
    shown = f'<div class="live" hidden><p>{told}</p>{frame}</div>'
    return nbformat.v4.new_output("display_data", {"text/html": shown})


def note(text):
    """Return an output that consists of a sentence."""
    return nbformat.v4.new_output("display_data", {"text/markdown": f"*{text}*"})
