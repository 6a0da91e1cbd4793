/** Two parts in which the reader acts: as the batcher, and with a pencil. */
import { Chart, number } from "./charts.js";
import { element } from "./figure.js";

const SLOWED = 200; // times slower than the server
const PLAYED_S = 20; // of the reader's time
const OLD_MS = 20; // the age at which a waiting request's bar is full
const TOP_MS = 100; // of the paper on which the reader draws

/** The reader is the batcher: press Send for twenty slowed seconds, then compare with the rules. */
export function player(host, engine, described) {
  const setting = { ...described.played, servers: 1 };
  const [send, said, doing, queue, server, result] = ["button", "[role=status]", ".doing", ".queue", "progress", "table"].map((each) => host.querySelector(each));
  const every_s = engine.run({ ...setting, max_wait_ms: 0, requests: 2000 }).arrival_s;
  const arrival_s = every_s.filter((at) => at < PLAYED_S / SLOWED);
  const seconds = (size) => (setting.fixed_ms + setting.per_item_ms * size) / 1000;
  let state = null;

  const step = () => {
    const now_s = (performance.now() - state.began) / 1000 / SLOWED;
    const arrived = arrival_s.filter((at) => at <= now_s).length;
    const { finish_s, armed } = state;
    const waiting = arrived - finish_s.length;
    if ((armed || now_s > PLAYED_S / SLOWED) && waiting && now_s >= state.free_s) {
      const size = Math.min(waiting, setting.max_batch_size);
      Object.assign(state, { free_s: now_s + seconds(size), size, batches: state.batches + 1, armed: false });
      for (let i = 0; i < size; i++) finish_s.push(state.free_s);
    }
    show(now_s, arrived - finish_s.length);
    if (finish_s.length < arrival_s.length || now_s < state.free_s) requestAnimationFrame(step);
    else compare();
  };
  const show = (now_s, waiting) => {
    const busy = now_s < state.free_s;
    while (queue.children.length > waiting) queue.lastChild.remove();
    while (queue.children.length < waiting) queue.append(element("i"));
    const age = (i) => Math.min((1000 * (now_s - arrival_s[state.finish_s.length + i])) / OLD_MS, 1);
    [...queue.children].forEach((bar, i) => bar.style.setProperty("--age", age(i)));
    server.value = busy ? 1 - (state.free_s - now_s) / seconds(state.size) : 0;
    const then = state.armed ? ", then the next batch leaves" : "";
    doing.textContent = `${waiting} waiting · server ${busy ? `computes ${state.size}${then}` : "idle"} · ${Math.max(PLAYED_S - now_s * SLOWED, 0).toFixed(0)} s left`;
  };
  const compare = () => {
    const rule = (changes) => engine.run({ ...setting, arrival_s, ...changes });
    const runs = {
      You: { finish_s: state.finish_s, batches: { size: { length: state.batches } } },
      "Wait of 10 ms": rule({ max_wait_ms: 10 }),
      "No wait": rule({ max_wait_ms: 0 }),
      "Best possible policy": rule({ rule: "AtLeast", min_batch_size: setting.least }),
    };
    const means = Object.entries(runs).map(([name, { finish_s, batches }]) => {
      const latency_s = arrival_s.map((arrival, i) => finish_s[i] - arrival);
      const mean = (1000 * latency_s.reduce((sum, each) => sum + each, 0)) / latency_s.length;
      const texts = [mean, engine.percentiles(latency_s, [99])[0]].map((ms) => `${ms.toFixed(1)} ms`);
      const bar = element("span", { className: "bar" });
      bar.style.width = `${mean / 2}em`;
      const cells = [[texts[0], bar], [texts[1]], [`${batches.size.length}`]].map((content) => element("td", {}, ...content));
      return [texts[0], element("tr", {}, element("th", { scope: "row", textContent: name }), ...cells)];
    });
    result.tBodies[0].replaceChildren(...means.map((row) => row[1]));
    result.hidden = false;
    said.textContent = `Your mean is ${means[0][0]}. The best possible policy takes ${means[3][0]} for the same requests.`;
    state = null;
    send.textContent = "Play again";
  };
  send.onclick = () => {
    if (state) {
      state.armed = true;
      return;
    }
    state = { began: performance.now(), free_s: 0, size: 0, batches: 0, armed: false, finish_s: [] };
    send.textContent = "Send";
    said.textContent = `${arrival_s.length} requests come. Send!`;
    requestAnimationFrame(step);
  };
}

/** The reader draws p99 against the load before the curve appears. */
export function sketch(host, engine, described, figure) {
  const [reveal, said] = [host.querySelector("button"), host.querySelector("[role=status]")];
  const loads = described.load.loads.filter((load) => load < 1);
  const truth = engine.loads(figure.values, loads.map((load) => load * figure.data.saturation_per_s)).p99_ms;
  const guess = loads.map(() => NaN);
  const chart = new Chart("load", host.querySelector(".paper"), described);
  const { canvas } = chart;
  canvas.setAttribute("role", "application");
  canvas.setAttribute("aria-label", "Draw p99 against the load: left and right choose a load, up and down change p99");
  canvas.tabIndex = 0;
  let [shown, at] = [false, -1];

  const curve = (values, colour, dash, name, below) => {
    const points = [...values.entries()].filter(([, ms]) => ms >= 0).map(([i, ms]) => [chart.x(100 * loads[i]), chart.y(Math.min(ms, TOP_MS))]);
    chart.line(points, colour, 2.6, dash);
    if (points.length > 3) chart.text(name, points[3][0], points[3][1] + below, { align: "center", halo: true });
  };
  const paint = () => {
    chart.axes({ x: [0, 100], y: [0, TOP_MS], xLabel: "load (% of saturation)", yLabel: "p99 (ms)" });
    if (guess.every(Number.isNaN)) chart.text("Draw here", chart.x(50), chart.y(50), { align: "center", bold: true });
    curve(guess, chart.theme.blue, [6, 4], "your drawing", -8);
    if (shown) curve(truth, chart.theme.green, [], "p99", 16);
    else if (at >= 0) chart.text("▼", chart.x(100 * loads[at]), chart.y(guess[at]) - 6, { align: "center" });
  };
  const draw = () => {
    chart.theme = described.looks[document.documentElement.dataset.theme];
    chart.measure();
    chart.draw(null, null, false, paint);
  };
  const put = (index, ms) => {
    guess[index] = Math.min(Math.max(ms, 0), TOP_MS);
    const step = at < 0 ? 0 : Math.sign(index - at); // a fast hand skips loads between
    for (let i = at + step; step && i !== index; i += step) guess[i] = guess[at] + ((guess[index] - guess[at]) * (i - at)) / (index - at);
    at = index;
    draw();
  };
  canvas.onpointermove = (event) => {
    if (shown || !canvas.hasPointerCapture(event.pointerId)) return;
    const away = loads.map((load) => Math.abs(100 * load - chart.atX(event.offsetX)));
    put(away.indexOf(Math.min(...away)), chart.atY(event.offsetY));
  };
  canvas.onpointerdown = (event) => {
    canvas.setPointerCapture(event.pointerId);
    at = -1;
    canvas.onpointermove(event);
  };
  canvas.onkeydown = (event) => {
    const [across, up] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 5], ArrowDown: [0, -5] }[event.key] ?? [0, 0];
    if (shown || !(across || up)) return;
    event.preventDefault();
    const index = Math.min(Math.max(at + across, 0), loads.length - 1);
    put(index, (guess[index] || guess[Math.max(at, 0)] || 20) + up);
    said.textContent = `Load ${Math.round(100 * loads[index])}%: ${number(guess[index])} ms.`;
  };
  reveal.onclick = () => {
    shown = !shown;
    reveal.textContent = shown ? "Draw again" : "Show the curve";
    said.textContent = shown && !guess.some(Number.isNaN) ? judged(loads, guess, truth) : "";
    host.classList.add("shown");
    if (!shown) guess.fill(NaN);
    draw();
  };
  document.addEventListener("restyle", draw);
  new ResizeObserver(draw).observe(host);
}

/** Return what is right and wrong about the shape of a drawing: when it rises, and how steeply it ends. */
export function judged(loads, guess, truth) {
  const end = loads[loads.length - 1];
  const at = (values, load) => values[loads.findIndex((each) => each >= load - 1e-9)];
  const rise = (values, from, to) => at(values, to) / Math.max(at(values, from), 1);
  const [start, middle, last] = [0.1, 0.6, end].map((load) => `At ${Math.round(100 * load)}% load p99 is ${number(at(truth, load))} ms.`);
  if (rise(guess, 0.1, 0.6) > 1.5 * rise(truth, 0.1, 0.6)) return `Your curve rises too early. ${start} ${middle} The rise comes late.`;
  if (rise(guess, 0.6, end) < 0.6 * rise(truth, 0.6, end)) return `Your curve ends too low. ${middle} ${last} It has no limit at 100%.`;
  return `Your shape is right: flat for long, then steep. ${middle} ${last}`;
}
