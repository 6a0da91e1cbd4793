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

// anywidget gives up on a picture that takes two seconds to begin with, and never tries again. On a machine
// that opens thirty pages it takes longer.
const signalAfter = AbortSignal.timeout.bind(AbortSignal);
AbortSignal.timeout = (ms) => signalAfter(Math.max(ms, 60_000));
