// A film in a notebook: its window comes as arrays; its moment goes back when it pauses, or twice a second.
import { element, isDark } from "../../web/js/dom.js";
import { Film } from "../../web/js/film.js";
import { lay, onresize } from "./place.js";

const ARRAYS = { float64: Float64Array, int32: Int32Array, uint8: Uint8Array }, REPORT_MS = 500;

function unpack(value) {
  if (value?.dtype) return new ARRAYS[value.dtype](value.bytes.buffer.slice(value.bytes.byteOffset, value.bytes.byteOffset + value.bytes.byteLength));
  if (Array.isArray(value)) return value.map(unpack);
  return value && typeof value === "object" ? Object.fromEntries(Object.entries(value).map(([name, each]) => [name, unpack(each)])) : value;
}

// Mark the lines of an explorer's pseudo-code: the acting one, and that of the followed request.
function mark(panel, film) {
  const rows = panel?.querySelectorAll(".batchsim-acting [role=group] > div > div") ?? [], [line, followed] = rows.length ? [film.line, film.lineFollowed] : [];
  rows.forEach((row, at) => {
    row.classList.toggle("batchsim-followed", at === followed); // the line that sent the batch of the followed request
    if (row.hasAttribute("aria-current") === (at === line)) return;
    row.toggleAttribute("aria-current", at === line);
    if (at === line) row.setAttribute("aria-current", "step");
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
    if (!placed()) return;
    panel()?.querySelector(".batchsim-moment")?.append(words);
    lay(el, model.get("place"));
  };
  let loaded = null, told = [null, null, false], reported = 0; // the kernel's film, and the moment that it knows of
  const report = () => {
    const now = performance.now(), { playing } = film, moment = [told[0], film.untouched && !playing ? null : film.time_s, playing];
    if (!loaded || (playing === told[2] && (playing ? now - reported < REPORT_MS : moment[1] === told[1]))) return;
    [reported, told] = [now, moment];
    model.send({ moment });
  };
  const follow = () => film.picked !== model.get("followed") && film.follow(model.get("followed"));
  const tell = () => { // whom the reader follows
    if (!loaded || film.picked === model.get("followed")) return;
    model.set("followed", film.picked);
    model.save_changes();
  };
  const marks = new MutationObserver(() => mark(panel(), film)); // the kernel writes the code anew when the film pauses
  film.onmoment(() => {
    report();
    tell();
    mark(panel(), film);
    const code = panel()?.querySelector(".batchsim-code");
    if (code) marks.observe(code, { childList: true, subtree: true }); // once, however often it is asked for
  });
  const obey = () => { // another film, or another time
    const before = loaded, next = model.get("film"), moment = model.get("moment"), [number, time_s] = moment;
    if (number === told[0] || !next.lanes) return;
    [loaded, told] = [next, moment];
    film.picked = model.get("followed");
    if (next !== before) film.load(unpack(next), before ? null : time_s);
    else if (time_s !== null) film.goTo(time_s);
  };
  const restyle = () => {
    Object.assign(film.options, { theme: themed(), em: model.get("em") || undefined });
    lie();
    film.layOut();
  };
  let height = 0, page; // of the sentence: in a column that scrolls, it hides neither its page's name nor the hint as it appears
  const appears = new ResizeObserver((sized) => {
    const found = [".batchsim-tabs", ".batchsim-column", ".batchsim-knobs"], [tabs, column, knobs] = found.map((name) => panel()?.querySelector(name));
    if (!height && knobs) for (const each of [column, knobs]) appears.observe(each); // or as the window or the controls change
    const open = tabs?.querySelector(".lm-mod-current");
    page = height ? page : open; // another page may open before the kernel hides the sentence
    if (open && words.offsetHeight && open === page && (!height || sized.some(({ target }) => target !== words))) {
      const { top, bottom } = tabs.getBoundingClientRect(), above = top - column.getBoundingClientRect().top;
      column.scrollBy(0, Math.max(Math.min(bottom - words.getBoundingClientRect().top, above), 0));
    }
    height = words.offsetHeight;
  });
  if (words) appears.observe(words);
  const receive = (content) => {
    if (content.play !== undefined) content.play ? film.play() : film.pause();
  };
  const events = { "change:moment": obey, "change:followed": follow, "change:theme": restyle, "change:em": restyle, "change:place": restyle, "change:shown": restyle, "msg:custom": receive };
  for (const [name, act] of Object.entries(events)) model.on(name, act);
  const themes = new MutationObserver(restyle), sizes = onresize(el, () => {
    lie();
    if (film.options.theme !== themed()) restyle();
  });
  themes.observe(document.body, { attributes: true });
  obey();
  lie();
  return () => {
    marks.disconnect();
    appears.disconnect();
    themes.disconnect();
    sizes.disconnect();
    for (const [name, act] of Object.entries(events)) model.off(name, act);
    film.destroy();
  };
}
