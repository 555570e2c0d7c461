"use strict";

const EXAMPLE = [
  "The Skerry Point lighthouse stands on a rock two miles off the village of Dunmore. It was ",
  "designed by the engineer Ada Brenn (1838-1901) and first lit on 4 May 1874.\n\n",
  "Its last keeper, Tom Hale, lived in the tower full-time until it was automated in 1986.",
].join("");
const RUNNERS_UP = 5;

const get = id => document.getElementById(id);
const page = get("page"), question = get("question"), result = get("result"), drop = get("drop");
let files = [];  // with name, size, and data in base64

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

// Several documents are told apart by their names.
function source(answer) {
  const number = answer.long_answer && answer.long_answer.page_number;
  const parts = [files.length ? answer.document : null, number ? `page ${number}` : null];
  return parts.filter(part => part).join(", ");
}

function runnerUp(other) {
  const text = element("div", "", element("b", "", other.answer || "no short answer"));
  if (source(other)) text.append(element("span", "quiet", ` ${source(other)}`));
  if (other.long_answer) text.append(element("p", "", other.long_answer.text));
  return element("li", "", probability(other.short_probability), text);
}

function show(answer) {
  const card = element("div", "");
  const hasAnswer = answer.answer !== null;
  const cannotTell = "The question asks for yes or no, which this model cannot tell.";
  const unanswered = answer.asks_yes_no ? cannotTell : "No short answer";
  const missing = answer.long_answer ? unanswered : "No answer in what was read";
  card.append(element("p", hasAnswer ? "answer" : "answer none", hasAnswer ? answer.answer : missing,
    " ", probability(answer.short_probability)));
  if (answer.long_answer) {
    const where = `Found in ${source(answer)} `;
    card.append(element("h2", "", where, probability(answer.long_probability)));
    card.append(element("blockquote", "", ...marked(answer.long_answer.text, answer.short_answers)));
  }
  if (answer.runners_up.length) {
    card.append(element("h2", "", hasAnswer ? "Runners-up" : "Best guesses"));
    card.append(element("ol", "", ...answer.runners_up.map(runnerUp)));
  }
  if (answer.unread_blocks) {
    card.append(element("p", "quiet", `${answer.unread_blocks} blocks were not read`));
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
  const request = {question: question.value, top: RUNNERS_UP};
  if (files.length) {
    request.pages = files.map(({name, data}) => ({name, data}));
    if (page.value.trim()) request.pages.push({name: "the pasted text", page: page.value});
  } else {
    request.page = page.value;
  }
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

function setFiles(newFiles) {
  files = newFiles;
  page.required = !files.length;
  page.rows = files.length ? 4 : 10;
  get("files").replaceChildren(...files.map(file => {
    const remove = element("button", "link", "×");
    remove.type = "button";
    remove.setAttribute("aria-label", `Remove ${file.name}`);
    remove.addEventListener("click", () => setFiles(files.filter(one => one !== file)));
    const size = element("span", "quiet", `${Math.ceil(file.size / 1000).toLocaleString("en")} kB`);
    return element("li", "", element("span", "name", file.name), size, remove);
  }));
}

function base64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => resolve(reader.result.replace(/^[^,]*,/, "")));
    reader.addEventListener("error", () => reject(reader.error));
    reader.readAsDataURL(file);
  });
}

async function add(list) {
  for (const file of [...list]) {
    try {
      const data = await base64(file);
      const added = {name: file.name, size: file.size, data};
      const isSame = one => one.name === file.name && one.data === data;
      setFiles([...files.filter(one => !isSame(one)), added]);
    } catch (error) {
      showProblem(`${file.name} cannot be read: ${error.message}`);
    }
  }
  question.focus();
}

get("example").addEventListener("click", () => {
  setFiles([]);
  page.value = EXAMPLE;
  question.value = question.placeholder;
  question.focus();
});
get("choose").addEventListener("click", () => get("file").click());
get("file").addEventListener("change", event => {
  add(event.target.files);
  event.target.value = "";  // so that the same file can be chosen again
});
page.addEventListener("keydown", event => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) get("form").requestSubmit();
});
for (const name of ["dragenter", "dragover", "dragleave", "drop"]) {
  document.addEventListener(name, event => {
    event.preventDefault();
    drop.classList.toggle("over", name === "dragenter" || name === "dragover");
    if (name === "drop") add(event.dataTransfer.files);
  });
}
