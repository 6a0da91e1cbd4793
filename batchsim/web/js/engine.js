/**
 * The compiled engine in a page, a worker or Node: WebAssembly made from the loops of batchsim/engines/compiled, so
 * its batches are those of `batchsim.simulate`, bit for bit.
 */

const RESULT = 16; // bytes: where an entry writes what it returns, which is nothing, and its exception
const DONE = [0, -2]; // as Numba says that there was no exception
const [BATCHES, ENDING, CURSORS, ENDED] = [4, 8, 9, 1]; // places in a loop's whole numbers, and how a run ends
const COUNTERS = 4 * 4096; // bytes, for the selection of ranks
const KEPT = 4096; // latencies that a run of a grid keeps, if the percentile needs no more
const LATEST_S = 2 ** 22; // see batchsim/_clock.py
const USUAL = { rule: "SizeOrWait", servers: 1, requests: 20000, seed: 0 };

/** The module that batchsim/web/wasm.py builds, and its memory. */
class Module {
  /** Return the module of these bytes, or of a compiled `WebAssembly.Module`. */
  static async load(source) {
    const compiled = source instanceof WebAssembly.Module ? source : await WebAssembly.compile(source);
    return new Module(compiled, await WebAssembly.instantiate(compiled, {}));
  }

  constructor(module, instance) {
    this.module = module; // which a worker can be sent
    this.entries = instance.exports;
    this.base = aligned(this.entries.__heap_base.value);
    this.kept = this.base + RESULT; // the end of what outlives a run
  }

  /** Call an entry; addresses are numbers, whole numbers of 64 bits are BigInts. */
  call(name, ...values) {
    const status = this.entries[name](this.base, this.base + RESULT / 2, ...values);
    if (!DONE.includes(status)) throw new Error(`${name} failed: ${status}`);
  }

  /** Return the addresses of blocks of so many bytes, from an address on, and of the end. */
  blocks(begin, sizes) {
    const found = [begin];
    for (const size of sizes) found.push(aligned(found.at(-1) + size));
    const { memory } = this.entries;
    const missing = found.at(-1) - memory.buffer.byteLength;
    if (missing > 0) memory.grow(Math.ceil(missing / 65536));
    return found;
  }

  /** Return `count` values of a type of array at an address: valid until the next blocks. */
  view(Type, at, count) {
    return new Type(this.entries.memory.buffer, at, count);
  }
}

/** Runs: `run` returns all batches of one; `loads` and `grid` return percentiles of many. */
export class Engine {
  /** Return an engine from the module's bytes; `descriptions.rules[name].call` comes from batchsim/web/calls.py. */
  static async load(bytes, descriptions) {
    return new Engine(await Module.load(bytes), descriptions);
  }

  constructor(module, descriptions) {
    this.module = module;
    this.descriptions = descriptions;
    this.drawn = { seed: null, count: 0 }; // requests at rate 1, at the module's first free address
    this.pointsAt = module.kept;
  }

  /** Return a run: arrays with a value a request, and `batches` with a value a batch. */
  run(settings) {
    const given = this.complete(settings);
    const at = this.prepare(given);
    const count = this.form(given, at);
    const n = given.requests;
    const copy = (Type, address, size) => this.module.view(Type, address, size).slice();
    const batches = {
      start_s: copy(Float64Array, at.floats + 8 * n, count),
      finish_s: copy(Float64Array, at.floats + 16 * n, count),
      size: copy(Int32Array, at.ints + 4 * n, count),
      server: copy(Int32Array, at.ints + 8 * n, count),
      trigger: copy(Uint8Array, at.octets, count),
    };
    const batch_index = copy(Int32Array, at.ints, n);
    return {
      arrival_s: copy(Float64Array, at.floats, n),
      start_s: ofBatches(batches.start_s, batch_index),
      finish_s: ofBatches(batches.finish_s, batch_index),
      batch_index,
      batches,
    };
  }

  /** Return the metrics of a run over its served requests, and the number of latencies between each two edges. */
  summary(run, settings, edges_ms = []) {
    const { servers } = this.complete(settings);
    const latency_s = latencies(run.arrival_s, run.finish_s);
    const [p50_ms, p95_ms, p99_ms] = this.percentiles(latency_s, [50, 95, 99]);
    return { p50_ms, p95_ms, p99_ms, ...meanParts(run, servers), histogram: counts(latency_s, edges_ms) };
  }

  /** Return percentiles at some arrival rates, a value a rate; the requests stay the same, only their gaps stretch. */
  loads(settings, rates_per_s) {
    const found = { p50_ms: new Float64Array(rates_per_s.length), p99_ms: new Float64Array(rates_per_s.length) };
    rates_per_s.forEach((rate_per_s, place) => {
      [found.p50_ms[place], found.p99_ms[place]] = this.ranked({ ...settings, rate_per_s }, [{}], [50, 99]);
    });
    return found;
  }

  /** Return the 99th percentile of each setting: a row has a wait and all sizes; NaN where the rule allows none. */
  grid(settings, sizes, waits) {
    const [x, y] = this.call(settings.rule ?? USUAL.rule).knobs;
    return this.ranked(settings, waits.flatMap((wait) => sizes.map((size) => ({ [x]: size, [y]: wait }))), [99]);
  }

  /** Return percentiles, in rising order, of runs under the same traffic, each with other parameters of its rule. */
  ranked(settings, changes, perCent) {
    const all = changes.map((change) => this.complete({ ...settings, ...change }, true));
    const found_ms = new Float64Array(all.length * perCent.length).fill(NaN);
    const valid = [...all.keys()].filter((row) => !all[row].wrong);
    if (!valid.length) return found_ms;
    const fast = all[0].call.entry === "run_threshold";
    const values_ms = fast ? this.rankedFast(valid.map((row) => all[row]), perCent)
      : valid.flatMap((row) => this.rankedOne(all[row], perCent));
    valid.forEach((row, place) => {
      const begin = place * perCent.length;
      found_ms.set(values_ms.slice(begin, begin + perCent.length), row * perCent.length);
    });
    return found_ms;
  }

  rankedOne(given, perCent) {
    const at = this.prepare(given);
    const count = this.form(given, at);
    const finish_s = this.module.view(Float64Array, at.floats + 16 * given.requests, count);
    const batch_index = this.module.view(Int32Array, at.ints, given.requests);
    const arrival_s = this.module.view(Float64Array, at.floats, given.requests);
    return this.percentiles(latencies(arrival_s, ofBatches(finish_s, batch_index)), perCent);
  }

  /** The runs of a threshold rule in one call, which keeps only the latencies from the lowest rank on. */
  rankedFast(all, perCent) {
    const n = all[0].requests;
    const largest = Math.max(...all.map((given) => given.max_batch_size));
    const at = this.prepare({ ...all[0], max_batch_size: largest });
    const ranks = perCent.map((q) => (q / 100) * (n - 1));
    const space = Math.min(n, Math.max(KEPT, 2 * (n - Math.floor(ranks[0]))));
    const thresholds = all.flatMap((given) => given.call.arguments.map((name) => inSeconds(given, name)));
    const blocks = this.module.blocks(at.end, [8 * thresholds.length, ...rankBlocks(space, ranks, all.length)]);
    const [settings, places, keys, counters, ranked] = blocks;
    this.module.view(Float64Array, settings, thresholds.length).set(thresholds);
    this.writePlaces(places, ranks);
    this.module.call(
      "run_grid", all.length, n, all[0].servers, largest, space, settings, at.floats, places, keys, counters, ranked,
    );
    return this.between(ranked, all.flatMap(() => ranks));
  }

  /** Return exact percentiles in ms of latencies in seconds. */
  percentiles(latency_s, perCent) {
    const count = latency_s.length;
    if (!count) return perCent.map(() => NaN);
    const ranks = perCent.map((q) => (q / 100) * (count - 1));
    const [places, keys, counters, ranked] = this.module.blocks(this.module.kept, rankBlocks(count, ranks, 1));
    this.module.view(Float64Array, keys, count).set(latency_s);
    this.writePlaces(places, ranks);
    this.module.call("find_ranks", count, places, keys, counters, ranked);
    return this.between(ranked, ranks);
  }

  writePlaces(at, ranks) {
    const values = [ranks.length, ...ranks.map(Math.floor)];
    this.module.view(BigInt64Array, at, values.length).set(values.map(BigInt));
  }

  /** The values between those at a rank and behind it, as `Result.percentile` computes them, to the last bit. */
  between(at, ranks) {
    const pairs = this.module.view(Float64Array, at, 2 * ranks.length);
    return ranks.map((rank, place) => {
      const [below_ms, above_ms] = [pairs[2 * place] * 1000, pairs[2 * place + 1] * 1000];
      const [part, rise_ms] = [rank - Math.floor(rank), above_ms - below_ms];
      return part < 0.5 ? below_ms + rise_ms * part : above_ms - rise_ms * (1 - part);
    });
  }

  /** Write what a run needs; return the addresses of its columns: see batchsim/web/entries.py. */
  prepare(given) {
    const { requests: n, servers, max_batch_size: largest } = given;
    this.draw(given);
    const floats = [n, n, n, largest + 1, given.memory, 2 * servers + 1].reduce((sum, size) => sum + size);
    const sizes = [8 * floats, 4 * (4 * n + given.frozen), 2 * n + given.frozen, 8 * (CURSORS + servers)];
    const [first, ints, octets, wholes, end] = this.module.blocks(this.module.kept, sizes);
    if (given.arrival_s) this.module.view(Float64Array, first, n).set(given.arrival_s.map(onGrid));
    else this.module.call("stretch", given.rate_per_s, n, this.pointsAt, first);
    const service_s = this.module.view(Float64Array, first + 24 * n, floats - 3 * n).fill(0);
    for (let size = 1; size <= largest; size += 1) service_s[size] = (given.fixed_ms + given.per_item_ms * size) / 1000;
    service_s[0] = NaN;
    this.module.view(Uint8Array, octets + n, n).fill(0);
    this.module.view(BigInt64Array, wholes, CURSORS + servers).fill(0n);
    const last_s = this.module.view(Float64Array, first, n)[n - 1];
    if (!(last_s < LATEST_S)) throw new RangeError(`arrivals must be before ${LATEST_S} s, got ${last_s} s`);
    return { floats: first, ints, octets, wholes, end };
  }

  /** Draw the requests at rate 1, unless they are there already: a longer draw begins with a shorter one. */
  draw({ arrival_s, seed, requests }) {
    if (arrival_s || (this.drawn.seed === seed && this.drawn.count >= requests)) return;
    const [, end] = this.module.blocks(this.pointsAt, [8 * requests]);
    this.module.call("draw", BigInt(seed), requests, this.pointsAt);
    this.module.kept = end;
    this.drawn = { seed, count: requests };
  }

  /** Run the loop; return the number of batches. */
  form(given, at) {
    const { call, requests, servers } = given;
    const values = this.argumentsOf(given, at.end);
    this.module.call(
      call.entry, ...values, requests, servers, given.max_batch_size, given.memory, given.frozen, call.while_busy,
      at.floats, at.ints, at.octets, at.wholes,
    );
    const cursors = this.module.view(BigInt64Array, at.wholes, CURSORS);
    if (cursors[ENDING] !== BigInt(ENDED)) throw new Error(`${given.rule} returned a wrong size`);
    return Number(cursors[BATCHES]);
  }

  /** The rule's parameters as an entry takes them; an array is seven arguments. */
  argumentsOf(given, end) {
    return given.call.arguments.flatMap((name) => {
      const kind = given.call.parameters[name]?.kind;
      if (kind === "whole") return [BigInt(given[name])];
      if (kind !== "sizes") return [inSeconds(given, name)];
      const values = BigInt64Array.from(given[name], BigInt);
      const [at, next] = this.module.blocks(end, [values.byteLength]);
      this.module.view(BigInt64Array, at, values.length).set(values);
      end = next;
      return [0, 0, BigInt(values.length), 8n, at, BigInt(values.length), 8n];
    });
  }

  call(rule) {
    const found = this.descriptions.rules[rule]?.call;
    if (!found) throw new RangeError(`rule must be one of ${Object.keys(this.descriptions.rules).join(", ")}, got ${rule}`);
    return found;
  }

  /** Return all settings, or raise a RangeError; a `tolerant` call notes what is wrong instead. */
  complete(settings, tolerant = false) {
    const call = this.call(settings.rule ?? USUAL.rule);
    const usual = Object.entries(call.parameters).map(([name, described]) => [name, described.usual ?? Infinity]);
    const given = { ...USUAL, ...Object.fromEntries(usual), ...this.descriptions.usual, ...settings, call };
    if (given.arrival_s) given.requests = given.arrival_s.length;
    given.wrong = mistake(given);
    if (given.wrong && !tolerant) throw new RangeError(given.wrong);
    const [fixed, each] = call.memory;
    given.memory = fixed + each * given.max_batch_size;
    given.frozen = call.freezes ? given.requests : 0;
    return given;
  }
}

/** Return what is wrong with settings, as a sentence; undefined if nothing is. */
function mistake(given) {
  const checks = [
    ["servers", given.servers, 1, true], ["requests", given.requests, 1, true], ["seed", given.seed, 0, true],
    ["fixed_ms", given.fixed_ms, 0], ["per_item_ms", given.per_item_ms, 0],
    ["rate_per_s", given.arrival_s ? 1 : given.rate_per_s, Number.MIN_VALUE],
  ];
  for (const [name, { kind, least }] of Object.entries(given.call.parameters)) {
    for (const value of [given[name]].flat()) checks.push([name, value, least, kind !== "real"]);
  }
  for (const [name, value, least, whole] of checks) {
    if (whole && !Number.isInteger(value)) return `${name} must be a whole number, got ${value}`;
    if (!(value >= least)) return `${name} must be at least ${least}, got ${value}`;
    const size = given.call.parameters[name];
    if (size && whole && value > given.max_batch_size) return `${name} must be at most max_batch_size, got ${value}`;
  }
  return given.fixed_ms + given.per_item_ms > 0 ? undefined : "fixed_ms + per_item_ms must be greater than 0, got 0";
}

/** Return a parameter as the loops take it: those in ms in seconds; infinity if a threshold has none. */
function inSeconds(given, name) {
  if (name === null) return Infinity;
  return name.endsWith("_ms") ? given[name] / 1000 : given[name];
}

/** The times, whole nanoseconds, as batchsim/_clock.py rounds them. */
function onGrid(time_s) {
  return (time_s * 1e9 + 2 ** 52 - 2 ** 52) / 1e9;
}

/** The bytes of the places, the keys, the counters and the values found. */
function rankBlocks(keys, ranks, rows) {
  return [8 * (ranks.length + 1), 16 * keys, COUNTERS, 16 * ranks.length * rows];
}

function aligned(bytes) {
  return Math.ceil(bytes / 16) * 16;
}

/** Return each request's time from those of the batches; NaN for one that was not served. */
function ofBatches(times_s, batchIndex) {
  const found_s = new Float64Array(batchIndex.length);
  for (let i = 0; i < batchIndex.length; i += 1) found_s[i] = batchIndex[i] < 0 ? NaN : times_s[batchIndex[i]];
  return found_s;
}

/** Return the latencies of the served requests. */
function latencies(arrival_s, finish_s) {
  const found_s = new Float64Array(arrival_s.length);
  let count = 0;
  for (let i = 0; i < arrival_s.length; i += 1) {
    found_s[count] = finish_s[i] - arrival_s[i];
    count += found_s[count] >= 0 ? 1 : 0;
  }
  return found_s.subarray(0, count);
}

/** Return how many latencies are between each two edges, the last one included, as NumPy counts them. */
function counts(latency_s, edges_ms) {
  const found = new Int32Array(Math.max(edges_ms.length - 1, 0));
  const last = found.length;
  for (const seconds of last ? latency_s : []) {
    const ms = seconds * 1000;
    let [low, high] = [0, last];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (edges_ms[middle] <= ms) low = middle;
      else high = middle - 1;
    }
    if (ms >= edges_ms[0] && ms <= edges_ms[last]) found[Math.min(low, last - 1)] += 1;
  }
  return found;
}

/** Return when all servers compute, each span with the sum of those before; and that sum at each batch's start. */
function busySpans({ start_s, finish_s, server }, servers) {
  const until_s = new Float64Array(servers);
  const spans = [{ from_s: -1, to_s: -1, before_s: 0 }];
  const atStart_s = new Float64Array(start_s.length);
  let all_s = 0;
  for (let batch = 0; batch < start_s.length; batch += 1) {
    atStart_s[batch] = all_s;
    until_s[server[batch]] = finish_s[batch];
    const free_s = Math.min(...until_s);
    if (free_s <= start_s[batch]) continue;
    spans.push({ from_s: start_s[batch], to_s: free_s, before_s: all_s });
    all_s += free_s - start_s[batch];
  }
  return [spans, atStart_s];
}

/** Return for how many seconds each request waited while all servers computed; the rest of its wait is forming. */
export function queueing({ arrival_s, start_s, batch_index, batches }, servers) {
  const [spans, atStart_s] = busySpans(batches, servers);
  const queued_s = new Float64Array(arrival_s.length);
  for (let i = 0, place = 0; i < arrival_s.length; i += 1) {
    if (batch_index[i] < 0) continue;
    while (place + 1 < spans.length && spans[place + 1].from_s <= arrival_s[i]) place += 1;
    const { from_s, to_s, before_s } = spans[place];
    const busyBefore_s = before_s + Math.min(arrival_s[i], to_s) - from_s;
    queued_s[i] = Math.min(Math.max(atStart_s[batch_index[i]] - busyBefore_s, 0), start_s[i] - arrival_s[i]);
  }
  return queued_s;
}

/** Return the means of a run. */
function meanParts(run, servers) {
  const { arrival_s, start_s, finish_s, batch_index, batches } = run;
  const queued_s = queueing(run, servers);
  let [waited, queued, computed, served, last_s, busy_s] = [0, 0, 0, 0, 0, 0];
  for (let i = 0; i < arrival_s.length; i += 1) {
    if (batch_index[i] < 0) continue;
    waited += start_s[i] - arrival_s[i];
    queued += queued_s[i];
    computed += finish_s[i] - start_s[i];
    served += 1;
  }
  for (let batch = 0; batch < batches.start_s.length; batch += 1) {
    last_s = Math.max(last_s, batches.finish_s[batch]);
    busy_s += batches.finish_s[batch] - batches.start_s[batch];
  }
  return {
    mean_ms: (1000 * (waited + computed)) / served,
    forming_ms: (1000 * (waited - queued)) / served,
    queueing_ms: (1000 * queued) / served,
    computing_ms: (1000 * computed) / served,
    throughput_per_s: served / last_s,
    utilisation: busy_s / servers / last_s,
    mean_batch_size: served / batches.start_s.length,
  };
}
