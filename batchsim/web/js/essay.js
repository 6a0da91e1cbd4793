/** The essay: its figures, the numbers inside its sentences, and the two parts in which the reader acts. */
import { number, percent } from "./charts.js";
import { Engine } from "./engine.js";
import { Figure, Mapper, element } from "./figure.js";
import { player, sketch } from "./play.js";
import { serve } from "./worker.js";

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
    const mapper = new Mapper(worker);
    worker.postMessage({ bytes, described });
    globalThis.batchsim = { run: (settings) => engine.run(settings), figures: {} };
    page.classList.add("live");
    for (const host of find(".figure[data-views]")) section(host, { engine, mapper, described });
    player(document.getElementById("player"), engine, described);
    sketch(document.getElementById("sketch"), engine, described, globalThis.batchsim.figures.tail);
  } catch (error) {
    page.classList.remove("live");
    page.classList.add("stills");
    console.warn(error);
  }
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

/** Make a figure and connect the sentences of its section: live numbers, numbers to drag, and the question. */
function section(host, context) {
  const { engine } = context;
  const whole = host.closest("section");
  const live = find("[data-live]", whole);
  const goal = whole.querySelector("[data-goal]");
  const onchange = (data) => {
    for (const node of live) {
      const other = given(node, "with");
      const settings = { ...data.settings, ...other };
      const found = node.dataset.with ? engine.summary(engine.run({ ...settings, requests: 20000 }), settings) : data;
      node.textContent = written(node.dataset.live, found[node.dataset.live] ?? data.settings[node.dataset.live]);
    }
    if (goal && !goal.classList.contains("solved") && meets(goal.dataset.goal, { ...data.settings, ...data })) {
      goal.classList.add("solved");
      whole.querySelector(".answer").open = true;
      goal.querySelector("[role=status]").textContent = "✓ Yes.";
    }
  };
  const controls = host.dataset.controls?.split(" ");
  const values = given(host, "values");
  const figure = new Figure(host, { ...context, views: host.dataset.views.split(" "), controls, values, ranges: given(host, "ranges"), plays: "plays" in host.dataset, onchange });
  globalThis.batchsim.figures[host.id] = figure;
  for (const node of find("[data-knob]", whole)) scrub(node, figure);
  for (const button of find("button[data-set]", whole)) button.onclick = () => figure.move(given(button, "set"));
  if ("linked" in host.dataset) link(figure, host);
}

function written(name, value) {
  if (name === "load" || name.endsWith("_share")) return percent(value);
  return name.endsWith("_ms") && value < 100 && value >= 0.01 ? value.toPrecision(3) : number(value);
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
  for (const [key, value] of Object.entries({ role: "slider", tabindex: 0, "aria-label": label, "aria-valuemin": low, "aria-valuemax": high })) {
    node.setAttribute(key, value);
  }
  const show = () => {
    node.textContent = number(figure.values[name]);
    node.setAttribute("aria-valuenow", figure.values[name]);
  };
  const by = (places) => figure.move({ [name]: figure.at(name, Math.min(Math.max(figure.place(name) + places, 0), 1)) });
  const keys = { ArrowRight: step, ArrowUp: step, ArrowLeft: -step, ArrowDown: -step, PageUp: 10 * step, PageDown: -10 * step, Home: -1, End: 1 };
  node.onkeydown = (event) => {
    if (!(event.key in keys)) return;
    event.preventDefault();
    by(keys[event.key]);
  };
  let from = null;
  node.onpointerdown = (event) => {
    node.setPointerCapture(event.pointerId);
    from = { x: event.clientX, place: figure.place(name) };
  };
  node.onpointermove = (event) => {
    if (from) figure.set({ [name]: figure.at(name, Math.min(Math.max(from.place + (event.clientX - from.x) / 300, 0), 1)) });
  };
  node.onpointerup = node.onpointercancel = () => {
    from = null;
    figure.rest();
  };
  figure.followers.push(show);
  show();
}

/** Keep the figure's setting in the address; take it from there, each value as the nearest valid one. */
function link(figure, host) {
  const read = () => {
    const wanted = new URLSearchParams(location.hash.slice(1));
    const changes = {};
    const notes = [];
    for (const [name, text] of wanted) {
      if (!(name in figure.d.controls)) continue;
      const value = text === "inf" ? Infinity : text.trim() === "" ? NaN : Number(text);
      changes[name] = figure.nearest(name, value);
      if (changes[name] !== value) notes.push(`${figure.d.controls[name].label}: ${text || "nothing"} became ${number(changes[name])}`);
    }
    if (!Object.keys(changes).length) return;
    host.querySelector(".note-of-link")?.remove();
    if (notes.length) host.prepend(element("p", { className: "note-of-link", textContent: `The link was out of range. ${notes.join("; ")}.`, attributes: { role: "status" } }));
    figure.move(changes);
    host.scrollIntoView();
  };
  figure.onsettle = () => {
    const parts = figure.controls.map((name) => `${name}=${figure.values[name] === Infinity ? "inf" : figure.values[name]}`);
    if (figure.touched) history.replaceState(null, "", `#${parts.join("&")}`);
  };
  addEventListener("hashchange", read);
  read();
}
