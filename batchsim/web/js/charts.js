/** Charts of one run on a canvas: its latency, the map of settings, the load, and where the time goes. */

const EM = 12; // pixels: the size of the smallest letters
const GRIP = 14; // pixels from a line at which a hand takes hold of it
const last = (list) => list[list.length - 1];
const clip = (value, low, high) => Math.min(Math.max(value, low), high);

/** A number with so many significant digits, and all digits before its point. */
export function number(value, digits = 3) {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "–" : "∞";
  if (value === 0) return "0";
  const power = Number(value.toExponential(digits - 1).split("e")[1]);
  const [whole, part = ""] = value.toFixed(Math.max(digits - 1 - power, 0)).split(".");
  const kept = part.replace(/0+$/, "");
  return whole.replace(/\B(?=(\d{3})+$)/g, ",") + (kept && `.${kept}`);
}

/** A duration in the unit that suits it, once rounded. */
export function duration(ms) {
  if (!Number.isFinite(ms)) return number(ms);
  return Number(ms.toPrecision(3)) >= 1000 ? `${number(ms / 1000)} s` : `${number(ms)} ms`;
}

/** A share as a percentage, with more digits near 0 and 1, and there never rounded towards them. */
export function percent(share) {
  if (share === 0 || share >= 1) return `${number(100 * share)}%`;
  const near = Math.min(share, 1 - share);
  if (near >= 0.1) return `${Math.round(100 * share)}%`;
  const digits = near >= 0.01 ? 1 : 2;
  const steps = 10 ** (2 + digits);
  const whole = share > 0.5 ? Math.floor(steps * share + 1e-6) : Math.ceil(steps * share - 1e-6);
  return `${(clip(whole, 1, steps - 1) / 10 ** digits).toFixed(digits)}%`;
}

/** The next round number among steps times a power of ten, as the explorer's axes have it. */
export function nice(value, steps) {
  if (!(value > 1e-300 && value < Infinity)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return Number(([...steps, 10].find((step) => value <= step * power * (1 + 1e-12)) * power).toPrecision(6));
}

function ticks(low, high, most) {
  const step = nice((high - low) / most, [1, 2, 2.5, 5]);
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) => (first + i) * step);
}

function logTicks(low, high) {
  const found = [];
  for (let power = 10 ** Math.floor(Math.log10(low)); power <= high; power *= 10) found.push(power, 2 * power, 5 * power);
  return found.filter((value) => value >= low * 0.999 && value <= high * 1.001);
}

const short = (value) => (value >= 1000 ? `${Number((value / 1000).toPrecision(6))}k` : `${Number(value.toPrecision(6))}`);

const made = new Map();
/** A pattern of lines or dots over a colour, so that no meaning depends on the colour alone. */
function hatched(ctx, colour, hatch, ink) {
  const key = colour + hatch + ink;
  if (!made.has(key)) {
    const tile = Object.assign(document.createElement("canvas"), { width: 8, height: 8 });
    const pen = tile.getContext("2d");
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 8, 8);
    pen.strokeStyle = pen.fillStyle = ink;
    for (const x of [-8, 0, 8]) {
      if (hatch.includes("/")) pen.moveTo(x, 8), pen.lineTo(x + 8, 0);
      if (hatch.includes("\\")) pen.moveTo(x, 0), pen.lineTo(x + 8, 8);
    }
    pen.stroke();
    if (hatch.includes(".")) pen.fillRect(3, 3, 2, 2);
    made.set(key, ctx.createPattern(tile, "repeat"));
  }
  return made.get(key);
}

/** A canvas with axes: limits hold while a hand moves, and shrink when it lets go. */
export class Chart {
  constructor(view, host, described) {
    this.canvas = host.appendChild(document.createElement("canvas"));
    this.canvas.setAttribute("role", "img");
    Object.assign(this, { view, d: described, ctx: this.canvas.getContext("2d"), held: {}, theme: described.looks.light });
  }

  /** Read the size of the canvas, which is slow while the page changes. */
  measure() { [this.width, this.height] = [this.canvas.clientWidth, this.canvas.clientHeight]; }

  /** Draw the data, and in grey the data before; axes only grow while `moving`. */
  draw(data, before, moving, paint = DRAW[this.view]) {
    const { canvas, ctx } = this;
    if (!this.width) return; // out of sight
    const ratio = Math.min(devicePixelRatio, 2);
    const [width, height] = [Math.round(this.width * ratio), Math.round(this.height * ratio)];
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.clearRect(0, 0, this.width, this.height);
    ctx.font = `${EM}px system-ui, sans-serif`;
    if (!moving) this.held = {};
    paint(this, data, before);
  }

  /** Return a limit that only grows while a hand moves. */
  hold(key, value) { return (this.held[key] = Math.max(this.held[key] ?? -Infinity, value)); }

  /** Place the axes, draw grid, numbers and labels, and set the scales; `right` and `top` are the room there. */
  axes({ right = 12, top = 26, x, y, logY = false, xLabel = "", yLabel = "", xText = short, yText = short }) {
    const { ctx, theme } = this;
    const box = { left: 40, right: this.width - right, top, bottom: this.height - 36 };
    const scale = (value) => (logY ? Math.log(Math.max(value, 1e-9)) : value);
    const [low, high, wide, tall] = [scale(y[0]), scale(y[1]), box.right - box.left, box.bottom - box.top];
    this.box = box;
    this.x = (value) => box.left + ((value - x[0]) / (x[1] - x[0])) * wide;
    this.y = (value) => box.bottom - ((scale(value) - low) / (high - low)) * tall;
    this.atX = (px) => x[0] + ((clip(px, box.left, box.right) - box.left) / wide) * (x[1] - x[0]);
    this.atY = (py) => {
      const value = low + ((box.bottom - clip(py, box.top, box.bottom)) / tall) * (high - low);
      return logY ? Math.exp(value) : value;
    };
    for (const value of logY ? logTicks(y[0], y[1]) : ticks(y[0], y[1], clip(Math.floor(tall / 40), 2, 5))) {
      this.line([[box.left, this.y(value)], [box.right, this.y(value)]], theme.faint, 1);
      this.text(yText(value), box.left - 5, this.y(value) + 4, { align: "right", colour: theme.soft });
    }
    for (const value of ticks(x[0], x[1], clip(Math.floor(wide / 60), 2, 5))) {
      this.text(xText(value), this.x(value), box.bottom + 16, { align: "center", colour: theme.soft });
    }
    this.line([[box.left, box.bottom], [box.right, box.bottom]], theme.soft, 1);
    this.text(xLabel, (box.left + box.right) / 2, this.height - 3, { align: "center" });
    this.text(yLabel, 2, EM);
    ctx.lineJoin = "round";
  }

  /** Frame the part of the axes that has the request that the reader follows. */
  frame(left, right) {
    const { ctx, theme, box } = this, x = this.x(left);
    Object.assign(ctx, { strokeStyle: theme.vermilion, lineWidth: 2.4 }).strokeRect(x, box.top, this.x(right) - x, box.bottom - box.top);
  }

  line(points, colour, width = 1.6, dash = []) {
    const { ctx } = this;
    ctx.beginPath();
    for (const [x, y] of points) ctx.lineTo(x, y);
    ctx.setLineDash(dash);
    Object.assign(ctx, { strokeStyle: colour, lineWidth: width }).stroke();
    ctx.setLineDash([]);
  }

  area(colour, left, right, alpha = 1) {
    const { ctx, box } = this;
    Object.assign(ctx, { fillStyle: colour, globalAlpha: alpha }).fillRect(left, box.top, box.right - left, box.bottom - box.top);
    ctx.globalAlpha = 1;
  }

  /** Write a text; a halo keeps it legible on top of lines. */
  text(words, x, y, { align = "left", colour = this.theme.ink, halo = false, bold = false } = {}) {
    const { ctx } = this;
    ctx.textAlign = align;
    if (bold) ctx.font = `600 ${EM}px system-ui, sans-serif`;
    if (halo) Object.assign(ctx, { strokeStyle: this.theme.background, lineWidth: 4 }).strokeText(words, x, y);
    ctx.fillStyle = colour;
    ctx.fillText(words, x, y);
    if (bold) ctx.font = `${EM}px system-ui, sans-serif`;
  }

  /** Draw a line that a hand can take, with its grip on an axis; nothing if it is outside. */
  handle(value, vertical, colour, dash, words = "") {
    const { ctx, box } = this;
    const at = vertical ? this.x(value) : this.y(value);
    if (vertical ? at > box.right + 1 : at < box.top - 1 || at > box.bottom + 1) return;
    this.line(vertical ? [[at, box.top], [at, box.bottom]] : [[box.left, at], [box.right, at]], colour, 1.6, dash);
    ctx.fillStyle = colour;
    ctx.beginPath();
    ctx.arc(vertical ? at : box.left, vertical ? box.bottom : at, 5, 0, 7);
    ctx.fill();
    this.text(words, box.left + 9, at - 5, { halo: true });
  }
}

function bars(chart, shares, right, colour, alpha) {
  const { ctx } = chart;
  const step = right / shares.length;
  const corners = [...shares].flatMap((share, i) => [[i * step, share], [(i + 1) * step, share]]);
  ctx.beginPath();
  for (const [x, y] of [[0, 0], ...corners, [right, 0]]) ctx.lineTo(chart.x(x), chart.y(y));
  Object.assign(ctx, { fillStyle: colour, globalAlpha: alpha }).fill();
  ctx.globalAlpha = 1;
  if (alpha < 1) Object.assign(ctx, { strokeStyle: colour, lineWidth: 1.4 }).stroke();
}

function shares(latencies, right, bins) {
  const counts = new Float64Array(bins);
  for (const ms of latencies) counts[Math.min(Math.floor((ms * bins) / right), bins - 1)]++;
  return counts.map((count) => (100 * count) / latencies.length);
}

function drawLatency(chart, data, before) {
  if (data.overloaded) return drawQueue(chart, data, before);
  const { theme, d } = chart;
  const { bins, tail, near, headroom } = d.latency;
  const { steps } = d.axis;
  const limit = data.settings.objective_ms;
  const old = before?.overloaded ? null : before;
  let right = Math.max(...[data, old ?? data].map((each) => nice(Math.min(1.02 * each.slowest_ms, tail * each.p99_ms), steps)));
  if (limit <= near * right) right = Math.max(right, nice(1.05 * limit, steps));
  right = chart.hold("x", right);
  const now = shares(data.latency_ms, right, bins);
  const then = old ? shares(old.latency_ms, right, bins) : [0];
  const high = chart.hold("y", nice(headroom * Math.max(...now, ...then), steps));
  chart.axes({ top: 44, x: [0, right], y: [0, high], xLabel: "latency (ms)", yText: (value) => `${short(value)}%` });
  if (limit < right) chart.area(theme.objective, chart.x(limit), right, 0.13);
  bars(chart, now, right, theme.now, 1);
  if (old) bars(chart, then, right, theme.before, 0.3);
  chart.handle(limit, true, theme.objective, [5, 3]);
  const marks = [[`p50 ${number(data.p50_ms)}`, data.p50_ms, [4, 3]], [`p99 ${number(data.p99_ms)}`, data.p99_ms, []]];
  for (const [, ms, dash] of marks) chart.line([[chart.x(ms), chart.box.top], [chart.x(ms), chart.box.bottom]], theme.ink, 1.2, dash);
  if (data.followed_ms >= 0) chart.frame(Math.min(data.followed_ms, right), Math.min(data.followed_ms, right));
  if (limit <= right) marks.push([`objective ${number(limit)}`, limit]);
  const ends = [-Infinity, -Infinity]; // of the labels in two rows
  for (const [words, ms] of marks.sort((a, b) => a[1] - b[1])) {
    const half = chart.ctx.measureText(words).width / 2;
    const row = chart.x(ms) - half > ends[0] ? 0 : 1;
    const x = Math.max(clip(chart.x(ms), half + 2, chart.width - half - 2), ends[row] + half);
    ends[row] = x + half + 8;
    chart.text(words, x, chart.box.top - 6 - 15 * row, { align: "center" });
  }
}

/** Return [second, requests waiting] along a run. */
function waiting({ arrival_s: arrival, start_s: start }) {
  let [arrived, started] = [0, 0];
  return Array.from({ length: 201 }, (_, i) => {
    const now = (last(arrival) * i) / 200;
    while (arrival[arrived] <= now) arrived++;
    while (start[started] <= now) started++;
    return [now, arrived - started];
  });
}

function drawQueue(chart, data, before) {
  const { theme, d } = chart;
  const now = waiting(data.run);
  const then = before?.overloaded ? waiting(before.run) : [];
  const most = (place) => nice(1.05 * Math.max(...[...now, ...then].map((point) => point[place])), d.axis.steps);
  chart.axes({ top: 44, x: [0, most(0)], y: [0, most(1)], xLabel: "time (s)", yLabel: d.overloaded });
  const place = ([x, y]) => [chart.x(x), chart.y(y)];
  chart.line(then.map(place), theme.before, 3);
  chart.line(now.map(place), theme.now, 2.4);
  const growth = data.settings.rate_per_s - data.saturation_per_s;
  chart.text(`requests waiting: +${number(growth)} every second`, chart.box.left, chart.box.top - 6, { bold: true });
}

function drawLoad(chart, data, before) {
  const { theme, d, ctx } = chart;
  const { curve, settings } = data;
  const points = (each, key) => Array.from(each[key], (ms, i) => [each.rates[i], ms]);
  const lines = [["p50", points(curve, "p50_ms"), [5, 3], 1.4], ["p99", points(curve, "p99_ms"), [], 2.2]];
  const old = before ? points(before.curve, "p99_ms") : [];
  const every = [...lines[0][1], ...lines[1][1], ...old].map((point) => point[1]);
  const right = chart.hold("x", nice(1.2 * Math.max(curve.saturation_per_s, before?.curve.saturation_per_s ?? 0), d.axis.steps));
  const high = chart.hold("y", nice(Math.max(...every), d.axis.coarse));
  const low = 1 / chart.hold("-y", nice(1 / Math.min(...every), d.axis.coarse));
  chart.axes({ x: [0, right], y: [low, high], logY: true, xLabel: d.load.label, yLabel: "ms" });
  const { box } = chart;
  const edge = chart.x(curve.saturation_per_s);
  chart.area(theme.faint, edge, box.right);
  chart.line([[edge, box.top], [edge, box.bottom]], theme.soft, 1, [6, 2, 1, 2]);
  chart.text(d.map.words.overloaded, box.right, box.top - 5, { align: "right", colour: theme.soft });
  const place = ([rate, ms]) => [chart.x(rate), chart.y(ms)];
  chart.line(old.map(place), theme.before, 2.6);
  for (const [name, line, dash, width] of lines) {
    chart.line(line.map(place), theme.now, width, dash);
    const [x, y] = place(line[2]);
    chart.text(name, x, y + (name === "p50" ? 15 : -7), { halo: true });
  }
  chart.handle(settings.objective_ms, false, theme.objective, [5, 3], "objective");
  const [x, y] = [Math.min(chart.x(settings.rate_per_s), box.right), data.overloaded ? box.top + 8 : chart.y(data.p99_ms)];
  ctx.beginPath();
  for (const [dx, dy] of [[0, -7], [7, 0], [0, 7], [-7, 0]]) ctx.lineTo(x + dx, y + dy);
  ctx.closePath();
  Object.assign(ctx, { fillStyle: theme.now }).fill();
  Object.assign(ctx, { strokeStyle: theme.background, lineWidth: 1.5 }).stroke();
}

function drawBreakdown(chart, data, before) {
  const { theme, d, ctx } = chart;
  const { groups } = data;
  const total = (each) => each.map((parts) => parts.reduce((sum, ms) => sum + ms, 0));
  const [now, then] = [total(groups), total(before?.overloaded === data.overloaded ? before.groups : [])];
  const high = chart.hold("y", nice(1.05 * Math.max(...now, ...then), d.axis.steps));
  chart.axes({ right: 84, x: [0, 100], y: [0, high], xLabel: "requests, fastest to slowest (%)", yLabel: "ms" });
  const { box } = chart;
  const width = 100 / groups.length;
  const bottoms = groups.map(() => 0);
  let floor = box.bottom - 14;
  [...d.components.entries()].reverse().forEach(([part, { name, words, colour, hatch }]) => {
    ctx.fillStyle = hatched(ctx, theme[colour], hatch, theme.background);
    ctx.beginPath();
    groups.forEach((parts, i) => {
      const [low, top] = [chart.y(bottoms[i]), chart.y(bottoms[i] + parts[part])];
      ctx.rect(chart.x(i * width), top, chart.x(width) - chart.x(0) - 1, low - top);
      bottoms[i] += parts[part];
    });
    ctx.fill();
    const middle = Math.min(chart.y(last(bottoms) - last(groups)[part] / 2), floor);
    const ms = data[`${name}_ms`];
    floor = middle - 30;
    chart.text(words, box.right + 6, middle - 4);
    chart.text(number(ms < 0.005 ? 0 : ms), box.right + 6, middle + 10, { bold: true });
  });
  chart.line(then.flatMap((ms, i) => [[chart.x(i * width), chart.y(ms)], [chart.x((i + 1) * width), chart.y(ms)]]), theme.before, 2.6);
  if (data.followed_ms >= 0) {
    const group = Math.floor((data.latency_ms.filter((ms) => ms < data.followed_ms).length * groups.length) / data.latency_ms.length);
    chart.frame(group * width, (group + 1) * width);
  }
  chart.handle(data.settings.max_wait_ms, false, theme.ink, [2, 3], `max wait ${number(data.settings.max_wait_ms)}`);
}

function drawMap(chart, data, before) {
  const { ctx, theme, d } = chart;
  const { map } = data;
  if (!map) return;
  const [columns, rows] = [map.sizes.length, map.waits.length];
  const label = (name) => d.controls[name].label.replace(/^./, (letter) => letter.toLowerCase());
  const nothing = () => "";
  chart.axes({ x: [0, columns], y: [0, rows], xLabel: label("max_batch_size"), yLabel: label("max_wait_ms"), xText: nothing, yText: nothing });
  const { box } = chart;
  const [wide, tall] = [(box.right - box.left) / columns, (box.bottom - box.top) / rows];
  const limit = data.settings.objective_ms;
  let best = -1;
  map.p99_ms.forEach((ms, cell) => {
    const [x, y] = [chart.x(cell % columns), chart.y(Math.floor(cell / columns) + 1)];
    const over = map.overloaded[cell % columns];
    if (!over && (best < 0 || ms < map.p99_ms[best])) best = cell;
    const place = Math.min(Math.floor(256 * Math.max(Math.log((ms / limit) * d.map.factor) / Math.log(d.map.factor ** 2), 0)), 255);
    const colour = `#${d.map.colours.slice(6 * place, 6 * place + 6)}`;
    ctx.fillStyle = over ? hatched(ctx, theme.faint, "/", theme.grey) : ms > limit ? hatched(ctx, colour, ".", "#4D4D4D") : colour;
    ctx.fillRect(x, y, wide + 0.5, tall + 0.5);
    if (over || wide < 34 || tall < 15) return;
    chart.text(number(ms, 2), x + wide / 2, y + tall / 2 + 4, { align: "center", colour: place > 60 && place < 195 ? "#000000" : "#FFFFFF" });
  });
  const soft = { colour: theme.soft, align: "center" };
  map.sizes.forEach((size, i) => (wide >= 20 || i % 2) && chart.text(`${size}`, chart.x(i + 0.5), box.bottom + 15, soft));
  map.waits.forEach((wait, i) => (tall >= 14 || i % 2 === 0) && chart.text(number(wait), box.left - 5, chart.y(i + 0.5) + 4, { ...soft, align: "right" }));
  border(chart, map, limit);
  if (before) mark(chart, spot(map, before.settings), theme.before, true);
  if (best >= 0) chart.text("★", chart.x((best % columns) + 0.5), chart.y(Math.floor(best / columns) + 0.5) + 4, { align: "center", halo: true });
  mark(chart, spot(map, data.settings), "#000000", false);
  chart.text(best < 0 ? d.overloaded : `★ lowest p99 ${duration(map.p99_ms[best])}`, box.right, EM, { align: "right" });
}

/** Draw the edge between the settings within the objective and the others. */
function border(chart, map, limit) {
  const { ctx } = chart;
  const columns = map.sizes.length;
  const within = (cell) => !map.overloaded[cell % columns] && map.p99_ms[cell] <= limit;
  ctx.beginPath();
  for (let cell = 0; cell < map.p99_ms.length; cell++) {
    const [column, row] = [(cell % columns) + 1, Math.floor(cell / columns) + 1];
    const edges = [[column < columns, cell + 1, column, row - 1], [row < map.waits.length, cell + columns, column - 1, row]];
    for (const [inside, next, x, y] of edges) {
      if (!inside || within(cell) === within(next)) continue;
      ctx.moveTo(chart.x(column), chart.y(row));
      ctx.lineTo(chart.x(x), chart.y(y));
    }
  }
  outlined(ctx, "#000000", 2);
}

/** Return the place of a setting on the map, in cells, interpolated. */
function spot(map, settings) {
  const between = (values, value) => {
    const above = values.findIndex((each) => each >= value);
    if (above <= 0) return above < 0 ? values.length - 1 : 0;
    const [low, high] = [values[above - 1], values[above]];
    return Number.isFinite(high) ? above - 1 + (value - low) / (high - low) : above - (value < high) / 2;
  };
  return [between(map.sizes, settings.max_batch_size) + 0.5, between(map.waits, settings.max_wait_ms) + 0.5];
}

function mark(chart, [column, row], colour, square) {
  const [x, y] = [chart.x(column), chart.y(row)];
  chart.ctx.beginPath();
  if (square) chart.ctx.rect(x - 7, y - 7, 14, 14);
  else chart.ctx.arc(x, y, 8, 0, 7);
  outlined(chart.ctx, colour, 2.4);
}

/** Stroke a path in white and then in a colour, so that it is visible on dark and on bright cells. */
function outlined(ctx, colour, width) {
  for (const [strokeStyle, lineWidth] of [["#FFFFFF", width + 2.3], [colour, width]]) Object.assign(ctx, { strokeStyle, lineWidth }).stroke();
}

const DRAW = { latency: drawLatency, map: drawMap, load: drawLoad, breakdown: drawBreakdown };

/** Return what a hand changes at a place of a chart, {control: value}, or null; `held` is what it has taken. */
export function grasp({ box, view, x, y, atX, atY }, px, py, data, held) {
  if (!box) return null;
  const { objective_ms: limit, max_wait_ms: wait } = data.settings;
  const near = (a, b) => Math.abs(a - b) < GRIP;
  const digits = (value) => Number(value.toPrecision(3));
  if (view === "latency" && !data.overloaded && (held || near(px, x(limit)))) return { objective_ms: digits(atX(px)) };
  if (view === "breakdown" && (held || near(py, y(wait)))) return { max_wait_ms: digits(atY(py)) };
  if (view === "load") {
    const onLine = held ? "objective_ms" in held : near(py, y(limit)) && px < box.left + 60;
    return onLine ? { objective_ms: digits(atY(py)) } : { rate_per_s: digits(atX(px)) };
  }
  if (view !== "map" || !data.map) return null;
  const [column, row] = [Math.floor(atX(px)), Math.floor(atY(py))];
  return { max_batch_size: data.map.sizes[column] ?? last(data.map.sizes), max_wait_ms: data.map.waits[row] ?? Infinity };
}

/** Describe a chart in one sentence, for those who do not see it. */
export function inWords(view, data, d) {
  if (data.overloaded && view !== "map") return `${d.overloaded}.`;
  if (view === "latency") return `p50 ${duration(data.p50_ms)}, p95 ${duration(data.p95_ms)}, p99 ${duration(data.p99_ms)}.`;
  const known = (ms) => Math.round(1e6 * ms) / 1e6; // to a nanosecond: below, differences of times are rounding errors
  const parts = d.components.map(({ name, words }) => `${words} ${duration(known(data[`${name}_ms`]))}`);
  if (view === "breakdown") return `Mean latency ${duration(data.mean_ms)}: ${parts.join(", ")}.`;
  const rates = () => [0, 3, 6, 10].map((i) => `${duration(data.curve.p99_ms[i])} at ${number(data.curve.rates[i])} per s`);
  if (view === "load") return `p99 ${rates().join(", ")}; ${d.map.words.overloaded} from ${number(data.saturation_per_s)} per s.`;
  const stable = [...(data.map?.p99_ms ?? [])].filter((_, i) => !data.map.overloaded[i % data.map.sizes.length]);
  const within = stable.filter((ms) => ms <= data.settings.objective_ms).length;
  return `${within} of ${data.map?.p99_ms.length ?? 0} settings meet the objective; lowest p99 ${duration(Math.min(...stable))}.`;
}
