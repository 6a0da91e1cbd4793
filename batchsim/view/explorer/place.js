// What lies over a part of the explorer's picture: a film, an editor.

/** Lay an element over a part, as fractions; nothing without a picture. */
export function lay(el, [left, top, width, height]) {
  const box = el.parentElement?.querySelector(".batchsim-screen-box"), picture = box?.querySelector(".batchsim-screen");
  if (!picture) return;
  const { offsetWidth: w, offsetHeight: h } = picture, [x, y] = [box.offsetLeft + picture.offsetLeft, box.offsetTop + picture.offsetTop];
  Object.assign(el.style, { left: `${x + left * w}px`, top: `${y + top * h}px`, width: `${width * w}px`, height: `${height * h}px` });
}
