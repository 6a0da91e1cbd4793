// What tests ask of the page's engine, in Node and in a browser: a call is { does, ... }.

/** Return what a call returns, as text: JSON with arrays in base64. */
export function answered(engine, call) {
  return JSON.stringify(does[call.does](engine, call) ?? null, packed);
}

/** Read JSON in which infinity is a word. */
export function read(text) {
  return JSON.parse(text, (_, value) => (value === "Infinity" ? Infinity : value));
}

const does = {
  run(engine, { settings }) {
    const run = engine.run(settings);
    return { ...run, summary: engine.summary(run, settings) };
  },
  loads: (engine, { settings, rates }) => engine.loads(settings, rates),
  grid: (engine, { settings, sizes, waits }) => engine.grid(settings, sizes, waits),
  points(engine, { settings }) {
    engine.run(settings);
    return engine.module.view(Float64Array, engine.drawn.at, settings.requests);
  },
  refused(engine, { settings }) {
    try {
      engine.run(settings);
    } catch (error) {
      return `${error.name}: ${error.message}`;
    }
  },
  timed(engine, { method, values, turns, reads }) {
    const took_ms = Array.from({ length: turns }, () => {
      const begin = performance.now();
      const found = engine[method](...values);
      if (reads) Object.values(found); // arrays that are made when they are read
      return performance.now() - begin;
    });
    return Math.min(...took_ms);
  },
};

function packed(_, value) {
  if (!ArrayBuffer.isView(value)) return value;
  const bytes = new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return { type: value.constructor.name, bytes: btoa(text) };
}
