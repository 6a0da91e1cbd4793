// What lies over a part of the explorer's picture: a film, an editor.

const pictureOf = (el) => el.parentElement?.querySelector(".batchsim-screen");

/** Lay an element over a part, as fractions; nothing without a picture. */
export function lay(el, [left, top, width, height]) {
  const picture = pictureOf(el), box = picture?.offsetParent;
  if (!box) return;
  const { offsetWidth: w, offsetHeight: h } = picture, [x, y] = [box.offsetLeft + picture.offsetLeft, box.offsetTop + picture.offsetTop];
  Object.assign(el.style, { left: `${x + left * w}px`, top: `${y + top * h}px`, width: `${width * w}px`, height: `${height * h}px` });
}

/** Call back as an element comes into the page, and whenever it or the picture has another size, as below other numbers. */
export function onresize(el, call) {
  const sizes = new ResizeObserver(() => {
    const picture = pictureOf(el);
    if (picture) sizes.observe(picture);
    call();
  });
  sizes.observe(el);
  return sizes;
}
