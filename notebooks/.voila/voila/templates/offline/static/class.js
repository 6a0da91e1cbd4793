// The projector's page: the counts of the class's answers, asked for twice a second. A request each time,
// rather than an open stream: nothing has to be restored after a reload or a lost network. What students sent
// is set as text, never as HTML.
const EVERY_MS = 500;
const AWAY = "No connection to the app. The chart shows the last answers that came; it is tried again.";
const ENDED = "The app was started again: open the projector's address that it printed.";

const $ = (id) => document.getElementById(id);
const total = ({ counts }) => counts.reduce((sum, count) => sum + count, 0);
const answers = (count) => `${count} ${count === 1 ? "answer" : "answers"}`;
const NEXT = { open: ["close", "Close the vote"], closed: ["reveal", "Reveal"], revealed: ["open", "Open again"] };
let questions = [], members = 0; // of the class, those that the app knows
let chosen = Number(sessionStorage.getItem("question")); // by the teacher; 0: follow the class

const add = (parent, tag, text = "") => {
  const child = Object.assign(document.createElement(tag), { textContent: text, dir: "auto" });
  return parent.appendChild(child);
};

// Lines are made only if they lack, so that bars glide and the focus stays.
const fit = (list, items, make, update) => {
  while (list.children.length > items.length) list.lastChild.remove();
  while (list.children.length < items.length) make(add(list, "li"));
  items.forEach((item, index) => update(list.children[index], item, index));
};

const makeChoice = (line) => {
  for (const tag of ["span", "b", "i"]) add(line, tag);
  add(line.lastChild, "u").style.width = "0";
};

const makeQuestion = (line) => {
  const button = add(line, "button");
  for (const tag of ["span", "small"]) add(button, tag);
  button.addEventListener("click", () => choose(Number(button.value)));
};

// A student who is ahead, or jokes, does not turn the page: half of those who answer have to be there.
const current = () => {
  const most = Math.max(...questions.map(total));
  const newest = questions.findLast((each) => 2 * total(each) >= most);
  return questions.find(({ number }) => number === chosen) ?? newest;
};

const draw = () => {
  const question = current();
  const { text = "No answers yet", choices = [], counts = [], right, state = "open" } = question ?? {};
  const all = total({ counts });
  $("question").textContent = text;
  fit($("choices"), choices, makeChoice, (line, choice, index) => {
    const share = (100 * counts[index]) / all;
    line.className = right === index ? "right" : "";
    line.children[0].textContent = right === index ? `✓ ${choice}` : choice;
    line.children[1].textContent = `${counts[index]} · ${Math.round(share)} %`;
    line.querySelector("u").style.width = `${share}%`;
  });
  $("choices").className = right == null ? state : "revealed";
  $("controls").hidden = !question;
  const voted = all <= members ? `${all} of ${members} have answered` : `${all} ${all === 1 ? "has" : "have"} answered`;
  $("count").textContent = voted + (state === "revealed" && right == null ? "; no choice is right" : "");
  $("next").textContent = NEXT[state][1];
  // One student's prediction has three questions: more of them, with one answer each, are different moves.
  $("apart").hidden = questions.length <= 3 || questions.some((each) => total(each) > 1);
  $("more").hidden = questions.length < 2;
  $("follow").ariaPressed = String(!questions.some(({ number }) => number === chosen));
  fit($("questions"), questions.toReversed(), makeQuestion, ({ firstChild: button }, each) => {
    Object.assign(button, { value: each.number, ariaPressed: String(each === question) });
    button.firstChild.textContent = each.text;
    button.lastChild.textContent = answers(total(each));
  });
};

const choose = (number) => {
  sessionStorage.setItem("question", (chosen = number));
  draw();
};

const ask = async () => {
  const answer = await fetch("/class/votes").catch(() => null);
  const asked = answer?.ok && (await answer.json());
  // A new question moves the others: a click must act on the one that its press was on.
  if (asked && !document.querySelector("button:active")) {
    ({ questions, members } = asked);
    draw();
  }
  $("connection").hidden = answer?.ok;
  $("connection").textContent = answer?.status === 403 ? ENDED : AWAY;
};

const act = (what) => {
  const body = JSON.stringify({ number: current().number, do: what });
  return fetch("/class/votes", { method: "POST", body }).then(ask, ask);
};

$("next").addEventListener("click", () => act(NEXT[current().state][0]));
$("remove").addEventListener("click", () => {
  if (confirm(`Remove this question and its ${answers(total(current()))}?`)) void act("remove");
});
$("follow").addEventListener("click", () => choose(0));

const footer = document.querySelector("footer");
const host = /^(localhost|127\.|\[::1)/.test(location.host) ? footer.dataset.host : location.host;
const address = `${location.protocol}//${host}/?token=${footer.dataset.token}`;
const code = $("code");
code.addEventListener("error", () => { code.hidden = true; });
code.src = `/class/code?address=${encodeURIComponent(address)}`;
footer.children[0].textContent = address;
footer.children[2].textContent = `bs.teaching.join("${address}")`;
const again = () => ask().finally(() => setTimeout(again, EVERY_MS));
draw();
again();
