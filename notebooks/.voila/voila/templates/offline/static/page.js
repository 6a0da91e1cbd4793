// What Voila writes into its page as inline scripts, of which a page that is open to links can have none.
// The whole page has been read when its cells are there; Voila's own code sets themeLoaded, and then calls
// voila_finish if cellLoaded was first.
window.voila_finish = () => {
  if (!window.themeLoaded) {
    window.cellLoaded = true;
    return;
  }
  document.getElementById("loading")?.remove();
  document.getElementById("rendered_cells").style.display = "";
};
document.addEventListener("DOMContentLoaded", window.voila_finish);

// The body's names of the theme follow the browser's preference, as the style sheets do; the picture watches them.
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const follow = () => {
  const { body } = document, dark = prefersDark.matches;
  if (!("follows" in body.dataset)) return;
  Object.assign(body.dataset, { jpThemeLight: String(!dark), jpThemeName: `JupyterLab ${dark ? "Dark" : "Light"}` });
  body.classList.toggle("theme-dark", dark);
  body.classList.toggle("theme-light", !dark);
};
prefersDark.addEventListener("change", follow);
document.addEventListener("DOMContentLoaded", follow);

// anywidget gives up on a picture that takes two seconds to begin with, and never tries again. On a machine
// that opens thirty pages it takes longer.
const signalAfter = AbortSignal.timeout.bind(AbortSignal);
AbortSignal.timeout = (ms) => signalAfter(Math.max(ms, 60_000));

// A page that has lost its socket says so, until it has one again. JupyterLab's code tries a few times; a
// session that ended meanwhile (the app was stopped, or the page was away for ten minutes) is answered 404.
const AWAY = "No connection to the app. It is tried again a few times; if nothing moves then, reload the page.";
const ENDED = "This page's session has ended. Reload the page to begin again.";

const say = (text) => {
  const line = document.getElementById("connection");
  line.textContent = text;
  line.hidden = !text;
};

const tell = async (socket) => {
  const kernel = new URL(socket.url.replace(/^ws/, "http").replace(/\/channels.*/, ""));
  const answer = await fetch(kernel).catch(() => null);
  if (socket === latest) say(answer?.status === 404 ? ENDED : AWAY);
};

let latest = null;
window.WebSocket = class extends WebSocket {
  constructor(...asked) {
    super(...asked);
    latest = this;
    this.addEventListener("open", () => say(""));
    this.addEventListener("close", () => void tell(this));
  }
};
