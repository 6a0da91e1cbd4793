/** Two parts in which the reader acts: as the batcher, and with a pencil. */
import { Chart, number } from "./charts.js";
import { element } from "./figure.js";

const SLOWED = 200; // times slower than the server
const PLAYED_S = 20; // of the reader's time
const OLD_MS = 20; // the age at which a waiting request's bar is full

/** The reader is the batcher: press Send for twenty slowed seconds, then compare with the rules. */
export function player(host, engine, described) {
  const setting = { ...described.played, servers: 1 };
  const [send, said, queue, server, result] = ["button", "[role=status]", ".queue", "progress", "table"].map((each) => host.querySelector(each));
  const every = engine.run({ ...setting, max_wait_ms: 0, requests: 2000 }).arrival_s;
  const arrival_s = every.filter((at) => at < PLAYED_S / SLOWED).slice();
  const seconds = (size) => (setting.fixed_ms + setting.per_item_ms * size) / 1000;
  let state = null;

  const leave = (now_s, arrived) => {
    const size = Math.min(arrived - state.start_s.length, setting.max_batch_size);
    Object.assign(state, { free_s: now_s + seconds(size), size, batches: state.batches + 1, armed: false });
    for (let i = 0; i < size; i++) {
      state.start_s.push(now_s);
      state.finish_s.push(state.free_s);
    }
  };
  const step = () => {
    const now_s = (performance.now() - state.began) / 1000 / SLOWED;
    const over = now_s * SLOWED > PLAYED_S;
    const arrived = arrival_s.filter((at) => at <= now_s).length;
    const sent = state.start_s.length;
    if ((state.armed || over) && arrived > sent && now_s >= state.free_s) leave(now_s, arrived);
    show(now_s, arrived);
    if (state.start_s.length < arrival_s.length || now_s < state.free_s) requestAnimationFrame(step);
    else compare();
  };
  const show = (now_s, arrived) => {
    const sent = state.start_s.length;
    const busy = now_s < state.free_s;
    while (queue.children.length > arrived - sent) queue.lastChild.remove();
    while (queue.children.length < arrived - sent) queue.append(element("i"));
    [...queue.children].forEach((bar, i) => bar.style.setProperty("--age", Math.min((1000 * (now_s - arrival_s[sent + i])) / OLD_MS, 1)));
    server.value = busy ? 1 - (state.free_s - now_s) / seconds(state.size) : 0;
    const doing = busy ? `computing ${state.size}${state.armed ? "; the next batch leaves when the server is free" : ""}` : "idle";
    host.querySelector(".doing").textContent = `${arrived - sent} waiting · server ${doing} · ${number(Math.max(PLAYED_S - now_s * SLOWED, 0), 2)} s left`;
  };
  const compare = () => {
    const yours = { arrival_s, finish_s: Float64Array.from(state.finish_s), batches: { size: { length: state.batches } } };
    const rule = (changes) => engine.run({ ...setting, arrival_s, requests: arrival_s.length, ...changes });
    const runs = { You: yours, "Wait of 10 ms": rule({ max_wait_ms: 10 }), "No wait": rule({ max_wait_ms: 0 }) };
    runs["Best possible policy"] = rule({ rule: "AtLeast", min_batch_size: setting.least });
    const rows = Object.entries(runs).map(([name, run]) => {
      const ms = run.finish_s.map((finish, i) => 1000 * (finish - run.arrival_s[i])).sort();
      const at = 0.99 * (ms.length - 1);
      const [low, high] = [ms[Math.floor(at)], ms[Math.ceil(at)]];
      return [name, ms.reduce((sum, each) => sum + each, 0) / ms.length, low + (at % 1) * (high - low), run.batches.size.length];
    });
    result.tBodies[0].replaceChildren(...rows.map(([name, mean, p99, batches]) => {
      const bar = element("span", { className: "bar" });
      bar.style.width = `${mean / 2}em`;
      return element("tr", {}, element("th", { scope: "row", textContent: name }), element("td", {}, `${mean.toFixed(1)} ms`, bar), element("td", { textContent: `${p99.toFixed(1)} ms` }), element("td", { textContent: batches }));
    }));
    result.hidden = false;
    const [yourMean, , , bestMean] = rows.map((row) => row[1].toFixed(1));
    said.textContent = `Your mean is ${yourMean} ms. The best possible policy takes ${bestMean} ms for the same requests.`;
    state = null;
    send.textContent = "Play again";
  };
  send.onclick = () => {
    if (state) {
      state.armed = true;
      return;
    }
    state = { began: performance.now(), free_s: 0, size: 0, batches: 0, armed: false, start_s: [], finish_s: [] };
    send.textContent = "Send";
    said.textContent = `${arrival_s.length} requests come. Send!`;
    requestAnimationFrame(step);
  };
}

/** The reader draws p99 against the load before the curve appears. */
export function sketch(host, engine, described, figure) {
  const [reveal, said] = [host.querySelector("button"), host.querySelector("[role=status]")];
  const loads = described.load.loads.filter((load) => load < 1);
  const rates = loads.map((load) => load * figure.data.saturation_per_s);
  const truth = engine.loads(figure.values, rates).p99_ms;
  const top = 100;
  const guess = loads.map(() => null);
  const chart = new Chart("load", host.querySelector(".paper"), described);
  const { canvas } = chart;
  canvas.setAttribute("role", "application");
  canvas.setAttribute("aria-label", "Draw p99 against the load: left and right choose a load, up and down change p99");
  canvas.tabIndex = 0;
  let [shown, at] = [false, -1];

  const curve = (values, colour, dash, name) => {
    const points = [...values].map((ms, i) => [chart.x(100 * loads[i]), chart.y(Math.min(ms, top)), ms]).filter((point) => point[2] !== null);
    chart.line(points, colour, 2.6, dash);
    if (points.length > 3) chart.text(name, points[3][0], points[3][1] + (name === "p99" ? 16 : -8), { align: "center", halo: true });
  };
  const draw = () => {
    Object.assign(chart, { width: canvas.clientWidth, height: canvas.clientHeight, theme: described.looks[document.documentElement.dataset.theme] });
    chart.draw(null, null, false, () => {
      chart.axes({ room: { left: 38, right: 12, top: 26, bottom: 36 }, x: [0, 100], y: [0, top], xLabel: "load (% of saturation)", yLabel: "p99 (ms)" });
      if (guess.every((ms) => ms === null)) chart.text("Draw here", chart.x(50), chart.y(50), { align: "center", bold: true });
      curve(guess, chart.theme.blue, [6, 4], "your drawing");
      if (shown) curve(truth, chart.theme.green, [], "p99");
      if (at >= 0 && !shown) chart.text("▼", chart.x(100 * loads[at]), chart.y(guess[at] ?? 0) - 6, { align: "center" });
    });
  };
  const put = (index, ms) => {
    guess[index] = Math.min(Math.max(ms, 0), top);
    if (at >= 0) {
      const step = Math.sign(index - at);
      for (let i = at + step; step && i !== index; i += step) guess[i] = guess[at] + ((guess[index] - guess[at]) * (i - at)) / (index - at);
    }
    at = index;
    draw();
  };
  const nearest = (px) => loads.reduce((best, load, i) => (Math.abs(100 * load - chart.atX(px)) < Math.abs(100 * loads[best] - chart.atX(px)) ? i : best), 0);
  canvas.onpointerdown = (event) => {
    canvas.setPointerCapture(event.pointerId);
    at = -1;
    canvas.onpointermove(event);
  };
  canvas.onpointermove = (event) => !shown && canvas.hasPointerCapture(event.pointerId) && put(nearest(event.offsetX), chart.atY(event.offsetY));
  canvas.onkeydown = (event) => {
    const [across, up] = [{ ArrowLeft: -1, ArrowRight: 1 }[event.key], { ArrowUp: 5, ArrowDown: -5 }[event.key]];
    if (shown || !(across || up)) return;
    event.preventDefault();
    const index = across ? Math.min(Math.max(at + across, 0), loads.length - 1) : Math.max(at, 0);
    put(index, (guess[index] ?? guess[Math.max(at, 0)] ?? 20) + (up ?? 0));
    said.textContent = `Load ${Math.round(100 * loads[index])}%: ${number(guess[index])} ms.`;
  };
  reveal.onclick = () => {
    shown = !shown;
    reveal.textContent = shown ? "Draw again" : "Show the curve";
    said.textContent = shown && !guess.includes(null) ? judged(loads, guess, truth) : "";
    host.classList.add("shown");
    if (!shown) guess.fill(null);
    draw();
  };
  document.addEventListener("restyle", draw);
  new ResizeObserver(draw).observe(host);
}

/** Return what is right and wrong about the shape of a drawing: when it rises, and how steeply it ends. */
export function judged(loads, guess, truth) {
  const of = (values, load) => values[loads.findIndex((each) => each >= load - 1e-9)];
  const rise = (values, from, to) => of(values, to) / Math.max(of(values, from), 1);
  const last = loads[loads.length - 1];
  const early = rise(guess, 0.1, 0.6) > 1.5 * rise(truth, 0.1, 0.6);
  const shallow = rise(guess, 0.6, last) < 0.6 * rise(truth, 0.6, last);
  const ms = (load) => `${number(of(truth, load))} ms`;
  if (early) return `Your curve rises too early. At 10% load p99 is ${ms(0.1)}, at 60% still only ${ms(0.6)}. The rise comes late.`;
  if (shallow) return `Your curve ends too low. From 60% load to ${Math.round(100 * last)}%, p99 goes from ${ms(0.6)} to ${ms(last)}, and it has no limit at 100%.`;
  return `Your shape is right: flat for long, then steep. At 60% load p99 is ${ms(0.6)}, at ${Math.round(100 * last)}% it is ${ms(last)}.`;
}
