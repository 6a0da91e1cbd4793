/**
 * The compiled engine in a page, a worker or Node: WebAssembly made from the loops of batchsim/engines/compiled, so
 * its batches are those of `batchsim.simulate`, bit for bit. batchsim/web/entries.py says what the entries take.
 */

const RESULT = 16; // bytes: where an entry writes what it returns, which is nothing, and its exception
const DONE = [0, -2]; // as Numba says that there was no exception
const [BATCHES, ENDING, CURSORS, ENDED] = [4, 8, 9, 1n]; // places in a loop's whole numbers, and how a run ends
const COUNTERS = 4 * 4096; // bytes, for the selection of ranks
const KEPT = 4096; // latencies that a run of a grid keeps, if the percentile needs no more
const LATEST_S = 2 ** 22; // times must be before: see batchsim/_clock.py
const USUAL = { rule: "SizeOrWait", servers: 1, requests: 20000, seed: 0 };

/** The module that batchsim/web/wasm.py builds, and its memory. */
class Module {
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
    if (!DONE.includes(status)) throw new Error(`${name} failed with ${status}`);
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

  /** Return values at an address as an array: valid until the next blocks. */
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
    this.drawn = { seed: null, count: 0, at: module.kept }; // requests at rate 1
    this.traffic = null; // whose arrivals are at the first free address
    this.scratch = module.kept; // the end of the arrivals
  }

  /** Return a run: arrays with a value a request, and `batches` with a value a batch. */
  run(settings = {}) {
    const given = { ...this.complete(settings), arrival_s: settings.arrival_s?.slice() };
    const { batch_index, batches } = this.formed(given);
    for (const [name, column] of Object.entries(batches)) batches[name] = column.slice();
    const run = { batch_index: batch_index.slice(), batches };
    onceRead(run, "arrival_s", () => this.module.view(Float64Array, this.prepare(given).floats, given.requests).slice());
    for (const name of ["start_s", "finish_s"]) onceRead(run, name, () => ofBatches(batches[name], run.batch_index));
    return run;
  }

  /** Return the metrics of a run over its served requests. */
  summary(run, { servers = USUAL.servers }) {
    const [p50_ms, p95_ms, p99_ms] = this.percentiles(latencies(run), [50, 95, 99]);
    return { p50_ms, p95_ms, p99_ms, ...meanParts(run, servers) };
  }

  /** Return percentiles at some arrival rates, a value a rate; the same requests come at stretched gaps. */
  loads(settings, rates_per_s) {
    const found = rates_per_s.map((rate_per_s) => this.ranked({ ...settings, rate_per_s }, [{}], [50, 99]));
    const [p50_ms, p99_ms] = [0, 1].map((place) => Float64Array.from(found, (pair) => pair[place]));
    return { p50_ms, p99_ms };
  }

  /** Return the 99th percentile of each setting: a row has a wait and all sizes; NaN where the rule allows none. */
  grid(settings, sizes, waits) {
    const [x, y] = this.callOf(settings).knobs;
    return this.ranked(settings, waits.flatMap((wait) => sizes.map((size) => ({ [x]: size, [y]: wait }))), [99]);
  }

  /** Return percentiles, in rising order, of runs under the same traffic, each with other parameters of its rule. */
  ranked(settings, changes, perCent) {
    const all = changes.map((change) => this.complete({ ...settings, ...change }, true));
    const valid = all.filter((given) => !given.wrong);
    const fast = this.callOf(settings).entry === "run_threshold" && valid.length;
    const values_ms = fast ? this.rankedFast(valid, perCent)
      : valid.flatMap((given) => this.percentiles(latencies(this.formed(given)), perCent));
    const rest = values_ms.values();
    return Float64Array.from(all.flatMap(({ wrong }) => perCent.map(() => (wrong ? NaN : rest.next().value))));
  }

  /** The runs of a threshold rule in one call, which keeps only the latencies from the lowest rank on. */
  rankedFast(all, perCent) {
    const { requests: n, servers } = all[0];
    const largest = Math.max(...all.map((given) => given.max_batch_size));
    const { floats, end } = this.prepare({ ...all[0], max_batch_size: largest });
    const space = Math.min(n, Math.max(KEPT, 2 * (n - Math.floor((perCent[0] / 100) * (n - 1)))));
    const thresholds = all.flatMap((given) => given.call.arguments.map((name) => inSeconds(given, name)));
    const [at, next] = this.module.blocks(end, [8 * thresholds.length]);
    this.module.view(Float64Array, at, thresholds.length).set(thresholds);
    const values = [all.length, n, servers, largest, space, at, floats];
    return this.atRanks(perCent, n, { begin: next, keys: space, rows: all.length }, "run_grid", values);
  }

  /** Return exact percentiles in ms of latencies in seconds. */
  percentiles(latency_s, perCent) {
    const count = latency_s.length;
    if (!count) return perCent.map(() => NaN);
    const begin = aligned(this.scratch);
    return this.atRanks(perCent, count, { begin, keys: count, rows: 1, latency_s }, "find_ranks", [count]);
  }

  /** Return percentiles from the values at a rank and behind it, as `Result.percentile` does, to the last bit. */
  atRanks(perCent, count, { begin, keys, rows, latency_s = [] }, entry, values) {
    const ranks = perCent.map((q) => (q / 100) * (count - 1));
    const sizes = [8 * (ranks.length + 1), 16 * keys, COUNTERS, 16 * ranks.length * rows];
    const [places, keysAt, counters, found] = this.module.blocks(begin, sizes);
    this.module.view(Float64Array, places, ranks.length + 1).set([ranks.length, ...ranks]);
    this.module.view(Float64Array, keysAt, latency_s.length).set(latency_s);
    this.module.call(entry, ...values, places, keysAt, counters, found);
    return Array.from({ length: ranks.length * rows }, (_, place) => {
      const [below_ms, above_ms] = this.module.view(Float64Array, found + 16 * place, 2).map(inMs);
      const [rank, rise_ms] = [ranks[place % ranks.length], above_ms - below_ms];
      const part = rank - Math.floor(rank);
      return part < 0.5 ? below_ms + rise_ms * part : above_ms - rise_ms * (1 - part);
    });
  }

  /** Run the loop; return columns in the module's memory. */
  formed(given) {
    const { call, requests: n, servers } = given;
    const { floats, ints, octets, wholes, end } = this.prepare(given);
    const values = this.argumentsOf(given, end);
    const counted = [n, servers, given.max_batch_size, given.memory, given.frozen, call.while_busy];
    this.module.call(call.entry, ...values, ...counted, floats, ints, octets, wholes);
    const cursors = this.module.view(BigInt64Array, wholes, CURSORS);
    if (cursors[ENDING] !== ENDED) throw new Error(`${given.rule} returned a wrong size`);
    const count = Number(cursors[BATCHES]);
    const view = (Type, at, length) => this.module.view(Type, at, length);
    const batches = {
      start_s: view(Float64Array, floats + 8 * n, count), finish_s: view(Float64Array, floats + 16 * n, count),
      size: view(Int32Array, ints + 4 * n, count), server: view(Int32Array, ints + 8 * n, count),
      trigger: view(Uint8Array, octets, count),
    };
    return { arrival_s: view(Float64Array, floats, n), batch_index: view(Int32Array, ints, n), batches };
  }

  /** Write what a run needs; return the addresses of its columns. */
  prepare(given) {
    const { requests: n, servers, max_batch_size: largest, frozen } = given;
    this.draw(given);
    const others = largest + 1 + given.memory + 2 * servers + 2;
    const sizes = [8 * (3 * n + others), 4 * (4 * n + frozen), 2 * n + frozen, 8 * (CURSORS + servers)];
    const [floats, ints, octets, wholes, end] = this.module.blocks(this.module.kept, sizes);
    this.stretch(given, floats);
    const service_s = this.module.view(Float64Array, floats + 24 * n, others).fill(0);
    for (let size = 1; size <= largest; size += 1) service_s[size] = (given.fixed_ms + given.per_item_ms * size) / 1000;
    service_s[0] = NaN;
    this.module.view(Uint8Array, octets + n, n).fill(0);
    this.module.view(BigInt64Array, wholes, CURSORS + servers).fill(0n);
    return { floats, ints, octets, wholes, end };
  }

  /** Take the requests at rate 1 from elsewhere, with seed 0. */
  take(points_s) {
    const { drawn, module } = this;
    [, module.kept] = module.blocks(drawn.at, [points_s.byteLength]);
    module.view(Float64Array, drawn.at, points_s.length).set(points_s);
    Object.assign(drawn, { seed: USUAL.seed, count: points_s.length });
    this.traffic = null;
    return this;
  }

  /** Draw the requests at rate 1, unless they are there already: a longer draw begins with a shorter one. */
  draw({ arrival_s, seed, requests }) {
    const { drawn, module } = this;
    if (arrival_s || (drawn.seed === seed && drawn.count >= requests)) return;
    [, module.kept] = module.blocks(drawn.at, [8 * requests]);
    module.call("draw", BigInt(seed), requests, drawn.at);
    Object.assign(drawn, { seed, count: requests });
    this.traffic = null;
  }

  /** Write the arrivals, unless they are there already. */
  stretch({ arrival_s, seed, rate_per_s, requests: n }, at) {
    const traffic = arrival_s ? null : `${seed} ${rate_per_s} ${n}`;
    if (traffic && traffic === this.traffic) return;
    this.traffic = null;
    const written_s = this.module.view(Float64Array, at, n);
    if (arrival_s) written_s.set(arrival_s);
    this.module.call("stretch", arrival_s ? 1 : rate_per_s, n, arrival_s ? at : this.drawn.at, at);
    const last_s = written_s[n - 1];
    if (!(last_s < LATEST_S)) throw new RangeError(`arrivals must be before ${LATEST_S} s, got ${last_s} s`);
    Object.assign(this, { traffic, scratch: at + 8 * n });
  }

  /** The rule's parameters as its entry takes them; an array is seven arguments. */
  argumentsOf(given, begin) {
    let end = begin;
    return given.call.arguments.flatMap((name) => {
      if (/^\d/.test(name)) return [BigInt(name)]; // the same in every run
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

  callOf({ rule = USUAL.rule }) {
    const { rules } = this.descriptions;
    if (!rules[rule]) throw new RangeError(`rule must be one of ${Object.keys(rules).join(", ")}, got ${rule}`);
    return rules[rule].call;
  }

  /** Return all settings, or raise a RangeError; a tolerant call drops sizes too large, and notes what is `wrong`. */
  complete(settings, tolerant = false) {
    const call = this.callOf(settings);
    const usual = Object.entries(call.parameters).map(([name, described]) => [name, described.usual ?? Infinity]);
    const given = { ...USUAL, ...Object.fromEntries(usual), ...this.descriptions.usual, ...settings, call };
    if (given.arrival_s) given.requests = given.arrival_s.length;
    for (const [name, { kind }] of tolerant ? Object.entries(call.parameters) : []) {
      if (kind === "sizes") given[name] = given[name].filter((size) => size <= given.max_batch_size);
    }
    given.wrong = mistake(given);
    if (given.wrong && !tolerant) throw new RangeError(given.wrong);
    const [fixed, each] = call.memory;
    return { ...given, memory: fixed + each * given.max_batch_size, frozen: call.freezes ? given.requests : 0 };
  }
}

/** Return what is wrong with settings, as a sentence; undefined if nothing is. */
function mistake(given) {
  const { max_batch_size: largest, call: { parameters } } = given;
  const [count, cost] = [{ kind: "whole", least: 1 }, { kind: "real", least: 0 }];
  const rate = given.arrival_s ? {} : { rate_per_s: { kind: "real", above: 0 } };
  const checks = { servers: count, requests: count, seed: { kind: "whole", least: 0 }, fixed_ms: cost, per_item_ms: cost };
  for (const [name, { kind, above, least, most, endless }] of Object.entries({ ...checks, ...rate, ...parameters })) {
    if (given[name]?.length === 0) return `${name} must not be empty`;
    for (const value of [given[name]].flat()) {
      const rules = [
        [Number.isFinite(value) || (endless && value === Infinity), "a finite number"],
        [kind === "real" || Number.isInteger(value), "a whole number"],
        [!(value <= above), `greater than ${above}`],
        [!(value < least), `at least ${least}`],
        [!(value > most), `at most ${most}`],
        [kind === "real" || !(name in parameters) || !(value > largest), `at most ${largest}, max_batch_size`],
      ];
      const broken = rules.find(([kept]) => !kept);
      if (broken) return `${name} must be ${broken[1]}, got ${value}`;
    }
  }
  return given.fixed_ms + given.per_item_ms > 0 ? undefined : "fixed_ms + per_item_ms must be greater than 0, got 0";
}

/** Return a parameter as the loops take it: those in ms in seconds; infinity if a threshold has none. */
function inSeconds(given, name) {
  if (name === null) return Infinity;
  return name.endsWith("_ms") ? given[name] / 1000 : given[name];
}

function aligned(bytes) {
  return Math.ceil(bytes / 16) * 16;
}

/** Give an object a value that is made when it is first read: new memory takes longer than a whole run. */
function onceRead(object, name, make) {
  const get = () => {
    Object.defineProperty(object, name, { value: make(), enumerable: true });
    return object[name];
  };
  Object.defineProperty(object, name, { get, enumerable: true, configurable: true });
}

/** Return a duration in milliseconds, the nearest to its whole number of nanoseconds: see batchsim/_clock.py. */
export const inMs = (seconds) => Math.round(seconds * 1e9) / 1e6;

/** Return each request's time from those of the batches; NaN for one that was not served. */
function ofBatches(times_s, batchIndex) {
  const found_s = new Float64Array(batchIndex.length);
  for (let i = 0; i < found_s.length; i += 1) found_s[i] = batchIndex[i] < 0 ? NaN : times_s[batchIndex[i]];
  return found_s;
}

/** Return the latencies of the served requests. */
function latencies({ arrival_s, batch_index, batches }) {
  const found_s = new Float64Array(arrival_s.length);
  let count = 0;
  for (let i = 0; i < arrival_s.length; i += 1) {
    if (batch_index[i] < 0) continue;
    found_s[count] = batches.finish_s[batch_index[i]] - arrival_s[i];
    count += 1;
  }
  return found_s.subarray(0, count);
}

/** Return the spans in which all servers compute, one a batch, maybe empty, and the sum of those before each. */
function busySpans({ start_s, finish_s, server }, servers) {
  const until_s = new Float64Array(servers);
  const [to_s, before_s] = [start_s.slice(), new Float64Array(start_s.length)];
  let all_s = 0;
  for (let batch = 0; batch < start_s.length; batch += 1) {
    until_s[server[batch]] = finish_s[batch];
    for (let each = 1, free_s = until_s[0]; each <= servers; each += 1) {
      if (each === servers) to_s[batch] = Math.max(free_s, start_s[batch]);
      else free_s = Math.min(free_s, until_s[each]);
    }
    before_s[batch] = all_s;
    all_s += to_s[batch] - start_s[batch];
  }
  return { to_s, before_s };
}

/** Return for how many seconds each request waited while all servers computed; the rest of its wait is forming. */
export function queueing({ arrival_s, batch_index, batches }, servers) {
  const from_s = batches.start_s;
  const { to_s, before_s } = busySpans(batches, servers);
  const queued_s = new Float64Array(arrival_s.length);
  for (let i = 0, span = -1; i < arrival_s.length; i += 1) {
    const [batch, came_s] = [batch_index[i], arrival_s[i]];
    if (batch < 0) continue;
    while (span + 1 < from_s.length && from_s[span + 1] <= came_s) span += 1;
    const busy_s = span < 0 ? 0 : before_s[span] + Math.min(came_s, to_s[span]) - from_s[span];
    queued_s[i] = Math.min(Math.max(before_s[batch] - busy_s, 0), from_s[batch] - came_s);
  }
  return queued_s;
}

/** Return the means of a run. */
function meanParts(run, servers) {
  const { arrival_s, batch_index, batches: { start_s, finish_s } } = run;
  const queued_s = queueing(run, servers);
  let [waited_s, queueing_s, computed_s, served, busy_s, last_s] = [0, 0, 0, 0, 0, 0];
  for (let i = 0; i < arrival_s.length; i += 1) {
    const batch = batch_index[i];
    if (batch < 0) continue;
    waited_s += start_s[batch] - arrival_s[i];
    queueing_s += queued_s[i];
    computed_s += finish_s[batch] - start_s[batch];
    served += 1;
  }
  for (let batch = 0; batch < start_s.length; batch += 1) {
    busy_s += finish_s[batch] - start_s[batch];
    last_s = Math.max(last_s, finish_s[batch]);
  }
  const mean_ms = (seconds) => (1000 * seconds) / served;
  return {
    mean_ms: mean_ms(waited_s + computed_s), forming_ms: mean_ms(waited_s - queueing_s), queueing_ms: mean_ms(queueing_s),
    computing_ms: mean_ms(computed_s), throughput_per_s: served / last_s, utilisation: busy_s / servers / last_s,
    mean_batch_size: served / start_s.length,
  };
}
