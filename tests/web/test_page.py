"""The page that opens without an installation: its size, its policy, its descriptions, its claims."""

import base64
import functools
import hashlib
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest
import web_module
from typer.testing import CliRunner

import batchsim as bs
from batchsim import web
from batchsim._format import number, percent
from batchsim.cli import app
from batchsim.view.explorer.rows import CONTROLS
from batchsim.view.explorer.runs import sizes, waits
from batchsim.view.pictures.heat_map import MEASURES
from batchsim.view.scripts import bundle
from batchsim.web import page
from batchsim.web.descriptions import SHOWN, descriptions

AFFINE = bs.Affine(5, 0.25)  # of the essay
VOID = {"area", "br", "col", "hr", "img", "input", "link", "meta"}


class Read(HTMLParser):
    """The elements of a page, each as its tag, its attributes and its text; and its visible words."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.words = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append([tag, dict(attributes), ""])
        if tag not in VOID:
            self.open.append(self.elements[-1])

    def handle_endtag(self, tag):
        while self.open.pop()[0] != tag:
            pass

    def handle_data(self, data):
        if self.open:
            self.open[-1][2] += data
            if not {"script", "style", "title"} & {element[0] for element in self.open}:
                self.words += data.split()

    def of(self, tag):
        return [element[1:] for element in self.elements if element[0] == tag]


@functools.cache
def text(rules=web_module.FEW):
    return page.page(web_module.module(rules).read_bytes())


@functools.cache
def read():
    return Read(text())


def run(rate_per_s, size, wait_ms, servers=1, requests=100_000):
    return bs.simulate(
        bs.Scenario(bs.Poisson(rate_per_s), bs.SizeOrWait(size, wait_ms), AFFINE, servers), requests
    )


@pytest.mark.rare("compiles a loop for each rule; `make page` refuses a larger one, too")
def test_the_page_has_at_most_500_kB():
    assert len(text(()).encode()) <= 500_000


def test_the_policy_allows_no_network_and_only_the_scripts_and_styles_of_this_file():
    (policy,) = (about["content"] for about, _ in read().of("meta") if "http-equiv" in about)
    rules = dict(rule.split(maxsplit=1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert "connect-src" not in rules
    assert "unsafe-inline" not in policy
    assert "'unsafe-eval'" not in policy
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        inline = [content for about, content in read().of(tag) if about.get("type") in (None, "module")]
        hashes = {
            f"'sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}'" for each in inline
        }
        assert hashes
        assert hashes == {each for each in rules[rule].split() if each.startswith("'sha256-")}


def test_nothing_of_the_page_comes_from_elsewhere():
    for tag, about, content in read().elements:
        addresses = [
            value for name, value in about.items() if name in ("src", "href", "srcset", "data", "action")
        ]
        assert tag == "a" or all(address.startswith("data:") for address in addresses)
        if tag == "style" or (tag == "script" and about.get("type") in (None, "module")):
            assert not re.search(
                r"\bfetch\(|XMLHttpRequest|WebSocket|\bimport\(|url\(|@import|sendBeacon", content
            )


def test_the_page_has_the_descriptions_of_python():
    (found,) = (
        json.loads(content) for about, content in read().of("script") if about.get("id") == "described"
    )
    assert found == json.loads(json.dumps(descriptions()))


def test_controls_and_the_map_are_those_of_the_explorer():
    described = descriptions()
    assert list(described["controls"]) == [name for name in CONTROLS if name in SHOWN]
    for name, control in described["controls"].items():
        assert (control["label"], control["about"]) == (CONTROLS[name].label, CONTROLS[name].tip)
        assert control["bounds"] == CONTROLS[name].bounds
    assert described["map"]["sizes"] == sizes(64)
    assert [100 * part for part in described["map"]["waits"]] == pytest.approx(waits(100)[:-1])
    assert len(described["map"]["sizes"]) * (len(described["map"]["waits"]) + 1) == 144


def test_the_colours_of_the_map_are_those_of_the_explorer():
    described = descriptions()["map"]
    p99_ms = np.geomspace(5, 120, 50)
    places = np.log(p99_ms / 25 * described["factor"]) / np.log(described["factor"] ** 2) * 256
    scale, colours = MEASURES["p99_ms"].colours(p99_ms, SimpleNamespace(objective_ms=25.0))
    rgb = np.frombuffer(bytes.fromhex(described["colours"]), np.uint8).reshape(256, 3)
    assert (rgb[np.clip(places, 0, 255).astype(int)] == colours(scale(p99_ms), bytes=True)[:, :3]).all()


def test_each_preset_is_a_line_near_the_published_times():
    presets = descriptions()["presets"]
    assert len(presets) > 40
    for name, preset in presets.items():
        for size, ms in bs.published(name).points_ms:
            assert preset["fixed_ms"] + preset["per_item_ms"] * size == pytest.approx(ms, rel=0.052)


def test_modules_become_functions_that_return_their_exports(tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.js").write_text("export const one = 1;")
    (tmp_path / "b.js").write_text('import { one } from "./more/a.js";\nexport function start() {}')
    a = "modules.a = (() => {\nconst one = 1;\nreturn { one };\n})();\n"
    b = "modules.b = (() => {\nconst { one } = modules.a;\nfunction start() {}\nreturn { start };\n})();\n"
    assert (
        bundle(tmp_path / "b.js", "modules.b.start();") == f"const modules = {{}};\n{a}{b}modules.b.start();"
    )


def test_a_module_with_an_import_that_a_bundle_cannot_have_is_refused(tmp_path):
    (tmp_path / "one.js").write_text('import two from "./two.js";')
    with pytest.raises(ValueError, match="plain imports"):
        bundle(tmp_path / "one.js", "")


def test_the_command_prints_where_the_page_is_or_how_to_build_it(tmp_path, monkeypatch):
    monkeypatch.setattr(web, "PAGE", tmp_path / "batchsim.html")
    missing = CliRunner().invoke(app, ["page", "--no-open"])
    assert missing.exit_code == 2
    assert "make page" in missing.stderr
    assert len(missing.stderr.splitlines()) == 1
    (tmp_path / "batchsim.html").write_text("")
    found = CliRunner().invoke(app, ["page", "--no-open"])
    assert (found.exit_code, found.stdout.strip()) == (0, str(tmp_path / "batchsim.html"))


# What the essay says.


def test_the_essay_has_at_most_1200_words():
    essay = re.search(r"<body>.*?</main>", text(), re.DOTALL)[0]
    assert 600 < len(Read(essay).words) <= 1200


def test_no_line_begins_with_the_mark_behind_a_term():
    essay = page.filled("[[load]]. [[batch]] and [[latency]]")
    kept, plain, last = (
        f'popovertarget="term-{name}">{name}</button>' for name in ("load", "batch", "latency")
    )
    assert re.fullmatch(
        f'<span class="whole"><button [^>]*{kept}\\.</span> <button [^>]*{plain} and <button [^>]*{last}',
        essay,
    )


def test_its_times_and_rates_of_batches_are_right():
    assert [1000 * AFFINE(size) for size in (1, 9, 8, 32)] == pytest.approx([5.25, 7.25, 7, 13])
    assert AFFINE(32) / AFFINE(1) == pytest.approx(2.5, abs=0.05)
    rates = [size / AFFINE(size) for size in (9, 8, 32)]
    assert [round(rate) for rate in rates] == [1241, 1143, 2462]
    assert rates[1] < 1200 < rates[0]


def test_its_answer_about_two_knobs_is_right():
    shares = {
        pair: run(400, *pair).summary()["full_share"] or 0
        for pair in ((3, 5), (4, 10), (8, 20), (4, 5), (8, 10))
    }
    assert [share > 0.5 for share in shares.values()] == [True, True, True, False, False]


def test_its_best_policy_gains_less_than_a_fifth_of_a_percent():
    played = descriptions()["played"]
    none = run(800, 32, 0).mean_latency_ms
    assert 1 < played["without_wait_ms"] / played["mean_latency_ms"] < 1.002
    assert played["without_wait_ms"] == pytest.approx(none, rel=0.005)
    best = bs.Scenario(bs.Poisson(800), bs.AtLeast(played["least"], 32), AFFINE)
    assert bs.simulate(best, 100_000).mean_latency_ms == pytest.approx(played["mean_latency_ms"], rel=0.005)


def test_its_wait_pays_with_four_servers_and_not_with_one():
    def p99_ms(wait_ms, servers, rate_per_s):
        return run(rate_per_s, 32, wait_ms, servers).percentile(99)

    assert p99_ms(2, 4, 3900) < 11.5 < 13 < 14.5 < p99_ms(0, 4, 3900)
    assert p99_ms(0, 1, 800) < p99_ms(2, 1, 800) * 1.01


def test_its_capacity_keeps_the_promise():
    (rate,) = re.findall(r"run of 100,000 requests gives ([\d,]+)", text())
    assert run(float(rate.replace(",", "")), 32, 10).percentile(99) == pytest.approx(25, rel=0.03)


def test_its_last_promise_can_be_kept():
    assert max(run(1600, size, wait_ms).percentile(99) for size in (24, 32, 64) for wait_ms in (0, 8)) <= 20
    assert run(1600, 16, 0).percentile(99) > 20
    assert run(1600, 32, 10).percentile(99) > 20


IN_NODE = """import { readFileSync } from "node:fs";
const [script, given] = process.argv.slice(1);
const charts = await import(`data:text/javascript,${encodeURIComponent(readFileSync(script, "utf8"))}`);
console.log(JSON.stringify(JSON.parse(given).map(([name, ...values]) => charts[name](...values))));"""


def in_charts(calls):
    """What functions of charts.js return, each call a name and what it is given."""
    command = [
        "node",
        "--input-type=module",
        "-e",
        IN_NODE,
        web_module.SCRIPTS / "charts.js",
        json.dumps(calls),
    ]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node, which runs the page's script")
def test_the_page_writes_numbers_as_python_does_and_no_rounding_error():
    rng = np.random.default_rng(1)
    values = [0, 9.995, 9.996, 1000, *(10 ** rng.uniform(-13, 9, 100)).tolist()]
    shares = [0, 1e-7, 4e-5, 0.0099, 0.01, 0.0999, 0.1, 0.9001, 0.98996, 0.999999, 1, 1.25]
    shares += [*(near := rng.random(50) ** 4).tolist(), *(1 - near).tolist()]
    found = in_charts([["number", each] for each in values] + [["percent", each] for each in shares])
    assert found == [*map(number, values), *map(percent, shares)]
    named = {999.4: "999 ms", 999.6: "1 s", 0.9: "0.9 ms", 123_456: "123 s"}
    assert in_charts([["duration", ms] for ms in named]) == [*named.values()]
    parts = {"components": [{"name": name, "words": name} for name in ("forming", "computing")]}
    means = {"mean_ms": 12.5, "forming_ms": -1.6e-12, "computing_ms": 12.5}  # sums that differ by roundings
    (said,) = in_charts([["inWords", "breakdown", means, parts]])
    assert said == "Mean latency 12.5 ms: forming 0 ms, computing 12.5 ms."
