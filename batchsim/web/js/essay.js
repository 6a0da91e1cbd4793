/** The essay: its figures, the numbers inside its sentences, and the two parts in which the reader acts. */
import { number, percent } from "./charts.js";
import { element } from "./dom.js";
import { Engine } from "./engine.js";
import { Figure, mapper, saturation } from "./figure.js";
import { Film } from "./film.js";
import { opening } from "./opening.js";
import { batcher } from "./play.js";
import { sketch } from "./sketch.js";
import { serve } from "./worker.js";

const NARROW_PX = 668; // at most, of a place with room for one view, as in figure.css
const DRAGGED_PX = 300; // from the low end of a number's range to the high one
const find = (selector, root = document) => [...root.querySelectorAll(selector)];
const given = (node, name) => JSON.parse(node.dataset[name] ?? "{}");

/** Start the page, or in a worker the worker's side; without WebAssembly the stills remain. */
export async function start() {
  if (typeof document === "undefined") return serve(globalThis);
  const page = document.documentElement;
  try {
    themes(page);
    const described = JSON.parse(document.getElementById("described").textContent);
    const packed = Uint8Array.from(atob(document.getElementById("module").textContent), (letter) => letter.charCodeAt(0));
    const bytes = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
    const engine = await Engine.load(bytes, described);
    const source = new Blob([document.getElementById("code").textContent], { type: "text/javascript" });
    const worker = new Worker(URL.createObjectURL(source));
    worker.postMessage({ bytes, described });
    const askMap = mapper(worker);
    globalThis.batchsim = { run: (settings) => engine.run(settings), figures: {} };
    page.classList.add("live");
    const figures = alone(page, described) ?? find(".figure[data-views]");
    const context = { engine, askMap, described, Film };
    for (const host of figures) section(host, context);
    if (page.classList.contains("alone") && figures.length) return;
    if (!location.hash) first(document.getElementById("first"), context);
    play(document.getElementById("player"), engine, described.played);
    if (!figures.length) return;
    draw(document.getElementById("sketch"), engine, described, globalThis.batchsim.figures.tail);
  } catch (error) {
    page.className = "stills";
    console.warn(error);
  }
}

/** Show one figure alone, with the views and controls that the address names, as the book does, or the game; null without any. */
function alone(page, described) {
  const wanted = new URLSearchParams(location.hash.slice(1)), [host] = find("[data-linked]");
  if (wanted.has("player")) {
    delete host.dataset.linked;
    document.getElementById("player").dataset.linked = "";
  } else if (!wanted.has("views")) return null;
  page.classList.add("alone");
  if (wanted.has("player")) return [];
  host.dataset.views = wanted.get("views");
  host.dataset.controls = (wanted.get("controls") ?? "").split(" ").filter((name) => name in described.controls).join(" ");
  return [host];
}

/** Before the essay, for those who come first: a figure whose parts come one after another. */
function first(whole, context) {
  const steps = context.described.opening, [said, host] = whole.children;
  const begin = () => {
    whole.hidden = false;
    const named = (list) => steps.map(({ name }) => name).filter((name) => name in list);
    const views = ["film", ...named(context.described.views)], controls = named(context.described.controls);
    const values = { objective_ms: context.described.controls.objective_ms.default }; // of which the map takes its colours
    return new Figure(host, { ...context, views, controls, values, plays: true });
  };
  let figure = null;
  const show = (at) => {
    figure ??= begin();
    const shown = steps.slice(0, at + 1).map(({ name }) => name);
    for (const [name, { input }] of Object.entries(figure.sliders)) input.parentElement.hidden = !shown.includes(name);
    const views = ["film", ...figure.views.filter((view) => shown.includes(view))], alone = host.clientWidth <= NARROW_PX;
    for (const view of figure.views) host.querySelector(`.${view}`).hidden = !(alone ? views.at(-1) === view : views.includes(view));
    figure.numbers.hidden = views.length === 1;
    const { rate_per_s } = steps[at];
    if (rate_per_s && (!at || figure.values.rate_per_s === steps[0].rate_per_s)) figure.start({ rate_per_s });
    figure.resize();
  };
  const end = (skipped) => {
    figure.film.destroy();
    whole.remove();
    if (skipped) return;
    const { choose } = globalThis.batchsim.figures;
    choose.move(Object.fromEntries(figure.controls.map((name) => [name, figure.values[name]])));
    choose.host.closest("section").scrollIntoView();
  };
  opening(said, steps, { show, end });
}

function themes(page) {
  const button = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const show = (name) => {
    page.dataset.theme = name;
    button.textContent = name === "dark" ? "Light" : "Dark";
    Object.values(globalThis.batchsim?.figures ?? {}).forEach((figure) => figure.draw());
    document.dispatchEvent(new Event("restyle"));
  };
  button.onclick = () => show(page.dataset.theme === "dark" ? "light" : "dark");
  dark.onchange = () => show(dark.matches ? "dark" : "light");
  show(dark.matches ? "dark" : "light");
}

/** The reader is the batcher: the same requests go to two rules and to the best policy. */
function play(host, engine, { until_s, least, rivals, ...given }) {
  const settings = { ...given, servers: 1 };
  const arrival_s = [...engine.run({ ...settings, max_wait_ms: 0, requests: 2000 }).arrival_s].filter((at_s) => at_s < until_s);
  const seconds = Array.from({ length: settings.max_batch_size + 1 }, (_, size) => (settings.fixed_ms + settings.per_item_ms * size) / 1000);
  const row = (name, run) => ({ name, ...engine.summary(run, settings), batches: run.batches.size.length });
  const others = Object.entries(rivals).map(([name, rule]) => row(name, engine.run({ ...settings, arrival_s: Float64Array.from(arrival_s), ...rule })));
  const compare = (_, you) => [row("You", you), ...others];
  batcher(host, { setting: { arrival_s, seconds, until_s }, least, compare });
}

/** The reader draws p99 of a figure's first setting. */
function draw(host, engine, { load, looks }, { values, data }) {
  const [setting, loads] = [{ ...values }, load.loads.filter((each) => each < 1)];
  const rates = loads.map((each) => each * data.saturation_per_s);
  const curve_ms = () => engine.loads(setting, rates).p99_ms;
  const again = sketch(host, { loads, top_ms: 100, looks, theme: () => document.documentElement.dataset.theme, curve_ms });
  document.addEventListener("restyle", again);
}

/** Make a figure and connect the sentences of its section: live numbers, numbers to drag, and the question. */
function section(host, context) {
  const { engine } = context;
  const whole = host.closest("section");
  const live = find("[data-live]", whole);
  const goal = whole.querySelector("[data-goal]");
  const known = new Map(); // of a setting that is compared, by the node: it rarely changes
  const other = (node, settings) => {
    const key = JSON.stringify(settings);
    if (known.get(node)?.key !== key) known.set(node, { key, ...engine.summary(engine.run(settings), settings), overloaded: settings.rate_per_s >= saturation(settings) });
    return known.get(node);
  };
  const onchange = (data) => {
    for (const node of live) {
      const found = node.dataset.with ? other(node, { ...data.settings, ...given(node, "with") }) : data;
      const name = node.dataset.live, grows = found.overloaded && ["mean_ms", "queueing_ms", "p50_ms", "p99_ms"].includes(name);
      node.textContent = grows ? "∞" : written(name, found[name] ?? data.settings[name]);
    }
    if (!goal) return;
    const met = meets(goal.dataset.goal, { ...data.settings, ...data }), known = goal.classList.contains("solved");
    if (met && !known) whole.querySelector(".answer").open = true;
    if (met) goal.classList.add("solved");
    goal.querySelector("[role=status]").textContent = met ? "✓ Yes." : known ? "(You had it.)" : "";
  };
  const controls = host.dataset.controls?.split(" ").filter(Boolean);
  const values = given(host, "values");
  const figure = new Figure(host, { ...context, views: host.dataset.views.split(" "), controls, values, ranges: given(host, "ranges"), plays: "plays" in host.dataset, onchange });
  globalThis.batchsim.figures[host.id] = figure;
  for (const node of find("[data-knob]", whole)) scrub(node, figure);
  for (const button of find("button[data-set]", whole)) button.onclick = () => figure.move(given(button, "set"));
  if ("linked" in host.dataset) link(figure, host);
}

function written(name, value) {
  if (name === "load" || name.endsWith("_share")) return percent(value);
  if (name.endsWith("_ms") && value < 0.005) return "0"; // less is rounding
  return name.endsWith("_ms") && value < 100 ? value.toPrecision(3) : number(value);
}

/** Return whether the data meet each condition, such as "p99_ms<=25". */
function meets(conditions, data) {
  return conditions.split(" ").every((condition) => {
    const [, name, sign, limit] = condition.match(/(\w+)([<>]=)([\d.]+)/);
    return sign === "<=" ? data[name] <= Number(limit) : data[name] >= Number(limit);
  });
}

/** Make a number of a sentence a slider: drag it sideways, or use the arrow keys. */
function scrub(node, figure) {
  const name = node.dataset.knob;
  const { label, kind } = figure.d.controls[name];
  const [low, high] = figure.range(name);
  const step = kind === "whole" ? 1 / (high - low) : 1 / 100;
  const attributes = { role: "slider", tabindex: 0, "aria-label": label, "aria-valuemin": low, "aria-valuemax": high };
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  const to = (place) => figure.set({ [name]: figure.at(name, Math.min(Math.max(place, 0), 1)) });
  const keys = { ArrowRight: step, ArrowUp: step, ArrowLeft: -step, ArrowDown: -step, PageUp: 10 * step, PageDown: -10 * step, Home: -1, End: 1 };
  node.onkeydown = (event) => {
    if (!(event.key in keys)) return;
    event.preventDefault();
    to(figure.place(name) + keys[event.key]);
    figure.move();
  };
  let from = null;
  node.onpointerdown = (event) => {
    node.setPointerCapture(event.pointerId);
    from = { x: event.clientX, place: figure.place(name) };
  };
  node.onpointermove = (event) => from && to(from.place + (event.clientX - from.x) / DRAGGED_PX);
  node.onpointerup = node.onpointercancel = () => {
    from = null;
    figure.move();
  };
  figure.followers.push(() => {
    node.textContent = number(figure.values[name]);
    node.setAttribute("aria-valuenow", Math.min(figure.values[name], high));
  });
}

const isAlone = () => document.documentElement.classList.contains("alone");

/** Keep the figure's setting in the address; take it from there, each value as the nearest valid one. */
function link(figure, host) {
  const note = element("p", { className: "note-of-link", attributes: { role: "status" } });
  const read = () => {
    const wanted = new URLSearchParams(location.hash.slice(1));
    const named = ["fixed_ms", "per_item_ms", ...Object.keys(figure.d.controls)].filter((name) => wanted.has(name)); // ranges follow from these two
    const wrong = named.map((name) => {
      const text = wanted.get(name).trim();
      const value = text === "inf" ? Infinity : text === "" ? NaN : Number(text);
      figure.set({ [name]: value });
      const taken = figure.values[name];
      return taken === value ? "" : `${figure.d.controls[name].label} ${text || "empty"} became ${number(taken)}`;
    });
    const notes = [...new Set(wrong.filter(Boolean))];
    note.textContent = notes.length ? `The link has values out of range: ${notes.join("; ")}.` : "";
    if (!named.length) return;
    figure.move();
    if (!isAlone()) host.scrollIntoView(); // else a page that frames the figure would scroll, too
  };
  host.prepend(note);
  figure.onsettle = () => {
    const parts = figure.controls.map((name) => `${name}=${figure.values[name] === Infinity ? "inf" : figure.values[name]}`);
    if (figure.touched && !isAlone()) history.replaceState(null, "", `#${parts.join("&")}`);
  };
  addEventListener("hashchange", read);
  read();
  figure.forget(); // the setting before the link's is nobody's
}
