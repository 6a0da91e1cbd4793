"""Slides of the lessons: python docs/book/slides.py build/slides.

Slides start by themselves: at a heading, and at anything that a class should see only after the slide before,
such as an outcome after its question. nbconvert writes them for reveal.js; the folder contains a copy of it,
so that the slides need no network. It contains the page of `make page` too, whose figures and game some show,
and a page for the film of each lesson, whose code runs so far.
"""

import ast
import base64
import contextlib
import html
import io
import json
import math
import re
import shutil
import sys
from pathlib import Path
from urllib.parse import urlencode

import nbformat

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from lessons import FIGURES  # noqa: E402

ROOT = HERE.parents[1]
ROOM = 12.0  # lines of text that a slide holds
LINE = 80  # characters of text in a line
LONGEST_CODE = 14  # lines of code that still fit a slide
SHORT = 3.2  # lines: too few for a slide of their own
PROSE = 8.0  # lines of paragraphs: longer ones are several ideas, and begin slides of their own
SPARE = 2.7  # further lines that still fit, as the foot of a slide is free
ASIDE_LINE = 44  # characters of text in a line beside a picture
SKIPPED = ("Set-up", "Try it yourself", "Be the batcher")  # sections that are useful only at a computer
HEADING = re.compile(r"^(#{1,3}) (.+)$")
FOLDED = re.compile(r"<details><summary>(.*?)</summary>(.*?)</details>", re.DOTALL)
FORMULA = re.compile(r"\$\$(.+?)\$\$|(?<![\w$])\$([^$\n]+?)\$(?![\w$])", re.DOTALL)
ASIDE = re.compile(r"^(The solutions are in|Replace the `\.\.\.`)")
AT_A_COMPUTER = re.compile(  # sentences without a use on a slide
    r"""\s*(Choose\s+an\s+answer,\s+press\s+\*\*Commit\*\*[^.]*\.
    |At\s+each\s+question\s+marked[^.]*\.\s+The\s+result\s+appears\s+only\s+then\.
    |Code\s+(that\s+only\s+draws|is\s+folded)[^.]*\.
    |\*Going\s+further\*,[^.]*\.
    |JupyterLab\s+folds\s[^.]*\.
    |(Watch\s+the\s+same\s+run\s+as\s+a\s+film:\s+p|P)ress\s+\*\*Next\s+event\*\*[^.]*\.
    |In\s+the\s+film[^.]*\.
    |(Press\s+Play|Drag\s+\*\*Time\*\*)[^.:]*[.:]
    |Try\s+it:\s+in\s+the\s+set-up,[^.]*\.
    |If\s+you\s+see\s+no\s+bars,[^.]*\.
    |(The\s+exercises\s+at\s+the\s+end|To\s+experiment\s+with\s+sliders)[^.]*\.
    |(Now\s+r|R)un\s+this\s+cell\b[^.]*(\.|:$|$)
    |[^.]*\[glossary\]\([^)]*\)[^.]*\.)(?=\s|$)""",
    re.VERBOSE,
)
REVEAL = (  # parts of reveal.js: its other themes download their fonts
    "LICENSE", "dist/reveal.js", "dist/reveal.css", "dist/theme/white.css",
    "dist/theme/fonts/source-sans-pro", "plugin/notes",
)  # fmt: skip
ITEM = re.compile(r"\n(?=- |\d+\. )")  # what comes before each item of a list but the first
POINTS = re.compile(  # words that point at a picture or a table
    r"\b(pictures?|tables?|columns?|rows?|curves?|lines?|maps?|stars?|crosses|bars?|areas?|band|dashed|axes|colou?rs?)\b"
)
LIVE = re.compile(r"\bbs\.(explore|figure|film)\(")
FIGURE = re.compile(r"\bbs\.figure\(")
LIVE_HERE = "# a frame of the page"
FILM = re.compile(r"^bs\.film\(", re.MULTILINE)
PLAYED = ("film", "looks", "place", "shown", "em", "theme", "moment", "followed")  # of a player
BY_HAND = re.compile(
    r"\b(predict|check|draw_p99|be_the_batcher|explore|figure)\("
)  # cells that wait for a reader
FILM_PAGE = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<title>{title}</title>
<style>
{style}
body {{ margin: 0; background: #fff; font-family: sans-serif; }}
.batchsim-player.batchsim-placed {{ position: static; height: calc(100vh - 3.2em); overflow: visible; }}
.batchsim-player [role=status] {{ height: 3.2em; }}
</style>
<body class="batchsim-projector">
<script>
{code}
</script>
</html>
"""
# The widget's own script, and its values, which nobody else changes.
FILM_CODE = """const given = JSON.parse({state}, (name, value) =>
  (name === "bytes" ? Uint8Array.from(atob(value), (letter) => letter.charCodeAt(0)) : value));
const deaf = () => {{}}, others = {{ set: deaf, on: deaf, off: deaf, send: deaf, save_changes: deaf }};
const model = {{ get: (name) => given[name], ...others }};
modules.player.render({{ model, el: document.body.appendChild(document.createElement("div")) }});"""
GAME = re.compile(r"\bbe_the_batcher\(")  # without a browser, only how to start it is seen


class Deck:
    """The slides of a lesson, filled from its top: cells, each with the type that nbconvert reads."""

    def __init__(self):
        self.cells, self.left, self.title, self.depth, self.outcome = [], 0.0, "", 1, []
        self.prose = 0.0  # lines of paragraphs on the slide

    def section(self, depth, title):
        """Begin a slide with a heading; a subsection's slide is below its section's."""
        self.title, self.depth, self.left, self.outcome = title, depth, 0.0, []

    def break_slide(self):
        """Begin a new slide below this one, under the same heading."""
        self.left = 0.0

    def add(self, cell, lines):
        """Add a cell, on a new slide if this one has no room for it."""
        kind = "-"
        if lines > self.left:
            first = not self.cells or self.cells[-1].metadata.title != self.title
            kind = "slide" if first and self.depth < 3 else "subslide"
            heading = nbformat.v4.new_markdown_cell(f"{'#' * min(self.depth, 2)} {self.title}")
            self._put(heading, kind)
            kind, self.left, self.prose = "-", ROOM, 0.0
        self._put(cell, kind)
        self.left -= lines

    def _put(self, cell, kind):
        cell.metadata = {"slideshow": {"slide_type": kind}, "title": self.title}
        self.cells.append(cell)

    def text(self, text):
        """Add Markdown, paragraph by paragraph; two long ones are on two slides."""
        for block in fitting(shown(text)):
            lines = lines_of(block)
            if min(lines, self.prose) > SHORT and lines + self.prose > PROSE and is_prose(block):
                self.break_slide()
            self.add(nbformat.v4.new_markdown_cell(block), lines)
            self.prose += lines * is_prose(block)

    def explain(self, text):
        """Add the explanation of an outcome: beside the picture or the table, if it points at it."""
        beside = aside(self.outcome, text)
        if not (beside and POINTS.search(text)):
            self.text(text)
            return
        for block in [item for part in blocks(shown(text)) for item in ITEM.split(part)]:
            lines = lines_of(block, ASIDE_LINE)
            if lines > self.left:
                self.add(nbformat.v4.new_markdown_cell(beside), ROOM)
                self.left = max(ROOM, lines)
            self.add(nbformat.v4.new_markdown_cell(block), lines)


def slides(notebook, notes="", number=0):
    """Return a solved lesson as slides, one cell after the other, each with its slide's type.

    The first slide and each question have the speaker's notes, which the key S shows. With the lesson's
    number, its live figure and the game are frames of the page, else a stored picture and nothing.
    """
    deck, answer = Deck(), ""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            if "solution" not in cell.metadata.get("tags", []):
                tell(deck, cell.source)
        elif cell.source.startswith("predict("):
            asked = prediction(cell.source)
            deck.break_slide()
            deck.text(question(asked))
            deck.break_slide()
            answer = f"**{asked['answer']}.** {asked['because']}".replace("..**", ".**").replace(
                "?.**", "?**"
            )
        else:
            show(deck, live(cell, number) if number else cell, answer)
            answer = ""
    cells = noted(joined(deck.cells), notes) if notes else joined(deck.cells)
    return nbformat.v4.new_notebook(cells=cells, metadata=notebook.metadata)


def noted(cells, notes):
    """Return the cells with the notes at the end of the first slide and of each slide with a question."""
    found, wanted = [], True
    for cell, after in zip(cells, [*cells[1:], None], strict=True):
        found.append(cell)
        wanted = wanted or "**Predict:**" in cell.source
        if wanted and (after is None or after.metadata.slideshow.slide_type != "-"):
            said = nbformat.v4.new_markdown_cell(notes)
            said.metadata = {"slideshow": {"slide_type": "notes"}, "title": cell.metadata.title}
            found.append(said)
            wanted = False
    return found


def notes_of(number):
    """Return the teacher's notes on a lesson: the board, and what to ask when a student says something."""
    readme = (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8")
    section = readme.partition(f"\n### {number}: ")[2].partition("\n### ")[0]
    return shown(section.partition("\n")[2].partition("\n*Exam*")[0])


def joined(cells):
    """Return the cells with each short slide of text on the next or the previous one, if there is room."""
    pages = []
    for cell in cells:
        if cell.metadata.slideshow.slide_type != "-":
            pages.append([])
        pages[-1].append(cell)
    done = []
    for page in pages:
        if done and _together(done[-1], page):
            same = done[-1][0].metadata.title == page[0].metadata.title
            page[0].metadata.slideshow.slide_type = "-"
            done[-1] += page[1:] if same else page
        else:
            done.append(page)
    return [cell for page in done for cell in page]


def _together(before, after):
    """Return whether two slides can be one: of one section, or both exercises, and one of them short."""
    asks = any("**Predict:**" in cell.source for cell in before)
    titles = [page[0].metadata.title for page in (before, after)]
    related = titles[0] == titles[1] or all(title.startswith("Exercise ") for title in titles)
    lines = [sum(map(_lines, page[1:])) for page in (before, after)]
    return not asks and related and min(lines) <= SHORT and sum(lines) <= ROOM + SPARE


def _lines(cell):
    return height(cell.outputs[0]) if cell.cell_type == "code" else lines_of(cell.source)


def tell(deck, source):
    """Add the text of a cell: headings begin slides, and folded text gets its own."""
    place = 0
    for folded in FOLDED.finditer(source):
        paragraphs(deck, source[place : folded.start()])
        deck.break_slide()
        if deck.title not in SKIPPED and not re.search("[Hh]int", folded[1]):
            deck.explain(folded[2])
            deck.break_slide()
        place = folded.end()
    paragraphs(deck, source[place:])


def paragraphs(deck, source):
    """Add text that has nothing folded in it."""
    for block in blocks(source):
        heading = HEADING.match(block)
        if heading:
            deck.section(len(heading[1]), heading[2])
        elif deck.title not in SKIPPED and not ASIDE.match(block):
            deck.text(block)


def live(cell, number):
    """Return a cell with a frame of the page as its output, if it has the lesson's figure or the game."""
    if FIGURE.search(cell.source):
        views, controls, values, _ = FIGURES[number][1:]
        asked = urlencode({"views": views, "controls": controls, **values})
        page = f"batchsim.html#{html.escape(asked)}"
    elif GAME.match(cell.source):  # not the one of an exercise
        page = "batchsim.html#player"
    elif FILM.search(cell.source):
        page = film_name(number)
    else:
        return cell
    # reveal.js loads a frame when its slide is near.
    frame = f'<iframe data-src="{page}" title="A live figure"></iframe>'
    last = nbformat.v4.new_output("display_data", {"text/html": frame})
    return nbformat.v4.new_code_cell(LIVE_HERE, outputs=[*cell.outputs[:-1], last])


def film_name(number):
    """Return the file of a lesson's film."""
    return f"film-{number:02}.html"


def film_of(notebook):
    """Run the code of a lesson until its film, and return that; None if it has none."""
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    names, made = {"display": lambda *_: None}, None
    for source in cells if FILM.search("\n".join(cells)) else ():
        if BY_HAND.search(source):
            continue
        *statements, last = ast.parse(source).body
        ends = FILM.search(source)
        body = statements if ends else [*statements, last]
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(ast.Module(body, []), "lesson", "exec"), names)
        if ends:
            made = eval(compile(ast.Expression(last.value), "lesson", "eval"), names)
            break
    return made


def film_page(player):
    """Return a page that plays a film by itself."""
    from batchsim.view.explorer import player as module
    from batchsim.view.scripts import bundle

    state = {name: value for name, value in player.get_state().items() if name in PLAYED}
    state |= {"place": [0, 0, 1, 1]}  # all of the page
    text = json.dumps(state, default=lambda array: base64.b64encode(array).decode(), separators=(",", ":"))
    last = FILM_CODE.format(state=json.dumps(text).replace("<", "\\u003c"))
    code = bundle(Path(module.__file__).with_name("player.js"), last).replace("</script", "<\\/script")
    return FILM_PAGE.format(title=html.escape(repr(player)), style=player._css, code=code)


def show(deck, cell, answer):
    """Add a code cell: short code that a class should read, and its output."""
    tags, source = cell.metadata.get("tags", []), cell.source
    hidden = cell.metadata.get("jupyter", {}).get("source_hidden") or "solution" in tags
    if source != LIVE_HERE and (
        deck.title in SKIPPED
        or GAME.search(source)
        or re.search(r"\bcheck\(['\"]", source)
        or not cell.outputs
    ):
        return
    if answer:
        deck.text(answer)
    if not hidden and source != LIVE_HERE and source.count("\n") < LONGEST_CODE and not LIVE.search(source):
        code = nbformat.v4.new_markdown_cell(f"```python\n{source}\n```")
        deck.add(code, 0.75 * (source.count("\n") + 2))
    for output in cell.outputs:
        if (data := output.get("data", {})).get("text/plain"):
            data["text/plain"] = AT_A_COMPUTER.sub("", data["text/plain"])
    for output in sorted(cell.outputs, key=lambda output: "image/png" not in output.get("data", {})):
        lines = height(output)
        deck.add(nbformat.v4.new_code_cell("", outputs=[output]), lines)
        deck.cells[-1].metadata["alt"] = output.get("metadata", {}).get("image/png", {}).get("alt", "")
    deck.outcome = cell.outputs


def aside(outputs, text=""):
    """Return a picture or a table as HTML that stands beside text; "" if there is none."""
    data = [output.get("data", {}) for output in outputs]
    alts = [output.get("metadata", {}).get("image/png", {}).get("alt", "") for output in outputs]
    pictures = [
        f'<img alt="{html.escape(alt)}" src="data:image/png;base64,{each["image/png"]}">'
        for each, alt in zip(data, alts, strict=True)
        if "image/png" in each
    ]
    tables = [
        re.sub(r"\n\s*", "", each["text/html"]) for each in data if "<table" in each.get("text/html", "")
    ]
    found = [*tables, *pictures] if re.search(r"\b(tables?|columns?|rows?)\b", text) else [*pictures, *tables]
    return f'<div class="aside">{found[0]}</div>' if found else ""


def height(output):
    """Return the lines that an output takes; a picture takes a slide."""
    data = output.get("data", {})
    if "image/png" in data or "<iframe" in data.get("text/html", ""):
        return ROOM
    if "text/html" in data:
        return min(1.15 * data["text/html"].count("<tr"), ROOM)
    text = output.get("text") or data.get("text/plain", "")
    return min(0.75 * (text.count("\n") + 1), ROOM)


def blocks(text):
    """Return the paragraphs of Markdown; a list, a table and a listing are one each."""
    parts = re.split(r"(```.*?```)", text.strip(), flags=re.DOTALL)
    found = []
    for index, part in enumerate(parts):
        found += [part] if index % 2 else re.split(r"\n\s*\n", part.strip())
    found = [block.strip("\n") for block in found if block.strip()]
    return [piece for block in found for piece in headed(block)]


def fitting(text):
    """Return the paragraphs of Markdown; each item is one if a list is longer than a slide."""
    found = blocks(text)
    return [part for block in found for part in (ITEM.split(block) if lines_of(block) > ROOM else [block])]


def is_prose(block):
    """Return whether a block of Markdown is a paragraph: no list, table, listing, formula or picture."""
    return not re.match(r"[-|`$#<]|\d+\. ", block)


def headed(block):
    """Return a block, or its heading and the text below it."""
    first, _, rest = block.partition("\n")
    return [first, rest] if HEADING.match(first) and rest else [block]


def lines_of(block, line=LINE):
    """Return the lines that a paragraph takes on a slide, including the space below it."""
    if block.startswith('<div class="aside">'):
        return 0.0
    if block.startswith(("|", "```")):
        return 0.9 * (block.count("\n") + 1) + 0.5
    if block.startswith("$$"):
        return 2.5
    return sum(math.ceil(len(item) / line) + 0.15 for item in ITEM.split(block)) + 0.5


def prediction(source):
    """Return the question of a prediction, from its call."""
    call = ast.parse(source).body[0].value
    asked = {word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg != "then"}
    named = dict(zip(("question", "choices", "answer", "because"), call.args, strict=False))
    return asked | {name: ast.literal_eval(value) for name, value in named.items()}


def question(asked):
    """Return a prediction for a class: its choices have letters, for a show of hands."""
    lines = [f"{chr(ord('A') + index)}. {choice}" for index, choice in enumerate(asked["choices"])]
    return f"**Predict:** {asked['question']}\n\n" + "\n\n".join(lines)


def shown(text):
    """Return Markdown as a slide shows it: without instructions for a computer or links to files."""
    text = re.sub(r":\s+press\s+Play\.", ".", AT_A_COMPUTER.sub("", text))
    return re.sub(r"\[([^\]]*)\]\((?!https?:)[^)]*\)", r"\1", text).strip()


def formulas(text):
    """Return Markdown with its formulas as MathML, which browsers draw themselves."""
    from docutils.utils.math.latex2mathml import tex2mathml

    def write(formula):
        math = tex2mathml(html.unescape(formula[1] or formula[2]), as_block=bool(formula[1]))
        return re.sub(r"\n\s*", "", math)

    parts = re.split(r"(```.*?```|`[^`\n]*`)", text, flags=re.DOTALL)
    return "".join(part if index % 2 else FORMULA.sub(write, part) for index, part in enumerate(parts))


def export(folder):
    """Write the slides of all lessons, and a copy of reveal.js."""
    import sphinx_revealjs
    from nbconvert import SlidesExporter

    shutil.rmtree(folder, ignore_errors=True)
    reveal = Path(sphinx_revealjs.__file__).parent / "_static" / "revealjs"
    for part in REVEAL:
        there = folder / "reveal" / part
        there.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (reveal / part).is_dir() else shutil.copy)(reveal / part, there)
    shutil.copy(HERE / "access.js", folder)
    shutil.copy(ROOT / "batchsim" / "web" / "batchsim.html", folder)
    exporter = SlidesExporter(
        template_name="slides", extra_template_basedirs=[str(HERE)],
        reveal_url_prefix="reveal", reveal_theme="white",
        exclude_input_prompt=True, exclude_output_prompt=True, exclude_input=True, exclude_anchor_links=True,
    )  # fmt: skip
    rows = []
    for path in sorted(ROOT.glob("notebooks/solutions/*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        title = notebook.cells[0].source.partition("\n")[0].removeprefix("# ")
        deck = slides(notebook, notes_of(path.stem[:2]), int(path.stem[:2]))
        for cell in deck.cells:
            cell.source = formulas(cell.source)
        with contextlib.chdir(path.parent):  # where its data are
            film = film_of(notebook)
        if film is not None:
            (folder / film_name(int(path.stem[:2]))).write_text(film_page(film), encoding="utf-8")
        page, _ = exporter.from_notebook_node(deck, {"metadata": {"name": title}})
        (folder / f"{path.stem}.html").write_text(page)
        name, count = (
            html.escape(title),
            sum(each.metadata.slideshow.slide_type not in ("-", "notes") for each in deck.cells),
        )
        rows.append(
            f'<li><a href="{path.stem}.html"><b>{path.stem[:2]}</b> {name}</a> <i>{count} slides</i></li>'
        )
    page = (HERE / "slides" / "list.html").read_text()
    (folder / "index.html").write_text(page.replace("LESSONS", "\n".join(rows)))


if __name__ == "__main__":
    export(Path(sys.argv[1]))
