// Tells of an answer when it is committed: the kernel, which notes it, may be busy.
export function render({ model, el }) {
  const show = () => { el.innerHTML = model.get("value"); };
  const commit = ({ target }) => {
    const box = el.closest(".batchsim-prediction"), button = target.closest?.("button");
    if (!box || !button || target.closest(".batchsim-prediction") !== box) return;
    const choices = [...box.querySelectorAll("input[type=radio]")], chosen = choices.findIndex((each) => each.checked);
    if (chosen < 0 || choices[chosen].disabled) return;
    el.innerHTML = model.get("told")[chosen];
    for (const each of [...choices, button]) each.disabled = true;
  };
  model.on("change:value", show);
  document.addEventListener("click", commit); // after the button's own handler
  show();
  return () => document.removeEventListener("click", commit);
}
