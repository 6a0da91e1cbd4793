"""The explorer's switch from requests to tokens, under a reader's hands."""

from browser.panel import eventually
from browser.test_sizes import OUTSIDE

PANEL = "import batchsim as bs\npanel = bs.explore(requests=500)\npanel"
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
        assert panel.words() == panel.page.locator(panel.picture).get_attribute("alt")
        assert panel.kernel.ask("panel.state.mode") == "tokens"
        panel.page.locator(SWITCH).first.click()
        assert eventually(lambda: panel.kernel.ask("panel.session.data_state.mode") == "requests")
        panel.quiet(400)
        assert "TTFT" not in panel.words()
    assert panel.noise.errors == []
