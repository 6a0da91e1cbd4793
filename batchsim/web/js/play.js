/** Be the batcher: press Send for twenty slowed seconds, then compare with two rules and the best policy. */
import { element } from "./dom.js";

const SLOWED = 100; // times slower than the server
const OLD_MS = 20; // the age at which a waiting request's bar is full
const SAY_MS = 2500; // between two sentences about the queue
const CALM_MS = 250; // between two pictures, for readers who asked for less motion
const HIDDEN_MS = 1000; // a longer pause between two pictures: the page was out of sight, and the clock stood still
const REST_MS = 1500; // after the game: a hand that still presses Send starts no other
const nanoseconds = (time_s) => Math.round(time_s * 1e9) / 1e9; // as batchsim/_clock.py

/** Return the run so far that sends make: each takes all that wait, once the server is free; at `until_s` the rest leaves. */
export function replay({ arrival_s, seconds, until_s }, sends_s, now_s = Infinity) {
  const run = { arrival_s, batch_index: [], batches: { start_s: [], finish_s: [], size: [], server: [] }, armed: false, free_s: 0 };
  const { batch_index, batches } = run;
  const came = (time_s) => arrival_s.filter((at_s) => at_s <= time_s).length;
  let started_s = -1;
  const leave = (send_s) => {
    const start_s = Math.max(send_s, run.free_s);
    run.armed = start_s > now_s;
    if (run.armed) return;
    const size = Math.min(came(start_s) - batch_index.length, seconds.length - 1);
    batch_index.push(...Array(size).fill(batches.size.length));
    run.free_s = nanoseconds(start_s + seconds[size]);
    started_s = start_s;
    Object.entries({ start_s, finish_s: run.free_s, size, server: 0 }).forEach(([name, value]) => batches[name].push(value));
  };
  for (const send_s of sends_s) {
    if (send_s > now_s || send_s >= until_s) break;
    if (send_s > started_s && came(send_s) > batch_index.length) leave(send_s);
  }
  while (now_s >= until_s && !run.armed && batch_index.length < arrival_s.length) leave(until_s);
  for (const name of ["start_s", "finish_s"]) run[name] = batch_index.map((batch) => batches[name][batch]);
  return { ...run, waiting: came(now_s) - batch_index.length };
}

/**
 * Put the game into an element. `setting` has `arrival_s`, `seconds` of each size of a batch from 0 on, and `until_s`.
 * `compare(sends_s, run)` returns, or promises, a row for each batcher, the reader's first and the best policy's last.
 */
export function batcher(host, { setting, least, compare, rows }) {
  const { arrival_s, seconds, until_s } = setting;
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const [queue, doing, said] = [element("div", { className: "queue", attributes: { "aria-hidden": "true" } }), element("p", { className: "doing" }), element("p", { attributes: { role: "status" } })];
  const server = element("progress", { max: 1, value: 0, attributes: { "aria-label": "The server" } });
  const send = element("button", { type: "button", className: "big", textContent: "Start" });
  const result = element("table", { hidden: true });
  const named = (name, node) => element("div", {}, element("span", { textContent: name }), node);
  host.classList.add("batchsim-play");
  host.append(element("div", { className: "belt" }, named("waiting requests, the oldest on the right", queue), named("server", server)), doing, element("p", {}, send), result, said);
  let [state, rested_ms] = [null, 0];

  const now = () => nanoseconds((performance.now() - state.began) / 1000 / SLOWED);
  const words = ({ waiting, armed, free_s, batches }, now_s) =>
    `${waiting} waiting · server ${now_s < free_s ? `computes ${batches.size.at(-1)}` : "idle"}${armed ? ", then the next batch leaves" : ""} · ${Math.max((until_s - now_s) * SLOWED, 0).toFixed(0)} s left`;
  const step = () => {
    const at = performance.now();
    if (at - state.seen > HIDDEN_MS) state.began += at - state.seen;
    state.seen = at;
    const now_s = now();
    const run = replay(setting, state.sends_s, now_s);
    show(run, now_s);
    if (at - state.told > SAY_MS) say(words(run, now_s));
    if (run.batch_index.length === arrival_s.length && now_s >= run.free_s) return finish(run);
    if (calm) setTimeout(step, CALM_MS);
    else requestAnimationFrame(step);
  };
  const say = (sentence) => {
    said.textContent = sentence;
    if (state) state.told = performance.now();
  };
  const show = (run, now_s) => {
    while (queue.children.length > run.waiting) queue.lastChild.remove();
    while (queue.children.length < run.waiting) queue.append(element("i"));
    const age = (i) => Math.min((1000 * (now_s - arrival_s[run.batch_index.length + i])) / OLD_MS, 1);
    [...queue.children].forEach((bar, i) => bar.style.setProperty("--age", age(i)));
    queue.classList.toggle("forming", now_s >= run.free_s); // else they queue for the server
    server.value = now_s < run.free_s ? 1 - (run.free_s - now_s) / seconds[run.batches.size.at(-1)] : 0;
    doing.textContent = words(run, now_s);
  };
  const press = () => {
    const now_s = now();
    const { waiting, armed } = replay(setting, state.sends_s, now_s);
    if (armed) return say("The next batch leaves as soon as the server is free.");
    if (!waiting) return say("No request waits: there is nothing to send.");
    state.sends_s.push(now_s);
    const { armed: later, batches } = replay(setting, state.sends_s, now_s);
    say(later ? `Batch ${batches.size.length + 1} leaves as soon as the server is free.` : `Batch ${batches.size.length}: ${batches.size.at(-1)} sent.`);
  };
  const finish = async (run) => {
    const { sends_s } = state;
    state = null;
    rested_ms = performance.now() + REST_MS;
    [said.textContent, send.textContent] = ["Comparing …", "Play again"];
    send.blur(); // so that the next Shift+Enter in a notebook runs a cell
    const found = await compare(sends_s, run);
    if (state) return; // the reader did not wait
    compared(found);
    said.scrollIntoView({ block: "nearest" }); // the comparison is larger than what it replaces
  };
  const compared = (found) => {
    const most_ms = Math.max(...found.map((row) => row.p99_ms));
    const cell = (ms) => {
      const bar = element("span", { className: "bar" });
      bar.style.setProperty("--share", ms / most_ms);
      return element("td", {}, bar, `${ms.toFixed(1)} ms`);
    };
    const lines = found.map((row) => element("tr", {}, element("th", { scope: "row", textContent: row.name }), cell(row.mean_ms), cell(row.p99_ms), element("td", { textContent: row.batches })));
    const heads = ["batcher", "mean", "p99", "batches"].map((name) => element("th", { scope: "col", textContent: name }));
    result.replaceChildren(element("caption", { textContent: `The same ${arrival_s.length} requests, four batchers` }), element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...lines));
    result.hidden = false;
    const [you, best] = [found[0], found.at(-1)];
    const idle = `It lets requests wait ${best.forming_ms.toFixed(1)} ms each while the server is idle; you, ${you.forming_ms.toFixed(1)} ms.`;
    const luck = you.mean_ms < best.mean_ms ? " You beat it: with so few requests luck can do that, in the long run no policy can." : "";
    said.textContent = `The best policy sends every waiting request, once the server is free and ${least} are waiting. ${idle}${luck}`;
    send.textContent = "Play again";
  };
  const start = () => {
    if (performance.now() < rested_ms) return;
    const at = performance.now();
    state = { began: at, seen: at, told: at, sends_s: [] };
    send.textContent = "Send";
    said.textContent = `${arrival_s.length} requests come. Send with the button, Space or Enter.`;
    step();
  };
  doing.textContent = `${arrival_s.length} requests · one server · twenty seconds, slowed ${SLOWED} times`;
  const act = () => (state ? press() : start());
  send.onpointerdown = () => state && press(); // sooner than the click
  send.onclick = ({ detail }) => (detail && state ? null : act());
  send.onkeydown = (event) => {
    if (!["Enter", " "].includes(event.key) || event.shiftKey || event.ctrlKey) return;
    event.preventDefault();
    event.stopPropagation();
    if (!event.repeat) act();
  };
  send.onkeyup = (event) => event.preventDefault(); // Space clicks as it is released
  if (rows?.length) compared(rows);
}
