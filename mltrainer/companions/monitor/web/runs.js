// The runs as a table: what each was trained with and what it gave, filtered, sorted, and chosen from.

import { $, count, fill, isNumber, make, short, time, words } from "./dom.js";
import { answer, choose, toggle } from "./link.js";
import { colourOf, state } from "./state.js";
import { sortable } from "./table.js";

// The runs in which all words of the filter occur: in id, name, tags, phase or state.
export function filtered() {
  const wanted = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
  return state.project.runs.filter((run) => {
    const told = [run.id, run.name ?? "", ...run.tags, run.parent ? "fork" : run.phase ?? "", run.state].join(" ").toLowerCase();
    return wanted.every((word) => told.includes(word));
  });
}

export const tagsOf = (run) => run.tags.map((tag) => make("span", { class: "tag" }, tag));

export function drawTable() {
  const runs = filtered();
  const settings = answer("settings", {}, state.project.runs.length) ?? {};
  const columns = [...ownColumns(), ...metricColumns(runs), ...settingColumns(runs, settings)];
  fill($("table"), [runs, state.chosen, state.sort.runs, columns.map((column) => column.key), Object.keys(settings).length], () => (
    runs.length ? sortable("runs", `Runs: ${runs.length} of ${state.project.runs.length}`, columns, runs.toReversed(), (run) => (state.chosen.includes(run.id) ? "chosen" : null))
      : [make("p", { class: "empty" }, state.project.runs.length ? "No run has these words." : "Nothing has been trained yet.")]));
}

function ownColumns() {
  return [
    { key: "shown", title: "Shown", value: (run) => (state.chosen.includes(run.id) ? "yes" : ""), cell: box },
    { key: "run", title: "Run", value: (run) => run.name ?? run.id, cell: nameOf },
    { key: "tags", title: "Tags", value: (run) => run.tags.join(" "), cell: (run) => make("span", {}, ...tagsOf(run)) },
    { key: "phase", title: "Phase", value: (run) => (run.parent ? "fork" : run.phase) },
    { key: "state", title: "State", value: (run) => run.state },
    { key: "begun", title: "Begun", value: (run) => run.begun, cell: ({ begun }) => (isNumber(begun) ? new Date(1000 * begun).toLocaleString("sv").slice(0, 16) : "–") },
    { key: "epoch", title: "Epochs", value: (run) => run.epoch },
    { key: "step", title: "Steps", value: (run) => run.step, cell: (run) => count(run.step) },
    { key: "seconds", title: "Took", value: (run) => run.seconds, cell: (run) => time(run.seconds) },
  ];
}

function box(run) {
  const isChosen = state.chosen.includes(run.id);
  const made = make("input", { type: "checkbox", "data-focus": `box ${run.id}`, checked: isChosen ? "" : null, "aria-label": `show ${run.name ?? run.id}`, onchange: () => toggle(run.id) });
  if (isChosen) made.style.accentColor = colourOf(run.id);
  return made;
}

function nameOf(run) {
  const id = make("code", {}, run.id);
  return make("button", { type: "button", class: "name", "data-focus": `name ${run.id}`, title: "Show it alone", onclick: () => choose([run.id]) }, ...(run.name ? [run.name, " ", id] : [id]));
}

// Metrics on validation at each run's best evaluation, the one that chooses it first.
function metricColumns(runs) {
  const first = runs.map((run) => run.metric.name);
  const names = new Set([...first, ...runs.flatMap((run) => Object.keys(run.metrics))].filter((name) => !name.startsWith("train_")));
  return [...names].map((name) => ({ key: `metric ${name}`, title: words(name), value: (run) => run.metrics[name] ?? null }));
}

function settingColumns(runs, settings) {
  const keys = new Set(runs.flatMap((run) => Object.keys(settings[run.id] ?? {})));
  return [...keys].map((key) => ({ key: `setting ${key}`, title: key, value: (run) => plain(settings[run.id]?.[key]), cell: (run) => short(settings[run.id]?.[key]) }));
}

const plain = (value) => (value !== null && typeof value === "object" ? JSON.stringify(value) : value);
