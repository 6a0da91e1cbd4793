// The explorer's picture: frames come in; clicks, keys, gestures and the page's size go out.
// In this order: helpers, frames, the size, the pointer, the keys, and `render`, which joins them.

import { element, isDark, stored } from "../../web/js/dom.js";

const NARROW_WINDOW_PX = 900, NARROW_PANEL_PX = 760; // below either, the controls fold below the picture
const MARGIN_PX = 12; // above and below the explorer in the window
const LEAST_PX = 240, LEAST_HEIGHT_PX = 340;
const SETTLED_MS = 120; // from the last change of size to its report
const MORE = "batchsim-more"; // in the browser's storage
const RELEASE_MS = 300; // after the release of the pointer or the key

// Helpers.

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without permission for the clipboard, copying a selection still works.
    const area = element("textarea", { value: text });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

// The link to a state: in the app its address, which keeps what the server reads of it; in a notebook Python.
function shared({ copy, link }) {
  if (!document.body.dataset.voila) return copy;
  const address = new URL(location.href), own = ["token", "theme"].map((name) => [name, address.searchParams.get(name)]);
  const kept = own.filter(([, value]) => value !== null).map((pair) => pair.map(encodeURIComponent).join("="));
  address.search = [...kept, link].join("&");
  return address.href;
}

function download(name, type, bytes) {
  const link = element("a", { href: URL.createObjectURL(new Blob([bytes], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// Show the latest frame, and its numbers, once it is decoded, to avoid flicker.
function frames(model, img, numbers) {
  let shown = -1;
  return async () => {
    const number = model.get("number"), bytes = model.get("frame"), text = model.get("numbers"), next = new Image();
    if (!bytes?.byteLength) return;
    img.dataset.arrived = number; // `frame` follows once it is decoded
    next.src = URL.createObjectURL(new Blob([bytes], { type: "image/webp" }));
    const decoded = await next.decode().then(() => true, () => false);
    if (!decoded || number <= shown) return URL.revokeObjectURL(next.src);
    shown = number;
    if (img.src) URL.revokeObjectURL(img.src);
    img.src = next.src;
    if (numbers.innerHTML !== text) numbers.innerHTML = text;
    img.dataset.frame = number;
  };
}

// The size: the picture is as wide as the page allows, and as high as the window.

// The outermost element that scrolls; the elements inside it grow with their contents.
function scroller(el) {
  let found = null;
  for (let node = el.parentElement; node && node !== document.body; node = node.parentElement) {
    if (/auto|scroll/.test(getComputedStyle(node).overflowY)) found = node;
  }
  return found;
}

function visibleHeight(panel) {
  const scrolls = scroller(panel), head = document.querySelector(".batchsim-head")?.offsetHeight ?? 0; // the app's title
  if (scrolls?.clientHeight > LEAST_HEIGHT_PX) return Math.min(innerHeight, scrolls.clientHeight) - (head && head + MARGIN_PX);
  const top = panel.getBoundingClientRect().top + scrollY; // a separate page, below its margin
  return innerHeight - (top < 80 ? Math.max(2 * top - MARGIN_PX, 0) : 0);
}

// Lay the explorer out, and return the size of its picture, below the numbers; null while it is hidden.
function layOut(panel, el, numbers) {
  const panelWidth = panel.getBoundingClientRect().width;
  if (panelWidth < 50) return null;
  const narrow = innerWidth < NARROW_WINDOW_PX || panelWidth < NARROW_PANEL_PX;
  panel.classList.toggle("batchsim-narrow", narrow);
  const width = Math.floor(el.getBoundingClientRect().width);
  const below = [...el.parentElement.children].reduce(
    (sum, child) => sum + (child === el || getComputedStyle(child).position === "absolute" ? 0 : child.offsetHeight), 0);
  let height = visibleHeight(panel) - below - MARGIN_PX;
  if (narrow) { // next to the controls, while no page is open
    const controls = [...panel.querySelectorAll(".batchsim-knobs, .batchsim-tabs > .lm-TabBar")];
    height -= controls.reduce((sum, each) => sum + each.offsetHeight, 2 * MARGIN_PX);
    height = Math.min(Math.max(height, 400), 1.3 * width);
  }
  height = Math.max(Math.floor(height), LEAST_HEIGHT_PX);
  el.style.height = `${height}px`;
  panel.style.setProperty("--batchsim-height", `${height + below}px`);
  return { width_px: Math.max(width, LEAST_PX), height_px: Math.max(height - numbers.offsetHeight, LEAST_PX), alone: narrow };
}

function bringIntoView(panel) {
  const box = panel.getBoundingClientRect();
  const top = scroller(panel)?.getBoundingClientRect().top ?? 0;
  if (box.height < 50 || box.top < top - 1 || box.top > innerHeight) return;
  // An explorer higher than the window, as with the controls below the picture, does not move.
  if (box.height <= visibleHeight(panel)) panel.scrollIntoView({ block: "nearest" });
}

// A notebook turns to the next cell, and leaves an explorer that comes later above the window.
function appear(panel) {
  const cell = panel.closest(".jp-Cell"), isActive = (it) => it?.classList.contains("jp-mod-active");
  if (isActive(cell) || isActive(cell?.nextElementSibling)) panel.scrollIntoView({ block: "start" });
  else bringIntoView(panel);
}

// The pointer and the keys.

// Python describes the place under the pointer: one question at a time.
function tooltips(model, img, tip) {
  let at = null, asked = null;
  const ask = () => {
    if (asked || !at) return;
    asked = at;
    model.send({ hover: at.place });
  };
  const place = (event) => {
    const box = img.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
  };
  const over = (event) => {
    at = { place: place(event), x: event.offsetX, y: event.offsetY, tapped: event.type === "click" };
    ask();
  };
  const leave = () => {
    at = null;
    tip.hidden = true;
  };
  img.addEventListener("pointermove", (event) => event.pointerType === "touch" || over(event));
  for (const name of ["pointerleave", "blur"]) img.addEventListener(name, leave);
  img.addEventListener("click", (event) => {
    if (event.pointerType === "touch") over(event); // a finger is never just above a place
    model.send({ click: place(event) });
  });
  return (text, act) => {
    const answered = asked;
    asked = null;
    img.style.cursor = at && act ? "pointer" : "";
    tip.hidden = !at || !text || (at.tapped && act);
    if (!at) return;
    if (text && tip.textContent !== text) tip.textContent = text;
    const right = at.x > img.clientWidth / 2, low = at.y > img.clientHeight - 80;
    tip.style.left = right ? "" : `${at.x + 14}px`;
    tip.style.right = right ? `${img.clientWidth - at.x + 10}px` : "";
    tip.style.top = low ? "" : `${img.offsetTop + at.y + 16}px`;
    tip.style.bottom = low ? `${img.clientHeight - at.y + 10}px` : "";
    if (answered && (answered.x !== at.x || answered.y !== at.y)) setTimeout(ask, 30);
  };
}

function arrowKeys(model, img) {
  img.addEventListener("keydown", (event) => {
    if (!event.key.startsWith("Arrow")) return;
    model.send({ key: event.key.slice(5).toLowerCase() });
    event.preventDefault();
    event.stopPropagation(); // otherwise a notebook would move to another cell
  });
}

const MOVES = /^(Arrow|Page|Home|End|Enter| )/;

// What ipywidgets omits: a slider is named as the field above it, and its value is what that says; a refusal is an alert.
function describe(panel) {
  for (const handle of panel.querySelectorAll('[class*="batchsim-knob-"] .noUi-handle')) {
    const slider = handle.closest(".noUi-target"), field = slider.closest(".widget-slider").previousElementSibling;
    const set = (name, value) => handle.getAttribute(name) === value || handle.setAttribute(name, value);
    const say = () => set("aria-valuetext", field.querySelector("input").value);
    if (!handle.hasAttribute("aria-label")) slider.noUiSlider.on("update", say); // which has counted its steps
    set("aria-label", field.querySelector("label > span").textContent);
    say();
  }
  for (const refusal of panel.querySelectorAll("span.batchsim-refusal:not([role])")) refusal.setAttribute("role", "alert");
}

// A gesture: from a press of the pointer or a key in the explorer until a moment after its release. Python
// receives a message when a drag begins, but for a key only once it is held down, as each message delays the
// picture; the key has made its first move by then.
function gestures(model, panel) {
  let pressed = false, told = false, pointing = false, timer;
  const press = (message) => {
    clearTimeout(timer);
    pressed = true;
    if (message) model.send(message);
    told ||= Boolean(message);
  };
  const release = () => {
    if (!pressed) return;
    clearTimeout(timer);
    timer = setTimeout(() => {
      pressed = told = false;
      model.send({ release: true });
    }, RELEASE_MS);
  };
  const key = (event) => {
    if (!MOVES.test(event.key)) return;
    if (event.repeat) press(told ? null : { hold: true });
    else press(told ? { press: true } : null); // a gesture that begins before the last one ended
  };
  const point = () => {
    pointing = true;
    press({ press: true });
  };
  // A pressed element must not move away from the pointer: its click would be lost, and a slider would jump.
  const lift = () => {
    if (pointing) setTimeout(() => bringIntoView(panel)); // after the click
    pointing = false;
    release();
  };
  const focus = (event) => {
    event.target.dataset.lmSuppressShortcuts = "true"; // a focused control keeps its keys, which notebooks use
    if (!pointing) bringIntoView(panel);
  };
  const inside = { pointerdown: point, keydown: key, focusin: focus };
  const away = (event) => { if (event.target === window) release(); }; // but not when the focus moves within the page
  const anywhere = { pointerup: lift, pointercancel: lift, keyup: release, blur: away };
  for (const [name, act] of Object.entries(inside)) panel.addEventListener(name, act, true);
  for (const [name, act] of Object.entries(anywhere)) window.addEventListener(name, act, true);
  const end = () => {
    clearTimeout(timer);
    for (const [name, act] of Object.entries(inside)) panel.removeEventListener(name, act, true);
    for (const [name, act] of Object.entries(anywhere)) window.removeEventListener(name, act, true);
  };
  // A slider holds its last value back while the kernel is busy: that move may come after the end of its gesture.
  return { end, settle: () => pressed || model.send({ release: true }) };
}

// Dim all that belongs to another setting than the controls, and count the seconds until the present one comes.
const OF_RESULT = ".batchsim-screen, .batchsim-numbers, .batchsim-readout, .batchsim-code, .batchsim-moment, .batchsim-player, .batchsim-told";
function staleness(model, el, cover) {
  let began = null, ticking;
  const say = () => {
    const seconds = Math.floor((performance.now() - began) / 1000), stale = model.get("stale");
    cover.textContent = model.get("cover") || (stale && model.get("busy") ? `${stale} … ${seconds} s` : stale);
  };
  const update = () => {
    clearInterval(ticking);
    const stale = Boolean(model.get("stale")), busy = stale && model.get("busy");
    began = busy ? began ?? performance.now() : null;
    if (busy) ticking = setInterval(say, 1000);
    const panel = el.closest(".batchsim-explorer");
    panel?.classList.toggle("batchsim-stale", stale);
    for (const part of panel?.querySelectorAll(OF_RESULT) ?? []) part.setAttribute("aria-busy", busy);
    el.classList.toggle("batchsim-covered", stale || Boolean(model.get("cover")));
    say();
  };
  return { update, end: () => clearInterval(ticking) };
}

export function render({ model, el }) {
  el.classList.add("batchsim-screen-box");
  const img = element("img", { className: "batchsim-screen", tabIndex: 0 }), cover = element("div", { className: "batchsim-cover" });
  const tip = element("div", { className: "batchsim-tip", hidden: true, attributes: { "aria-hidden": "true" } }); // the picture's description includes it
  const numbers = element("div", { className: "batchsim-numbers" });
  el.append(numbers, img, cover, tip);
  const draw = frames(model, img, numbers), showTip = tooltips(model, img, tip);
  arrowKeys(model, img);

  let panel = null, measuring, seen = false, gesture = null;
  const measure = () => {
    const box = panel && layOut(panel, el, numbers);
    if (!box) return; // hidden, as on a closed tab
    const ratio = Math.min(window.devicePixelRatio || 1, 2), dark = isDark(el);
    for (const [name, value] of Object.entries({ ...box, ratio, dark })) model.set(name, value);
    model.save_changes();
    for (const list of panel.querySelectorAll(".batchsim-foot select")) list.setAttribute("aria-label", list.title);
    if (!seen) requestAnimationFrame(() => appear(panel));
    seen = true;
  };
  const showMore = () => { // all controls and views, or three of each
    const more = model.get("more");
    panel.classList.toggle("batchsim-calm", !more);
    stored((storage) => (more ? storage.setItem(MORE, "1") : storage.removeItem(MORE)));
    later();
  };
  const later = () => {
    clearTimeout(measuring);
    measuring = setTimeout(measure, seen ? SETTLED_MS : 0);
  };
  const resizes = new ResizeObserver(() => {
    if (!panel) {
      panel = el.closest(".batchsim-explorer"); // null until the element is in the page
      if (panel) {
        gesture = gestures(model, panel);
        if (stored((storage) => storage.getItem(MORE))) model.set("more", true); // sent with the size
        showMore();
        parts.observe(panel, { childList: true, subtree: true });
        describe(panel);
        const head = document.querySelectorAll(".batchsim-head"); // in the app, which the opening makes smaller
        for (const each of [panel, ...head, ...el.parentElement.children]) resizes.observe(each);
      }
    }
    later();
  });
  resizes.observe(el);
  resizes.observe(numbers);
  window.addEventListener("resize", later);
  const themeChanges = new MutationObserver(later);
  themeChanges.observe(document.body, { attributes: true });

  const parts = new MutationObserver(() => describe(panel)); // a frame, whose numbers are new, is one, too
  const receive = (content, buffers) => {
    if (content.copy !== undefined) copy(content.link === undefined ? content.copy : shared(content));
    if (content.download) download(content.download, content.type, buffers[0]);
    if (content.tip !== undefined) showTip(content.tip, content.act);
  };
  const updateAlt = () => { img.alt = model.get("alt"); };
  const stale = staleness(model, el, cover);
  const events = {
    "change:number": () => { draw(); gesture?.settle(); }, "change:alt": updateAlt, "msg:custom": receive, "change:more": () => panel && showMore(),
    "change:cover": stale.update, "change:stale": stale.update, "change:busy": stale.update,
  };
  for (const [name, act] of Object.entries(events)) model.on(name, act);
  updateAlt();
  stale.update();
  draw();
  return () => {
    resizes.disconnect();
    parts.disconnect();
    themeChanges.disconnect();
    window.removeEventListener("resize", later);
    clearTimeout(measuring);
    gesture?.end();
    stale.end();
    for (const [name, act] of Object.entries(events)) model.off(name, act);
    if (img.src) URL.revokeObjectURL(img.src);
  };
}
