// A part in which a student acts, in a notebook: what was done goes to Python, and its answer is shown.
import { isDark } from "../web/js/dom.js";
import { batcher } from "../web/js/play.js";
import { sketch } from "../web/js/sketch.js";

const PATIENCE_MS = 10000;

export function render({ model, el }) {
  const { looks, given, done, answered } = Object.fromEntries(["looks", "given", "done", "answered"].map((name) => [name, model.get(name)]));
  const theme = () => (isDark(el.parentElement ?? el) ? "dark" : "light");
  let answer = null;
  const ask = (what) => new Promise((resolve) => {
    const waiting = (answer = resolve);
    model.set("done", { ...what, turn: (model.get("done").turn ?? 0) + 1 });
    model.save_changes();
    setTimeout(() => {
      if (answer === waiting) el.querySelector("[role=status]").textContent = "The kernel does not answer: it is busy, or it ended. If it ended, run this cell again.";
    }, PATIENCE_MS);
  });
  const heard = () => {
    if (model.get("answered").turn !== model.get("done").turn) return; // to what was done before
    answer?.(model.get("answered"));
    answer = null;
  };
  const parts = {
    batcher: () => batcher(el, { ...given, rows: answered.rows, compare: async (sends_s) => (await ask({ sends_s })).rows }),
    sketch: () => sketch(el, {
      ...given, looks, theme, drawn: done.drawn?.map((ms) => ms ?? NaN), shown: answered.curve_ms,
      curve_ms: async (drawn) => (await ask({ drawn: drawn.map((ms) => (Number.isNaN(ms) ? null : ms)) })).curve_ms,
      judged: (verdict) => {
        model.set("verdict", verdict);
        model.save_changes();
      },
    }),
  };
  const draw = parts[model.get("part")]();
  const restyle = () => {
    for (const [name, colour] of Object.entries(looks[theme()])) el.style.setProperty(`--${name}`, colour);
    draw?.();
  };
  const themes = new MutationObserver(restyle);
  themes.observe(document.body, { attributes: true });
  const places = new ResizeObserver(restyle); // the page behind an element is known once it is there
  places.observe(el);
  model.on("change:answered", heard);
  return () => {
    themes.disconnect();
    places.disconnect();
    model.off("change:answered", heard);
  };
}
