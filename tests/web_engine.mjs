// Runs jobs of batchsim/web/js/engine.js in Node: `node web_engine.mjs ENGINE MODULE JOBS`, a line of JSON a job.
import { readFileSync } from "node:fs";

const [, , script, module, jobs] = process.argv;
const { Engine } = await import(script);
const { descriptions, calls } = JSON.parse(readFileSync(jobs), (_, value) => (value === "Infinity" ? Infinity : value));
const engine = await Engine.load(readFileSync(module), descriptions);

const packed = (_, value) =>
  ArrayBuffer.isView(value)
    ? { type: value.constructor.name, bytes: Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString("base64") }
    : value;

const does = {
  run({ settings, edges_ms }) {
    const run = engine.run(settings);
    return { ...run, summary: engine.summary(run, settings, edges_ms) };
  },
  loads: ({ settings, rates }) => engine.loads(settings, rates),
  grid: ({ settings, sizes, waits }) => engine.grid(settings, sizes, waits),
  refused({ settings }) {
    try {
      engine.run(settings);
    } catch (error) {
      return `${error.name}: ${error.message}`;
    }
  },
  timed({ settings, sizes, waits, turns }) {
    const best = (action) => {
      const took_ms = Array.from({ length: turns }, () => {
        const begin = performance.now();
        action();
        return performance.now() - begin;
      });
      return Math.min(...took_ms);
    };
    return sizes ? best(() => engine.grid(settings, sizes, waits)) : best(() => engine.run(settings));
  },
};

for (const call of calls) console.log(JSON.stringify(does[call.does](call) ?? null, packed));
