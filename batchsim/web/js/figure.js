/** The figure: sliders, and the views of one run, all computed and drawn again in every frame of a drag. */
import { Chart, duration, grasp, inWords, nice, number, percent } from "./charts.js";
import { element } from "./dom.js";
import { inMs, queueing } from "./engine.js";

const ORDER = ["latency", "map", "load", "film", "breakdown"];
const PLACES = 200; // of a slider
const REST_MS = 300; // after the last move, the state counts as the one before the next
const FILMED = 160; // requests

/** Return a function that asks a worker for a map; of the questions that come meanwhile only the newest is answered. */
export function mapper(worker) {
  let [answering, next] = [null, null];
  const ask = (...asked) => {
    if (answering) next = asked;
    else worker.postMessage((answering = asked)[0]);
  };
  worker.onmessage = ({ data }) => {
    const [[, answered], waiting] = [answering, next];
    answering = next = null;
    if (waiting) ask(...waiting);
    answered(data);
  };
  return ask;
}

/** Requests that servers with full batches can answer per second. */
export function saturation({ servers, max_batch_size: size, fixed_ms: fixed, per_item_ms: item }) {
  return (1000 * servers * size) / (fixed + item * size);
}

/** A figure of some views and controls; `onchange` gets its data in every frame, `plays` starts its film, `theme` names its colours. */
export class Figure {
  constructor(host, { engine, askMap, described, Film, views = ORDER, controls, values, ranges = {}, plays = false, onchange = () => {}, theme = () => document.documentElement.dataset.theme ?? "light" }) {
    Object.assign(this, { host, engine, askMap, d: described, given: ranges, onchange, theme, settled: true, followers: [], charts: [], sliders: {} });
    this.controls = controls ?? Object.keys(described.controls);
    this.values = Object.fromEntries(Object.entries(described.controls).map(([name, it]) => [name, it.default]));
    if (!this.controls.includes("objective_ms")) this.values.objective_ms = Infinity;
    Object.assign(this.values, values);
    this.views = ORDER.filter((view) => views.includes(view) && (view !== "film" || Film));
    this.requests = described.map.requests;
    this.build(Film);
    this.resize();
    this.compute();
    this.settle();
    this.observers = [new ResizeObserver(() => this.resize())];
    this.observers[0].observe(host);
    if (!this.film) return;
    this.playWhenSeen(plays);
    this.film.onmoment(({ picked }) => picked !== this.followed && this.draw());
  }

  build(Film) {
    const grid = element("div", { className: "views" });
    for (const view of this.views) {
      const name = view === "film" ? "Queue and servers" : this.d.views[view][view === "load" ? "short" : "name"];
      const box = grid.appendChild(element("div", { className: `view ${view}` }, element("h3", { textContent: name })));
      if (view === "film") this.film = new Film(box.appendChild(element("div")), { looks: this.d.looks, fill: true });
      else this.charts.push(this.chart(view, box));
    }
    this.numbers = element("dl", { className: "numbers" });
    this.words = element("p", { className: "words", attributes: { role: "status" } });
    const panel = element("div", { className: "controls" }, ...this.controls.map((name) => this.slider(name)));
    if (this.controls.includes("fixed_ms")) panel.append(this.presets());
    this.host.classList.toggle("duo", this.views.length === 2 && this.views.includes("film"));
    this.host.replaceChildren(this.numbers, ...(this.views.length > 2 ? [this.picker(grid)] : []), grid, panel, this.words);
  }

  /** A list that picks the one view to show where there is no room for more. */
  picker(grid) {
    const options = this.views.map((view, i) => element("option", { value: view, textContent: grid.children[i].firstChild.textContent }));
    const list = element("select", {}, ...options);
    list.onchange = () => {
      this.views.forEach((view, i) => grid.children[i].classList.toggle("picked", view === list.value));
      this.resize();
    };
    list.value = "map";
    list.onchange();
    return element("label", { className: "picker" }, "View ", list);
  }

  chart(view, box) {
    const chart = new Chart(view, box, this.d);
    const { canvas } = chart;
    let held = null;
    const take = (event) => grasp(chart, event.offsetX, event.offsetY, this.data, held);
    canvas.onpointerdown = (event) => {
      held = take(event);
      if (held) canvas.setPointerCapture(event.pointerId);
      if (held && event.pointerType !== "touch") this.set(held); // a finger may be about to scroll
    };
    canvas.onpointermove = (event) => {
      if (held) this.set(take(event));
      else canvas.classList.toggle("graspable", Boolean(take(event)));
    };
    canvas.onpointerup = (event) => {
      if (held) this.move(take(event));
      held = null;
    };
    canvas.onpointercancel = () => {
      if (held) this.move();
      held = null;
    };
    // A finger moves what it took up and down, not the page.
    const moves = () => held && (view === "breakdown" || (view === "load" && "objective_ms" in held));
    canvas.addEventListener("touchstart", (event) => moves() && event.preventDefault(), { passive: false });
    return chart;
  }

  /** Return the range of a slider: a given one, or the explorer's, which follows from the service time and from what cannot move. */
  range(name) {
    const cost = (size) => this.values.fixed_ms + this.values.per_item_ms * size;
    const largest = this.d.map.sizes[this.d.map.sizes.length - 1];
    const tenth = (value) => 10 ** (Math.round(Math.log10(value) * 10) / 10);
    const most = (control, high) => (this.controls.includes(control) || this.views.includes("map") ? high : this.values[control]);
    const [size, servers] = [most("max_batch_size", largest), most("servers", this.d.controls.servers.slider.high)];
    const ranges = {
      rate_per_s: [tenth(20 / cost(1)), tenth(2 * saturation({ ...this.values, servers, max_batch_size: size }))],
      max_wait_ms: [0, nice(4 * cost(size), this.d.axis.steps)],
      max_batch_size: [1, largest],
      objective_ms: [tenth(cost(1) / 2), tenth(50 * cost(largest))],
    };
    const { low, high } = this.d.controls[name].slider;
    return this.given[name] ?? ranges[name] ?? [low, high];
  }

  /** Return the place of a control's value on its slider, from 0 to 1. */
  place(name) {
    const [low, high] = this.range(name);
    const [value, isLog] = [this.values[name], this.d.controls[name].slider.scale === "log"];
    const share = isLog ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
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
    input.onchange = () => this.move();
    this.sliders[name] = { input, shown, steps };
    return element("label", {}, element("span", { textContent: label }), shown, input);
  }

  /** The list of published service times. */
  presets() {
    const source = element("a", { target: "_blank", rel: "noopener", textContent: "Source", hidden: true });
    const names = ["", ...Object.keys(this.d.presets)];
    const list = element("select", {}, ...names.map((name) => element("option", { value: name, textContent: name || "Fixed cost + cost per item" })));
    list.onchange = () => {
      const preset = this.d.presets[list.value];
      source.hidden = !preset;
      if (!preset) return;
      const { fixed_ms, per_item_ms, backend, largest, source_url } = preset;
      Object.assign(source, { href: source_url, title: `${backend}; a straight line through its batches of up to ${largest}` });
      this.move({ fixed_ms, per_item_ms });
      const full = saturation(this.values);
      if (this.values.rate_per_s > full || this.values.rate_per_s < full / 4) this.move({ rate_per_s: Number((0.4 * full).toPrecision(2)) });
    };
    return element("label", { className: "presets" }, element("span", { textContent: "Service time" }), source, list);
  }

  /** Change values, each to the nearest valid one, and draw in the next frame. */
  set(changes) {
    if (this.settled) this.before = this.data;
    clearTimeout(this.timer);
    this.settled = false;
    this.touched = true;
    for (const [name, value] of Object.entries(changes ?? {})) this.values[name] = this.nearest(name, value);
    if (this.values.fixed_ms + this.values.per_item_ms === 0) this.values.per_item_ms = 0.01; // a batch takes some time
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.compute();
    });
  }

  /** Let go, perhaps with a last change: after a while the state is the one before the next move. */
  move(changes = {}) {
    this.set(changes);
    this.timer = setTimeout(() => this.settle(), REST_MS);
  }

  /** Go to values as they are, in range or not, and compare with those before. */
  go(values) {
    if (this.settled) this.before = this.data;
    Object.assign(this.values, values);
    this.compute();
    this.settle();
  }

  /** Go to values without a comparison, and to the film's beginning. */
  start(values) {
    Object.assign(this.values, values);
    this.film?.snap(0);
    this.before = undefined;
    this.compute();
    this.settle();
  }

  /** Draw without the state before. */
  forget() {
    this.before = undefined;
    this.draw();
  }

  settle() {
    if (this.frame) return this.move(); // it is not drawn yet
    this.settled = true;
    this.draw();
    const setting = this.controls.map((name) => `${this.d.controls[name].label} ${number(this.values[name])}`).join(", ");
    const said = this.charts.map((chart) => inWords(chart.view, this.data, this.d));
    this.charts.forEach((chart, i) => chart.canvas.setAttribute("aria-label", said[i]));
    this.words.textContent = `${setting}: ${said.join(" ")}`;
    this.onsettle?.();
  }

  /** Run the setting, and everything that the views show. */
  compute() {
    const settings = { ...this.values };
    const run = this.engine.run({ ...settings, requests: this.requests });
    const latency_ms = run.finish_s.map((finish, i) => inMs(finish - run.arrival_s[i]));
    const saturation_per_s = saturation(settings);
    const load = settings.rate_per_s / saturation_per_s;
    const data = { settings, run, latency_ms, ...this.engine.summary(run, settings), saturation_per_s, load, overloaded: load >= 1, map: this.data?.map };
    const full = run.batches.trigger.filter((trigger) => this.d.triggers[trigger] === "full");
    data.full_share = full.length / run.batches.trigger.length;
    data.slowest_ms = latency_ms.reduce((most, ms) => Math.max(most, ms), 0);
    if (this.views.includes("breakdown")) data.groups = groupMeans(run, latency_ms, settings.servers, this.d.groups);
    if (this.views.includes("load")) data.curve = this.curve(settings, saturation_per_s);
    this.data = data;
    if (this.views.includes("map")) this.ask(settings);
    if (this.film) this.showFilm(data);
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

  /** Ask the worker for the map, unless it shows this traffic already. */
  ask(settings) {
    const { rate_per_s, servers, fixed_ms, per_item_ms } = settings;
    const key = [rate_per_s, servers, fixed_ms, per_item_ms].join();
    if (key === this.mapOf) return;
    this.mapOf = key;
    const { sizes, waits: parts } = this.d.map;
    const waits = [...parts.map((part) => Number((part * this.range("max_wait_ms")[1]).toPrecision(6))), Infinity];
    const overloaded = sizes.map((size) => rate_per_s >= saturation({ ...settings, max_batch_size: size }));
    this.askMap({ settings: { ...settings, requests: this.requests }, sizes, waits }, (p99_ms) => {
      this.data.map = { sizes, waits, p99_ms, overloaded };
      this.charts.find((chart) => chart.view === "map").draw(this.data, this.before, !this.settled);
      if (this.settled) this.settle();
    });
  }

  /** Load the first requests into the film, which keeps its time or plays on from the beginning; one out of sight can wait. */
  showFilm({ run, settings }) {
    this.isFilmOld = this.isFilmSeen === false;
    if (this.isFilmOld) return;
    const film = filmOf(run, settings);
    const over = this.film.time_s >= film.until_s;
    const time_s = !over ? this.film.time_s : this.film.playing ? 0 : film.until_s;
    this.film.load(film, time_s);
    if (this.film.playing) this.film.snap(time_s);
  }

  /** A film pauses out of sight; one that `plays` starts when it is seen, unless the reader prefers less motion. */
  playWhenSeen(plays) {
    let plans = plays && !matchMedia("(prefers-reduced-motion: reduce)").matches; // to play when it is seen
    const watch = (changes) => {
      const seen = changes[changes.length - 1].isIntersecting;
      if (this.isFilmSeen && !seen) plans = this.film.playing;
      this.isFilmSeen = seen;
      if (!seen) this.film.pause();
      else if (this.isFilmOld) this.showFilm(this.data);
      if (seen && plans) this.film.play();
    };
    this.observers.push(new IntersectionObserver(watch, { threshold: 0.2 }));
    this.observers.at(-1).observe(this.film.host);
  }

  /** End what would go on without the figure. */
  destroy() {
    clearTimeout(this.timer);
    cancelAnimationFrame(this.frame);
    for (const observer of this.observers) observer.disconnect();
    this.film?.destroy();
  }

  resize() {
    for (const chart of this.charts) chart.measure();
    if (this.data) this.draw();
  }

  draw() {
    const name = this.theme();
    const theme = this.d.looks[name];
    if (this.film && this.film.options.theme !== name) this.film.theme = name;
    this.followed = this.film?.picked ?? null; // the film has the first requests of the run
    this.data.followed_ms = this.followed === null ? NaN : this.data.latency_ms[this.followed];
    for (const chart of this.charts) {
      chart.theme = { ...theme, now: theme.green, before: theme.grey, objective: theme.vermilion };
      chart.draw(this.data, this.before, !this.settled);
    }
    for (const [control, { input, shown, steps }] of Object.entries(this.sliders)) {
      const text = number(this.values[control]);
      input.value = Math.round(this.place(control) * steps);
      input.setAttribute("aria-valuetext", text);
      shown.textContent = text;
    }
    for (const follow of this.followers) follow();
    this.show();
  }

  /** Write the four numbers of the explorer, each with the one before the last move. */
  show() {
    const limit = this.data.settings.objective_ms;
    const steady = (key) => (each) => (each.overloaded ? Infinity : each[key]);
    const kept = steady("p99_ms")(this.data) <= limit ? `✓ within ${duration(limit)}` : `✗ above ${duration(limit)}`;
    const rows = [
      ["p50", steady("p50_ms"), duration, ""],
      ["p99", steady("p99_ms"), duration, limit < Infinity ? kept : ""],
      ["throughput", (each) => each.throughput_per_s, (value) => `${number(value)}/s`, ""],
      ["load", (each) => each.load, percent, this.data.overloaded ? this.d.map.words.overloaded : ""],
    ];
    this.cells ??= rows.map(([name]) => {
      const cells = [element("dd"), element("dd", { className: "note" })];
      this.numbers.append(element("div", {}, element("dt", { textContent: name }), ...cells));
      return cells;
    });
    rows.forEach(([, value, write, note], i) => {
      const [now, then] = [this.data, this.before ?? this.data].map((each) => write(value(each)));
      this.cells[i][0].textContent = now;
      this.cells[i][1].textContent = note || (then === now ? "" : `before ${then}`);
    });
  }
}

/** Return the mean parts (forming, queueing, computing) of groups of equal size, of ever slower requests. */
export function groupMeans(run, latency_ms, servers, count) {
  const queued_s = queueing(run, servers);
  // Whole nanoseconds and the number of the request in one value: sorted so, it also orders the requests.
  const order = latency_ms.map((ms, i) => Math.min(Math.round(ms * 1e6), 2 ** 37) * 32768 + i).sort();
  return Array.from({ length: count }, (_, group) => {
    const [begin, end] = [group, group + 1].map((each) => Math.floor((each * order.length) / count));
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

/** Return the first requests of a run as a film: what film.js describes. */
export function filmOf(run, { servers, max_batch_size: largest, max_wait_ms: wait }) {
  const until_s = run.arrival_s[FILMED - 1];
  const after = run.batches.start_s.findIndex((start) => start > until_s);
  const batches = after < 0 ? run.batches.start_s.length : after;
  const column = (values) => values.slice(0, batches);
  const first = (values) => values.slice(0, FILMED);
  const { start_s, finish_s, server, trigger, size } = run.batches;
  const lane = {
    kind: "requests", title: [], servers, first: 0, code: [], loses: false,
    arrival_s: first(run.arrival_s), left_s: first(run.start_s), done_s: first(run.finish_s), status: new Uint8Array(FILMED),
    batch: first(run.batch_index).map((batch) => (batch < batches ? batch : -1)),
    batches: { start_s: column(start_s), finish_s: column(finish_s), server: column(server), trigger: column(trigger), size: column(size) },
    rule: { largest, enough: largest, max_wait_ms: Number.isFinite(wait) ? wait : null },
  };
  return { begin_s: 0, until_s, lanes: [lane] };
}
