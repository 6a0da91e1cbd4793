/** The engine in a worker: it answers { id, method, values } with { id, found } or { id, error }; "load" comes first. */

import { Engine } from "./engine.js";

let engine = null;

self.onmessage = async ({ data: { id, method, values } }) => {
  try {
    if (method === "load") engine = await Engine.load(...values);
    self.postMessage({ id, found: method === "load" ? null : engine[method](...values) });
  } catch (error) {
    self.postMessage({ id, error: error.message });
  }
};
