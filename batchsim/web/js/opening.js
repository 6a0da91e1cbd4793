/** The opening: a sentence, and one thing more with each, until everything is there. It plays once; Escape skips it. */
import { element, stored } from "./dom.js";

const SEEN = "batchsim-opening"; // in the browser's storage

/** Begin in an element, unless the reader has seen it: `show(at)` shows a step's thing, `end(skipped)` everything. */
export function opening(host, steps, { show, end }) {
  if (stored((storage) => storage.getItem(SEEN))) return;
  const said = element("p", { attributes: { role: "status" } }), next = element("button", { type: "button" });
  const skip = element("button", { type: "button", textContent: "Skip (Esc)" });
  let at = -1;
  const finish = (skipped) => {
    removeEventListener("keydown", onkey, true);
    stored((storage) => storage.setItem(SEEN, "1"));
    host.replaceChildren();
    end(skipped);
  };
  const turn = () => {
    at += 1;
    if (at === steps.length) return finish(false);
    said.textContent = steps[at].words;
    next.textContent = at < steps.length - 1 ? `Next (${at + 1} of ${steps.length})` : "Done";
    show(at);
  };
  const onkey = (event) => { if (event.key === "Escape" && host.isConnected) finish(true); };
  [next.onclick, skip.onclick] = [turn, () => finish(true)];
  addEventListener("keydown", onkey, true); // wherever the focus is
  host.replaceChildren(said, element("div", { className: "opening-buttons" }, next, " ", skip));
  turn();
}
