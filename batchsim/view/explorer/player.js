// A film in a notebook: its window comes as arrays; its time goes back when it pauses, or twice a second.
import { element, isDark } from "../../web/js/dom.js";
import { Film } from "../../web/js/film.js";

const ARRAYS = { float64: Float64Array, int32: Int32Array, uint8: Uint8Array }, REPORT_MS = 500;

function unpack(value) {
  if (value?.dtype) return new ARRAYS[value.dtype](value.bytes.buffer.slice(value.bytes.byteOffset, value.bytes.byteOffset + value.bytes.byteLength));
  if (Array.isArray(value)) return value.map(unpack);
  return value && typeof value === "object" ? Object.fromEntries(Object.entries(value).map(([name, each]) => [name, unpack(each)])) : value;
}

// Mark the acting line of an explorer's pseudo-code.
function mark(panel, film) {
  const rows = panel?.querySelectorAll(".batchsim-acting [role=group] > div > div") ?? [], line = rows.length ? film.line : -1;
  rows.forEach((row, at) => {
    if (row.hasAttribute("aria-current") === (at === line)) return;
    row.toggleAttribute("aria-current", at === line);
    if (at === line) row.setAttribute("aria-current", "step");
    row.style.fontWeight = at === line ? "bold" : "";
    row.style.background = at === line ? film.pen.colours.faint : "";
    row.firstElementChild.textContent = at === line ? "▶\ufe0e" : "";
  });
}

export function render({ model, el }) {
  const placed = () => model.get("place").length === 4, panel = () => (placed() ? el.closest(".batchsim-explorer") : null);
  el.classList.add("batchsim-player");
  el.classList.toggle("batchsim-placed", placed());
  const themed = () => (model.get("theme") === "auto" ? (isDark(el.parentElement ?? el) ? "dark" : "light") : model.get("theme"));
  const words = placed() ? el.appendChild(element("div")) : undefined; // which moves to the explorer's page
  const film = new Film(el, { looks: model.get("looks"), theme: themed(), em: model.get("em") || undefined, fill: placed(), words });
  el.addEventListener("focusin", ({ target }) => { target.dataset.lmSuppressShortcuts = "true"; }); // notebooks have shortcuts on letters
  const lie = () => { // over its part of the explorer's picture
    el.style.display = model.get("shown") ? "" : "none";
    const picture = el.parentElement?.querySelector(".batchsim-screen-box");
    if (!placed() || !picture) return;
    panel()?.querySelector(".batchsim-moment")?.append(words);
    const [left, top, width, height] = model.get("place"), { offsetLeft: x, offsetTop: y, offsetWidth: w, offsetHeight: h } = picture;
    Object.assign(el.style, { left: `${x + left * w}px`, top: `${y + top * h}px`, width: `${width * w}px`, height: `${height * h}px` });
  };
  let reported = 0, told = null;
  const report = () => {
    const now = performance.now(), standing = !film.playing && (model.get("playing") || film.time_s !== told);
    if (film.untouched || !(standing || (film.playing && now - reported > REPORT_MS))) return;
    [reported, told] = [now, film.time_s];
    model.set({ moved_s: film.time_s, playing: film.playing });
    model.save_changes();
  };
  film.onmoment(() => { report(); mark(panel(), film); });
  const load = () => model.get("film").lanes && film.load(unpack(model.get("film")), film.playing ? null : model.get("moved_s"));
  const restyle = () => {
    Object.assign(film.options, { theme: themed(), em: model.get("em") || undefined });
    lie();
    film.layOut();
  };
  const receive = (content) => {
    if (content.go !== undefined) film.goTo(told = content.go);
    if (content.play !== undefined) content.play ? film.play() : film.pause();
  };
  const events = { "change:film": load, "change:theme": restyle, "change:em": restyle, "change:place": restyle, "change:shown": restyle, "msg:custom": receive };
  for (const [name, act] of Object.entries(events)) model.on(name, act);
  const themes = new MutationObserver(restyle), sizes = new ResizeObserver(() => {
    lie();
    if (placed() && el.parentElement) sizes.observe(el.parentElement.querySelector(".batchsim-screen-box") ?? el);
    if (film.options.theme !== themed()) restyle();
  });
  themes.observe(document.body, { attributes: true });
  sizes.observe(el);
  load();
  lie();
  return () => {
    themes.disconnect();
    sizes.disconnect();
    for (const [name, act] of Object.entries(events)) model.off(name, act);
    film.destroy();
  };
}
