/* The lessons' live figures: without JavaScript, or in print, the stored picture remains alone. */
for (const frame of document.querySelectorAll("iframe[data-src]")) {
  frame.src = frame.dataset.src;
  frame.parentElement.hidden = false;
}
