/** Charts of one run on a canvas: its latency, the map of settings, the load, and where the time goes. */

const EM = 12; // pixels: the size of the smallest letters

/** A number with so many significant digits, and all digits before its point. */
export function number(value, digits = 3) {
  if (Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return "∞";
  if (value === 0) return "0";
  const power = Number(value.toExponential(digits - 1).split("e")[1]);
  const [whole, part] = String(Number(value.toFixed(Math.max(digits - 1 - power, 0)))).split(".");
  return whole.replace(/\B(?=(\d{3})+$)/g, ",") + (part ? `.${part}` : "");
}

/** A duration in the unit that suits it. */
export function duration(ms, digits = 3) {
  if (!Number.isFinite(ms)) return number(ms);
  return ms >= 1000 ? `${number(ms / 1000, digits)} s` : `${number(ms, digits)} ms`;
}

/** A share as a percentage, never rounded to 100 from below. */
export function percent(share) {
  const near = Math.min(Math.abs(share), Math.abs(1 - share));
  const digits = share >= 1 || near >= 0.1 || share === 0 ? 0 : near >= 0.01 ? 1 : 2;
  const step = 10 ** (2 + digits);
  return `${((share > 0.5 && share < 1 ? Math.floor(share * step + 1e-6) : Math.round(share * step)) / step * 100).toFixed(digits)}%`;
}

/** The next round number, as the explorer's axes have it. */
export function nice(value, steps) {
  if (!(value > 1e-300 && value < Infinity)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return Number((steps.find((step) => value <= step * power * (1 + 1e-12)) * power).toPrecision(6));
}

function ticks(low, high, most) {
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].find((each) => each * power >= rough * (1 - 1e-9)) * power;
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) => (first + i) * step);
}

function logTicks(low, high, most) {
  for (const digits of [[1, 2, 5], [1, 3], [1]]) {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
      for (const digit of digits) {
        const value = digit * 10 ** power;
        if (value >= low * 0.999 && value <= high * 1.001) found.push(value);
      }
    }
    if (found.length <= most || digits.length === 1) return found;
  }
  return [];
}

/** A label of an axis: 2.5k for 2,500. */
function short(value) {
  return value >= 1000 ? `${Number((value / 1000).toPrecision(6))}k` : `${Number(value.toPrecision(6))}`;
}

/** A pattern of lines or dots over a colour, so that no meaning hangs on the colour alone. */
export function hatched(ctx, colour, hatch, ink) {
  const key = `${colour}${hatch}${ink}`;
  hatched.made ??= new Map();
  if (!hatched.made.has(key)) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const pen = tile.getContext("2d");
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 8, 8);
    pen.strokeStyle = pen.fillStyle = ink;
    pen.beginPath();
    for (const shift of [-8, 0, 8]) {
      if (hatch.includes("/")) pen.moveTo(shift, 8), pen.lineTo(shift + 8, 0);
      if (hatch.includes("\\")) pen.moveTo(shift, 0), pen.lineTo(shift + 8, 8);
    }
    pen.stroke();
    if (hatch.includes(".")) pen.fillRect(3, 3, 2, 2);
    hatched.made.set(key, ctx.createPattern(tile, "repeat"));
  }
  return hatched.made.get(key);
}

/** A canvas with axes: limits hold while a hand moves, and shrink when it lets go. */
export class Chart {
  constructor(view, host, described) {
    this.view = view;
    this.d = described;
    this.canvas = document.createElement("canvas");
    this.canvas.setAttribute("role", "img");
    host.append(this.canvas);
    this.ctx = this.canvas.getContext("2d");
    this.held = {};
    this.width = this.height = 0;
    this.theme = described.looks.light;
  }

  /** Draw the data, and in grey the data before; axes only grow while `moving`. */
  draw(data, before, moving, paint = DRAW[this.view]) {
    if (!this.width || !this.height) return;
    const ratio = Math.min(globalThis.devicePixelRatio || 1, 2);
    const [width, height] = [Math.round(this.width * ratio), Math.round(this.height * ratio)];
    if (this.canvas.width !== width || this.canvas.height !== height) Object.assign(this.canvas, { width, height });
    this.ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.ctx.clearRect(0, 0, this.width, this.height);
    this.ctx.font = `${EM}px system-ui, sans-serif`;
    this.ctx.textBaseline = "alphabetic";
    if (!moving) this.held = {};
    paint(this, data, before);
  }

  /** Return a limit that grows only, of one kind of axis. */
  hold(key, value) {
    this.held[key] = Math.max(this.held[key] ?? -Infinity, value);
    return this.held[key];
  }

  /** Place the axes, draw grid, numbers and labels, and set the scales `x` and `y`. */
  axes({ room, x, y, logY = false, xLabel = "", yLabel = "", yText = short, numbersX = true }) {
    const { ctx, theme } = this;
    const box = { left: room.left, right: this.width - room.right, top: room.top, bottom: this.height - room.bottom };
    const scale = (value) => (logY ? Math.log(Math.max(value, 1e-9)) : value);
    const [low, high] = [scale(y[0]), scale(y[1])];
    this.box = box;
    this.x = (value) => box.left + ((value - x[0]) / (x[1] - x[0])) * (box.right - box.left);
    this.y = (value) => box.bottom - ((scale(value) - low) / (high - low)) * (box.bottom - box.top);
    this.atX = (px) => x[0] + ((px - box.left) / (box.right - box.left)) * (x[1] - x[0]);
    this.atY = (px) => {
      const value = low + ((box.bottom - px) / (box.bottom - box.top)) * (high - low);
      return logY ? Math.exp(value) : value;
    };
    ctx.lineWidth = 1;
    const most = Math.max(Math.min(Math.floor((box.bottom - box.top) / 40), 5), 2);
    for (const value of logY ? logTicks(y[0], y[1], most + 1) : ticks(y[0], y[1], most)) {
      this.line([[box.left, this.y(value)], [box.right, this.y(value)]], theme.faint, 1);
      this.text(yText(value), box.left - 5, this.y(value) + 4, { align: "right", colour: theme.soft });
    }
    if (numbersX) {
      for (const value of ticks(x[0], x[1], Math.max(Math.min(Math.floor((box.right - box.left) / 60), 5), 2))) {
        this.text(short(value), this.x(value), box.bottom + 16, { align: "center", colour: theme.soft });
      }
    }
    this.line([[box.left, box.bottom], [box.right, box.bottom]], theme.soft, 1);
    this.text(xLabel, (box.left + box.right) / 2, this.height - 3, { align: "center" });
    this.text(yLabel, 2, EM, {});
  }

  line(points, colour, width = 1.6, dash = []) {
    const { ctx } = this;
    ctx.beginPath();
    for (const [x, y] of points) ctx.lineTo(x, y);
    ctx.strokeStyle = colour;
    ctx.lineWidth = width;
    ctx.setLineDash(dash);
    ctx.stroke();
    ctx.setLineDash([]);
  }

  /** Write a text; a halo keeps it legible on top of lines. */
  text(words, x, y, { align = "left", colour = this.theme.ink, halo = false, bold = false } = {}) {
    const { ctx } = this;
    ctx.textAlign = align;
    if (bold) ctx.font = `600 ${EM}px system-ui, sans-serif`;
    if (halo) {
      ctx.strokeStyle = this.theme.background;
      ctx.lineWidth = 4;
      ctx.lineJoin = "round";
      ctx.strokeText(words, x, y);
    }
    ctx.fillStyle = colour;
    ctx.fillText(words, x, y);
    if (bold) ctx.font = `${EM}px system-ui, sans-serif`;
  }

  /** Draw the objective, a line with a grip that a hand can take. */
  objective(ms, vertical) {
    const { ctx, box, theme } = this;
    const at = vertical ? this.x(ms) : this.y(ms);
    if (vertical ? at > box.right + 1 : at < box.top - 1 || at > box.bottom) return;
    this.line(vertical ? [[at, box.top], [at, box.bottom]] : [[box.left, at], [box.right, at]], theme.objective, 1.6, [5, 3]);
    ctx.fillStyle = theme.objective;
    ctx.beginPath();
    if (vertical) ctx.arc(at, box.bottom, 5, 0, 7);
    else ctx.arc(box.left, at, 5, 0, 7);
    ctx.fill();
  }
}

function bars(chart, shares, right, colour, filled) {
  const { ctx } = chart;
  const step = right / shares.length;
  ctx.beginPath();
  ctx.moveTo(chart.x(0), chart.y(0));
  for (let i = 0; i < shares.length; i++) {
    ctx.lineTo(chart.x(i * step), chart.y(shares[i]));
    ctx.lineTo(chart.x((i + 1) * step), chart.y(shares[i]));
  }
  ctx.lineTo(chart.x(right), chart.y(0));
  ctx.fillStyle = colour;
  ctx.globalAlpha = filled ? 1 : 0.3;
  ctx.fill();
  ctx.globalAlpha = 1;
  ctx.strokeStyle = colour;
  ctx.lineWidth = 1.4;
  if (!filled) ctx.stroke();
}

function shares(latencies, right, bins) {
  const counts = new Float64Array(bins);
  const factor = bins / right;
  for (const ms of latencies) counts[Math.min(Math.floor(ms * factor), bins - 1)]++;
  return counts.map((count) => (100 * count) / latencies.length);
}

const room = (left, right, top, bottom) => ({ left, right, top, bottom });

function drawLatency(chart, data, before) {
  if (data.overloaded) return drawQueue(chart, data, before);
  const { theme, d } = chart;
  const { bins, tail, near, headroom } = d.latency;
  const steps = d.axis.steps;
  const end = (each) => nice(Math.min(1.02 * each.slowest_ms, tail * each.p99_ms), steps);
  let right = Math.max(end(data), before && !before.overloaded ? end(before) : 0);
  if (data.settings.objective_ms <= near * right) right = Math.max(right, nice(1.05 * data.settings.objective_ms, steps));
  right = chart.hold("x", right);
  const now = shares(data.latency_ms, right, bins);
  const then = before && !before.overloaded ? shares(before.latency_ms, right, bins) : null;
  const top = chart.hold("y", nice(headroom * Math.max(...now, ...(then ?? [0])), steps));
  chart.axes({ room: room(38, 10, 44, 36), x: [0, right], y: [0, top], xLabel: "latency (ms)", yText: (v) => `${short(v)}%` });
  const { box } = chart;
  const limit = data.settings.objective_ms;
  chart.ctx.fillStyle = theme.objective;
  chart.ctx.globalAlpha = 0.13;
  if (limit < right) chart.ctx.fillRect(chart.x(limit), box.top, box.right - chart.x(limit), box.bottom - box.top);
  chart.ctx.globalAlpha = 1;
  bars(chart, now, right, theme.now, true);
  if (then) bars(chart, then, right, theme.before, false);
  chart.objective(limit, true);
  const marks = [["p50", data.p50_ms, [4, 3]], ["p99", data.p99_ms, []]];
  for (const [, ms, dash] of marks) {
    if (ms <= right) chart.line([[chart.x(ms), box.top], [chart.x(ms), box.bottom]], theme.ink, 1.2, dash);
  }
  const labels = [...marks.map(([name, ms]) => [`${name} ${number(ms)}`, ms]), [`objective ${number(limit)}`, limit]];
  aboveAxes(chart, labels.filter(([, ms]) => ms <= right));
}

/** Write labels above their lines, in two rows where one is too narrow. */
function aboveAxes(chart, labels) {
  const ends = [-Infinity, -Infinity];
  for (const [words, value] of labels.sort((a, b) => a[1] - b[1])) {
    const half = chart.ctx.measureText(words).width / 2;
    const x = Math.min(Math.max(chart.x(value), half + 2), chart.width - half - 2);
    const row = x - half > ends[0] ? 0 : 1;
    const shifted = Math.max(x, ends[row] + half);
    ends[row] = shifted + half + 8;
    chart.text(words, shifted, chart.box.top - 6 - 15 * row, { align: "center" });
  }
}

function drawQueue(chart, data, before) {
  const { theme, d } = chart;
  const points = 200;
  const waiting = (each) => {
    const { arrival_s: arrival, start_s: start } = each.run;
    const end = arrival[arrival.length - 1];
    const found = [];
    for (let i = 0, arrived = 0, started = 0; i <= points; i++) {
      const now = (end * i) / points;
      while (arrived < arrival.length && arrival[arrived] <= now) arrived++;
      while (started < start.length && start[started] <= now) started++;
      found.push([now, arrived - started]);
    }
    return found;
  };
  const now = waiting(data);
  const then = before?.overloaded ? waiting(before) : [[0, 0]];
  const most = (points) => Math.max(...points.map((point) => point[1]));
  const end = Math.max(now[now.length - 1][0], then[then.length - 1][0]);
  chart.axes({ room: room(42, 14, 44, 36), x: [0, nice(end, d.axis.steps)], y: [0, nice(1.1 * Math.max(most(now), most(then)), d.axis.steps)], xLabel: "time (s)" });
  chart.text("requests waiting", chart.box.left, chart.box.top - 6);
  const place = ([x, y]) => [chart.x(x), chart.y(y)];
  if (then.length > 1) chart.line(then.map(place), theme.before, 3);
  chart.line(now.map(place), theme.now, 2.4);
  const growth = data.settings.rate_per_s - data.saturation_per_s;
  chart.text(`+${number(growth)} every second`, chart.box.left + 8, chart.box.top + 18, { bold: true });
}

function drawLoad(chart, data, before) {
  const { theme, d, ctx } = chart;
  const [curve, old] = [data.curve, before?.curve];
  const last = 1.2 * Math.max(curve.saturation_per_s, old?.saturation_per_s ?? 0);
  const right = chart.hold("x", nice(Math.max(1.03 * data.settings.rate_per_s, last), d.axis.steps));
  const stable = (each, key) => [...each[key]].map((ms, i) => [each.rates[i], ms]);
  const every = [...stable(curve, "p99_ms"), ...stable(curve, "p50_ms"), ...(old ? stable(old, "p99_ms") : [])].map((point) => point[1]);
  const round = (ms, up) => {
    const power = 10 ** Math.floor(Math.log10(ms));
    const digits = up ? [1, 2, 5, 10] : [10, 5, 2, 1];
    return power * digits.find((digit) => (up ? digit * power >= ms : digit * power <= ms));
  };
  const high = chart.hold("y", round(Math.max(...every), true));
  const low = -chart.hold("-y", -round(Math.min(...every), false));
  chart.axes({ room: room(38, 14, 26, 36), x: [0, right], y: [low, high], logY: true, xLabel: d.load.label, yLabel: "ms" });
  const { box } = chart;
  const edge = chart.x(curve.saturation_per_s);
  if (edge < box.right) {
    ctx.fillStyle = theme.faint;
    ctx.fillRect(edge, box.top, box.right - edge, box.bottom - box.top);
    chart.line([[edge, box.top], [edge, box.bottom]], theme.soft, 1, [6, 2, 1, 2]);
    const wide = ctx.measureText(d.map.words.overloaded).width;
    chart.text(d.map.words.overloaded, Math.min(edge + 4, chart.width - wide - 2), box.top - 5, { colour: theme.soft });
  }
  const place = ([rate, ms]) => [chart.x(rate), chart.y(ms)];
  if (old) chart.line(stable(old, "p99_ms").map(place), theme.before, 2.6);
  for (const [name, key, dash, width] of [["p50", "p50_ms", [5, 3], 1.4], ["p99", "p99_ms", [], 2.2]]) {
    const points = stable(curve, key).map(place);
    chart.line(points, theme.now, width, dash);
    const [x, y] = points[Math.min(2, points.length - 1)];
    chart.text(name, x, y + (name === "p50" ? 15 : -7), { halo: true });
  }
  chart.objective(data.settings.objective_ms, false);
  const onAxis = data.settings.objective_ms < high && data.settings.objective_ms > low;
  if (onAxis) chart.text("objective", box.left + 9, chart.y(data.settings.objective_ms) - 5, { halo: true });
  if (!data.overloaded) diamond(ctx, chart.x(data.settings.rate_per_s), chart.y(data.p99_ms), theme);
  else chart.line([[chart.x(data.settings.rate_per_s), box.top], [chart.x(data.settings.rate_per_s), box.bottom]], theme.now, 2.2);
}

function diamond(ctx, x, y, theme) {
  ctx.beginPath();
  for (const [dx, dy] of [[0, -7], [7, 0], [0, 7], [-7, 0]]) ctx.lineTo(x + dx, y + dy);
  ctx.closePath();
  ctx.fillStyle = theme.now;
  ctx.fill();
  ctx.strokeStyle = theme.background;
  ctx.lineWidth = 1.5;
  ctx.stroke();
}

function drawBreakdown(chart, data, before) {
  const { theme, d, ctx } = chart;
  const { groups } = data;
  const total = (each) => each.map((parts) => parts.reduce((sum, ms) => sum + ms, 0));
  const now = total(groups);
  const then = before ? total(before.groups) : [];
  const wait = data.settings.max_wait_ms;
  const top = chart.hold("y", nice(1.05 * Math.max(...now, ...then), d.axis.steps));
  const names = 84;
  chart.axes({ room: room(38, names, 26, 36), x: [0, 100], y: [0, top], xLabel: "requests, fastest to slowest (%)", yLabel: "ms" });
  const { box } = chart;
  const width = 100 / groups.length;
  const bottoms = new Float64Array(groups.length);
  d.components.map((component, part) => ({ component, part })).reverse().forEach(({ component, part }) => {
    ctx.fillStyle = hatched(ctx, theme[component.colour], component.hatch, theme.background);
    ctx.beginPath();
    groups.forEach((parts, i) => {
      const [low, high] = [chart.y(bottoms[i]), chart.y(bottoms[i] + parts[part])];
      ctx.rect(chart.x(i * width), high, chart.x(width) - chart.x(0) - 1, low - high);
      bottoms[i] += parts[part];
    });
    ctx.fill();
  });
  if (before) chart.line(then.flatMap((ms, i) => [[chart.x(i * width), chart.y(ms)], [chart.x((i + 1) * width), chart.y(ms)]]), theme.before, 2.6);
  const last = groups[groups.length - 1];
  let sum = 0;
  const places = d.components.map((component, part) => ({ component, part })).reverse().map(({ component, part }) => {
    sum += last[part];
    return { words: component.words, ms: data[`${component.name}_ms`], y: chart.y(sum - last[part] / 2) };
  });
  for (let i = 0, floor = box.bottom; i < places.length; i++) floor = (places[i].y = Math.min(places[i].y, floor)) - 30;
  for (const { words, ms, y } of places) {
    chart.text(words, box.right + 6, y - 4);
    chart.text(number(ms), box.right + 6, y + 10, { bold: true });
  }
  if (wait <= top * 1.0001) drawWaitBar(chart, wait);
}

/** Draw the max wait as a line across the bars, with a grip at its left end. */
function drawWaitBar(chart, wait) {
  const { ctx, theme, box } = chart;
  const y = chart.y(wait);
  chart.line([[box.left, y], [box.right, y]], theme.ink, 1.2, [2, 3]);
  ctx.fillStyle = theme.ink;
  ctx.beginPath();
  ctx.arc(box.left, y, 5, 0, 7);
  ctx.fill();
  chart.text(`max wait ${number(wait)}`, box.left + 9, y - 5, { halo: true });
}

function drawMap(chart, data, before) {
  const { ctx, theme, d } = chart;
  const { map } = data;
  if (!map) return;
  const [columns, rows] = [map.sizes.length, map.waits.length];
  const label = (name) => d.controls[name].label.replace(/^./, (letter) => letter.toLowerCase());
  chart.axes({ room: room(38, 8, 26, 36), x: [0, columns], y: [0, rows], xLabel: label("max_batch_size"), numbersX: false, yText: () => "" });
  chart.text(label("max_wait_ms"), 2, EM);
  const { box } = chart;
  const [wide, tall] = [(box.right - box.left) / columns, (box.bottom - box.top) / rows];
  const limit = data.settings.objective_ms;
  let best = -1;
  for (let cell = 0; cell < map.p99_ms.length; cell++) {
    const [x, y] = [box.left + (cell % columns) * wide, box.bottom - (Math.floor(cell / columns) + 1) * tall];
    const ms = map.p99_ms[cell];
    const over = map.overloaded[cell % columns];
    if (!over && (best < 0 || ms < map.p99_ms[best])) best = cell;
    const place = Math.round(Math.min(Math.max(Math.log((ms / limit) * d.map.factor) / Math.log(d.map.factor ** 2), 0), 1) * 255);
    const colour = `#${d.map.colours.slice(6 * place, 6 * place + 6)}`;
    ctx.fillStyle = over ? hatched(ctx, theme.faint, "/", theme.grey) : ms > limit ? hatched(ctx, colour, ".", "#4D4D4D") : colour;
    ctx.fillRect(x, y, wide + 0.5, tall + 0.5);
    if (!over && wide > 34 && tall > 15) {
      chart.text(number(ms, 2), x + wide / 2, y + tall / 2 + 4, { align: "center", colour: place > 60 && place < 195 ? "#000000" : "#FFFFFF" });
    }
  }
  const every = wide < 20 ? 2 : 1;
  map.sizes.forEach((size, i) => i % every === (columns - 1) % every && chart.text(`${size}`, box.left + (i + 0.5) * wide, box.bottom + 15, { align: "center", colour: theme.soft }));
  const sparse = tall < 14 ? 2 : 1;
  map.waits.forEach((wait, i) => i % sparse === 0 && chart.text(number(wait), box.left - 5, box.bottom - (i + 0.5) * tall + 4, { align: "right", colour: theme.soft }));
  border(chart, map, limit, wide, tall);
  if (before) ring(chart, spot(map, before.settings), wide, tall, theme.before, true);
  if (best >= 0) chart.text("★", box.left + ((best % columns) + 0.5) * wide, box.bottom - (Math.floor(best / columns) + 0.5) * tall + 4, { align: "center", halo: true });
  ring(chart, spot(map, data.settings), wide, tall, "#000000", false);
  const words = best < 0 ? d.overloaded : `★ lowest p99 ${duration(map.p99_ms[best])}`;
  chart.text(words, chart.width - 8, EM, { align: "right" });
}

/** Draw the edge between the settings within the objective and the others. */
function border(chart, map, limit, wide, tall) {
  const { box, ctx } = chart;
  const columns = map.sizes.length;
  const within = (cell) => !map.overloaded[cell % columns] && map.p99_ms[cell] <= limit;
  ctx.beginPath();
  for (let cell = 0; cell < map.p99_ms.length; cell++) {
    const [x, y] = [box.left + ((cell % columns) + 1) * wide, box.bottom - (Math.floor(cell / columns) + 1) * tall];
    const [right, above] = [(cell + 1) % columns, cell + columns < map.p99_ms.length];
    for (const [edge, next, dx, dy] of [[right, cell + 1, 0, tall], [above, cell + columns, -wide, 0]]) {
      if (edge && within(cell) !== within(next)) {
        ctx.moveTo(x, y);
        ctx.lineTo(x + dx, y + dy);
      }
    }
  }
  for (const [colour, width] of [["#FFFFFF", 4], ["#000000", 2]]) {
    Object.assign(ctx, { strokeStyle: colour, lineWidth: width }).stroke();
  }
}

/** Return the place of a setting on the map, in cells, interpolated. */
function spot(map, settings) {
  const between = (values, value) => {
    const above = values.findIndex((each) => each >= value);
    if (above <= 0) return above < 0 ? values.length - 1 : 0;
    const [low, high] = [values[above - 1], values[above]];
    return Number.isFinite(high) ? above - 1 + (value - low) / (high - low) : value === high ? above : above - 0.5;
  };
  return [between(map.sizes, settings.max_batch_size) + 0.5, between(map.waits, settings.max_wait_ms) + 0.5];
}

function ring(chart, [column, row], wide, tall, colour, square) {
  const { ctx, box } = chart;
  const [x, y] = [box.left + column * wide, box.bottom - row * tall];
  for (const [stroke, width] of [["#FFFFFF", 5], [colour, 2.4]]) {
    ctx.beginPath();
    if (square) ctx.rect(x - 7, y - 7, 14, 14);
    else ctx.arc(x, y, 8, 0, 7);
    ctx.strokeStyle = stroke;
    ctx.lineWidth = width;
    ctx.stroke();
  }
}

const DRAW = { latency: drawLatency, map: drawMap, load: drawLoad, breakdown: drawBreakdown };

/** Return what a hand changes at a place of a chart: {control: value}, or null; `first` when it takes hold. */
export function grasp(chart, px, py, data, held) {
  const { box, view, d } = chart;
  if (!box) return null;
  const near = (a, b) => Math.abs(a - b) < 14;
  const clip = (value, low, high) => Math.min(Math.max(value, low), high);
  const digits = (value) => Number(value.toPrecision(3));
  if (view === "latency" && !data.overloaded && (held || near(px, chart.x(data.settings.objective_ms)))) {
    return { objective_ms: digits(chart.atX(clip(px, box.left + 2, box.right))) };
  }
  if (view === "breakdown" && (held || near(py, chart.y(data.settings.max_wait_ms)))) {
    return { max_wait_ms: digits(Math.max(chart.atY(clip(py, box.top, box.bottom)), 0)) };
  }
  if (view === "load") {
    const objective = held ? "objective_ms" in held : near(py, chart.y(data.settings.objective_ms)) && px < box.left + 60;
    if (objective) return { objective_ms: digits(chart.atY(clip(py, box.top, box.bottom))) };
    return { rate_per_s: digits(chart.atX(clip(px, box.left + 2, box.right))) };
  }
  if (view === "map" && data.map) {
    const [columns, rows] = [data.map.sizes.length, data.map.waits.length];
    const column = clip(Math.floor(chart.atX(px)), 0, columns - 1);
    const row = clip(Math.floor(chart.atY(py)), 0, rows - 1);
    return { max_batch_size: data.map.sizes[column], max_wait_ms: data.map.waits[row] };
  }
  return null;
}

/** Describe a chart in one sentence, for those who do not see it. */
export function inWords(view, data, d) {
  if (data.overloaded && view !== "map") return `${d.overloaded}.`;
  const ms = (value) => duration(value);
  if (view === "latency") return `p50 ${ms(data.p50_ms)}, p95 ${ms(data.p95_ms)}, p99 ${ms(data.p99_ms)}.`;
  if (view === "breakdown") return `Mean latency ${ms(data.mean_ms)}: ${d.components.map((each) => `${each.words} ${ms(data[`${each.name}_ms`])}`).join(", ")}.`;
  if (view === "load") return `p99 ${[0, 3, 6, 10].map((i) => `${ms(data.curve.p99_ms[i])} at ${number(data.curve.rates[i])} per s`).join(", ")}; ${d.map.words.overloaded} from ${number(data.curve.saturation_per_s)} per s.`;
  const cells = [...(data.map?.p99_ms ?? [])].filter((value, i) => !data.map.overloaded[i % data.map.sizes.length]);
  const within = cells.filter((value) => value <= data.settings.objective_ms).length;
  return `${within} of ${data.map?.p99_ms.length ?? 0} settings meet the objective; lowest p99 ${ms(Math.min(...cells))}.`;
}
