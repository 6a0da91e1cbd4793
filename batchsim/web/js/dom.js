/** What the scripts of a page and of widgets share: an element, and the theme of the page behind one. */

/** Make an element with properties, attributes and children. */
export function element(tag, { attributes = {}, ...properties } = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Return whether the page behind an element is dark, by its brightness, as theme names differ. */
export function isDark(el) {
  for (let node = el; node; node = node.parentElement ?? node.getRootNode().host) {
    const parts = getComputedStyle(node).backgroundColor.match(/[\d.]+/g)?.map(Number);
    if (parts && (parts.length < 4 || parts[3] > 0.5)) return 0.299 * parts[0] + 0.587 * parts[1] + 0.114 * parts[2] < 128;
  }
  return false;
}

/** Use the browser's storage; null where readers forbid it. */
export function stored(act) {
  try {
    return act(localStorage);
  } catch {
    return null;
  }
}
