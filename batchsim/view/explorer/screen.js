// The explorer's picture: PNG frames in, clicks, keys and the width out.

function backdrop(el) {
  // The page's own colour says whether it is dark, whatever the front end calls its themes.
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
    // No permission: a selection can be copied without one.
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
  let shown = -1;

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
    if (number <= shown) {
      URL.revokeObjectURL(url); // a later frame was decoded sooner
      return;
    }
    shown = number;
    const old = img.src;
    img.src = url;
    img.dataset.frame = number;
    if (old) URL.revokeObjectURL(old);
  }
  const name = () => { img.alt = model.get("alt"); };
  const hide = () => {
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
      event.stopPropagation(); // else a notebook moves to another cell
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
      if (width < 50) return; // not to be seen now
      model.set("width_px", width);
      model.set("ratio", Math.min(window.devicePixelRatio || 1, 2));
      model.set("dark", backdrop(el) < 128);
      model.save_changes();
    }, 120);
  };
  // What has the focus in the panel keeps its keys: notebooks have shortcuts on arrows and letters.
  // And a slider's handle gets the name that stands beside it, which ipywidgets does not give it.
  const focus = (event) => {
    event.target.dataset.lmSuppressShortcuts = "true";
    const label = event.target.closest('[class*="batchsim-knob-"]')?.querySelector(".batchsim-label");
    if (label && event.target.classList.contains("noUi-handle")) {
      event.target.setAttribute("aria-label", label.textContent.trim());
    }
  };
  let panel;
  const size = new ResizeObserver(() => {
    if (!panel) {
      panel = el.closest(".batchsim"); // there is none before the element is in the page
      panel?.addEventListener("focusin", focus);
    }
    measure();
  });
  size.observe(el);
  const theme = new MutationObserver(measure);
  theme.observe(document.body, { attributes: true });

  const order = (content, buffers) => {
    if (content.copy !== undefined) copy(content.copy);
    if (content.download) download(content.download, content.type, buffers[0]);
  };
  model.on("change:number", draw);
  model.on("change:alt", name);
  model.on("change:cover", hide);
  model.on("msg:custom", order);
  name();
  hide();
  draw();
  return () => {
    size.disconnect();
    theme.disconnect();
    clearTimeout(measuring);
    panel?.removeEventListener("focusin", focus);
    model.off("change:number", draw);
    model.off("change:alt", name);
    model.off("change:cover", hide);
    model.off("msg:custom", order);
    if (img.src) URL.revokeObjectURL(img.src);
  };
}

export default { render };
