"use strict";

const EXAMPLE = [
  "The Skerry Point lighthouse stands on a rock two miles off the village of Dunmore. It was ",
  "designed by the engineer Ada Brenn (1838-1901) and first lit on 4 May 1874.\n\n",
  "Its last keeper, Tom Hale, lived in the tower full-time until it was automated in 1986.",
].join("");
const RUNNERS_UP = 5;

const get = id => document.getElementById(id);
const page = get("page"), question = get("question"), result = get("result"), drop = get("drop");
let format = "auto";  // "html" for a file whose name says so

// Every text from the page or the server becomes a text node, never markup.
function element(name, className, ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

function percent(probability) {
  if (probability === null) return "";
  if (probability < 0.01) return "<1%";
  return probability > 0.99 ? ">99%" : `${Math.round(100 * probability)}%`;
}

function probability(value) {
  return element("span", "probability", percent(value));
}

// Ranges count characters (code points), strings of JavaScript count UTF-16 units.
function marked(text, spans) {
  const characters = Array.from(text), parts = [];
  let done = 0;
  for (const span of [...spans].sort((a, b) => a.start_in_long - b.start_in_long)) {
    if (span.start_in_long < done) continue;
    parts.push(characters.slice(done, span.start_in_long).join(""));
    done = span.end_in_long;
    parts.push(element("mark", "", characters.slice(span.start_in_long, done).join("")));
  }
  return [...parts, characters.slice(done).join("")];
}

function runnerUp(other) {
  const text = element("div", "", element("b", "", other.answer || "no short answer"));
  if (other.long_answer) text.append(element("p", "", other.long_answer.text));
  return element("li", "", probability(other.short_probability), text);
}

function show(answer) {
  const card = element("div", "");
  const hasAnswer = answer.answer !== null;
  const unanswered = answer.asks_yes_no ? "Yes or no: read the passage" : "No short answer";
  const missing = answer.long_answer ? unanswered : "The page has no answer";
  card.append(element("p", hasAnswer ? "answer" : "answer none", hasAnswer ? answer.answer : missing,
    " ", probability(hasAnswer ? answer.short_probability : null)));
  if (answer.long_answer) {
    card.append(element("h2", "", "Found in ", probability(answer.long_probability)));
    card.append(element("blockquote", "", ...marked(answer.long_answer.text, answer.short_answers)));
  }
  if (answer.runners_up.length) {
    card.append(element("h2", "", hasAnswer ? "Runners-up" : "Best guesses"));
    card.append(element("ol", "", ...answer.runners_up.map(runnerUp)));
  }
  if (answer.unread_blocks) {
    card.append(element("p", "quiet", `${answer.unread_blocks} blocks of the page were not read`));
  }
  result.replaceChildren(card);
}

function showProblem(text) {
  const card = element("div", "problem", text);
  card.setAttribute("role", "alert");
  result.replaceChildren(card);
}

async function ask() {
  const headers = {"Content-Type": "application/json"};
  if (get("token").value) headers.Authorization = `Bearer ${get("token").value}`;
  const request = {question: question.value, page: page.value, format, top: RUNNERS_UP};
  const response = await fetch("v1/ask", {method: "POST", headers, body: JSON.stringify(request)});
  if (response.status === 401) get("token-field").hidden = false;
  const body = await response.json();
  if (response.ok) show(body); else showProblem(body.error);
}

get("form").addEventListener("submit", async event => {
  event.preventDefault();
  const button = get("ask");
  button.disabled = true;
  button.textContent = "Asking…";
  try {
    await ask();
  } catch (error) {
    showProblem(`The server does not answer: ${error.message}`);
  }
  button.disabled = false;
  button.textContent = "Ask";
});

function setPage(text, newFormat, name) {
  page.value = text;
  format = newFormat;
  get("size").textContent = name ? `${name}, ${text.length.toLocaleString("en")} characters` : "";
}

// As UTF-8, else as the page declares, else as Windows-1252: the rules of nq ask.
function decode(bytes) {
  try {
    return new TextDecoder("utf-8", {fatal: true}).decode(bytes);
  } catch {
    const head = new TextDecoder("windows-1252").decode(bytes.slice(0, 4096));
    const declared = /<meta[^>]{0,200}?charset\s*=\s*["']?([\w-]+)/i.exec(head);
    const name = declared && !/^utf-?8$/i.test(declared[1]) ? declared[1] : "windows-1252";
    try {
      return new TextDecoder(name).decode(bytes);
    } catch {
      return new TextDecoder("windows-1252").decode(bytes);
    }
  }
}

async function open(file) {
  if (!file) return;
  const text = decode(await file.arrayBuffer());
  setPage(text, /\.x?html?$/i.test(file.name) ? "html" : "auto", file.name);
  question.focus();
}

page.addEventListener("input", () => setPage(page.value, "auto", ""));
get("example").addEventListener("click", () => {
  setPage(EXAMPLE, "text", "");
  question.value = question.placeholder;
  question.focus();
});
get("choose").addEventListener("click", () => get("file").click());
get("file").addEventListener("change", event => open(event.target.files[0]));
page.addEventListener("keydown", event => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) get("form").requestSubmit();
});
for (const name of ["dragenter", "dragover", "dragleave", "drop"]) {
  document.addEventListener(name, event => {
    event.preventDefault();
    drop.classList.toggle("over", name === "dragenter" || name === "dragover");
    if (name === "drop") open(event.dataTransfer.files[0]);
  });
}
