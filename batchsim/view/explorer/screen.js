// The explorer's picture: PNG frames in, clicks, keys and the width out.

// The brightness of the page behind an element, 0 to 255: it says whether the page is dark, whatever the
// front end calls its themes.
function backgroundBrightness(el) {
  for (let node = el; node; node = node.parentElement ?? node.getRootNode().host) {
    const parts = getComputedStyle(node).backgroundColor.match(/[\d.]+/g)?.map(Number);
    if (parts && (parts.length < 4 || parts[3] > 0.5)) {
      return 0.299 * parts[0] + 0.587 * parts[1] + 0.114 * parts[2];
    }
  }
  return 255;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without permission for the clipboard: a selection can be copied all the same.
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

function download(name, type, bytes) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([bytes], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// --- The film: the page asks for the next frame once the last is on the screen, so that none is queued. Two
// may be under way: while one is shown, the next is drawn.

const FRAME_MS = 33;
const UNDER_WAY = 2;
const LOST_MS = 1000; // after which a frame is no longer awaited

function filmDriver(model) {
  let playing = false;
  let underWay = 0;
  let asked = 0;
  let timer;
  const ask = () => {
    clearTimeout(timer);
    if (!playing) return;
    const now = performance.now();
    if (underWay >= UNDER_WAY && now - asked > LOST_MS) underWay = 0;
    if (underWay < UNDER_WAY && now - asked >= FRAME_MS - 2) {
      underWay++;
      asked = now;
      model.send({ tick: true });
    }
    timer = setTimeout(ask, underWay < UNDER_WAY ? Math.max(asked + FRAME_MS - now, 1) : LOST_MS);
  };
  return {
    receive: (content) => {
      if (content.film === undefined) return;
      playing = content.film;
      underWay = 0;
      ask();
    },
    shown: () => {
      underWay = Math.max(underWay - 1, 0);
      ask();
    },
    stop: () => {
      playing = false;
      clearTimeout(timer);
    },
  };
}

// A part of the picture, laid over it until the next whole frame.
function patchLayer(el, shownNumber) {
  const layer = document.createElement("img");
  layer.className = "batchsim-patch";
  layer.alt = "";
  let last = 0;
  let serial = 0;
  const clear = () => {
    layer.remove();
    if (layer.src) URL.revokeObjectURL(layer.src);
    layer.removeAttribute("src");
  };
  const show = async ({ patch, number }, bytes) => {
    const mine = ++serial;
    const url = URL.createObjectURL(new Blob([bytes], { type: "image/png" }));
    const next = new Image();
    next.src = url;
    try {
      await next.decode();
    } catch {
      return URL.revokeObjectURL(url);
    }
    if (number < shownNumber() || mine <= last) return URL.revokeObjectURL(url); // a later one was sooner
    last = mine;
    const old = layer.src;
    layer.src = url;
    const [left, top, width, height] = patch.map((part) => `${100 * part}%`);
    Object.assign(layer.style, { left, top, width, height });
    layer.dataset.frame = mine;
    if (!layer.isConnected) el.append(layer);
    if (old) URL.revokeObjectURL(old);
    await new Promise(requestAnimationFrame);
  };
  return { show, clear };
}

// --- The screen.

function render({ model, el }) {
  const img = document.createElement("img");
  img.className = "batchsim-screen";
  img.tabIndex = model.get("clickable") ? 0 : -1;
  const cover = document.createElement("div");
  cover.className = "batchsim-cover";
  el.classList.add("batchsim-screen-box");
  el.append(img, cover);
  let shownNumber = -1;

  async function draw() {
    const number = model.get("number");
    const bytes = model.get("frame");
    if (!bytes?.byteLength) return;
    img.dataset.arrived = number; // and once it is decoded, `frame`
    const url = URL.createObjectURL(new Blob([bytes], { type: "image/png" }));
    const next = new Image();
    next.src = url;
    try {
      await next.decode();
    } catch {
      URL.revokeObjectURL(url);
      return;
    }
    if (number <= shownNumber) {
      URL.revokeObjectURL(url); // a later frame was decoded sooner
      return;
    }
    shownNumber = number;
    const old = img.src;
    img.src = url;
    img.dataset.frame = number;
    if (old) URL.revokeObjectURL(old);
    patches.clear();
  }
  const patches = patchLayer(el, () => shownNumber);
  const film = filmDriver(model);
  const updateAlt = () => { img.alt = model.get("alt"); };
  const updateCover = () => {
    cover.textContent = model.get("cover");
    el.classList.toggle("batchsim-covered", Boolean(model.get("cover")));
  };

  const click = (event) => {
    const box = img.getBoundingClientRect();
    model.send({
      click: [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height],
    });
  };
  const press = (event) => {
    if (event.key.startsWith("Arrow")) {
      model.send({ key: event.key.slice(5).toLowerCase() });
      event.preventDefault();
      event.stopPropagation(); // or a notebook would move to another cell
    }
  };
  if (model.get("clickable")) {
    img.addEventListener("click", click);
    img.addEventListener("keydown", press);
  }

  let measuring;
  const measure = () => {
    clearTimeout(measuring);
    measuring = setTimeout(() => {
      const width = Math.round(el.getBoundingClientRect().width);
      if (width < 50) return; // hidden, as on a tab that is closed
      model.set("width_px", width);
      model.set("ratio", Math.min(window.devicePixelRatio || 1, 2));
      model.set("dark", backgroundBrightness(el) < 128);
      model.save_changes();
    }, 120);
  };
  // A focused control keeps its keys, as notebooks have shortcuts on arrows and letters; and a slider's
  // handle gets the label beside it as its accessible name, which ipywidgets does not give it.
  const focus = (event) => {
    event.target.dataset.lmSuppressShortcuts = "true";
    const label = event.target.closest('[class*="batchsim-knob-"]')?.querySelector(".batchsim-label");
    if (label && event.target.classList.contains("noUi-handle")) {
      event.target.setAttribute("aria-label", label.textContent.trim());
    }
  };
  let panel;
  const resizes = new ResizeObserver(() => {
    if (!panel) {
      panel = el.closest(".batchsim"); // there is none before the element is in the page
      panel?.addEventListener("focusin", focus);
    }
    measure();
  });
  resizes.observe(el);
  const themeChanges = new MutationObserver(measure);
  themeChanges.observe(document.body, { attributes: true });

  const receive = (content, buffers) => {
    film.receive(content);
    if (content.patch) patches.show(content, buffers[0]).then(film.shown);
    if (content.copy !== undefined) copy(content.copy);
    if (content.download) download(content.download, content.type, buffers[0]);
  };
  model.on("change:number", draw);
  model.on("change:alt", updateAlt);
  model.on("change:cover", updateCover);
  model.on("msg:custom", receive);
  updateAlt();
  updateCover();
  draw();
  return () => {
    resizes.disconnect();
    themeChanges.disconnect();
    clearTimeout(measuring);
    panel?.removeEventListener("focusin", focus);
    model.off("change:number", draw);
    model.off("change:alt", updateAlt);
    model.off("change:cover", updateCover);
    model.off("msg:custom", receive);
    if (img.src) URL.revokeObjectURL(img.src);
    patches.clear();
    film.stop();
  };
}

export default { render };
