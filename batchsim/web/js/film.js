// A film of a run on a canvas: requests go through a queue into servers, or tokens fill seats, in one lane or several.
//
// film = { begin_s, until_s, lanes, start: { time_s, within_s }?, page_s?, title?, legend?, unit?: its name, and its ms }
// A lane of requests has columns by request, in order of arrival, and by batch, in order of start:
//   { kind: "requests", title: [names], notes: [[text, shorter ...] ...]?, servers, first, decimals?: of its times in ms, arrival_s, left_s, done_s,
//     status, batch, batches: { start_s, finish_s, server, trigger, size, ready_s?, asked_s?, begin_s? },
//     rule: { largest, enough?, max_wait_ms }, code?: [{ trigger?, activity?, because? }], open?: whether arrivals are
//     known ahead, loses?, before?: { served ... }, levels?, level?, turn?: { batch, late_s } of requests that overtake,
//     replicas?, replica?: of each request, router?: the routing's name; server s of replica k is k * servers / replicas + s,
//     names?: of the first requests, size?: of each request, unit?: of sizes, and then batches.rows and .longest: the padded batch; a longest of 0: no padding }
// A lane of tokens: { kind: "tokens", title, notes?, servers, seats, arrival_s, queue: { at_s, waiting }, stays: { request,
//     server, seat, begin_s, first_token_s, last_token_s, end_s, preempted, again }, busy: { server, begin_s, end_s },
//     padding?: { server, seat, begin_s, end_s } of empty seats that are computed, moments?: { at_s, words, line, leaves, event } }
// A time limit of null is infinite.

const WAY = 0.15; // the share of its computing in which a batch moves to its server
const GLIDE_S = [0.03, 0.14]; // on the screen, for two thirds of a way: at least and at most
const AHEAD = 4, COMING = 60; // mean times between arrivals in which a request is seen coming; and the most of them
const SPREAD = (5 ** 0.5 - 1) / 2; // the golden ratio: neighbours come in at different heights
const LEAST_PX = 4, LARGEST_EM = 2.8; // the sides of a request
const SIZED = 4, NARROWEST = 0.04; // the width of the largest request with a size, in heights; of the smallest, in largest
const ROUTER_EM = 2, BAND_EM = 3.6, LISTED = 8; // the width of a router, the least height of a replica, the most in words
const STRIPE = 0.58, FLAG = 0.5; // of a request with a number: where its colour begins; the side of its flag
const STAGE = 0.55, LOW_PX = 300; // the stage's share of the height, above the timeline; a lower film has no timeline
const LEAVES_S = 0.25, LEAP_S = 0.25; // on the screen: a batch counts as leaving; the longest step of the clock
const ARRIVALS_PER_S = 8, BATCH_S = [0.4, 3], PAUSE_S = 2, WHOLE_S = 20; // on the screen, at the first speed
const PAGE = 24; // requests on a page of the timeline
const TOKENS = 0.7; // the height of tokens in the row of a seat, whose prompts fill it
const SLOWNESS = Array.from({ length: 30 }, (_, i) => Number(`${[1, 2, 5][i % 3]}e${Math.floor(i / 3) - 3}`));
const STEPS = [3, 1, 0, -1, -3, -6]; // the speeds in the menu: up to 10 times slower than the usual one, and 100 times faster
const FOLLOWED = "vermilion"; // the frame of the request that the reader follows
const STATUS = ["served", "rejected", "timed_out", "failed"];
const LOST = ["was rejected", "timed out", "failed"]; // for those of a STATUS other than served
const LEAVING = "a batch leaves", FORMING = "waiting for company", QUEUEING = "waiting for a server", IDLE = "no request waits";

// Numbers.

const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
const sum = (values) => values.reduce((total, value) => total + value, 0);
const unique = (...lists) => [...new Set(lists.flatMap((list) => [...list]))].sort((a, b) => a - b);
const sorted = (values) => Float64Array.from(values).sort();

/** The number of values in an ascending list that are at most a value. */
export function upTo(list, value) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}

const formats = new Map();
function written(value, options) {
  const key = JSON.stringify(options);
  if (!formats.has(key)) formats.set(key, new Intl.NumberFormat("en-US", options));
  return formats.get(key).format(value);
}
const whole = (value) => written(value, { maximumFractionDigits: 0 });
const fixed = (value, digits) => written(Number(value.toFixed(digits)), { minimumFractionDigits: digits, maximumFractionDigits: digits });
const precise = (value, digits) => written(Number(value.toPrecision(digits)), { maximumSignificantDigits: digits });
function rounded(value, digits = 3) { // to these digits, but all before the point
  const text = value.toExponential(digits - 1), power = Number(text.split("e")[1]);
  return written(power < digits ? Number(text) : value, { maximumFractionDigits: clamp(digits - 1 - power, 0, 20) });
}
const inMs = (ms) => (Math.abs(ms) < 5e-6 ? "0 ms" : `${rounded(ms)} ms`);
export const unitOf = (ms) => (ms >= 1000 ? ["s", 1000] : ms >= 1 ? ["ms", 1] : ["µs", 0.001]);
/** A time in the unit of a film, with so many digits after the point of its ms. */
export function timeIn(film, t, digits) {
  const [unit, ms] = film.unit ?? ["ms", 1], value = (1000 * t) / ms;
  return `${fixed(value, clamp(digits + Math.round(Math.log10(ms) / 1.5), 0, 9))} ${unit}`;
}
const listed = (parts) => (parts.length > 1 ? `${parts.slice(0, -1).join(", ")} and ${parts.at(-1)}` : parts[0]);
const slower = (times) => (times === 1 ? "In real time" : times > 1 ? `${whole(times)}x slower` : `${whole(1 / times)}x faster`);

// Places: boxes of CSS pixels, and slots of one size in them.

const boxOf = (x, y, w, h) => ({ x, y, w, h });

/** Slots for so many requests in a box, column by column from the right: { corners, side, rows, wide }. */
export function slots(box, count, largest, rows = 1, wide = 1) { // `wide`: the width of a slot, in heights
  let side, pitch, across, columns, high;
  for (side = Math.max(Math.trunc(largest), LEAST_PX); side >= LEAST_PX; side -= 1) {
    const gap = side < 9 ? 1 : side < 18 ? 2 : 3;
    [pitch, across] = [side + gap, side * wide + gap];
    [columns, high] = [Math.trunc((box.w + gap) / across), Math.trunc((box.h + gap) / pitch)];
    if (columns * high >= count) break;
  }
  [side, columns, high] = [Math.max(side, LEAST_PX), Math.max(columns, 1), Math.max(high, 1)];
  rows = Math.min(Math.max(rows, Math.ceil(count / columns)), high);
  columns = Math.min(columns, Math.ceil(count / rows));
  const top = Math.round(box.y + (box.h - rows * pitch + pitch - side) / 2), right = Math.round(box.x + box.w - side * wide);
  const corners = Array.from({ length: columns * rows }, (_, i) => [right - across * Math.floor(i / rows), top + pitch * (i % rows)]);
  return { corners, side, rows, wide };
}

/** Slots for requests with sizes (`wide` above 1): those of the largest area, as wide as that or less. */
function roomiest(box, count, { side, rows, wide }) {
  const all = Array.from({ length: wide }, (_, k) => slots(box, count, side, rows, wide - k));
  return all.reduce((best, each) => (each.side ** 2 * each.wide > best.side ** 2 * best.wide ? each : best));
}

function serverIn(box, count, batch, queue, em) {
  const named = count > 1 && box.h >= 3.2 * em && box.w >= 4 * em; // the text of a single server is above it
  const [inset, thick] = count > 1 && !named ? [0.2 * em, 0.3 * em] : [0.5 * em, 0.5 * em];
  const bar = boxOf(box.x + inset, box.y + box.h - inset - thick, box.w - 2 * inset, thick);
  const top = box.y + (named ? 1.7 * em : inset);
  const within = roomiest(boxOf(bar.x, top, bar.w, Math.max(bar.y - 0.25 * em - top, LEAST_PX)), batch, queue);
  const free = Math.floor((Math.min(...within.corners.map(([x]) => x)) - bar.x) / 2);
  return { box, bar, named, slots: { ...within, corners: within.corners.map(([x, y]) => [x - free, y]) } };
}

function serversIn(box, count, batch, queue, em) { // as many as fit, in rows with a line of text if these fit
  const gap = 0.4 * em, across = Math.max(Math.trunc(box.w / (2.2 * em)), 1), down = (least) => Math.max(Math.trunc((box.h + gap) / (least * em + gap)), 1);
  const columns = Math.min(Math.ceil(count / down(3.2)), across), rows = Math.min(Math.ceil(count / columns), down(0.9));
  const [w, h] = [(box.w + gap) / columns - gap, (box.h + gap) / rows - gap];
  return Array.from({ length: Math.min(count, columns * rows) }, (_, i) => serverIn(
    boxOf(box.x + Math.floor(i / rows) * (w + gap), box.y + (i % rows) * (h + gap), w, h), count, batch, queue, em));
}

const comingIn = (box, em, slot) => Math.max(5 * em, 0.11 * box.w) * (slot > 1 ? 1.5 : 1); // the width of the arrivals

/** The parts of a stage for the longest queue and the largest batch: { lane, box, queue, servers, right }. */
export function placesIn(box, waiting, servers, batch, em, slot = 1) {
  const lane = boxOf(box.x, box.y, comingIn(box, em, slot), box.h);
  const wide = (servers <= 4 ? 0.36 : 0.42) * box.w, right = box.x + box.w - 2.6 * em, x = lane.x + lane.w;
  const queueBox = boxOf(x, box.y, right - wide - 1.8 * em - x, box.h);
  const inner = boxOf(x + 0.3 * em, box.y + 0.3 * em, queueBox.w - 0.6 * em, box.h - 0.6 * em);
  const largest = { side: (LARGEST_EM * em) / Math.sqrt(slot), rows: 1, wide: slot };
  let queue = roomiest(inner, waiting, largest);
  const beside = serversIn(boxOf(right - wide, box.y, wide, box.h), servers, batch, slot > 1 ? largest : queue, em), there = beside[0].slots;
  if (there.side === queue.side && there.rows > queue.rows && slot === 1) queue = slots(inner, waiting, queue.side, there.rows); // one shape
  return { lane, box: queueBox, queue, servers: beside, right: box.x + box.w };
}

/** The parts of a stage with replicas below each other, as many as fit, behind a router: the same, and { queues, bands, router }. */
function replicasIn(box, waiting, servers, batch, em, slot, replicas) {
  const head = 1.5 * em, wide = comingIn(box, em, slot), router = boxOf(box.x + wide, box.y, ROUTER_EM * em, box.h);
  const drawn = Math.min(replicas, Math.max(Math.trunc(box.h / (BAND_EM * em)), 1)), h = box.h / drawn, x = router.x + router.w;
  const bands = Array.from({ length: drawn }, (_, k) => placesIn(boxOf(x, box.y + k * h + head, box.x + box.w - x, h - head - 0.3 * em), waiting, servers, batch, em, slot));
  return { ...bands[0], lane: boxOf(box.x, box.y, wide, box.h), box: { ...bands[0].box, y: box.y, h: box.h }, router, bands,
    queues: bands.map(({ queue }) => queue), servers: bands.flatMap((band) => band.servers.concat(Array(servers - band.servers.length))) };
}

/** The parts of a stage for one lane of requests. */
export function placesOf(lane, box, em) {
  const { begin_s, until_s } = lane.film, largest = lane.largestBatch();
  const waiting = lane.parts.reduce((most, steps) => Math.max(most, mostWaiting({ steps }, begin_s, until_s)), largest);
  return (lane.replicas > 1 ? replicasIn : placesIn)(box, waiting, lane.each, largest, em, lane.size ? SIZED : 1, lane.replicas);
}

// A lane at a time. `now` is what `at` returns.

/** The longest queue of a lane, or of some steps of it, between two times. */
export function mostWaiting({ steps: { times, waiting } }, from_s, to_s) {
  return waiting.slice(Math.max(upTo(times, from_s) - 1, 0), upTo(times, to_s)).reduce((high, count) => Math.max(high, count), 0);
}

/** A lane of requests: its state at any time, in any order of times. */
export class Requests {
  constructor(lane, film) {
    const batches = { ready_s: lane.batches.start_s, asked_s: lane.batches.start_s, begin_s: lane.batches.start_s, ...lane.batches };
    Object.assign(this, { open: true, first: 0, levels: [], before: {}, code: [], replicas: 1 }, lane, { batches, film });
    const { start_s, finish_s } = batches, count = this.arrival_s.length;
    this.each = this.servers / this.replicas; // the servers of a replica
    this.limit_ms = lane.rule.max_wait_ms ?? Infinity;
    this.longest = Math.max(1, ...(lane.size ?? []), ...(batches.longest ?? []));
    this.members = Array.from(start_s, () => []);
    this.batch.forEach((b, i) => { if (b >= 0) this.members[b].push(i); });
    this.members.forEach((all, b) => this.inTurn(all, start_s[b] * (1 - Number.EPSILON))); // one may be late at its start
    this.batch_s = start_s.length ? sum(Array.from(start_s, (s, b) => finish_s[b] - s)) / start_s.length : 1;
    this.instants = unique(this.arrival_s, this.left_s, this.done_s);
    this.decimals ??= clamp(Math.ceil(-Math.log10(this.batch_s * 1000)) + 2, 0, 9);
    this.digits = Math.min(String(this.first + count).length, 3);
    const times = unique(this.arrival_s, this.left_s, start_s, finish_s);
    this.parts = Array.from({ length: this.replicas }, (_, k) => {
      const [come, left] = [this.arrival_s, this.left_s].map((column) => sorted(column.filter((_, i) => this.replicaOf(i) === k)));
      const [starts, ends] = [start_s, finish_s].map((column) => sorted(column.filter((_, b) => this.ownerOf(b) === k)));
      const waiting = times.map((t) => upTo(come, t) - upTo(left, t)), idle = times.map((t) => upTo(starts, t) - upTo(ends, t) < this.each);
      const turns_s = times.filter((_, at) => idle[at] !== idle[at - 1]); // few while an overload lasts, and thousands wait
      return { times, waiting, idle, turns_s };
    });
    this.steps = this.replicas === 1 ? this.parts[0] : {
      times, waiting: times.map((_, at) => sum(this.parts.map((part) => part.waiting[at]))),
      idle: times.map((_, at) => this.parts.some((part) => part.idle[at] && part.waiting[at])),
    };
    const coming = upTo(this.arrival_s, film.until_s) - upTo(this.arrival_s, film.begin_s);
    const last = Math.min(film.until_s, this.arrival_s[count - 1] ?? film.until_s);
    this.pace_s = Math.max((last - film.begin_s) / Math.max(coming, 1), 1e-12);
    this.per_s = Math.max(coming, 1) / Math.max(film.until_s - film.begin_s, 1e-12);
  }

  replicaOf(i) { return this.replicas === 1 ? 0 : this.replica[i]; }
  ownerOf(b) { return Math.floor(this.batches.server[b] / this.each); }

  /** The width of a request, as a share of its slot. */
  shareOf(i) { return this.size ? Math.max(this.size[i] / this.longest, NARROWEST) : 1; }

  batchOf(b) { // in words, and in fewer
    const { size, rows, longest } = this.batches, text = `batch of ${whole(size[b])}`;
    if (!longest?.[b]) return [text];
    const share = 1 - sum(this.members[b].map((i) => this.size[i])) / (rows[b] * longest[b]);
    return [`${text}, ${whole(100 * share)}% padding`, text];
  }

  key(i, t) { // those with lower keys leave the queue first
    if (!this.turn) return i;
    const late = this.turn.late_s[i] <= t ? 1 : 0, level = this.level ? this.level[i] : 0;
    return (this.turn.batch[i] * 2 * Math.max(this.levels.length, 1) + 2 * level + late) * this.arrival_s.length + i;
  }

  inTurn(requests, t) { return this.turn ? requests.sort((a, b) => this.key(a, t) - this.key(b, t)) : requests; }

  /** The state after everything that was due at a time. */
  at(t) {
    const { batches } = this, arrived = upTo(this.arrival_s, t), waiting = [], counts = STATUS.map((name) => this.before[name] ?? 0);
    for (let i = 0; i < arrived; i += 1) {
      if (this.left_s[i] > t) waiting.push(i);
      else if (this.done_s[i] <= t) counts[this.status[i]] += 1;
    }
    const started = upTo(batches.start_s, t), computing = Array(this.servers).fill(-1);
    for (let b = 0; b < started; b += 1) if (batches.finish_s[b] > t) computing[batches.server[b]] = b;
    const oldest_s = waiting.length ? this.arrival_s[waiting[0]] : null;
    const [served, ...lost] = counts, queue = this.inTurn([...waiting], t), queues = Array.from({ length: this.replicas }, () => []);
    queue.forEach((i) => queues[this.replicaOf(i)].push(i));
    const formings = queues.map((_, k) => computing.slice(k * this.each, (k + 1) * this.each).includes(-1)); // of each replica
    return {
      t, waiting, queue, queues, computing, last: started - 1, oldest_s, served, lost: sum(lost), formings,
      forming: formings.some((forms, k) => forms && (this.replicas === 1 || queues[k].length)),
      arrived: this.first + arrived, busy: computing.filter((b) => b >= 0),
      waited_ms: oldest_s === null ? null : (t - oldest_s) * 1000,
    };
  }

  held(b, t) { return this.batches.asked_s[b] <= t && t < this.batches.begin_s[b]; }

  activity(now, within = 0) {
    if (now.last >= 0 && now.t - this.batches.start_s[now.last] <= within) return LEAVING;
    return !now.waiting.length ? IDLE : now.forming ? FORMING : QUEUEING;
  }

  line(now, within) { // the index of the acting line of pseudo-code, -1 without code
    const activity = this.activity(now, within), trigger = activity === LEAVING ? this.batches.trigger[now.last] : null;
    return this.code.findIndex((line) => (trigger === null ? line.activity === activity : line.trigger === trigger));
  }
  activities(now, within) { // the state of the rule, and a shorter text
    const activity = this.activity(now, within), because = this.code[this.line(now, within)]?.because;
    if (activity !== LEAVING) return [activity];
    const leaves = `a batch of ${whole(this.batches.size[now.last])} leaves`;
    return because ? [`${leaves}: ${because}`, leaves] : [leaves];
  }
  byLevel(now) { return this.levels.map((name, at) => [name, now.waiting.filter((i) => this.level[i] === at).length]); }

  byReplica({ queues }) { // how many wait at each, or at the fullest of many
    const counts = queues.map((queue) => queue.length);
    if (counts.length > LISTED) return ` (at most ${whole(Math.max(...counts))} at a replica)`;
    return counts.length > 1 ? ` (${listed(counts.map(whole))} by replica)` : "";
  }

  /** The moment in one sentence. */
  words(now, within) {
    const { servers, batches } = this, parts = [this.activities(now, within)[0]], busy = now.busy.length;
    const levels = this.levels.length > 1 ? this.byLevel(now).filter(([, count]) => count) : [], among = (holds) => now.busy.filter(holds).length;
    const said = levels.length ? ` (${listed(levels.map(([name, count]) => `${whole(count)} of level ${name}`))})` : "";
    if (now.waited_ms !== null) parts.push(`${whole(now.waiting.length)} waiting${said}${this.byReplica(now)}, the oldest for ${rounded(now.waited_ms)} ms`);
    const compiling = among((b) => now.t < batches.ready_s[b]), held = among((b) => this.held(b, now.t));
    const all = servers === 1 ? `server ${busy ? "busy" : "idle"}` : `${whole(busy)} of ${whole(servers)} servers busy`;
    parts.push(all + (compiling ? `, ${servers === 1 ? "" : `${whole(compiling)} `}compiling` : "") + (held ? `, ${whole(held)} waiting for a device` : ""));
    parts.push(`${whole(now.arrived)} arrived, ${whole(now.served)} served, ${whole(now.lost)} lost`);
    return `At ${timeIn(this.film, now.t, this.decimals)}: ${parts.join("; ")}.`;
  }

  shortWords(now) { // next to other lanes
    const sizes = now.busy.map((b) => String(this.batches.size[b]));
    return `${whole(now.waiting.length)} waiting, ${sizes.length ? `computing ${sizes.join(" and ")}` : "idle"}`;
  }

  largestBatch() { return Math.max(1, ...(this.batches.rows ?? this.batches.size)); }

  /** The requests whose batch starts in the film, or that are lost: [number, seconds of latency, NaN if lost] each. */
  get latencies() {
    const all = Array.from(this.arrival_s, (s, i) => [this.first + i, this.status[i] === 0 ? this.done_s[i] - s : NaN]);
    return all.filter(([, s], i) => this.batch[i] >= 0 || (Number.isNaN(s) && this.done_s[i] <= this.film.until_s));
  }

  arrived(number) { return this.arrival_s[number - this.first]; }
  label(number) { return this.names?.[number] ?? String(number).slice(-this.digits); } // on its square

  /** The life of a request in one sentence. */
  life(number) {
    const i = number - this.first, b = this.batch[i], { start_s, size } = this.batches, parts = this.story(i);
    const span = (names) => 1000 * sum(parts.filter(([name]) => names.includes(name)).map(([, from, to]) => to - from));
    let before = upTo(start_s, this.arrival_s[i]) - 1;
    while (before >= 0 && this.ownerOf(before) !== this.replicaOf(i)) before -= 1;
    const since_ms = 1000 * (this.arrival_s[i] - start_s[before]), at = this.replicas === 1 ? "" : ` at replica ${whole(this.replica[i])}`;
    const sized = this.size ? ` of ${whole(this.size[i])} ${this.unit}` : "", arrived = `${this.names?.[number] ?? `Request ${whole(number)}`}${sized} arrived${at}` + (before >= 0 ? ` ${inMs(since_ms)} after a batch left` : "");
    if (this.status[i] !== 0) return `${arrived} and ${LOST[this.status[i] - 1]} after ${inMs(1000 * (this.done_s[i] - this.arrival_s[i]))}.`;
    const shared = span(["device_wait"]);
    const others = b < 0 ? "" : size[b] === 1 ? " alone" : ` with ${whole(size[b] - 1)} other${size[b] === 2 ? "" : "s"}`;
    return `${arrived}, waited ${inMs(span(["forming"]))} for company and ${inMs(span(["queueing"]))} for the server`
      + `${shared ? `, ${inMs(shared)} for the device` : ""}, and was computed in ${inMs(span(["computing"]))}${others}`
      + `: ${inMs(1000 * (this.done_s[i] - this.arrival_s[i]))} in all.`;
  }

  /** The line of pseudo-code that sent a request's batch, -1 for none. */
  lineOf(number) {
    const b = this.batch[number - this.first];
    return b === undefined || b < 0 ? -1 : this.code.findIndex((line) => line.trigger === this.batches.trigger[b]);
  }

  /** What a request went through: [component, from, to] each. */
  story(i) {
    const parts = [], { idle, turns_s } = this.parts[this.replicaOf(i)], b = this.batch[i], { start_s, asked_s, begin_s, finish_s } = this.batches;
    if (this.status[i] !== 0) return parts;
    for (let at = Math.max(upTo(turns_s, this.arrival_s[i]) - 1, 0), from = this.arrival_s[i]; from < this.left_s[i]; at += 1) {
      const to = Math.min(turns_s[at + 1] ?? Infinity, this.left_s[i]);
      parts.push([idle[0] === (at % 2 === 0) ? "forming" : "queueing", from, to]);
      from = to;
    }
    if (b < 0) return parts;
    if (begin_s[b] > asked_s[b]) parts.push(["computing", start_s[b], asked_s[b]], ["device_wait", asked_s[b], begin_s[b]]);
    parts.push(["computing", begin_s[b] > asked_s[b] ? begin_s[b] : start_s[b], finish_s[b]]);
    return parts.filter(([, from, to]) => to > from);
  }
}

/** A lane of tokens: who sits where at a time. */
export class Tokens {
  constructor(lane, film) {
    Object.assign(this, lane, { film, decimals: 1, steps: { times: lane.queue.at_s, waiting: lane.queue.waiting } });
    const { begin_s, first_token_s, last_token_s, end_s } = this.stays;
    const moments = this.moments ? this.moments.at_s.filter((_, at) => this.moments.event[at]) : unique(this.arrival_s, this.steps.times, begin_s, first_token_s, last_token_s, end_s);
    this.instants = Array.from(moments);
  }

  at(t) {
    const { begin_s, first_token_s, last_token_s, end_s } = this.stays, now = { t, prefill: 0, decode: 0, padded: 0 };
    begin_s.forEach((begin, i) => {
      if (begin <= t && end_s[i] > t) now[first_token_s[i] > t ? "prefill" : last_token_s[i] <= t ? "padded" : "decode"] += 1;
    });
    now.waiting = this.steps.waiting[upTo(this.steps.times, t) - 1] ?? 0;
    return now;
  }

  get latencies() { return this.lives ? Array.from(this.lives.request, (number, k) => [number, this.lives.latency_s[k]]) : []; }
  arrived(number) { return this.lives.arrival_s[this.lives.request.indexOf(number)]; }
  life(number) { return this.lives.words[this.lives.request.indexOf(number)]; }
  lineOf() { return -1; }

  shortWords(now) {
    const names = { prefill: "computing prompts", decode: "making tokens", padded: "done" };
    const doing = Object.entries(names).filter(([name]) => now[name]).map(([name, said]) => `${whole(now[name])} ${said}`);
    return `${whole(now.waiting)} waiting, ${doing.length ? listed(doing) : "all seats empty"}`;
  }

  moment({ t }, within = 0) { // a batch that left a moment ago counts as leaving
    const { at_s, leaves } = this.moments, last = upTo(at_s, t) - 1;
    for (let at = last; at >= 0 && t - at_s[at] <= within; at -= 1) if (leaves[at]) return at;
    return last;
  }

  line(now, within) { return this.moments?.line[this.moment(now, within)] ?? -1; }

  words(now, within) {
    const words = this.moments?.words[this.moment(now, within)] ?? "";
    return words.replace("{t} ms", timeIn(this.film, now.t, 1)).replace(/\{since (.*?)\}/, (_, since_s) => rounded((now.t - since_s) * 1000));
  }
}

// Where requests are: everybody glides to a place that follows from the time, on the clock of the screen.

/** The requests on a stage. `of` maps each to { x, y, side: its height, wide, alpha, doing }. */
export class Crowd {
  constructor(lane, places) {
    Object.assign(this, { lane, places, of: new Map(), coming: [], ahead_s: AHEAD * lane.pace_s });
    this.rows = this.rowsOfArrivals();
  }

  /** The row in which each request comes in, so that no two overlap; -1 for those that find no row free. */
  rowsOfArrivals() {
    const { lane, box, queue } = this.places, pitch = queue.side + 1, wide = queue.side * queue.wide, { arrival_s, first, open } = this.lane;
    const least_s = (this.ahead_s * (wide + 1)) / Math.max(lane.w - wide, 1), last_s = Array(Math.max(Math.floor(box.h / pitch), 1)).fill(-Infinity);
    return Array.from(open ? arrival_s : [], (s, i) => {
      const from = Math.floor((((first + i) * SPREAD) % 1) * last_s.length), free = last_s.findIndex((_, k) => s - last_s[(from + k) % last_s.length] >= least_s);
      if (free < 0) return -1;
      last_s[(from + free) % last_s.length] = s;
      return (from + free) % last_s.length;
    });
  }

  entry(i) {
    const { lane, box, queue } = this.places, pitch = queue.side + 1, rows = Math.max(Math.floor(box.h / pitch), 1), row = this.rows[i] ?? -1;
    return [lane.x + lane.w - queue.side * queue.wide * this.lane.shareOf(i), box.y + (box.h - rows * pitch) / 2 + pitch * (row < 0 ? (this.lane.first + i) % rows : row)];
  }

  /** The place of everybody who waits or is computed. */
  wanted(now) {
    const { lane, places } = this, { servers, queues = [places.queue] } = places, found = new Map();
    queues.forEach(({ corners, side, wide }, replica) => now.queues[replica].slice(0, corners.length)
      .forEach((i, k) => found.set(i, { at: corners[k], side, wide: side * wide * lane.shareOf(i), doing: "waiting" })));
    for (const b of now.busy) {
      const there = servers[lane.batches.server[b]]?.slots, doing = lane.held(b, now.t) ? "held" : "computing";
      lane.members[b].slice(0, there?.corners.length ?? 0).forEach((i, k) => found.set(i,
        { at: there.corners[k], side: there.side, wide: there.side * there.wide * lane.shareOf(i), doing }));
    }
    return found;
  }

  /** Move everybody a share of the way; return whether anybody still moves. With a share of 1 nobody does. */
  move(now, share, still = false) {
    const { lane, places } = this, wanted = this.wanted(now), bottom = places.box.y + places.box.h;
    let moving = false;
    for (const [i, { x, y, side, wide }] of this.of) { // those who finished go out on the right, the lost fall
      const gone = !wanted.has(i) && share < 1 && lane.done_s[i] <= now.t, served = lane.status[i] === 0;
      if (gone) wanted.set(i, { at: served ? [places.right - wide, y] : [x, bottom - side], side, wide, doing: served ? "finished" : "lost", alpha: 0 });
      else if (!wanted.has(i)) this.of.delete(i);
    }
    for (const [i, { at, side, wide, doing, alpha = 1 }] of wanted) {
      const [x, y] = share < 1 ? this.entry(i) : at, it = this.of.get(i) ?? { x, y, side, wide, alpha: 1 };
      const away = Math.abs(at[0] - it.x) + Math.abs(at[1] - it.y), part = away < 0.5 ? 1 : alpha ? share : share / 3;
      const glide = (from, to, by = part) => from + (to - from) * by;
      this.of.set(i, { doing, x: glide(it.x, at[0]), y: glide(it.y, at[1]), side: glide(it.side, side), wide: glide(it.wide, wide), alpha: alpha || glide(it.alpha, 0, share / 2) });
      if (it.alpha < 0.03) this.of.delete(i);
      moving ||= part < 1 || !alpha;
    }
    this.coming = !still && lane.open ? this.approaching(now.t) : [];
    return moving;
  }

  approaching(t) {
    const { lane, places, ahead_s } = this, first = upTo(lane.arrival_s, t), count = Math.min(upTo(lane.arrival_s, t + ahead_s) - first, COMING);
    return Array.from({ length: count }, (_, k) => first + k).filter((i) => this.rows[i] >= 0).map((i) => {
      const share = 1 - (lane.arrival_s[i] - t) / ahead_s, [x, y] = this.entry(i);
      return { x: places.lane.x + (x - places.lane.x) * share, y, side: places.queue.side, wide: places.lane.x + places.lane.w - x, alpha: Math.min(3 * share, 1) };
    });
  }
}

// Drawing: a pen with a theme's colours and hatches, then the parts of the picture.

class Pen {
  constructor(context, looks, theme, em, ratio) {
    Object.assign(this, { context, em, ratio, fills: looks.fills, colours: looks[theme], patterns: {} });
  }

  fill(name, dense = false) { // a component's colour, hatched with lines of the background's or of its own
    const { colour, hatch, line = "background" } = this.fills[name], key = name + dense, { ratio } = this;
    if (!hatch) return this.colours[colour];
    if (this.patterns[key]) return this.patterns[key];
    const px = Math.round(ratio * (dense || hatch.length > 2 ? 5 : 9)), tile = Object.assign(document.createElement("canvas"), { width: px, height: px });
    const ink = tile.getContext("2d");
    if (colour) Object.assign(ink, { fillStyle: this.colours[colour] }).fillRect(0, 0, px, px);
    Object.assign(ink, { fillStyle: this.colours[line], strokeStyle: this.colours[line], lineWidth: ratio });
    if (hatch[0] === ".") ink.fillRect(px / 2 - 0.7 * ratio, px / 2 - 0.7 * ratio, 1.4 * ratio, 1.4 * ratio);
    for (const x of [-px, 0, px]) {
      if ("/x".includes(hatch[0])) ink.stroke(new Path2D(`M${x - px} ${2 * px}L${x + 2 * px} ${-px}`));
      if ("\\x".includes(hatch[0])) ink.stroke(new Path2D(`M${x - px} ${-px}L${x + 2 * px} ${2 * px}`));
    }
    this.patterns[key] = this.context.createPattern(tile, "repeat");
    this.patterns[key].setTransform(new DOMMatrix().scale(1 / ratio));
    return this.patterns[key];
  }

  rect(style, x, y, w, h) { if (w > 0 && h > 0) Object.assign(this.context, { fillStyle: style }).fillRect(x, y, w, h); }

  frame(colour, { x, y, w, h }, width = 1) {
    Object.assign(this.context, { strokeStyle: this.colours[colour], lineWidth: width }).strokeRect(x, y, w, h);
  }

  line(colour, x0, y0, x1, y1, width = 1, dash = []) {
    Object.assign(this.context, { strokeStyle: this.colours[colour], lineWidth: width }).setLineDash(dash);
    this.context.stroke(new Path2D(`M${x0} ${y0}L${x1} ${y1}`));
    this.context.setLineDash([]);
  }

  font(bold, size) { this.context.font = `${bold ? "bold " : ""}${size * this.em}px "DejaVu Sans", Verdana, sans-serif`; }

  width(text, bold = false, size = 1) {
    this.font(bold, size);
    return this.context.measureText(text).width;
  }

  /** Write the first of some texts that fits, or the last; return its width. */
  text(texts, x, y, { room = Infinity, align = "left", bold = false, size = 1, colour = "ink" } = {}) {
    const all = [].concat(texts), text = all.find((each) => this.width(each, bold, size) <= room) ?? all.at(-1);
    this.font(bold, size);
    Object.assign(this.context, { fillStyle: this.colours[colour], textAlign: align }).fillText(text, x, y);
    return this.context.measureText(text).width;
  }
}

function drawAxis(pen, plot, begin_s, until_s, [unit, size]) { // times from the left edge on
  const { em } = pen, span = (1000 * (until_s - begin_s)) / size, bottom = plot.y + plot.h;
  const ticks = clamp(Math.floor(plot.w / (5 * em)), 2, 9), power = 10 ** Math.floor(Math.log10(span / ticks));
  const step = power * [1, 2, 2.5, 5, 10].find((factor) => span / (factor * power) <= ticks);
  for (let k = 0; k * step <= span * (1 + 1e-9); k += 1) {
    const x = plot.x + (plot.w * k * step) / span;
    pen.line("faint", x, plot.y, x, bottom);
    pen.text(precise(k * step, 6), x, bottom + 1.2 * em, { align: "center", colour: "soft" });
  }
  pen.line("soft", plot.x, bottom, plot.x + plot.w, bottom);
  const decimals = clamp(Math.ceil(-Math.log10(span / 1000)), 0, 20), begin = Number(((1000 * begin_s) / size).toFixed(decimals));
  const from = begin ? ` from ${written(begin, { maximumFractionDigits: decimals })} ${unit} on` : ""; // to a thousandth of its length
  pen.text(`time (${unit})${from}`, plot.x + plot.w / 2, bottom + 2.3 * em, { align: "center" });
}

function drawLegend(pen, entries, x, y, right) { // [name of a fill, text, share of the height]; return the last baseline
  const { em } = pen;
  let at = x;
  for (const [name, text, share = 1] of entries) {
    const room = 1.65 * em + pen.width(text);
    if (at > x && at + room > right) [at, y] = [x, y + 1.5 * em];
    if (name in MARKS) drawMark(pen, name, at + 0.65 * em, y - 0.36 * em);
    else pen.rect(pen.fill(name), at, y - (0.3 + 0.4 * share) * em, 1.3 * em, 0.8 * share * em);
    pen.text(text, at + 1.65 * em, y);
    at += room + em;
  }
  return y;
}

const MARKS = { rejected: "×", timed_out: "+", failed: "▼", preempted: "▼" };
const drawMark = (pen, name, x, y) => pen.text(MARKS[name], x, y + 0.36 * pen.em, { align: "center", bold: true, colour: name === "preempted" ? "vermilion" : "ink" });

/** The stage of one lane of requests in a box: a clock, the queue and the servers, and the rule's gauges. */
class StageView {
  constructor(pen, lane, box) {
    const { em } = pen, wide = box.w >= 48 * em, top = box.y + (wide ? 3.5 : 4.9) * em, low = box.y + box.h - 1.1 * em;
    Object.assign(this, { pen, lane, box, wide, low, left: box.x + 0.8 * em, right: box.x + box.w - 0.8 * em });
    this.places = placesOf(lane, boxOf(box.x, top, box.w, Math.max(low - 1.9 * em - top, em)), em);
    this.crowd = new Crowd(lane, this.places);
  }

  draw(now, within, picked) {
    const { pen, places, crowd } = this, { em } = pen, { box, lane, bands = [places] } = places, part = now.forming ? "forming" : "queueing";
    const all = [...crowd.of], doing = (...names) => all.filter(([, it]) => names.includes(it.doing));
    pen.text(lane.w > 7 * em ? "arrivals \u2192" : "arrivals", this.left, box.y - 0.5 * em, { colour: "soft" });
    for (const y of [box.y - 2, box.y + box.h + 2]) pen.line("faint", lane.x, y, places.router ? lane.x + lane.w : box.x + box.w, y, 2);
    if (places.router) this.drawReplicas(now);
    places.servers.forEach((place, server) => this.drawServer(place, server, now));
    for (const b of now.busy) this.drawPadding(b, places.servers[this.lane.batches.server[b]]?.slots);
    this.drawFaded(crowd.coming, "soft", false);
    for (const name of ["forming", "queueing"]) {
      this.drawRequests(doing("waiting").filter(([i]) => now.formings[this.lane.replicaOf(i)] === (name === "forming")), name, picked);
    }
    this.drawFaded(doing("finished").map(([, it]) => it), "blue", true);
    this.drawRequests(doing("computing"), "computing", picked);
    this.drawRequests(doing("held"), "device_wait", picked);
    this.drawFaded(doing("lost").map(([, it]) => it), "vermilion", true);
    bands.forEach(({ box: { x, y, h }, queue }, k) => {
      const left = now.queues[k].length - queue.corners.length;
      if (left > 0) pen.text(`+ ${whole(left)} more`, x + 0.3 * em, y + h - 0.5 * em);
    });
    this.drawTexts(now, within);
    if (!places.router) this.drawGauges(now, part);
  }

  /** The router, a line to each replica, and their names above them. */
  drawReplicas(now) {
    const { pen, places: { router, bands }, lane, left, right, low } = this, { em } = pen, { largest } = lane.rule, out = router.x + router.w;
    pen.rect(pen.colours.faint, router.x, router.y, router.w, router.h);
    bands.forEach(({ box, servers: [server], right: end }, k) => {
      const count = now.queues[k].length, [b] = now.computing.slice(k * lane.each), doing = now.formings[k] ? "forming" : "queueing", middle = box.y + box.h / 2;
      pen.line("soft", out, router.y + router.h / 2, box.x, middle);
      pen.line("faint", box.x, box.y + box.h + 2, end, box.y + box.h + 2, 2);
      const texts = count ? [`replica ${k}: ${whole(count)} waiting, ${doing}`, `${k}: ${whole(count)} ${doing}`] : [`replica ${k}: empty`, `${k}: empty`];
      pen.text(texts, box.x + 0.3 * em, box.y - 0.45 * em, { room: server.box.x - box.x - em });
      if (lane.each === 1) pen.text(b < 0 ? "idle" : lane.batchOf(b), server.box.x, box.y - 0.45 * em, { room: end - server.box.x });
    });
    const { limit_ms } = lane, wait = limit_ms === Infinity ? "no max wait" : `max wait ${Number(limit_ms.toPrecision(12))} ms`;
    const drawn = bands.length < lane.replicas ? `replicas 0 to ${bands.length - 1} of ${whole(lane.replicas)}; ` : "", rule = `batches of up to ${whole(largest)}, ${wait}`;
    pen.text([`${drawn}each replica: ${rule}`, `${drawn}${rule}`], left, low + 0.3 * em, { room: right - left, colour: "soft" });
  }

  drawPadding(b, there) { // below its requests, as long as the longest of them, or an edge
    const { pen, lane } = this, { rows, longest } = lane.batches;
    if (!longest?.[b]) return;
    for (const [x, y] of there?.corners.slice(0, rows[b]) ?? []) pen.rect(pen.fill("padded", true), x, y, (there.side * there.wide * longest[b]) / lane.longest, there.side);
  }

  drawFaded(crowd, colour, filled) {
    const { context, colours } = this.pen;
    for (const { x, y, side, wide, alpha } of crowd) {
      Object.assign(context, { globalAlpha: alpha, fillStyle: colours[colour], strokeStyle: colours[colour], lineWidth: 1 });
      filled ? context.fillRect(x, y, wide, side) : context.strokeRect(x + 0.5, y + 0.5, Math.max(wide - 1, 0), side - 1);
    }
    context.globalAlpha = 1;
  }

  drawRequests(crowd, name, picked) {
    const { pen, lane } = this, { em } = pen, style = pen.fill(name, true), last = lane.levels.length - 1;
    const numbered = Math.max(...["0".repeat(lane.digits), ...(lane.names ?? [])].map((text) => pen.width(text) + 2), 1.9 * em);
    for (const [i, { x, y, side, wide }] of crowd) {
      const number = !lane.size && side >= numbered, from = number ? STRIPE : 0;
      if (number) pen.rect(pen.colours.background, x, y, side, side);
      pen.rect(style, x, y + side * from, wide, side * (1 - from));
      if (number) {
        pen.frame("soft", boxOf(x + 0.5, y + 0.5, side - 1, side - 1));
        pen.text(lane.label(lane.first + i), x + side / 2, y + (STRIPE * side + 0.72 * em) / 2, { align: "center" });
      }
      const size = lane.level && last > 0 ? FLAG * Math.min(side, wide) * (1 - lane.level[i] / last) : 0;
      if (size) Object.assign(pen.context, { fillStyle: pen.colours.ink }).fill(new Path2D(`M${x} ${y + side}h${size}L${x} ${y + side - size}z`));
      if (picked === lane.first + i) pen.frame(FOLLOWED, boxOf(x - 1, y - 1, wide + 2, side + 2), 3);
    }
  }

  drawServer({ box, bar, named }, server, now) {
    const { pen, lane } = this, { em } = pen, b = now.computing[server], { batches } = lane, several = lane.each > 1;
    pen.frame("soft", box);
    pen.rect(pen.colours.faint, bar.x, bar.y, bar.w, bar.h);
    if (named) pen.text(String(server % lane.each), bar.x, box.y + 1.25 * em);
    const texts = b < 0 ? ["idle", ""] : [...lane.batchOf(b), whole(batches.size[b])];
    if (b >= 0) {
      const { t } = now, along = (time_s) => clamp((time_s - batches.start_s[b]) / (batches.finish_s[b] - batches.start_s[b]), 0, 1) * bar.w;
      pen.rect(pen.fill("computing"), bar.x, bar.y, along(t), bar.h);
      pen.rect(pen.fill("compiling", true), bar.x, bar.y, along(Math.min(t, batches.ready_s[b])), bar.h);
      const from = along(batches.asked_s[b]);
      pen.rect(pen.fill("device_wait", true), bar.x + from, bar.y, along(Math.min(t, batches.begin_s[b])) - from, bar.h);
      const doing = t < batches.ready_s[b] ? "compiling" : lane.held(b, t) ? "device busy" : "";
      if (doing) texts.unshift(`${texts.at(-2)}, ${doing}`, doing);
    }
    if (several && named) pen.text(texts, bar.x + bar.w, box.y + 1.25 * em, { align: "right", room: bar.w - 2 * em });
  }

  drawTexts(now, within) {
    const { pen, lane, places, left, right } = this, { em } = pen, y = this.box.y + 1.45 * em, above = places.box.y - 0.5 * em;
    const clock = timeIn(lane.film, now.t, lane.decimals), begin = left + Math.max(8.5 * em, pen.text(clock, left, y, { bold: true, size: 1.1 }) + em);
    const counters = [...(lane.loses ? [`lost ${whole(now.lost)}`] : []), `served ${whole(now.served)}`];
    if (this.wide || right - begin > 9 * em * (counters.length + 1)) counters.push(`arrived ${whole(now.arrived)}`);
    counters.forEach((text, k) => pen.text(text, right - 9 * em * k, y, { align: "right" }));
    const said = lane.activities(now, within);
    if (this.wide) pen.text(said, begin, y, { room: right - 9 * em * counters.length - begin });
    else pen.text(said, left, y + 1.5 * em, { room: right - left });
    const count = now.waiting.length, doing = now.forming ? "forming" : "queueing", queue = places.box.x + 0.3 * em, there = places.servers[0].box.x;
    const levels = count && lane.levels.length > 1 ? lane.byLevel(now).map(([name, many], at) => `${whole(many)} of level ${name}${at ? "" : " ◣"}`).join(", ") : "";
    const texts = !count ? ["queue: empty", "empty"] : [
      ...(levels ? [`queue: ${levels}, ${doing}`, `${levels}, ${doing}`, levels] : []),
      `queue: ${whole(count)} waiting, ${doing}`, `${whole(count)} waiting, ${doing}`, `${whole(count)} ${doing}`];
    if (lane.replicas > 1) pen.text([`router: ${lane.router}`, lane.router], places.router.x, above, { bold: true, room: there - places.router.x - em });
    else pen.text(texts, queue, above, { bold: true, room: there - queue - em });
    pen.text(this.serverTitles(now), there, above, { bold: true, room: this.box.x + this.box.w - there });
  }

  serverTitles(now) {
    const { lane, places } = this, { servers, batches } = lane, [b] = now.computing, more = servers - places.servers.filter(Boolean).length;
    if (servers === 1) {
      const texts = b < 0 ? ["server: idle"] : lane.batchOf(b).map((text) => `server: ${text}`);
      return b >= 0 && now.t < batches.ready_s[b] ? [`${texts.at(-1)}, compiling`, "server: compiling"] : texts;
    }
    const held = now.busy.filter((each) => lane.held(each, now.t)).length, short = `${whole(now.busy.length)} of ${whole(servers)} busy`;
    const rest = more && lane.replicas === 1 ? `, + ${whole(more)} more` : held ? `, ${whole(held)} waiting for a device` : "";
    return [`servers: ${short}${rest}`, `${short}${rest}`, short];
  }

  drawGauges(now, part) {
    const { pen, lane, left, right, low } = this, { em } = pen, wide = (right - left - 1.6 * em) / 2, high = 0.6 * em;
    const { largest, enough = largest } = lane.rule, count = now.waiting.length, limit_ms = lane.limit_ms, waited_ms = now.waited_ms;
    const text = `next batch: ${whole(Math.min(count, largest))} of ${whole(largest)}`, endless = limit_ms === Infinity;
    const limit = endless ? "no max wait" : `max wait ${Number(limit_ms.toPrecision(12))} ms`, waited = waited_ms === null ? "" : fixed(waited_ms, lane.decimals);
    const gauges = [
      [left, count / largest, [...(enough === largest ? [] : [`${text}, ${whole(enough)} are enough`]), text, `${whole(count)} of ${whole(largest)}`]],
      [right - wide, waited_ms === null ? 0 : limit_ms ? waited_ms / limit_ms : 1, waited_ms === null ? [`no request waits, ${limit}`, limit, ""]
        : [`oldest: waited ${waited} ms, ${limit}`, `waited ${waited} ms, ${limit}`, `oldest: ${waited}${endless ? "" : ` of ${limit_ms}`} ms`]],
    ];
    for (const [x, share, texts] of gauges) {
      pen.rect(pen.colours.faint, x, low, wide, high);
      pen.rect(pen.fill(part, true), x, low, wide * clamp(share, 0, 1), high);
      pen.text(texts, x, low - 0.45 * em, { room: wide });
    }
    if (enough !== largest) pen.rect(pen.colours.ink, left + (wide * enough) / largest - 0.08 * em, low - 0.15 * em, 0.17 * em, 1.5 * high);
  }
}

// The pictures over time: each page is drawn once, and a cursor moves over it.

/** The timeline of one lane of requests on a page: a row for each that was computed or lost then. */
function drawTimeline(pen, lane, box, [from_s, to_s]) {
  const { em } = pen, { arrival_s, left_s, done_s, status, batch, batches } = lane, { ready_s, start_s, finish_s } = batches, seen = new Set();
  const rows = [...arrival_s.keys()].filter((i) => done_s[i] > from_s && left_s[i] <= to_s), frames = new Map();
  const owner = (i) => lane.replicaOf(i), several = lane.replicas > 1;
  let written = -Infinity; // the baseline of the last number of a replica
  if (lane.turn || several) rows.sort((a, b) => owner(a) - owner(b) || batch[a] - batch[b] || a - b); // batches do not overlap then
  const plot = boxOf(box.x + 1.6 * em, box.y + 4.2 * em, box.w - 2.8 * em, box.h - 7 * em), pitch = plot.h / Math.max(rows.length, 6);
  const x = (s) => plot.x + (plot.w * (clamp(s, from_s, to_s) - from_s)) / (to_s - from_s), middle = (row) => plot.y + pitch * (row + 0.5);
  const rowsOf = rows.map((i, row) => [lane.first + i, boxOf(x(arrival_s[i]) - 3, plot.y + pitch * row, x(done_s[i]) - x(arrival_s[i]) + 6, pitch)]);
  pen.text(`The requests around this moment${several ? ", by replica" : ""}`, box.x + 0.8 * em, box.y + 1.45 * em, { bold: true, size: 1.1 });
  drawAxis(pen, plot, from_s, to_s, lane.film.unit);
  rows.forEach((i, row) => {
    if (several && (!row || owner(rows[row - 1]) !== owner(i))) {
      if (row) pen.line("faint", plot.x, plot.y + pitch * row, plot.x + plot.w, plot.y + pitch * row, 2);
      const at = Math.min(plot.y + pitch * row + em, plot.y + plot.h);
      if (at - written >= em) pen.text(whole(owner(i)), plot.x - 0.4 * em, (written = at), { align: "right", colour: "soft" });
    }
    const thick = Math.min(0.9 * pitch, 11), mark = STATUS[status[i]], b = batch[i];
    for (const [name, from, to] of lane.story(i)) {
      const high = (thick * pen.fills[name].width) / pen.fills.computing.width;
      pen.rect(pen.colours[pen.fills[seen.add(name) && name].colour], x(from), middle(row) - high / 2, x(to) - x(from), high);
    }
    if (b >= 0) frames.set(b, [frames.get(b)?.[0] ?? row, row]);
    if (mark === "served") return;
    if (mark === "timed_out") pen.line("grey", x(arrival_s[i]), middle(row), x(done_s[i]), middle(row), 1, [1, 2]);
    drawMark(pen, mark, x(done_s[i]), middle(row));
    seen.add(mark);
  });
  for (const [b, [first, last]] of frames) {
    const top = middle(first - 0.45), high = middle(last + 0.45) - top;
    if (ready_s[b] > start_s[b]) pen.rect(pen.fill(seen.add("compiling") && "compiling"), x(start_s[b]), top, x(ready_s[b]) - x(start_s[b]), high);
    pen.frame("ink", boxOf(x(start_s[b]), top, x(finish_s[b]) - x(start_s[b]), high));
  }
  const entries = ["forming", "queueing", "device_wait", "computing", "compiling", ...STATUS].filter((name) => seen.has(name));
  drawLegend(pen, entries.map((name) => [name, name.replace("_", " "), (pen.fills[name]?.width ?? 5) / 5]), box.x + 0.8 * em, box.y + 3 * em, box.x + box.w);
  return { plot, x, there: rowsOf };
}

const seatRows = (lane) => lane.servers * lane.seats;
const laneEm = (lane) => (lane.kind === "requests" ? 6.5
  : Math.max(2.4 + Math.min(1.3 * seatRows(lane), Math.max(10.4, Math.min(0.7 * seatRows(lane), 14))), lane.notes ? 9.2 : 0));
const HEAD_EM = 6.2, FOOT_EM = 3.2;

/** Lanes below each other on a page, with the arrivals above them. */
function drawLanes(pen, film, lanes, box, [from_s, to_s]) {
  const { em } = pen, narrow = box.w < 50 * em, left = box.x + 0.8 * em, named = lanes.some((lane) => lane.notes);
  const side = !named ? 3 * em : (lanes[0].kind === "tokens" ? (narrow ? 10.1 : 11.5) : narrow ? 7.5 : 10) * em, px = (box.h - (HEAD_EM + FOOT_EM) * em) / sum(lanes.map(laneEm));
  const legend = drawLegend(pen, film.legend ?? [], left, box.y + 3 * em, box.x + box.w), head = Math.max(legend - box.y + 3.2 * em, HEAD_EM * em);
  const plot = boxOf(box.x + side + 0.8 * em, box.y + head, box.w - side - 2 * em, box.h - head - FOOT_EM * em);
  const x = (s) => plot.x + (plot.w * (clamp(s, from_s, to_s) - from_s)) / (to_s - from_s);
  pen.text(film.title ?? "", left, box.y + 1.45 * em, { bold: true, size: Math.min(1.1, (box.w - 1.6 * em) / pen.width(film.title ?? "", true)) });
  drawAxis(pen, plot, from_s, to_s, film.unit);
  pen.text("arrivals", left, plot.y - 0.4 * em, { colour: "soft", room: side, size: Math.min(1, (side - 0.3 * em) / pen.width("arrivals")) });
  for (const s of lanes[0].arrival_s) if (s >= from_s && s <= to_s) pen.line("soft", x(s), plot.y - 1.2 * em, x(s), plot.y - 0.3 * em);
  const highest = lanes.map((lane) => mostWaiting(lane, film.begin_s, film.until_s)).sort((a, b) => b - a);
  const scale = Math.max(Math.min(highest[0], 1.25 * Math.max(highest[1] ?? highest[0], 1)), lanes[0].kind === "tokens" ? 8 : 1);
  const heights = lanes.map((lane) => (laneEm(lane) * plot.h) / sum(lanes.map(laneEm)));
  const there = lanes.flatMap((lane, at) => {
    const top = plot.y + sum(heights.slice(0, at)), room = boxOf(plot.x, top + 0.35 * em, plot.w, heights[at] - 0.7 * em);
    pen.line("faint", left, top + heights[at], plot.x + plot.w, top + heights[at]);
    if (lane.notes) drawNames(pen, lane, left, top + 1.4 * em, side - 0.8 * em, heights[at]);
    const split = lane.kind === "tokens" ? room.y + 1.5 * em : room.y + 0.68 * room.h;
    drawWaiting(pen, lane, room.y, split, scale, x, [from_s, to_s]);
    const found = (lane.kind === "tokens" ? drawSeats : drawBatches)(pen, lane, boxOf(room.x, split + 0.2 * em, room.w, room.y + room.h - split - 0.2 * em), x, [from_s, to_s]);
    const cut = mostWaiting(lane, from_s, to_s), text = `at most ${whole(cut)} wait`;
    if (cut <= scale) return found;
    const { times, waiting } = lane.steps, most = times.findIndex((s, k) => waiting[k] === cut && s < to_s && (times[k + 1] ?? to_s) > from_s);
    const peak = x(times[most]), wide = pen.width(text) + 0.6 * em, from = peak > room.x + room.w / 2 ? peak - wide - 0.5 * em : peak + 0.5 * em;
    pen.rect(pen.colours.background, from, room.y + 0.2 * em, wide, 1.4 * em);
    pen.text(text, from + 0.3 * em, room.y + 1.3 * em);
    return found;
  });
  return { plot: boxOf(plot.x, plot.y - 1.2 * em, plot.w, plot.h + 1.2 * em), x, there };
}

function drawNames(pen, lane, x, y, room, high) {
  const { em } = pen, most = Math.max(Math.floor((high / em - 1.6) / 1.3) - lane.notes.length + 1, 1);
  const names = lane.title.length > most ? [...lane.title.slice(0, most - 1), `+ ${lane.title.length - most + 1} more`] : lane.title;
  const cut = (name, at = name.length) => [name, ...Array.from({ length: at }, (_, k) => `${name.slice(0, at - 1 - k)}…`)];
  names.forEach((name, at) => pen.text(cut(name), x, y + 1.3 * em * at, { bold: true, room }));
  lane.notes.forEach((texts, at) => pen.text(texts, x, y + 1.3 * em * (names.length + at), { colour: "soft", room }));
}

function drawWaiting(pen, lane, top, bottom, scale, x, [from_s, to_s]) {
  const { times, waiting, idle } = lane.steps;
  for (let at = Math.max(upTo(times, from_s) - 1, 0); at < times.length && times[at] < to_s; at += 1) {
    const name = idle ? (idle[at] ? "forming" : "queueing") : "waiting", high = (bottom - top) * Math.min(waiting[at] / scale, 1);
    const left = Math.round(x(times[at])), right = Math.round(x(times[at + 1] ?? to_s)); // no gap between two
    pen.rect(pen.fill(name), left, bottom - high, right - left, high);
    if (waiting[at] > scale) pen.line("background", left, top, right, top, 4, [4, 4]); // it is cut: its edge is torn
  }
}

function drawBatches(pen, lane, box, x, [from_s, to_s]) {
  const { em } = pen, { start_s, asked_s, begin_s, finish_s, server, size } = lane.batches, pitch = box.h / lane.servers;
  start_s.forEach((start, b) => {
    if (start > to_s || finish_s[b] <= from_s) return;
    const left = x(start), wide = x(finish_s[b]) - left, y = box.y + pitch * server[b], high = pitch - Math.min(1, 0.2 * pitch);
    pen.rect(pen.fill("computing"), left, y, wide, high);
    pen.rect(pen.fill("device_wait"), x(asked_s[b]), y, x(begin_s[b]) - x(asked_s[b]), high);
    pen.frame("ink", boxOf(left, y, wide, high), Math.min(1, 0.15 * pitch));
    const text = String(size[b]);
    if (pitch >= 1.2 * em && wide > pen.width(text) + 0.4 * em) pen.text(text, left + wide / 2, y + pitch / 2 + 0.36 * em, { align: "center", colour: "background" });
  });
  return []; // no place of a single request
}

function drawSeats(pen, lane, box, x, [from_s, to_s]) {
  const { em } = pen, { stays } = lane, there = [], gap = 0.5 * em, high = (box.h - gap * (lane.servers - 1)) / seatRows(lane), bare = high - Math.min(1, 0.15 * high);
  const top = (server, seat) => box.y + high * (server * lane.seats + seat) + gap * server;
  for (let server = 0; server < lane.servers; server += 1) {
    pen.rect(pen.fill("empty"), x(from_s), top(server, 0), x(to_s) - x(from_s), high * lane.seats);
  }
  lane.padding?.begin_s.forEach((begin, k) => { // empty seats that a captured step computes all the same
    const { server, seat, end_s } = lane.padding, y = top(server[k], seat[k]);
    if (begin > to_s || end_s[k] < from_s || seat[k] >= lane.seats) return;
    pen.rect(pen.colours.background, x(begin), y, x(end_s[k]) - x(begin), high);
    pen.rect(pen.fill("padding"), x(begin), y, x(end_s[k]) - x(begin), bare);
  });
  stays.begin_s.forEach((begin, k) => {
    if (begin > to_s || stays.end_s[k] < from_s || stays.seat[k] >= lane.seats || stays.server[k] >= lane.servers) return;
    const [from, first, last, end] = [begin, stays.first_token_s[k], stays.last_token_s[k], stays.end_s[k]].map(x), y = top(stays.server[k], stays.seat[k]);
    const until = end - (end - from > 3 ? 1 : 0), lower = y + (bare * (1 - TOKENS)) / 2, text = String(stays.request[k]); // a gap before the next
    there.push([stays.request[k], boxOf(from, y, end - from, bare)]);
    pen.rect(pen.colours.background, from, y, end - from, high);
    pen.rect(pen.fill(stays.again[k] ? "again" : "prefill"), from, y, Math.min(first, until) - from, bare);
    pen.rect(pen.fill("decode"), first, lower, Math.min(last, until) - first, bare * TOKENS);
    pen.rect(pen.fill("padded"), last, lower, until - last, bare * TOKENS);
    if (stays.preempted[k] && stays.end_s[k] <= to_s) drawMark(pen, "preempted", end, y + high / 2);
    if (high >= 1.2 * em && last - from > pen.width(text) + 0.6 * em) pen.text(text, (from + last) / 2, y + high / 2 + 0.36 * em, { align: "center", colour: "background" });
  });
  if (!lane.notes && high >= 1.2 * em) for (let seat = 0; seat < seatRows(lane); seat += 1) {
    pen.text(String((seat % lane.seats) + 1), box.x - 0.6 * em, top(Math.floor(seat / lane.seats), seat % lane.seats) + high / 2 + 0.36 * em, { align: "right", colour: "soft" });
  }
  return there;
}

// The film: a canvas, its controls and its words.

function make(parent, tag, properties = {}, style = {}) {
  const element = Object.assign(document.createElement(tag), properties);
  Object.assign(element.style, style);
  parent.append(element);
  return element;
}

/** The speed at which the eye can follow a film: seconds on the screen per second of the run, from a list. */
export function comfortable(film, lane) {
  let wanted = WHOLE_S / ((film.page_s ?? film.until_s - film.begin_s) || 1);
  if (lane.kind === "requests") {
    const [shortest, longest] = BATCH_S.map((seconds) => seconds / lane.batch_s);
    wanted = Math.min(clamp(lane.per_s / ARRIVALS_PER_S, shortest, longest), PAUSE_S * lane.per_s);
  }
  const away = (times) => Math.abs(Math.log(times / Math.max(wanted, 1e-9)));
  return SLOWNESS.reduce((best, times) => (away(times) < away(best) ? times : best));
}

/** The requests of some lanes, [number, latency where it is longest] each, by number. */
export function longest(lanes) {
  const found = new Map();
  for (const [number, s] of lanes.flatMap((lane) => lane.latencies)) {
    if (!found.has(number) || s > found.get(number)) found.set(number, s);
  }
  return [...found].sort(([a], [b]) => a - b);
}

/**
 * A film in an element, with its own clock and controls: `load` it, then `play`, `pause`, `goTo`, `next`, `previous`.
 * options: { looks: { light, dark, fills }, theme?, em?: px of its letters, fill?: whether it takes the element's height }.
 * `onmoment` calls back at every moment shown; `time_s`, `playing`, `words`, `line`, `at`, `picked` and `follow` are the seam for others.
 */
export class Film {
  constructor(host, options) {
    Object.assign(this, { host, options, callbacks: [], time_s: 0, within_s: 0, playing: false, picked: null, frames: 0, lanes: [], slowed: 0 });
    this.reduced = matchMedia("(prefers-reduced-motion: reduce)");
    this.canvas = make(host, "canvas", { tabIndex: 0 }, { display: "block", width: "100%", touchAction: "manipulation" });
    this.canvas.setAttribute("role", "img");
    this.bar = make(host, "div", { className: "batchsim-film-controls" }, { display: "flex", flexWrap: "wrap", gap: "4px 8px", alignItems: "center", padding: "4px 8px" });
    const buttons = { toggle: "Play or pause the film (space)", previous: "Go to the previous event (left arrow)", next: "Go to the next event (right arrow)",
      followSlowest: "Follow the slowest request (S); a click on a square follows another, N the next" };
    this.buttons = Object.entries(buttons).map(([name, title]) => make(this.bar, "button", { type: "button", title, onclick: () => this[name]() }));
    this.speed = make(this.bar, "select", { title: "Seconds on the screen per second of the run", onchange: () => this.pace(Number(this.speed.value)) }, { maxWidth: "9.5em" });
    this.place = make(this.bar, "input", { type: "range", min: 0, max: 1000, step: "any", title: "The film's time" }, { flex: "1 1 5em", minWidth: "5em" });
    this.clock = make(this.bar, "span", {}, { minWidth: "9em" }); // no <output>, which would be read out at every frame
    for (const [element, name] of [[this.speed, "Speed"], [this.place, "Time"]]) element.setAttribute("aria-label", name);
    this.place.oninput = () => this.goTo(this.film.begin_s + (this.place.value / 1000) * (this.film.until_s - this.film.begin_s));
    this.said = options.words ?? make(host, "p", {}, { margin: "0", padding: "0 8px 4px", minHeight: "2.8em" });
    this.said.setAttribute("role", "status");
    this.canvas.onclick = ({ offsetX: x, offsetY: y }) => {
      const number = this.at(x, y);
      this.follow(number);
      if (number === null && this.numbers.length) this.say("There is no request at this place: click a square, or press S for the slowest.");
    };
    host.addEventListener("keydown", (this.onkey = (event) => this.key(event)));
    this.sizes = new ResizeObserver(() => this.layOut());
    this.sizes.observe(host);
    host.film = this; // for a reader's console
  }

  destroy() {
    this.pause();
    this.sizes.disconnect();
    this.host.removeEventListener("keydown", this.onkey);
    cancelAnimationFrame(this.wanted);
    this.host.replaceChildren();
  }
  set theme(name) { this.options.theme = name; this.layOut(); }
  onmoment(callback) { this.callbacks.push(callback); }

  /** Show another film; one that plays goes on from its beginning, or from a given time. */
  load(film, time_s = null) {
    this.film = film;
    this.lanes = film.lanes.map((lane) => new (lane.kind === "tokens" ? Tokens : Requests)(lane, film));
    const [lane] = this.lanes, start = film.start ?? { time_s: film.begin_s, within_s: 0 }, resumes = this.playing || time_s !== null;
    this.instants = unique(...this.lanes.map((each) => each.instants)).filter((s) => s > film.begin_s && s < film.until_s);
    this.staged = this.lanes.length === 1 && lane.kind === "requests";
    const whole_s = film.until_s - film.begin_s;
    this.page_s = film.page_s ?? (this.staged ? Math.min(Math.max(PAGE / lane.per_s, 5 * lane.batch_s), whole_s || Infinity) : whole_s);
    this.film.unit ??= unitOf(1000 * this.page_s);
    this.usual = SLOWNESS.indexOf(comfortable(film, lane));
    this.pace(this.slowed);
    this.listed = null;
    this.buttons.at(-1).style.display = this.numbers.length ? "" : "none";
    this.follow(this.picked);
    this.untouched = time_s === null; // Play starts at the beginning
    Object.assign(this, { below: null, stage: null, shown: null }); // another film's: until there is room, nothing is drawn
    Object.assign(this, { time_s: this.playing ? film.begin_s : time_s ?? start.time_s, within_s: resumes ? 0 : start.within_s });
    this.layOut();
  }

  /** Play some steps slower than the usual speed; the choice holds for later films, whose usual speeds differ. */
  pace(slowed) {
    const steps = STEPS.filter((step) => SLOWNESS[this.usual + step]);
    this.slowed = steps.includes(slowed) ? slowed : 0;
    this.slowness = SLOWNESS[this.usual + this.slowed];
    this.speed.replaceChildren(...steps.map((step) => new Option(slower(SLOWNESS[this.usual + step]), step)));
    this.speed.value = this.slowed;
  }

  play() {
    if (!this.film || this.playing) return;
    if (this.untouched || this.time_s >= this.film.until_s) this.snap(this.film.begin_s);
    this.setPlaying(true);
  }
  pause() { if (this.playing) this.setPlaying(false); }
  toggle() { this.playing ? this.pause() : this.play(); }
  setPlaying(playing) {
    Object.assign(this, { playing, untouched: false, last_ms: performance.now() });
    this.label();
    this.want();
  }

  label() { // without words where there is no room
    const texts = [this.playing ? ["▮▮", "Pause"] : ["▶", "Play"], ["◀", "Previous"], ["▶|", "Next event"], ["◎", "Slowest"]];
    this.buttons.forEach((button, at) => {
      button.textContent = this.host.clientWidth < 740 ? texts[at][0] : texts[at].join(" ");
      button.setAttribute("aria-label", texts[at][1]);
    });
  }

  /** Show a time; requests glide there if it is at most one event away. */
  goTo(time_s) {
    const to = clamp(time_s, this.film.begin_s, this.film.until_s), events = upTo(this.instants, to) - upTo(this.instants, this.time_s);
    this.snap(to, Math.abs(events) > 1);
  }

  snap(time_s, snapped = true) {
    Object.assign(this, { time_s, within_s: 0, note: "", untouched: false, snapped: snapped || this.snapped });
    this.want();
  }

  next() { this.step(this.instants[upTo(this.instants, this.time_s)] ?? this.film.until_s); }
  previous() { this.step(this.instants.findLast((s) => s < this.time_s) ?? this.film.begin_s); }
  step(time_s) {
    this.pause();
    this.goTo(time_s);
  }

  key(event) {
    event.stopPropagation(); // otherwise a notebook would move to another cell
    if (event.target !== this.canvas || !this.film) return;
    const { begin_s, until_s } = this.film, acts = { " ": () => this.toggle(), ArrowLeft: () => this.previous(),
      ArrowRight: () => this.next(), Home: () => this.goTo(begin_s), End: () => this.goTo(until_s),
      n: () => this.followNext(), s: () => this.followSlowest(), Escape: () => this.follow(null) };
    if (acts[event.key] && !event.ctrlKey && !event.metaKey) event.preventDefault();
    else return;
    acts[event.key]();
  }

  /** The requests that can be followed, [number, latency] each: those that have a place of their own. */
  get numbers() {
    const lanes = this.lanes.filter((lane) => this.staged || lane.kind === "tokens");
    return (this.listed ??= longest(lanes));
  }

  /** Highlight a request and tell its life, or, with null, nobody's. */
  follow(number) {
    const known = number !== null && this.numbers.some(([each]) => each === number); // nobody, at each frame of a drag
    Object.assign(this, { picked: known ? number : null, note: "" });
    this.want();
  }

  /** Follow the next request, or the first again, at the moment of its arrival. */
  followNext() { this.followAt((this.numbers.find(([number]) => number > (this.picked ?? -1)) ?? this.numbers[0])?.[0]); }
  followSlowest() { this.followAt(this.numbers.reduce((most, each) => (each[1] > (most[1] || -1) ? each : most), [])[0]); }
  followAt(number) {
    if (number === undefined) return this.say("This film shows no single requests.");
    this.pause();
    this.goTo(this.lanes.map((lane) => lane.arrived(number)).find((s) => s !== undefined));
    this.follow(number);
  }

  say(text) { // until the next moment
    this.note = text;
    this.want();
  }

  /** The present moment: its state, and how long ago a batch may have left to count as leaving. */
  get moment() {
    const { reduced, playing, instants } = this, before = reduced.matches && playing ? upTo(instants, this.time_s) - 1 : -1;
    return [before >= 0 ? instants[before] : this.time_s, playing ? LEAVES_S / this.slowness : this.within_s];
  }

  get words() {
    if (this.note) return this.note;
    if (this.picked !== null) {
      const lives = this.lanes.map((lane) => [...lane.title, lane.life(this.picked)]).filter((parts) => parts.at(-1));
      return lives.map((parts) => parts.join(": ")).join(" ");
    }
    const [t, within] = this.moment, { lanes } = this;
    if (lanes.length === 1 && (this.staged || lanes[0].moments)) return lanes[0].words(lanes[0].at(t), within);
    return `At ${timeIn(this.film, t, lanes[0].decimals)}: ${lanes.map((lane) => `${lane.title.join(", ")}: ${lane.shortWords(lane.at(t))}`).join("; ")}.`;
  }

  get lineFollowed() { return this.picked === null ? -1 : this.lanes[0].lineOf(this.picked); }
  get line() { return this.lanes[0].line(this.lanes[0].at(this.moment[0]), this.moment[1]); } // of the first lane's pseudo-code

  /** The number of the request at a place of the canvas, in CSS pixels; null for none. */
  at(x, y) {
    const within = ({ x: left, y: top, w, h }, dy = 0) => x >= left && x < left + w && y - dy >= top && y - dy < top + h;
    const found = [...(this.stage?.crowd.of ?? [])].find(([, it]) => within(boxOf(it.x, it.y, it.wide, it.side)));
    return found ? this.lanes[0].first + found[0] : this.shown?.there.findLast(([, box]) => within(box, this.below.y))?.[0] ?? null;
  }

  layOut() {
    const { canvas, options, lanes } = this, w = Math.floor(this.host.clientWidth), ratio = Math.min(devicePixelRatio || 1, 2);
    if (!this.film || w < 50) return;
    this.label();
    this.clock.hidden = w < 560;
    const em = options.em ?? clamp(12 + (w - 800) / 400, 12, 14), own = this.bar.offsetHeight + (options.words ? 0 : this.said.offsetHeight);
    const natural = this.staged ? clamp(0.52 * w, 400, 620) * Math.max(em / 13, 1) : (HEAD_EM + FOOT_EM + 1.5 + sum(lanes.map(laneEm))) * em;
    const h = Math.round(options.fill ? Math.max(this.host.clientHeight - own, 160) : natural);
    const [width, height] = [w, h].map((px) => Math.round(px * ratio));
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height }).style.height = `${h}px`;
    this.pen = new Pen(canvas.getContext("2d"), options.looks, options.theme ?? "light", em, ratio);
    Object.assign(this.host.style, { background: this.pen.colours.background, color: this.pen.colours.ink });
    const high = !this.staged ? 0 : h < LOW_PX ? h : Math.round(STAGE * h);
    this.stage = this.staged ? new StageView(this.pen, lanes[0], boxOf(0, 0, w, high)) : null;
    Object.assign(this, { below: boxOf(0, high, w, h - high), shown: null, snapped: true });
    this.show(performance.now());
  }

  want() { this.wanted ??= requestAnimationFrame((now_ms) => { this.wanted = null; this.show(now_ms); }); }

  show(now_ms) {
    const passed_s = clamp((now_ms - (this.last_ms ?? now_ms)) / 1000, 0, LEAP_S), { pen, film } = this;
    if (!pen || !film) return;
    this.last_ms = now_ms;
    if (this.playing) this.time_s = Math.min(this.time_s + passed_s / this.slowness, film.until_s);
    if (this.time_s >= film.until_s && this.playing) this.setPlaying(false);
    const [t, within] = this.moment, moving = this.draw(t, within, passed_s);
    this.place.value = (1000 * (this.time_s - film.begin_s)) / (film.until_s - film.begin_s || 1);
    const words = this.playing && this.picked === null ? "" : this.words;
    if (this.said.textContent !== words) this.said.textContent = words;
    if (!this.playing) this.canvas.setAttribute("aria-label", words);
    this.clock.textContent = `Time: ${timeIn(film, this.time_s, this.lanes[0].decimals)}`;
    this.place.setAttribute("aria-valuetext", this.clock.textContent);
    this.frames += 1;
    this.callbacks.forEach((callback) => callback(this));
    if (this.playing || moving) this.want();
    else this.last_ms = null;
  }

  draw(t, within, passed_s) {
    const { pen, lanes, below, stage, film } = this, { context, ratio } = pen, now = lanes[0].at(t);
    if (!below) return false;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.rect(pen.colours.background, 0, 0, below.w, below.y + below.h);
    const glide_s = clamp(WAY * (lanes[0].batch_s ?? 0) * this.slowness / 2, ...GLIDE_S), snap = this.snapped || this.reduced.matches;
    const moving = stage?.crowd.move(now, snap ? 1 : 1 - Math.exp(-(passed_s || 0.016) / glide_s), this.reduced.matches) ?? false;
    this.snapped = false;
    stage?.draw(now, within, this.picked);
    if (!below.h) return moving;
    const page = clamp(Math.floor((t - film.begin_s) / this.page_s), 0, Math.max(Math.ceil((film.until_s - film.begin_s) / this.page_s - 1e-9) - 1, 0));
    if (this.shown?.page !== page) this.shown = { page, ...this.drawPage(page) };
    const { picture, plot, x } = this.shown, at = x(t), top = below.y + plot.y;
    context.drawImage(picture, 0, below.y, below.w, below.h);
    if (lanes.length > 1) pen.rect(`${pen.colours.background}E0`, at, top, plot.x + plot.w - at + 1, plot.h);
    for (const [number, { x: left, y, w, h }] of this.shown.there) {
      if (number === this.picked) pen.frame(FOLLOWED, boxOf(left, below.y + y, w, h), 2.5);
    }
    pen.line("ink", at, top, at, top + plot.h, 1.2);
    return moving;
  }

  drawPage(page) {
    const { pen, film, below, lanes } = this, { ratio } = pen, picture = document.createElement("canvas"), from_s = film.begin_s + page * this.page_s;
    Object.assign(picture, { width: Math.round(below.w * ratio), height: Math.round(below.h * ratio) });
    const own = new Pen(picture.getContext("2d"), this.options.looks, this.options.theme ?? "light", pen.em, ratio), box = boxOf(0, 0, below.w, below.h);
    own.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    return { picture, ...(this.staged ? drawTimeline(own, lanes[0], box, [from_s, from_s + this.page_s]) : drawLanes(own, film, lanes, box, [from_s, from_s + this.page_s])) };
  }
}
