/** Draw p99 against the load before the curve appears: with the mouse, a finger or the arrow keys. */
import { Chart, number } from "./charts.js";
import { element } from "./dom.js";

const EARLY = 0.45; // the part of its growth that a drawing may have up to medium load, unless the curve has more
const ENDS = 0.4; // one that grows by less than this part of the curve's growth, from medium load to the last, ends too low
const GROWS = 1.5; // times, at least: else a drawing is flat, and has no early growth
const FALLS = 0.8; // below this part of what was drawn at a lower load, it falls

/**
 * Put paper into an element. `curve_ms()` returns, or promises, p99 at each of the `loads`; `judged(verdict)` hears of
 * the first drawing; `promised_ms` is a line across. Return a function that draws again in the present theme.
 */
export function sketch(host, { loads, top_ms, promised_ms, looks, theme, curve_ms, judged = () => {}, drawn, shown: before }) {
  const [reveal, said] = [element("button", { type: "button", className: "big", textContent: "Show the curve" }), element("p", { attributes: { role: "status" } })];
  const paper = element("div", { className: "paper" });
  host.classList.add("batchsim-play");
  host.append(paper, element("p", {}, reveal), said);
  const guess = drawn?.length ? [...drawn] : loads.map(() => NaN);
  const chart = new Chart("load", paper, { looks });
  const { canvas } = chart;
  canvas.setAttribute("role", "application");
  canvas.setAttribute("aria-label", "Draw p99 against the load: left and right choose a load, up and down change p99");
  canvas.tabIndex = 0;
  canvas.dataset.lmSuppressShortcuts = "true"; // notebooks have shortcuts on arrows
  let [truth, at, warned] = [before?.length ? before : null, -1, false];

  const line = (values, colour, dash, name, below) => {
    const points = [...values.entries()].filter(([, ms]) => ms >= 0).map(([i, ms]) => [chart.x(100 * loads[i]), chart.y(Math.min(ms, top_ms))]);
    chart.line(points, colour, 2.6, dash);
    if (points.length > 3) chart.text(name, points[3][0], points[3][1] + below, { align: "center", halo: true });
  };
  const paint = () => {
    chart.axes({ x: [0, 100], y: [0, top_ms], xLabel: "load (% of saturation)", yLabel: "p99 (ms)" });
    if (promised_ms) chart.handle(promised_ms, false, chart.theme.vermilion, [5, 3], `the promise, ${number(promised_ms)} ms`);
    if (!truth && guess.every(Number.isNaN)) chart.text("Draw here", chart.x(50), chart.y(top_ms * (promised_ms > 0.35 * top_ms && promised_ms < 0.6 * top_ms ? 0.75 : 0.5)), { align: "center", bold: true });
    const higher = truth && guess[3] > truth[3]; // of two lines the upper one has its name above
    line(guess, chart.theme.blue, [6, 4], "your drawing", truth && !higher ? 18 : -8);
    if (truth) line(truth, chart.theme.green, [], "p99", higher ? 18 : -8);
    else if (at >= 0) chart.text("▼", chart.x(100 * loads[at]), chart.y(guess[at]) - 6, { align: "center" });
  };
  const draw = () => {
    chart.theme = looks[theme()];
    chart.measure();
    chart.draw(null, null, false, paint);
  };
  const put = (index, ms) => {
    guess[index] = Math.min(Math.max(ms, 0), top_ms);
    const step = at < 0 ? 0 : Math.sign(index - at); // a fast hand skips loads between
    for (let i = at + step; step && i !== index; i += step) guess[i] = guess[at] + ((guess[index] - guess[at]) * (i - at)) / (index - at);
    [at, warned] = [index, false];
    draw();
  };
  canvas.onpointermove = (event) => {
    if (truth || !canvas.hasPointerCapture(event.pointerId)) return;
    const away = loads.map((load) => Math.abs(100 * load - chart.atX(event.offsetX)));
    put(away.indexOf(Math.min(...away)), chart.atY(event.offsetY));
  };
  canvas.onpointerdown = (event) => {
    canvas.setPointerCapture(event.pointerId);
    at = -1;
    canvas.onpointermove(event);
  };
  canvas.onkeydown = (event) => {
    const [across, up] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, top_ms / 20], ArrowDown: [0, -top_ms / 20] }[event.key] ?? [0, 0];
    if (truth || !(across || up)) return;
    event.preventDefault();
    event.stopPropagation();
    const index = Math.min(Math.max(at + across, 0), loads.length - 1);
    const near = [guess[index], guess[Math.max(at, 0)], top_ms / 5].find((ms) => ms >= 0);
    put(index, near + up);
    said.textContent = `Load ${Math.round(100 * loads[index])}%: ${number(guess[index])} ms.`;
  };
  const show = (found) => {
    truth = found;
    const verdict = gap(loads, guess) ? null : judge(loads, guess, [...truth]);
    said.textContent = verdict?.text ?? "";
    reveal.textContent = "Draw again";
    host.classList.add("shown");
    if (verdict) judged(verdict, guess);
    draw();
  };
  reveal.onclick = async () => {
    const missing = gap(loads, guess);
    if (truth) {
      truth = null;
      guess.fill(NaN);
      [reveal.textContent, said.textContent] = ["Show the curve", ""];
      draw();
    } else if (missing && !warned) {
      warned = true;
      said.textContent = `${missing} Or press again, and see the curve without a verdict.`;
    } else {
      said.textContent = "Computing …";
      show(await curve_ms(guess));
    }
  };
  if (truth) show(truth);
  new ResizeObserver(draw).observe(host);
  return draw;
}

/** Return where a drawing is missing, "" if it is whole. */
export function gap(loads, guess) {
  for (const [end, next, after] of [[0, 1, 2], [-1, -2, -3].map((at) => at + guess.length)]) { // a hand rarely reaches the edge
    if (Number.isNaN(guess[end])) guess[end] = Math.max(2 * guess[next] - guess[after], 0);
  }
  const empty = loads.filter((_, i) => Number.isNaN(guess[i])).map((load) => `${Math.round(100 * load)}%`);
  if (!empty.length) return "";
  if (empty.length === loads.length) return "The paper is empty: draw p99 first.";
  const where = empty.length > 1 ? `from ${empty[0]} to ${empty.at(-1)}` : `at ${empty[0]}`;
  return `Your drawing has a gap ${where} load: draw there too.`;
}

/** Return what is right or wrong about the shape of a drawing: when it rises, and how steeply it ends. */
export function judge(loads, guess, truth) {
  const end = loads.at(-1);
  const at = (values, load) => values[loads.findIndex((each) => each >= load - 1e-9)];
  const rise = (values, from) => at(values, end) / Math.max(at(values, from), 1);
  const early = (values) => (at(values, 0.6) - values[0]) / (at(values, end) - values[0]);
  const [start, middle, last] = [0.1, 0.6, end].map((load) => `At ${Math.round(100 * load)}% load p99 is ${number(at(truth, load))} ms.`);
  const falls = (values) => values.some((ms, i) => ms < FALLS * Math.max(...values.slice(0, i + 1)));
  if (falls(guess) && !falls(truth)) return { kind: "falls", right: false, text: `Your curve falls on its way. ${middle} ${last} More load never makes the queue shorter.` };
  if (rise(guess, loads[0]) > GROWS && early(guess) > Math.max(EARLY, 1.2 * early(truth))) return { kind: "rises too early", right: false, text: `Your curve rises too early. ${start} ${middle} The rise comes late.` };
  if (rise(guess, 0.6) - 1 < ENDS * (rise(truth, 0.6) - 1)) return { kind: "ends too low", right: false, text: `Your curve ends too low. ${middle} ${last} It has no limit at 100%.` };
  return { kind: "rises late and steeply", right: true, text: `Your shape is right: flat for long, then steep. ${middle} ${last}` };
}
