"""The explorer's switch from requests to tokens, under a reader's hands."""

import pytest

from browser.panel import PANEL, SETTLES_MS, eventually
from browser.test_sizes import OUTSIDE, resize

SWITCH = ".batchsim-knob-mode button"


def test_the_switch_turns_to_tokens_whose_sliders_move_the_picture_and_back(lab, opened):
    with opened(lab, PANEL, viewport={"width": 1280, "height": 800}) as panel:
        of_requests = panel.pixels()
        panel.page.locator(SWITCH).last.focus()
        panel.page.keyboard.press("Enter")
        assert eventually(lambda: "TTFT" in panel.words())
        panel.quiet(400)
        assert panel.pixels() != of_requests
        assert panel.page.locator(panel.knob.format(name="max_batch_size")).is_hidden()
        assert panel.page.evaluate(OUTSIDE) == []
        assert panel.move_ms("max_num_seqs", "PageDown") > 0
        panel.quiet(SETTLES_MS)  # the whole run follows the rough one
        assert panel.words() == panel.page.locator(panel.picture).get_attribute("alt")
        assert panel.kernel.ask("panel.state.mode") == "tokens"
        panel.page.locator(SWITCH).first.click()
        assert eventually(lambda: panel.kernel.ask("panel.session.data_state.mode") == "requests")
        panel.quiet(400)
        assert "TTFT" not in panel.words()
    assert panel.noise.errors == []


# The names of fields that do not fit beside these, and fields too narrow for a number.
UNREADABLE = """() => [...document.querySelectorAll(".batchsim-page .batchsim-knob")].flatMap((it) => {
    const [name, input] = [it.querySelector("label > span"), it.querySelector("input")];
    if (!input.checkVisibility()) return [];
    const cut = name.getBoundingClientRect().left + name.scrollWidth - input.getBoundingClientRect().left;
    return cut > 0 || input.clientWidth < 40 ? [[name.textContent, cut, input.clientWidth]] : [];
})"""


def test_the_names_of_a_server_s_limits_can_be_read(lab, opened):
    with opened(lab, PANEL, viewport={"width": 1280, "height": 800}) as panel:
        for rule in ("batch_wait", "new_token_ratio", "waiting_served_ratio"):
            panel.kernel.run(f"panel.session.open_link('mode=tokens&batching={rule}&prefill_delayer=on')")
            panel.kernel.run("panel.tabs.selected_index = 1")
            panel.quiet()
            assert panel.page.evaluate(UNREADABLE) == [], rule


# How far below what is visible each line of the pseudo-code ends, and whether anything lies over it.
CUT = """() => {
    const column = document.querySelector(".batchsim-column").getBoundingClientRect();
    const lines = [...document.querySelectorAll(".batchsim-code [role=group] > div > div")];
    return lines.filter((it) => it.checkVisibility()).map((it) => {
        const box = it.getBoundingClientRect();
        const top = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
        const below = box.bottom - Math.min(column.bottom, innerHeight);
        return [Math.max(below, column.top - box.top), it.contains(top)];
    });
}"""

# How far the sentence of the moment goes on below the top of the code, and begins above the end of the hint;
# and how far the film covers the numbers above it.
COVERED = """() => {
    const range = document.createRange();
    range.selectNodeContents(document.querySelector(".batchsim-moment"));
    const places = [range, ".batchsim-code", ".batchsim-tabs", ".batchsim-player", ".batchsim-numbers"];
    const [said, code, tabs, film, numbers] = places.map(
        (it) => (it === range ? it : document.querySelector(it)).getBoundingClientRect());
    return Math.max(said.bottom - code.top, tabs.bottom - said.top, numbers.bottom - film.top);
}"""


@pytest.mark.parametrize("kind", ["app", "lab"])
def test_no_line_of_the_pseudo_code_is_cut_while_play_is_open(kind, request, opened):
    server, cells = request.getfixturevalue(kind), () if kind == "app" else (PANEL,)
    with opened(server, *cells, viewport={"width": 1366, "height": 768}) as panel:
        panel.kernel.run("panel.session.open_link('mode=tokens&max_num_seqs=64&rate_per_s=3')")
        panel.kernel.run("panel.turn_to(panel.play)")
        assert eventually(lambda: len(panel.page.evaluate(CUT)) == 7)
        assert eventually(lambda: panel.page.evaluate(COVERED) <= 0.5, seconds=30)
        for width, height in ((1366, 768), (1280, 800)):
            resize(panel, width, height)
            found = panel.page.evaluate(CUT)
            assert all(cut <= 0.5 and seen for cut, seen in found), (width, found)
            assert panel.page.evaluate(COVERED) <= 0.5, (width, height)
        panel.page.locator(".batchsim-player button[aria-label='Next event']").click()
        assert eventually(lambda: panel.page.locator(".batchsim-code [aria-current]").count() == 1)
        panel.quiet()
        assert all(cut <= 0.5 and seen for cut, seen in panel.page.evaluate(CUT))
