// A server's config to paste, its lines with their marks, and the proposed diff: all of it is text, never HTML.

const PAUSE_MS = 300; // after the last key, before the text is read

function add(parent, tag, text = "", name = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  if (name) made.className = `batchsim-${name}`;
  parent.append(made);
  return made;
}

function render({ model, el }) {
  el.classList.add("batchsim-config");
  const area = add(el, "textarea");
  Object.assign(area, { rows: 6, spellcheck: false, placeholder: model.get("hint"), ariaLabel: "A server's config" });
  const answer = add(el, "div");
  let timer = 0;
  const read = () => {
    // A text that no reader takes is not sent: it would close the page's connection.
    if (area.value.length > model.get("most")) return model.send({ long: area.value.length });
    if (area.value === model.get("text")) return model.send({ again: true }); // as after a text that was too long
    model.set("text", area.value);
    model.save_changes();
  };
  area.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(read, PAUSE_MS);
  });
  const button = (parent, text, act) => {
    const made = add(parent, "button", text);
    made.type = "button";
    made.className = "jupyter-button widget-button";
    made.onclick = () => model.send({ [act]: true });
  };
  const show = () => {
    const { summary, alert, lines, below, result, diff, again } = model.get("answer");
    answer.replaceChildren();
    if (summary) add(answer, "p", summary).setAttribute("role", alert ? "alert" : "status");
    if (result) add(answer, "p", result, "result").setAttribute("role", "status");
    if (again) button(answer, "Check again", "again");
    const list = lines?.length ? add(answer, "ol", "", "lines") : null;
    for (const [number, text, marks] of lines ?? []) {
      const item = add(list, "li", "", marks.length ? "marked" : "");
      item.value = number;
      add(item, "code", text);
      for (const mark of marks) add(item, "p", mark);
    }
    for (const text of below ?? []) add(answer, "p", text);
    if (!diff) return;
    const listing = add(answer, "pre", "", "diff");
    const [from, to, ...changes] = diff.split("\n");
    add(listing, "span", `${from}\n${to}\n`);
    for (const line of changes) add(listing, "span", `${line}\n`, { "+": "new", "-": "old" }[line[0]] ?? "");
    button(answer, "Copy the diff", "copy");
  };
  model.on("change:answer", show);
  show();
  return () => model.off("change:answer", show);
}

export default { render };
