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
  }
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
  };
}

export default { render };
