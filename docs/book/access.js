/* What a screen reader or a keyboard needs and the writers of pages leave out: test_accessible.py checks with axe-core. */
const reach = () => {
  for (const title of document.querySelectorAll("[role=heading]:not([aria-level])")) title.setAttribute("aria-level", "2");
  // The parameters of a long signature are a list within a term.
  for (const list of document.querySelectorAll("dt > dl")) {
    list.setAttribute("role", "list");
    for (const item of list.children) item.setAttribute("role", "listitem");
  }
  // The arrow keys move what is wider or higher than its place.
  for (const part of document.querySelectorAll("pre, .math, .table-wrapper, .output, .output > div, .jp-RenderedHTMLCommon")) {
    if (part.scrollWidth > part.clientWidth || part.scrollHeight > part.clientHeight) part.tabIndex = 0;
  }
};
addEventListener("load", reach);
addEventListener("resize", reach);
