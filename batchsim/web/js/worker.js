/** The worker's side: it computes the map, while the page draws. */
import { Engine } from "./engine.js";

/** Serve maps to the page: first come the module's bytes, the descriptions and perhaps requests, then one setting after another. */
export function serve(scope) {
  let engine;
  scope.onmessage = async ({ data }) => {
    if (data.bytes) engine = Engine.load(data.bytes, data.described).then((made) => (data.points_s ? made.take(data.points_s) : made));
    else scope.postMessage((await engine).grid(data.settings, data.sizes, data.waits).slice());
  };
}
