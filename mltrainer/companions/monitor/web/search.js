// A search: each trial a line through its values to its metric, the better the stronger; a part of an axis that is brushed keeps
// the lines through it.

import { $, draw, fill, isNumber, make, short, words } from "./dom.js";
import { cut, figure, key, shade, text } from "./drawing.js";
import { drawIn } from "./charts.js";
import { trialChart } from "./lines.js";
import { answer, choose } from "./link.js";
import { csvOf } from "./save.js";
import { changed, state } from "./state.js";
import { sortable } from "./table.js";

const [WIDE, TOP, BOTTOM] = [1000, 46, 340];
const NONE = BOTTOM + 22; // where a trial lies that has no value on an axis
const NUDGE = 0.05; // of an axis, for each press of a key
const NEAR = 0.02; // of an axis: as near to an end is at it, as short a drag is a click
let painted = null; // what is drawn: its axes and lines

export function drawSearch() {
  const found = answer("search", {}, JSON.stringify([state.project.study?.done, state.project.runs.length, state.project.runs.filter((run) => run.state === "running").length]));
  const trials = found?.trials ?? [];
  fill($("parallel"), [found ?? null, document.documentElement.dataset.theme], () => (trials.length ? [parallel(found)] : [make("p", { class: "empty" }, "No trial of a search has been recorded.")]));
  drawIn($("trials"), found ? [trialChart(found)].filter(Boolean) : []);
  paint();
  fill($("trial-table"), [found ?? null, state.brush, state.sort.trials], () => (trials.length ? table(found) : []));
}

// --- axes -----------------------------------------------------------------------------

function axesOf({ metric, space, trials }) {
  const values = trials.map((trial) => trial.value).filter(isNumber);
  const ends = [values.reduce((a, b) => Math.min(a, b), Infinity), values.reduce((a, b) => Math.max(a, b), -Infinity)];
  const dimensions = space.map(([name, form, given]) => ({ name, ...scaled(form, given), value: (trial) => trial.values?.[name] }));
  return [...dimensions, { name: words(metric.name), isMetric: true, ...scaled("uniform", ends), value: (trial) => trial.value }]
    .map((axis, nr, all) => ({ ...axis, x: 70 + (nr * (WIDE - 160)) / Math.max(1, all.length - 1) }));
}

// Where a value lies on an axis, from 0 to 1, and its ticks.
function scaled(form, given) {
  if (form === "choice") {
    const names = given.map((one) => JSON.stringify(one));
    const at = (nr) => (names.length > 1 ? nr / (names.length - 1) : 0.5);
    return { place: (value) => { const nr = names.indexOf(JSON.stringify(value)); return nr < 0 ? null : at(nr); }, ticks: given.map((one, nr) => [at(nr), short(one)]) };
  }
  const isLog = form.startsWith("log_");
  const [low, high] = given.map(isLog ? Math.log10 : Number);
  const place = (value) => (isNumber(value) ? Math.max(0, Math.min(1, ((isLog ? Math.log10(value) : value) - low) / (high - low || 1))) : null);
  const even = [0.25, 0.5, 0.75].map((share) => low + share * (high - low));
  const inner = (isLog ? decades(low, high).map((power) => 10 ** power) : even).map((value) => [place(value), value]);
  const apart = inner.filter(([share]) => share > 0.06 && share < 0.94);
  return { place, ticks: [[0, given[0]], ...apart, [1, given[1]]].map(([share, value]) => [share, short(value)]) };
}

const decades = (low, high) => [...Array(Math.max(0, Math.floor(high) - Math.ceil(low) + 1)).keys()].map((nr) => Math.ceil(low) + nr);

const height = (share) => (share === null ? NONE : BOTTOM - share * (BOTTOM - TOP));

// --- lines -----------------------------------------------------------------------------

function parallel(found) {
  const axes = axesOf(found);
  const sign = found.metric.mode === "min" ? -1 : 1;
  const ranked = found.trials.filter((trial) => isNumber(trial.value)).sort((a, b) => sign * (a.value - b.value));
  const lines = ranked.map((trial, nr) => ({ trial, line: lineOf(trial, axes, ranked.length > 1 ? nr / (ranked.length - 1) : 1) }));
  const best = ranked.at(-1);
  const drawn = figure({
    name: "parallel", title: "Values and metric of each trial", note: "drag along an axis to keep the trials through it", wide: true, size: [WIDE, NONE + 16],
    told: `${ranked.length} trials over ${axes.map((axis) => axis.name).join(", ")}; the best, ${short(best?.value)}, is trial ${best?.nr}`,
    csv: () => trialCsv(found),
  }, ...key(WIDE - 250, 14, "worst", "best trial"), ...lines.map(({ line }) => line), ...axes.flatMap((axis) => axisOf(axis)));
  drawn.querySelector("svg").setAttribute("role", "group"); // its axes take keys
  painted = { axes, lines };
  return drawn;
}

function lineOf(trial, axes, rank) {
  const path = axes.map((axis, nr) => `${nr ? "L" : "M"}${axis.x.toFixed(1)} ${height(axis.place(axis.value(trial))).toFixed(1)}`).join("");
  const told = `trial ${trial.nr} (${trial.state}): ${axes.map((axis) => `${axis.name} ${short(axis.value(trial))}`).join(", ")}`;
  return draw("path", { class: `trial${rank === 1 ? " best" : ""}`, d: path, stroke: shade(0.15 + 0.85 * rank), "stroke-dasharray": trial.state === "pruned" ? "4 3" : null, onclick: () => choose([trial.run]) }, draw("title", {}, told));
}

function axisOf(axis) {
  const brush = draw("rect", { class: "brush", x: axis.x - 9, width: 18, y: TOP, height: 0 });
  const grip = draw("rect", { class: "grip", x: axis.x - 16, y: TOP - 6, width: 32, height: BOTTOM - TOP + 12, tabindex: "0", role: "group", "data-focus": `axis ${axis.name}` });
  grip.addEventListener("pointerdown", (event) => dragged(event, axis, grip));
  grip.addEventListener("keydown", (event) => nudged(event, axis));
  Object.assign(axis, { brush, grip });
  return [
    draw("line", { class: "axis", x1: axis.x, x2: axis.x, y1: TOP, y2: BOTTOM }), brush,
    text(axis.x, TOP - 16, cut(axis.name, 22), { "text-anchor": "middle", class: "label strong" }),
    ...axis.ticks.map(([share, label]) => text(axis.x + 8, height(share) + 4, cut(label, 12), { class: "label halo" })), grip,
  ];
}

// --- brushing -----------------------------------------------------------------------------

function dragged(event, axis, grip) {
  const share = (one) => {
    const at = new DOMPoint(one.clientX, one.clientY).matrixTransform(grip.ownerSVGElement.getScreenCTM().inverse());
    const found = (BOTTOM - at.y) / (BOTTOM - TOP);
    return found < NEAR ? 0 : found > 1 - NEAR ? 1 : found; // a hand hardly hits the very end, where choices lie
  };
  const from = share(event);
  const move = (next) => brushed(axis, [Math.min(from, share(next)), Math.max(from, share(next))]);
  const end = (last) => {
    grip.removeEventListener("pointermove", move);
    if (Math.abs(share(last) - from) < NEAR) brushed(axis, null); // a click takes it away
  };
  grip.setPointerCapture(event.pointerId);
  grip.addEventListener("pointermove", move);
  grip.addEventListener("pointerup", end, { once: true });
}

// Up and down move the lower end of what is kept, with Shift the upper one; Escape keeps all.
function nudged(event, axis) {
  const step = { ArrowUp: NUDGE, ArrowDown: -NUDGE }[event.key];
  if (event.key === "Escape") brushed(axis, null);
  if (!step) return;
  event.preventDefault();
  const [low, high] = state.brush[axis.name] ?? [0, 1];
  const moved = event.shiftKey ? [low, Math.max(low, Math.min(1, high + step))] : [Math.max(0, Math.min(high, low + step)), high];
  brushed(axis, moved);
}

function brushed(axis, range) {
  if (range) state.brush[axis.name] = range;
  else delete state.brush[axis.name];
  changed();
}

const isKept = (trial, axes) => axes.every((axis) => {
  const range = state.brush[axis.name];
  const place = range ? axis.place(axis.value(trial)) : null;
  return !range || (place !== null && place >= range[0] - 1e-9 && place <= range[1] + 1e-9);
});

function paint() {
  if (!painted) return;
  for (const axis of painted.axes) {
    const [low, high] = state.brush[axis.name] ?? [0, 0];
    axis.brush.setAttribute("y", height(high));
    axis.brush.setAttribute("height", height(low) - height(high));
    axis.grip.setAttribute("aria-label", `${axis.name}: ${state.brush[axis.name] ? `kept from ${Math.round(100 * low)} to ${Math.round(100 * high)} % of the axis` : "all kept"}; arrow keys move the lower end, with Shift the upper one, Escape keeps all`);
  }
  for (const { trial, line } of painted.lines) line.classList.toggle("out", !isKept(trial, painted.axes));
}

// --- the table -----------------------------------------------------------------------------

function columnsOf({ metric, space }) {
  return [
    { key: "nr", title: "Trial", value: (trial) => trial.nr },
    { key: "run", title: "Run", value: (trial) => trial.run, cell: (trial) => make("button", { type: "button", class: "name", "data-focus": `trial ${trial.nr}`, onclick: () => choose([trial.run]) }, make("code", {}, trial.run)) },
    { key: "state", title: "State", value: (trial) => trial.state },
    { key: "value", title: words(metric.name), value: (trial) => trial.value },
    ...space.map(([name]) => ({ key: name, title: name, value: (trial) => { const value = trial.values?.[name]; return value !== null && typeof value === "object" ? JSON.stringify(value) : value; } })),
  ];
}

function trialCsv(found) {
  const columns = columnsOf(found);
  return csvOf(columns.map((column) => column.title), found.trials.map((trial) => columns.map((column) => column.value(trial))));
}

function table(found) {
  const kept = found.trials.filter((trial) => !painted || isKept(trial, painted.axes));
  return sortable("trials", `Trials: ${kept.length} of ${found.trials.length}`, columnsOf(found), kept);
}
