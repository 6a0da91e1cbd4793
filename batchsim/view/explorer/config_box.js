// A server's config to paste, its lines with their marks, and the proposed diff: all of it is text, never HTML.

import { element } from "../../web/js/dom.js";
import { lay, onresize } from "./place.js";

const PAUSE_MS = 300; // after the last key, before the text is read
const said = (textContent, role, className = "") => element("p", { textContent, className, attributes: { role } });
const plain = (textContent) => element("p", { textContent });

export function render({ model, el }) {
  el.classList.add("batchsim-config");
  const area = element("textarea", { rows: 8, spellcheck: false, placeholder: model.get("hint"), ariaLabel: "A server's config" });
  const answer = element("div");
  el.append(area, answer);
  let timer = 0;
  const read = () => {
    // A text that no reader takes is not sent: it would close the page's connection.
    if (area.value.length > model.get("most")) return model.send({ long: area.value.length });
    if (area.value === model.get("text")) return model.send({ again: true }); // as after a text that was too long
    model.set("text", area.value);
    model.save_changes();
  };
  area.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(read, PAUSE_MS);
  });
  const button = (textContent, act) =>
    element("button", { textContent, type: "button", className: "jupyter-button widget-button", onclick: () => model.send({ [act]: true }) });
  const item = ([value, textContent, marks]) =>
    element("li", { value, className: marks.length ? "batchsim-marked" : "" }, element("code", { textContent }), ...marks.map(plain));
  const listing = ([from, to, ...changes], gain) => { // beside the last new line, what all of them change
    const lines = changes.map((line) => element("span", { textContent: `${line}\n`, className: { "+": "batchsim-new", "-": "batchsim-old" }[line[0]] ?? "" }));
    const changed = lines.findLast((line) => line.className === "batchsim-new");
    changed?.prepend(element("b", { textContent: gain }));
    return element("pre", { className: "batchsim-diff" }, element("span", { textContent: `${from}\n${to}\n` }), ...lines);
  };
  const show = () => {
    const { summary, alert, lines, below, result, diff, gain, again } = model.get("answer");
    const parts = [
      summary && said(summary, alert ? "alert" : "status"),
      result && said(result, "status", "batchsim-result"),
      again && button("Check again", "again"),
      diff && listing(diff.split("\n"), gain),
      diff && button("Copy the diff", "copy"),
      lines?.length && element("ol", { className: "batchsim-lines" }, ...lines.map(item)),
      ...(below ?? []).map(plain),
    ];
    answer.replaceChildren(...parts.filter(Boolean));
  };
  const place = () => {
    el.style.display = model.get("shown") ? "" : "none";
    lay(el, model.get("place"));
  };
  const events = { "change:answer": show, "change:place": place, "change:shown": place }, sizes = onresize(el, place);
  for (const [name, act] of Object.entries(events)) model.on(name, act);
  show();
  place();
  return () => {
    sizes.disconnect();
    for (const [name, act] of Object.entries(events)) model.off(name, act);
  };
}
