// Reads the form into a request, asks the model, and shows the answer or where the fault is.
"use strict";

const form = document.getElementById("form");
const shown = document.getElementById("answer");

function element(name, text, kind) {
  const found = document.createElement(name);
  if (text !== undefined) found.textContent = text;
  if (kind) found.className = kind;
  return found;
}

function cell(input) {
  const text = input.value.trim();
  if (text === "") return null;
  const number = Number(text);
  return input.dataset.column === "number" && Number.isFinite(number) ? number : text;
}

async function base64(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(text);
}

const readers = {
  table: () => Object.fromEntries([...form.querySelectorAll("[data-column]")].map((input) => [input.name, cell(input)])),
  texts: () => document.getElementById("text").value,
  array: () => JSON.parse(document.getElementById("array").value),
  prompt: () => ({
    prompt: document.getElementById("prompt").value,
    tokens: Number(document.getElementById("tokens").value),
  }),
  chat: () => ({
    messages: [{ role: "user", content: document.getElementById("prompt").value }],
    tokens: Number(document.getElementById("tokens").value),
  }),
  picture: async () => {
    const [file] = document.getElementById("picture").files;
    if (!file) throw new Error("choose a picture first");
    return base64(file);
  },
};

function fault(where, what) {
  const box = element("div", undefined, "fault");
  box.setAttribute("role", "alert");
  box.append(element("strong", where), element("p", what));
  shown.replaceChildren(box);
  const place = [...form.elements].find((one) => one.name && where.endsWith(`'${one.name}'`) || where.endsWith(`.${one.name}`));
  for (const one of form.elements) one.removeAttribute("aria-invalid");
  if (place && place.name) {
    place.setAttribute("aria-invalid", "true");
    place.focus();
  } else {
    shown.focus();
  }
}

function chances(given) {
  const table = element("table");
  const head = table.createTHead().insertRow();
  for (const title of ["Class", "Probability"]) {
    const cell = element("th", title);
    cell.scope = "col";
    head.append(cell);
  }
  const body = table.createTBody();
  for (const [name, chance] of Object.entries(given).sort((a, b) => b[1] - a[1]).slice(0, 20)) {
    const row = body.insertRow();
    row.append(element("td", name), element("td", chance.toFixed(4), "number"));
  }
  return table;
}

function parts(answer) {
  const told = answer.prediction ?? answer.continuation ?? answer.output;
  const found = [element("p", typeof told === "object" ? JSON.stringify(told) : String(told), "prediction")];
  if (answer.interval) found.push(element("p", `between ${answer.interval[0]} and ${answer.interval[1]}`));
  if (answer.set) found.push(element("p", `one of: ${answer.set.join(", ")}`));
  const given = answer.probabilities;
  if (given && typeof Object.values(given)[0] === "number") found.push(chances(given));
  return found;
}

function show(said) {
  const list = element("dl");
  list.append(element("dt", "Answer's id"), element("dd", said.id));
  list.append(element("dt", "Weights, SHA-256"), element("dd", said.model.weights_sha256 ?? "unknown"));
  list.append(element("dt", "Checks"), element("dd", said.model.checks));
  shown.replaceChildren(...parts(said.answers[0]), list);
  for (const one of form.elements) one.removeAttribute("aria-invalid");
  shown.focus();
}

/** Shows a text while it grows, by server-sent events, and returns the last of these: the whole answer, or a fault. */
async function grown(body) {
  const text = element("p", "", "prediction");
  shown.replaceChildren(text);
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Error("the answer broke off: ask again");
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const found = JSON.parse(event.replace("data: ", ""));
      if (!("part" in found)) return found;
      text.append(found.part);
    }
  }
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  shown.setAttribute("aria-busy", "true");
  try {
    const token = document.getElementById("token").value;
    const headers = { "Content-Type": "application/json", ...(token ? { Authorization: `Bearer ${token}` } : {}) };
    const row = await readers[form.dataset.kind]();
    const grows = ["prompt", "chat"].includes(form.dataset.kind);
    const body = JSON.stringify(grows ? row : { rows: [row] });
    const response = await fetch(grows ? "continue" : "predict", { method: "POST", headers, body });
    const said = grows && response.ok ? await grown(response.body) : await response.json();
    if ("answers" in said) show(said);
    else fault(said.where, said.what);
  } catch (error) {
    fault("This page", error.message);
  } finally {
    shown.removeAttribute("aria-busy");
  }
});

form.querySelector("button").disabled = false; // before, a click would have sent the form as a page
