/** The figure in a notebook: what a hand moves goes to Python, and what Python sets is drawn. */
import { element, isDark } from "./dom.js";
import { Engine } from "./engine.js";
import { Figure, mapper } from "./figure.js";
import { Film } from "./film.js";

const plain = ({ buffer, byteOffset, byteLength }) => buffer.slice(byteOffset, byteOffset + byteLength);

/** Draw a figure and follow its model; return what ends it. */
export async function render({ model, el }) {
  const described = model.get("described"), names = Object.keys(described.controls);
  const theme = () => (isDark(el.parentElement ?? el) ? "dark" : "light");
  const values = () => Object.fromEntries(names.map((name) => [name, model.get(name) ?? Infinity]));
  const host = el.appendChild(element("div", { className: "figure" }));
  let figure, worker, telling = false, begun = 0;
  el.classList.add("batchsim-figure");
  el.addEventListener("focusin", ({ target }) => { target.dataset.lmSuppressShortcuts = "true"; }); // notebooks have shortcuts on letters
  const tell = ({ settings }) => {
    const changed = names.filter((name) => settings[name] !== (model.get(name) ?? Infinity));
    if (!changed.length || !figure) return;
    telling = true; // one by one: until the last, the others are older
    for (const name of changed) model.set(name, settings[name] === Infinity ? null : settings[name]);
    telling = false;
    model.save_changes();
  };
  const obey = () => {
    const wanted = values();
    if (figure && !telling && names.some((name) => figure.values[name] !== wanted[name])) figure.go(wanted);
  };
  const end = () => {
    begun += 1;
    figure?.destroy();
    worker?.terminate();
    figure = worker = null;
  };
  const begin = async () => {
    end();
    const turn = begun;
    const [bytes, points_s] = [plain(model.get("module")), new Float64Array(plain(model.get("points_s")))];
    const engine = (await Engine.load(bytes, described)).take(points_s);
    if (turn !== begun) return; // other traffic came meanwhile, or the end
    const [views, controls] = [model.get("views"), model.get("controls")];
    if (views.includes("map")) {
      worker = new Worker(URL.createObjectURL(new Blob([model.get("worker")], { type: "text/javascript" })));
      worker.postMessage({ bytes, described, points_s });
    }
    figure = host.figure = new Figure(host, { engine, askMap: worker && mapper(worker), described, Film, views, controls, values: values(), theme, plays: true, onchange: tell });
  };
  const restyle = () => {
    const name = theme();
    el.style.colorScheme = name;
    for (const [part, colour] of Object.entries(described.looks[name])) el.style.setProperty(`--${part}`, colour);
    figure?.draw();
  };
  const [themes, places] = [new MutationObserver(restyle), new ResizeObserver(restyle)]; // a place's colour is known once it is there
  themes.observe(document.body, { attributes: true });
  places.observe(el);
  const events = { "change:points_s": begin, ...Object.fromEntries(names.map((name) => [`change:${name}`, obey])) };
  for (const [name, act] of Object.entries(events)) model.on(name, act);
  try {
    restyle();
    await begin();
  } catch (error) {
    host.textContent = `This browser cannot run the figure: ${error.message}`;
  }
  return () => {
    end();
    themes.disconnect();
    places.disconnect();
    for (const [name, act] of Object.entries(events)) model.off(name, act);
  };
}
