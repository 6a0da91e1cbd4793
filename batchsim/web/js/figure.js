/** The figure: sliders, and the views of one run, all computed and drawn again in every frame of a drag. */
import { Chart, duration, grasp, inWords, nice, number, percent } from "./charts.js";
import { queueing } from "./engine.js";

const ORDER = ["latency", "map", "load", "film", "breakdown"];
const PLACES = 200; // of a slider
const REST_MS = 300; // after the last move, the state counts as the one before the next

/** Make an element with properties and children. */
export function element(tag, { attributes = {}, ...properties } = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** The worker that computes maps; of the questions that come meanwhile it answers only the newest. */
export class Mapper {
  constructor(worker) {
    this.worker = worker;
    this.asked = this.next = null;
    worker.onmessage = ({ data }) => {
      const answered = this.asked;
      this.asked = null;
      if (this.next) this.ask(...this.next);
      answered[1](data);
    };
  }

  ask(settings, done) {
    if (this.asked) {
      this.next = [settings, done];
      return;
    }
    this.asked = [settings, done];
    this.next = null;
    this.worker.postMessage(settings);
  }
}

/** Requests that servers with full batches can answer per second. */
export function saturation({ servers, max_batch_size: size, fixed_ms: fixed, per_item_ms: item }) {
  return (1000 * servers * size) / (fixed + item * size);
}

/** A figure of some views and controls; `onchange` gets its data in every frame. */
export class Figure {
  constructor(host, { engine, mapper, described, Film, views = ORDER, controls, values = {}, ranges = {}, plays = false, onchange = () => {} }) {
    Object.assign(this, { host, engine, mapper, Film, d: described, given: ranges, onchange, settled: true, followers: [] });
    this.controls = controls ?? Object.keys(described.controls);
    this.values = Object.fromEntries(Object.entries(described.controls).map(([name, it]) => [name, it.default]));
    if (!this.controls.includes("objective_ms")) this.values.objective_ms = Infinity;
    Object.assign(this.values, values);
    this.views = ORDER.filter((view) => views.includes(view) && (view !== "film" || Film));
    this.requests = described.map.requests;
    this.build();
    new ResizeObserver(() => this.resize()).observe(host);
    if (this.film) this.playWhenSeen(plays);
    this.resize();
    this.compute();
    this.settle();
  }

  build() {
    this.numbers = element("dl", { className: "numbers" });
    this.words = element("p", { className: "words", attributes: { role: "status" } });
    const picker = element("select", { onchange: () => this.pick(picker.value) });
    const grid = element("div", { className: "views" });
    this.host.classList.toggle("duo", this.views.length === 2 && this.views.includes("film"));
    const panel = element("div", { className: "controls" }, ...this.controls.map((name) => this.slider(name)));
    if (this.controls.includes("fixed_ms")) panel.append(this.presets());
    this.charts = [];
    for (const view of this.views) {
      const name = view === "film" ? "Queue and servers" : this.d.views[view][view === "load" ? "short" : "name"];
      const box = element("div", { className: `view ${view}` }, element("h3", { textContent: name }));
      grid.append(box);
      if (view === "film") this.film = new this.Film(box.appendChild(element("div")), { looks: this.d.looks, fill: true });
      else this.charts.push(this.chart(view, box));
      picker.append(element("option", { value: view, textContent: name }));
    }
    this.host.replaceChildren(this.numbers, ...(this.views.length > 2 ? [element("label", { className: "picker" }, "View ", picker)] : []), grid, panel, this.words);
    if (this.views.length > 2) this.pick((picker.value = "map"));
  }

  /** Show one view where there is room for one only. */
  pick(view) {
    for (const each of this.views) this.host.querySelector(`.view.${each}`).classList.toggle("picked", each === view);
    this.resize();
  }

  chart(view, box) {
    const chart = new Chart(view, box, this.d);
    const { canvas } = chart;
    let held = null;
    const take = (event) => grasp(chart, event.offsetX, event.offsetY, this.data, held);
    canvas.onpointerdown = (event) => {
      held = take(event);
      if (!held) return;
      canvas.setPointerCapture(event.pointerId);
      this.set(held);
    };
    canvas.onpointermove = (event) => {
      if (held) this.set(take(event) ?? {});
      else canvas.classList.toggle("graspable", Boolean(take(event)));
    };
    canvas.onpointerup = canvas.onpointercancel = () => {
      if (held) this.rest();
      held = null;
    };
    canvas.addEventListener("touchstart", (event) => held && event.preventDefault(), { passive: false });
    return chart;
  }

  // Sliders: a value, its place from 0 to 1, and its range, as in the explorer.

  range(name) {
    const { fixed_ms: fixed, per_item_ms: item } = this.values;
    const cost = (size) => fixed + item * size;
    const largest = this.d.map.sizes[this.d.map.sizes.length - 1];
    const tenth = (value) => 10 ** (Math.round(Math.log10(value) * 10) / 10);
    const ranges = {
      rate_per_s: [tenth(20 / cost(1)), tenth((16000 * largest) / cost(largest))],
      max_wait_ms: [0, nice(4 * cost(largest), this.d.axis.steps)],
      max_batch_size: [1, largest],
      objective_ms: [tenth(cost(1) / 2), tenth(50 * cost(largest))],
    };
    const { low, high } = this.d.controls[name].slider;
    return this.given[name] ?? ranges[name] ?? [low, high];
  }

  /** Return the place of a value on its slider, from 0 to 1. */
  place(name, value = this.values[name]) {
    const [low, high] = this.range(name);
    const share = this.d.controls[name].slider.scale === "log" ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
    return Math.min(Math.max(share, 0), 1);
  }

  /** Return the value at a place of a slider. */
  at(name, place) {
    const { kind, slider } = this.d.controls[name];
    const [low, high] = this.range(name);
    const value = slider.scale === "log" ? low * (high / low) ** place : low + place * (high - low);
    return kind === "whole" ? Math.round(value) : Number(value.toPrecision(3));
  }

  /** Return the nearest valid value of a control. */
  nearest(name, value) {
    const [low, high] = this.range(name);
    if (name === "max_wait_ms" && value === Infinity) return value;
    if (Number.isNaN(value)) return this.values[name];
    const clipped = Math.min(Math.max(value, low), high);
    return this.d.controls[name].kind === "whole" ? Math.round(clipped) : clipped;
  }

  slider(name) {
    const { label, about, kind } = this.d.controls[name];
    const [low, high] = this.range(name);
    const steps = kind === "whole" ? high - low : PLACES;
    const input = element("input", { type: "range", min: 0, max: steps, step: 1, name, title: about });
    const shown = element("output");
    input.oninput = () => this.set({ [name]: this.at(name, input.value / steps) });
    input.onchange = () => this.rest();
    this.sliders ??= {};
    this.sliders[name] = { input, shown, steps };
    return element("label", {}, element("span", { textContent: label }), shown, input);
  }

  presets() {
    const source = element("a", { target: "_blank", rel: "noopener", textContent: "Source", hidden: true });
    const names = Object.keys(this.d.presets);
    const options = ["", ...names].map((name) => element("option", { value: name, textContent: name || "Affine: fixed cost + cost per item" }));
    const chosen = element("select", {}, ...options);
    chosen.onchange = () => {
      const preset = this.d.presets[chosen.value];
      source.hidden = !preset;
      if (!preset) return;
      source.href = preset.source_url;
      source.title = `${preset.backend}, batches of up to ${preset.largest}; a straight line within ${percent(Math.abs(preset.worst_error))}`;
      const { fixed_ms, per_item_ms } = preset;
      this.set({ fixed_ms, per_item_ms });
      const full = saturation(this.values);
      if (this.values.rate_per_s > full || this.values.rate_per_s < full / 4) this.set({ rate_per_s: Number((0.4 * full).toPrecision(2)) });
      this.rest();
    };
    return element("label", { className: "presets" }, element("span", { textContent: "Service time" }), source, chosen);
  }

  /** Change values, each to the nearest valid one, and draw in the next frame. */
  set(changes) {
    if (this.settled) this.before = this.data;
    this.settled = false;
    this.touched = true;
    for (const [name, value] of Object.entries(changes)) this.values[name] = this.nearest(name, value);
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.compute();
    });
  }

  /** Change values as one move. */
  move(changes) {
    this.set(changes);
    this.rest();
  }

  /** Let go: after a while the state is the one before the next move. */
  rest() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.settle(), REST_MS);
  }

  settle() {
    if (this.frame) return this.rest();
    this.settled = true;
    this.draw();
    const { values, data } = this;
    const setting = this.controls.map((name) => `${this.d.controls[name].label} ${number(values[name])}`).join(", ");
    this.words.textContent = `${setting}: ${this.charts.map((chart) => inWords(chart.view, data, this.d)).join(" ")}`;
    for (const chart of this.charts) chart.canvas.setAttribute("aria-label", inWords(chart.view, data, this.d));
    this.onsettle?.();
  }

  /** Run the setting, and everything that the views show. */
  compute() {
    const settings = { ...this.values };
    const run = this.engine.run({ ...settings, requests: this.requests });
    const latency_ms = new Float64Array(this.requests);
    for (let i = 0; i < this.requests; i++) latency_ms[i] = 1000 * (run.finish_s[i] - run.arrival_s[i]);
    const full = saturation(settings);
    const data = { settings, run, latency_ms, ...this.engine.summary(run, settings), saturation_per_s: full };
    data.load = settings.rate_per_s / full;
    data.overloaded = data.load >= 1;
    data.full_share = run.batches.trigger.reduce((sum, trigger) => sum + (this.d.triggers[trigger] === "full"), 0) / run.batches.trigger.length;
    data.slowest_ms = latency_ms.reduce((most, ms) => Math.max(most, ms), 0);
    if (this.views.includes("breakdown")) data.groups = groupMeans(run, latency_ms, settings.servers, this.d.groups);
    if (this.views.includes("load")) {
      data.curve = this.curve(settings, full);
    }
    data.map = this.data?.map;
    this.data = data;
    if (this.views.includes("map")) this.ask(settings);
    this.play(run, settings);
    this.draw();
    this.onchange(data);
  }

  /** Return the curve of p50 and p99 by the rate, which does not depend on the rate of the setting. */
  curve(settings, saturation_per_s) {
    const key = JSON.stringify({ ...settings, rate_per_s: 0, objective_ms: 0 });
    if (key !== this.curveOf) {
      const rates = this.d.load.loads.filter((load) => load < 1).map((load) => load * saturation_per_s);
      this.kept = { rates, saturation_per_s, ...this.engine.loads({ ...settings, requests: this.requests }, rates) };
      this.curveOf = key;
    }
    return this.kept;
  }

  /** Load the first requests of the run into the film, which keeps its time. */
  play(run, settings) {
    if (!this.film) return;
    const { time_s } = this.film;
    const film = filmOf(run, settings);
    this.film.load(film, Math.min(time_s, film.until_s));
    if (this.film.playing) this.film.snap(Math.min(time_s, film.until_s));
  }

  /** A film pauses out of sight; one that `plays` begins to when it is seen, unless the reader prefers less motion. */
  playWhenSeen(plays) {
    let resumes = plays && !matchMedia("(prefers-reduced-motion: reduce)").matches;
    new IntersectionObserver(([{ isIntersecting: seen }]) => {
      if (seen && resumes) this.film.play();
      if (!seen) resumes = this.film.playing || (resumes && !this.touched);
      if (!seen) this.film.pause();
    }, { threshold: 0.3 }).observe(this.host);
  }

  ask(settings) {
    const { rate_per_s, servers, fixed_ms, per_item_ms } = settings;
    const key = JSON.stringify([rate_per_s, servers, fixed_ms, per_item_ms]);
    if (key === this.mapped) return;
    this.mapped = key;
    const [, longest] = this.range("max_wait_ms");
    const waits = [...this.d.map.waits.map((part) => Number((part * longest).toPrecision(6))), Infinity];
    const { sizes } = this.d.map;
    const overloaded = sizes.map((size) => rate_per_s >= saturation({ ...settings, max_batch_size: size }));
    this.mapper.ask({ settings: { ...settings, requests: this.requests }, sizes, waits }, (p99_ms) => {
      this.data.map = { sizes, waits, p99_ms, overloaded };
      this.draw();
      if (this.settled) this.rest();
    });
  }

  resize() {
    for (const chart of this.charts) {
      const { clientWidth, clientHeight } = chart.canvas;
      Object.assign(chart, { width: clientWidth, height: clientHeight });
    }
    if (this.data) this.draw();
  }

  draw() {
    const name = document.documentElement.dataset.theme ?? "light";
    const theme = this.d.looks[name];
    if (this.film && this.film.options.theme !== name) this.film.theme = name;
    for (const chart of this.charts) {
      chart.theme = { ...theme, now: theme.green, before: theme.grey, objective: theme.vermilion };
      chart.draw(this.data, this.before, !this.settled);
    }
    for (const [name, { input, shown, steps }] of Object.entries(this.sliders)) {
      const text = number(this.values[name]);
      input.value = Math.round(this.place(name) * steps);
      input.setAttribute("aria-valuetext", text);
      shown.textContent = text;
    }
    for (const follow of this.followers) follow();
    this.show();
  }

  /** Write the four numbers of the explorer, each with its change since the last move. */
  show() {
    const { data, before } = this;
    const limit = data.settings.objective_ms;
    const grows = (each, key) => (each.overloaded ? Infinity : each[key]);
    const rows = [
      ["p50", grows(data, "p50_ms"), before && grows(before, "p50_ms"), duration, ""],
      ["p99", grows(data, "p99_ms"), before && grows(before, "p99_ms"), duration, limit === Infinity ? "" : grows(data, "p99_ms") <= limit ? `✓ within ${duration(limit)}` : `✗ above ${duration(limit)}`],
      ["throughput", data.throughput_per_s, before?.throughput_per_s, (value) => `${number(value)}/s`, ""],
      ["load", data.load, before?.load, percent, data.overloaded ? this.d.map.words.overloaded : ""],
    ];
    this.cells ??= rows.map(([name]) => {
      const [value, note] = [element("dd"), element("dd", { className: "note" })];
      this.numbers.append(element("div", {}, element("dt", { textContent: name }), value, note));
      return [value, note];
    });
    rows.forEach(([, value, old, write, note], i) => {
      const was = old !== undefined && write(old) !== write(value) ? `before ${write(old)}` : "";
      this.cells[i][0].textContent = write(value);
      this.cells[i][1].textContent = note || was;
    });
  }
}

/** Return the mean parts (forming, queueing, computing) of groups of equal size, of ever slower requests. */
export function groupMeans(run, latency_ms, servers, count) {
  const requests = latency_ms.length;
  const queued_s = queueing(run, servers);
  // Whole nanoseconds and the number of the request in one value: sorted so, it also orders the requests.
  const order = Float64Array.from(latency_ms, (ms, i) => Math.min(Math.round(ms * 1e6), 2 ** 37) * 32768 + i).sort();
  return Array.from({ length: count }, (_, group) => {
    const [begin, end] = [Math.floor((group * requests) / count), Math.floor(((group + 1) * requests) / count)];
    const parts = [0, 0, 0];
    for (let k = begin; k < end; k++) {
      const i = order[k] % 32768;
      parts[0] += run.start_s[i] - run.arrival_s[i] - queued_s[i];
      parts[1] += queued_s[i];
      parts[2] += run.finish_s[i] - run.start_s[i];
    }
    return parts.map((sum) => (1000 * sum) / (end - begin));
  });
}

/** Return the first requests of a run as a film. */
export function filmOf(run, settings, shown = 160) {
  const count = Math.min(shown, run.arrival_s.length);
  let batches = 0;
  while (batches < run.batches.start_s.length && run.batches.start_s[batches] <= run.arrival_s[count - 1]) batches++;
  const column = (name) => run.batches[name].slice(0, batches);
  const [start_s, finish_s] = [column("start_s"), column("finish_s")];
  const until_s = run.arrival_s[count - 1];
  const lane = {
    kind: "requests", title: [], servers: settings.servers, first: 0,
    arrival_s: run.arrival_s.slice(0, count), left_s: run.start_s.slice(0, count), done_s: run.finish_s.slice(0, count),
    status: new Uint8Array(count), batch: run.batch_index.slice(0, count).map((batch) => (batch < batches ? batch : -1)),
    batches: { start_s, ready_s: start_s, asked_s: start_s, begin_s: start_s, finish_s, server: column("server"), trigger: column("trigger"), size: column("size") },
    rule: { largest: settings.max_batch_size, enough: settings.max_batch_size, max_wait_ms: Number.isFinite(settings.max_wait_ms) ? settings.max_wait_ms : null },
    code: [], loses: false,
  };
  return { begin_s: 0, until_s, lanes: [lane] };
}
