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
from pathlib import Path
from typing import Any

from batchsim._format import fixed, number, percent
from batchsim.result import Result
from batchsim.scenario import Affine, Poisson, Scenario, SizeOrWait
from batchsim.simulate import simulate
from batchsim.study.capacity import capacity
from batchsim.study.slo import SLO
from batchsim.view.scripts import JS, bundle
from batchsim.web.descriptions import PLAYED, descriptions, terms

LARGEST = 500_000  # bytes
REQUESTS = 20_000
Values = dict[str, Any]  # by the names of controls


def run(values: Values) -> Result:
    """Run a figure's setting in Python's engine; controls that have no value have their default."""
    at = {name: described["default"] for name, described in descriptions()["controls"].items()} | values
    rule = SizeOrWait(at["max_batch_size"], at["max_wait_ms"])
    service = Affine(at["fixed_ms"], at["per_item_ms"])
    return simulate(Scenario(Poisson(at["rate_per_s"]), rule, service, at["servers"]), REQUESTS)


def written(name: str, values: Values) -> str:
    """Return a number of a run, or a control's value, as the page's sentences write it."""
    result = run(values)
    found = result.summary() | result.scenario.rule.__dict__ | {"rate_per_s": values.get("rate_per_s")}
    found |= {"mean_ms": found["mean_latency_ms"], "saturation_per_s": result.scenario.saturation_per_s}
    value = found.get(name, found.get(f"mean_{name}")) or 0.0
    if name == "load" or name.endswith("_share"):
        return percent(value)
    is_knob = name in descriptions()["controls"]
    return fixed(value) if name.endswith("_ms") and value < 100 and not is_knob else number(value)


def still(values: Values) -> str:
    """Return a picture of a setting, as an element, for readers without JavaScript or WebAssembly."""
    from PIL import Image

    from batchsim.view.pictures.plot import plot

    drawn, small, result = io.BytesIO(), io.BytesIO(), run(values)
    plot(result).savefig(drawn, dpi=72)
    Image.open(drawn).convert("RGB").quantize(32).save(small, "PNG", optimize=True)
    words = f"p50 {number(result.percentile(50))} ms, p99 {number(result.percentile(99))} ms"
    data = base64.b64encode(small.getvalue()).decode()
    return f'<img class="still" alt="A run of this setting: {words}." src="data:image/png;base64,{data}">'


def filled(text: str) -> str:
    """Return the essay with stills, terms and the numbers of its sentences."""
    for section in re.findall(r"<section.*?</section>", text, re.DOTALL):
        if found := re.search(r'id="(\w+)" role="group".*?data-values=\'([^\']*)\'', section):
            name, values = found[1], json.loads(found[2])

            def fill(match: re.Match[str], values: Values = values) -> str:
                changes = re.search(r"data-with='([^']*)'", match[1])
                return f"{match[1]}{written(match[2], values | json.loads(changes[1] if changes else '{}'))}<"

            new = re.sub(r'(<span data-(?:live|knob)="(\w+)"[^>]*>)[^<]*<', fill, section)
            text = text.replace(section, new.replace(f"@@STILL {name}@@", still(values)))
    used = {}

    def term(match: re.Match[str]) -> str:
        name, _, words = match[1].partition("|")
        used[name] = f"term-{name.replace(' ', '-')}"
        told = f'<button type="button" class="term" popovertarget="{used[name]}">{words or name}</button>'
        return f'<span class="whole">{told}{match[2]}</span>' if match[2] else told

    text, meanings = re.sub(r"\[\[([^]]+)\]\]([.,:;]?)", term, text), terms()
    popovers = (
        f'<div popover id="{target}"><b>{name}</b>: {html.escape(meanings[name])}</div>'
        for name, target in used.items()
    )
    return text.replace("@@TERMS@@", "\n".join(popovers))


def style() -> str:
    """Return the style sheet, with the colours of both themes."""
    looks = descriptions()["looks"]
    light, dark = (
        f"color-scheme:{each};" + "".join(f"--{name}:{value};" for name, value in looks[each].items())
        for each in ("light", "dark")
    )
    preferred = f"@media(prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}"
    rules = f":root{{{light}}}{preferred}:root[data-theme=dark]{{{dark}}}"
    sheets = "".join(
        (JS / name).read_text(encoding="utf-8") for name in ("figure.css", "page.css", "play.css")
    )
    return sheets.replace("@@THEMES@@", rules)


def policy(page: str) -> str:
    """Return the Content-Security-Policy: this file's scripts and styles, no network."""

    def hashes(tag: str) -> str:
        texts = re.findall(rf"<{tag}(?: type=\"module\")?(?: id=\"\w+\")?>(.*?)</{tag}>", page, re.DOTALL)
        digests = (base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in texts)
        return " ".join(f"'sha256-{digest}'" for digest in digests)

    return (
        f"default-src 'none'; script-src 'wasm-unsafe-eval' {hashes('script')}; style-src {hashes('style')}; "
        "img-src data:; worker-src blob:; base-uri 'none'; form-action 'none'"
    )


def page(compiled: bytes) -> str:
    """Return the page; `compiled` has the loops as WebAssembly."""
    described = descriptions()
    played, objective_ms = described["played"], described["controls"]["objective_ms"]["default"]
    most = capacity(run({"rate_per_s": PLAYED["rate_per_s"]}).scenario, SLO(p99_ms=objective_ms))
    parts = {
        "VERSION": described["version"], "STYLE": style(),
        "LEAST": str(played["least"]), "BEST": f"{played['mean_latency_ms']:.4g}",
        "NONE": f"{played['without_wait_ms']:.4g}",
        "CAPACITY": f"{float(f'{most.rate_per_s:.3g}'):,.0f}",
        "DESCRIBED": json.dumps(described, separators=(",", ":")).replace("<", "\\u003c"),
        "MODULE": base64.b64encode(gzip.compress(compiled, mtime=0)).decode(),
        "CODE": bundle(JS / "essay.js", "modules.essay.start();").replace("</script", "<\\/script"),
    }  # fmt: skip
    text = filled((JS / "page.html").read_text(encoding="utf-8"))
    for name, value in parts.items():
        text = text.replace(f"@@{name}@@", value)
    return text.replace("@@POLICY@@", policy(text))


def main(path: str) -> None:
    """Build the page into a file, or raise ValueError if it is too large."""
    from batchsim.web import wasm  # only builders need what it imports

    compiled = wasm.built(wasm.BUILD)
    print(
        f"{compiled.name}: the compiled loops, which stay for the next page\ndrawing the page's figures",
        flush=True,
    )
    text = page(compiled.read_bytes()).encode()
    if len(text) > LARGEST:
        raise ValueError(f"the page must have at most {LARGEST:,} bytes, got {len(text):,}")
    Path(path).write_bytes(text)
    wasm.for_wheel()
    print(f"{path}: {len(text) / 1000:.0f} kB")


if __name__ == "__main__":
    main(*sys.argv[1:])
