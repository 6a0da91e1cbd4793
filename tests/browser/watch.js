// Watches one picture of a page: when it shows other pixels, and which. Runs in the page, the same for every panel.
(() => {
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  const deadline = (what) => {
    const end = performance.now() + 300_000;
    return () => {
      if (performance.now() > end) throw new Error(`in five minutes there was not ${what()}`);
    };
  };
  const watch = {};

  const shown = () => {
    const picture = [...document.querySelectorAll(watch.selector)].at(-1);
    return picture?.complete && picture.naturalWidth ? picture : null;
  };

  // The next thing that could be another picture: a loop over animation frames would draw each one of a page at
  // rest, a twentieth of a processor for each page that tests keep open.
  let heard = () => {};
  const change = () => new Promise((resolve) => (heard = resolve));
  const hear = () => heard();

  // A picture counts once it is decoded and an animation frame has gone by: from then on it is on the screen.
  watch.start = async (selector) => {
    const goes = Boolean(watch.selector);
    watch.selector = selector;
    watch.pressed = watch.arrived = null;
    watch.frames = []; // when each new picture was on the screen, in ms since the page began
    if (goes) return hear();
    const what = { subtree: true, childList: true, attributeFilter: ["src", "class"] };
    new MutationObserver(hear).observe(document, what);
    addEventListener("load", hear, true); // a picture's
    addEventListener("keydown", () => (watch.pressed = performance.now()), true);
    addEventListener("pointerup", () => (watch.arrived = Number(shown()?.dataset.arrived)), true);
    let last = shown();
    let source = (watch.counted = last?.src);
    for (;;) {
      const picture = shown();
      if (!picture || (picture === last && picture.src === source)) {
        await change();
        await frame();
        continue;
      }
      [last, source] = [picture, picture.src];
      try {
        await picture.decode();
      } catch {
        watch.counted = source;
        continue; // replaced meanwhile by a later one
      }
      await frame();
      watch.counted = source;
      watch.frames.push(performance.now());
    }
  };

  // Watch another picture of the page.
  watch.turn = (selector) => {
    watch.selector = selector;
    hear();
  };

  // What the page has asked its kernels, and they have not done; and what else they have done, by message.
  const asked = new Set(), done = new Set();
  const text = (frame) => (typeof frame === "string" ? frame : new TextDecoder().decode(frame));
  const ids = (frame) => [...frame.matchAll(/"msg_id": ?"([^"]+)"/g)].map((found) => found[1]);
  window.WebSocket = class extends WebSocket {
    constructor(...address) {
      super(...address);
      this.addEventListener("message", ({ data }) => {
        if ((data.byteLength ?? data.length) > 10_000) return; // it holds a picture
        const said = text(data);
        if (!/"execution_state": ?"idle"/.test(said)) return;
        for (const id of ids(said)) {
          asked.delete(id);
          done.add(id);
        }
      });
    }

    send(data) {
      const [id] = ids(text(data));
      if (id && !done.has(id)) asked.add(id);
      super.send(data);
    }
  };

  // All that a kernel had sent before it ended with this message is here.
  watch.heard = async (id) => {
    const over = deadline(() => `the kernel's answer to ${id}`);
    while (!done.has(id)) await pause(over() || 5);
  };

  // Nothing new for `ms`, and nothing on its way: the kernel has done what it was asked, and it is on the screen.
  watch.quiet = async (ms) => {
    const arrived = ({ arrived, frame }) => arrived === frame; // both are the explorer's alone
    const drawn = () => !shown() || (arrived(shown().dataset) && shown().src === watch.counted);
    const state = () => JSON.stringify([watch.frames.length, done.size, asked.size]);
    const over = deadline(() => `rest: ${state()}, ${[...asked]}`);
    await frame(); // what waits for one comes first: the page reports its size when it has drawn
    for (let before = ""; before !== state() || asked.size || !drawn(); ) {
      before = state();
      await frame(); // a busy machine may draw none for long, and the page notices its new sizes as it draws
      await pause(over() || ms);
    }
  };

  // A number that says which pixels are shown, once the picture is loaded.
  watch.pixels = async () => {
    const over = deadline(() => "a loaded picture");
    while (!shown()) await pause(over() || 5);
    const picture = shown();
    const canvas = new OffscreenCanvas(picture.naturalWidth, picture.naturalHeight);
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.drawImage(picture, 0, 0);
    const pixels = new Uint32Array(context.getImageData(0, 0, canvas.width, canvas.height).data.buffer);
    let sum = 2166136261;
    for (const pixel of pixels) sum = Math.imul(sum ^ pixel, 16777619);
    return sum >>> 0;
  };

  // From the next key press to the next new picture, in ms; `changed`: its pixels are indeed others.
  watch.arm = async (quiet_ms) => {
    await watch.quiet(quiet_ms);
    const [before, count] = [await watch.pixels(), watch.frames.length];
    watch.pressed = null;
    watch.move = (async () => {
      const over = deadline(() => "a new picture");
      while (watch.frames.length === count) await frame(over());
      const ms = watch.frames[count] - watch.pressed;
      return { ms, changed: (await watch.pixels()) !== before };
    })();
  };

  // Move the pressed mouse in even steps of time: every step reaches the slider, which a browser's own events,
  // one per animation frame, would not do on a busy machine.
  watch.drag = async ({ origin, begin, end, y, steps, seconds }) => {
    const [handle, stood, began] = [document.querySelector(origin), new Set(), performance.now()];
    for (let step = 1; step <= steps; step++) {
      await pause(began + (step * seconds * 1000) / steps - performance.now());
      const at = { bubbles: true, buttons: 1, clientX: begin + ((end - begin) * step) / steps, clientY: y };
      document.documentElement.dispatchEvent(new MouseEvent("mousemove", at));
      stood.add(handle.getAttribute("style"));
    }
    return { values: stood.size, seconds: (performance.now() - began) / 1000 };
  };

  window.watch = watch;
})();
