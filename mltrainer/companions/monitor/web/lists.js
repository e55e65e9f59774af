// The bar with the phases, and the lists at the side: runs and reports.

import { $, count, fill, isNumber, make, short, words } from "./dom.js";
import { choose, toggle } from "./link.js";
import { filtered, tagsOf } from "./runs.js";
import { changed, colourOf, state } from "./state.js";

const MARKS = { passed: "✓", skipped: "↷", running: "●", failed: "✕", stale: "!", ready: "○", locked: "·", pass: "✓", fail: "✕", waived: "!", not_applicable: "–" };
const LISTED = 8; // runs of a phase that are listed before "more"

export function drawPhases() {
  const { project, phases, next } = state.project;
  $("project").textContent = project;
  document.title = `${project} · mltrainer monitor`;
  fill($("phases"), [phases.map((phase) => [phase.name, phase.state]), state.open], () => phases.map((phase) => make("button", {
    type: "button", class: phase.state, "data-focus": phase.name, "aria-expanded": String(state.open === phase.name), title: `${phase.name}: ${phase.state}`,
    onclick: () => { state.open = state.open === phase.name ? null : phase.name; changed(); },
  }, make("span", { class: "mark", "aria-hidden": "true" }, MARKS[phase.state] ?? "·"), phase.name)));
  const open = phases.find((phase) => phase.name === state.open);
  $("phase").hidden = !open;
  if (open) fill($("phase"), [open, next], () => phaseDetail(open, next));
}

function phaseDetail(phase, next) {
  const items = phase.items.map((item) => make("li", { class: item.verdict },
    make("span", { class: "mark", "aria-label": words(item.verdict) }, MARKS[item.verdict] ?? "·"), item.statement,
    item.verdict === "fail" && item.mend ? make("small", {}, ` next: ${item.mend}`) : null));
  const told = next && next.phase === phase.name ? [make("p", { class: "quiet" }, next.why ?? "")] : [];
  return [
    make("b", {}, `${phase.name}: ${phase.state}`), make("span", { class: "quiet" }, ` ${phase.reasons.join("; ")}`),
    items.length ? make("ul", {}, ...items) : make("p", { class: "quiet" }, "Its gate has not been checked yet."), ...told,
  ];
}

export function drawRuns() {
  const groups = new Map();
  for (const run of filtered().toReversed()) {
    const name = run.parent ? "forks" : run.phase ?? "other";
    groups.set(name, [...(groups.get(name) ?? []), run]);
  }
  fill($("runs"), [state.project.runs, state.filter, state.chosen, [...state.unfolded]], () => groups.size
    ? [...groups].flatMap(([name, runs]) => runGroup(name, runs))
    : [make("p", { class: "quiet group" }, state.project.runs.length ? "no run has these words" : "none yet: mltrainer run")]);
}

function runGroup(name, runs) {
  const isWhole = state.unfolded.has(name) || runs.length <= LISTED + 1;
  const listed = isWhole ? runs : runs.filter((run, place) => place < LISTED || run.state === "running" || state.chosen.includes(run.id));
  const more = isWhole ? [] : [make("button", { type: "button", class: "more", onclick: () => { state.unfolded.add(name); changed(); } }, `${runs.length - listed.length} more`)];
  return [make("div", { class: "group" }, name), ...listed.map(runButton), ...more];
}

function runButton(run) {
  const isChosen = state.chosen.includes(run.id);
  const value = run.metrics[run.metric.name];
  const dot = make("i");
  if (isChosen) dot.style.background = dot.style.borderColor = colourOf(run.id);
  return make("button", {
    type: "button", class: `run ${run.state}`, "data-focus": run.id, "aria-pressed": String(isChosen),
    title: `${run.id}: ${run.state}, ${count(run.step)} steps${isNumber(value) ? `, best ${words(run.metric.name)} ${short(value)}` : ""}`,
    onclick: (event) => (event.ctrlKey || event.metaKey || event.shiftKey || event.offsetX < 24 && event.detail ? toggle(run.id) : choose([run.id])),
    onkeydown: (event) => runKey(event, run.id),
  }, dot, run.name ? make("b", {}, run.name) : make("code", {}, run.id), make("span", {}, run.state === "running" ? "running" : isNumber(value) ? short(value) : run.state),
  run.tags.length ? make("small", { class: "tags" }, ...tagsOf(run)) : null);
}

function runKey(event, id) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (event.key === " ") { event.preventDefault(); toggle(id); }
  if (!step) return;
  event.preventDefault();
  const all = [...document.querySelectorAll(".run")];
  all[all.indexOf(event.currentTarget) + step]?.focus();
}

export function drawReports() {
  const { reports } = state.project;
  fill($("reports"), reports, () => reports.length
    ? reports.map((one) => make("li", {}, make("a", { href: `report/${one.path}` }, one.title, make("small", {}, ` ${one.phase}`))))
    : [make("li", { class: "quiet group" }, "none yet")]);
}
