"""The page that opens without an installation: one file of the essay, the modules and the compiled loops.

`python -m batchsim.web.page FILE` builds it, as `make page` does.
"""

import base64
import gzip
import hashlib
import html
import io
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchsim.scenario import Affine, Poisson, Scenario, SizeOrWait
from batchsim.simulate import simulate
from batchsim.study.capacity import capacity
from batchsim.study.slo import SLO
from batchsim.web.descriptions import PLAYED, descriptions

JS = Path(__file__).parent / "js"
BUILD = Path(__file__).parents[2] / "build" / "web"  # what a build keeps for the next
LARGEST = 500_000  # bytes
REQUESTS = 20_000
IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./(\w+)\.js";', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:class|function|const) (\w+))", re.MULTILINE)


def bundle(first: str, read: Any = lambda name: (JS / f"{name}.js").read_text(encoding="utf-8")) -> str:
    r"""Return a module and those that it imports as one script, which ends with a call of its `start`.

    Each becomes a function that returns its exports: their names cannot collide, and a page that was opened
    from a disk could import nothing.

    >>> b = 'import { one } from "./a.js";\nexport function start() {}'
    >>> print(bundle("b", {"a": "export const one = 1;", "b": b}.get))
    const modules = {};
    modules.a = (() => {
    const one = 1;
    return { one };
    })();
    modules.b = (() => {
    const { one } = modules.a;
    function start() {}
    return { start };
    })();
    modules.b.start();
    """
    done: dict[str, str] = {}

    def add(name: str) -> None:
        source = read(name)
        for _, imported in IMPORT.findall(source):
            if imported not in done:
                add(imported)
        names = ", ".join(EXPORT.findall(source))
        text = EXPORT.sub("", IMPORT.sub(r"const \1 = modules.\2;", source))
        if left := re.search(r"^(?:import|export)\b.*", text, re.MULTILINE):
            raise ValueError(f"a module must have plain imports and exports, got {left[0]!r} in {name}.js")
        done[name] = f"modules.{name} = (() => {{\n{text.strip()}\nreturn {{ {names} }};\n}})();\n"

    add(first)
    return "const modules = {};\n" + "".join(done.values()) + f"modules.{first}.start();"


@dataclass(frozen=True)
class Shown:
    """A figure of the essay: its name and the setting that it begins with."""

    name: str
    values: dict[str, Any]

    def numbers(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Return the numbers of its sentences, from Python's engine."""
        at = {name: described["default"] for name, described in descriptions()["controls"].items()}
        at |= self.values | changes
        result = simulate(scenario(at), REQUESTS)
        s = result.summary()
        parts = {f"{name}_ms": s[f"mean_{name}_ms"] for name in ("forming", "queueing", "computing")}
        more = {"mean_ms": s["mean_latency_ms"], "saturation_per_s": result.scenario.saturation_per_s}
        return {**s, **at, **parts, **more, "full_share": s.get("full_share") or 0.0}

    def still(self) -> str:
        """Return a picture of it as an element, for readers without JavaScript or WebAssembly."""
        from PIL import Image

        from batchsim.view.pictures.plot import plot

        at = self.numbers({})
        drawn = io.BytesIO()
        plot(simulate(scenario(at), REQUESTS)).savefig(drawn, dpi=72)
        small = io.BytesIO()
        Image.open(drawn).convert("RGB").quantize(32).save(small, "PNG", optimize=True)
        words = (
            f"p50 {at['p50_ms']:.3g} ms, p99 {at['p99_ms']:.3g} ms, throughput {at['throughput_per_s']:.0f}/s"
        )
        data = base64.b64encode(small.getvalue()).decode()
        return f'<img class="still" alt="A run of this setting: {words}." src="data:image/png;base64,{data}">'


def scenario(at: dict[str, Any]) -> Scenario:
    """Return the scenario of a figure's values."""
    rule = SizeOrWait(at["max_batch_size"], at["max_wait_ms"])
    service = Affine(at["fixed_ms"], at["per_item_ms"])
    return Scenario(Poisson(at["rate_per_s"]), rule, service, at["servers"])


def written(name: str, value: float) -> str:
    """Return a number as the page's sentences write it."""
    from batchsim._format import number, percent

    return percent(value) if name == "load" or name.endswith("_share") else number(value)


def filled(text: str) -> str:
    """Return the essay with stills, terms and the numbers of its sentences."""
    for section in re.findall(r"<section.*?</section>", text, re.DOTALL):
        found = re.search(r'class="figure[^>]*id="(\w+)".*?data-values=\'([^\']*)\'', section)
        if not found:
            continue
        shown, new = Shown(found[1], json.loads(found[2])), section

        def fill(match: re.Match[str], shown: Shown = shown) -> str:
            changes = re.search(r"data-with='([^']*)'", match[1])
            numbers = shown.numbers(json.loads(changes[1]) if changes else {})
            return f"{match[1]}{written(match[2], numbers[match[2]])}<"

        new = re.sub(r'(<span data-(?:live|knob)="(\w+)"[^>]*>)[^<]*<', fill, section)
        text = text.replace(section, new.replace(f"@@STILL {shown.name}@@", shown.still()))
    used = []

    def term(match: re.Match[str]) -> str:
        name, _, words = match[1].partition("|")
        used.append(name)
        target = f"term-{name.replace(' ', '-')}"
        return f'<button type="button" class="term" popovertarget="{target}">{words or name}</button>'

    text = re.sub(r"\[\[([^]]+)\]\]", term, text)
    meanings = descriptions()["terms"]
    popovers = (
        f'<div popover id="term-{name.replace(" ", "-")}"><b>{name}</b>: {html.escape(meanings[name])}</div>'
        for name in dict.fromkeys(used)
    )
    return text.replace("@@TERMS@@", "\n".join(popovers))


def style() -> str:
    """Return the style sheet, with the colours of both themes."""
    themes = descriptions()["looks"]
    light, dark = (
        "".join(f"--{name}:{value};" for name, value in themes[each].items()) for each in ("light", "dark")
    )
    rules = (
        f":root{{color-scheme:light;{light}}}"
        f"@media(prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{dark}}}}}"
        f":root[data-theme=dark]{{color-scheme:dark;{dark}}}"
    )
    return (JS / "page.css").read_text(encoding="utf-8").replace("@@THEMES@@", rules)


def policy(page: str) -> str:
    """Return the Content-Security-Policy: this file's scripts and styles, no network."""

    def hashes(tag: str) -> str:
        texts = re.findall(rf"<{tag}(?: type=\"module\")?(?: id=\"\w+\")?>(.*?)</{tag}>", page, re.DOTALL)
        return " ".join(
            f"'sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}'" for each in texts
        )

    return (
        f"default-src 'none'; script-src 'wasm-unsafe-eval' {hashes('script')}; style-src {hashes('style')}; "
        "img-src data:; worker-src blob:; base-uri 'none'; form-action 'none'"
    )


def page(module: bytes) -> str:
    """Return the page; `module` has the compiled loops as WebAssembly."""
    described = {key: value for key, value in descriptions().items() if key != "terms"}
    played = described["played"]
    objective = SLO(p99_ms=descriptions()["controls"]["objective_ms"]["default"])
    most = capacity(scenario(Shown("", {}).numbers({"rate_per_s": PLAYED["rate_per_s"]})), objective)
    parts = {
        "VERSION": described["version"], "STYLE": style(),
        "LEAST": str(played["least"]), "BEST": f"{played['mean_latency_ms']:.3g}",
        "CAPACITY": f"{float(f'{most.rate_per_s:.3g}'):,.0f}",
        "DESCRIBED": json.dumps(described, separators=(",", ":")).replace("<", "\\u003c"),
        "MODULE": base64.b64encode(gzip.compress(module, mtime=0)).decode(),
        "CODE": bundle("essay").replace("</script", "<\\/script"),
    }  # fmt: skip
    text = filled((JS / "page.html").read_text(encoding="utf-8"))
    for name, value in parts.items():
        text = text.replace(f"@@{name}@@", value)
    return text.replace("@@POLICY@@", policy(text))


def main(path: str) -> None:
    """Build the page into a file, or raise ValueError if it is too large."""
    from batchsim.web import wasm  # only builders need what it imports

    text = page(wasm.built(BUILD).read_bytes()).encode()
    if len(text) > LARGEST:
        raise ValueError(f"the page must have at most {LARGEST:,} bytes, got {len(text):,}")
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_bytes(text)
    print(f"{path}: {len(text) / 1000:.0f} kB")


if __name__ == "__main__":
    main(*sys.argv[1:])
