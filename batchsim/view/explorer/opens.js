// The opening in the explorer: its controls come one after another, and the picture's parts in their places.
import { opening } from "../../web/js/opening.js";

export function render({ model, el }) {
  el.classList.add("batchsim-opening");
  const steps = model.get("steps");
  let panel = null;
  const show = () => {
    const at = model.get("step"), shown = steps.slice(0, at + 1).map(({ name }) => name);
    panel.toggleAttribute("data-opening", at >= 0);
    for (const { name } of steps) {
      for (const part of panel.querySelectorAll(`.batchsim-knob-${name}`)) part.classList.toggle("batchsim-shown", shown.includes(name));
    }
    const boxes = shown.flatMap((name) => model.get("boxes")[name] ?? []).map(([left, top, width, height]) => {
      const [x, y, right, low] = [left, top, left + width, top + height].map((part) => `${100 * part}%`);
      return `${x} ${y}, ${right} ${y}, ${right} ${low}, ${x} ${low}, ${x} ${y}, 0 0`;
    });
    const img = panel.querySelector(".batchsim-main img");
    if (img) img.style.clipPath = at >= 0 ? `polygon(${["0 0", ...boxes].join(", ")})` : "";
  };
  const turn = (at) => {
    model.set("step", at);
    model.save_changes();
  };
  const begin = () => {
    panel = el.closest(".batchsim-explorer"); // null until the element is in the page
    if (!panel) return;
    places.disconnect();
    if (!model.get("wanted")) return;
    opening(el, steps, { show: turn, end: (skipped) => { turn(-1); model.send({ skipped }); } });
  };
  const places = new ResizeObserver(begin), changed = () => panel && show();
  places.observe(el);
  model.on("change:step change:boxes", changed);
  return () => {
    places.disconnect();
    model.off("change:step change:boxes", changed);
  };
}
