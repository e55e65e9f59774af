// What the charts of the chosen runs hold. A chart: {name, title, note, group, wide, canLog, isLog, lines()}, of a search `isTrials`.
// A line: {label, table: [x, y], colour, width, dash, points}; a band is drawn between two lines that follow each other.

import { AXES, places, smoothed } from "./axes.js";
import { faint, isNumber, words } from "./dom.js";
import { COLOURS, colourOf, state } from "./state.js";

const FADED = 0.3; // of a line beside its moving average

// Which charts a run has, and where their values stand, its facts tell. Their lines are made when a chart is drawn.
export function runCharts() {
  const live = state.chosen.filter((id) => state.runs[id]?.steps);
  const told = new Map();
  for (const { facts } of live.map((id) => state.runs[id])) {
    for (const chart of facts.charts ?? []) {
      const isTwice = chart.name === "metric" && facts.metric.name === "loss"; // the chart of the loss has it
      if (!told.has(chart.name) && !isTwice) told.set(chart.name, chart);
    }
  }
  return [...told.values()].filter((chart) => chart.curves.some(({ path }) => live.some((id) => hasValues(state.runs[id], path)))).map((chart) => followed(chart, live));
}

function followed(chart, live) {
  const several = live.length > 1;
  const isAlone = !several && chart.alone.length > 0;
  const curves = isAlone ? chart.alone : chart.curves;
  const lines = () => live.flatMap((id) => curves.flatMap((curve, place) => curveLines(id, curve, several, isAlone ? place : null)));
  const { name, title, group, is_wide: wide, can_log: canLog, is_log: isLog } = chart;
  return { name, title, group, wide, canLog, isLog, note: (isAlone ? chart.alone_note : chart.note) || undefined, lines };
}

// From the first place on the x axis that any run has to the last, so that in all charts a place lies under the same one.
export function wholeRange() {
  const ends = state.chosen.filter((id) => state.runs[id]?.steps).flatMap((id) => {
    const { rows, steps } = state.runs[id];
    const known = [steps.step[0], rows[0]?.step, steps.step.at(-1), rows.at(-1)?.step].filter(isNumber);
    return places(state.runs[id], state.axis, known);
  });
  return [Math.min(AXES[state.axis].least, ...ends), Math.max(...ends)];
}

function curveLines(id, { name, path, is_beside }, several, layer) {
  if (path[0] === "steps") return stepLines(id, path[1], name, several);
  const isMeasured = name === "validation";
  const colour = layer !== null ? COLOURS[layer % COLOURS.length] : isMeasured && !several ? COLOURS[1] : null;
  const dash = several && is_beside ? (isMeasured ? [6, 4] : [2, 3]) : null;
  return rowLine(id, path, { label: name, colour, dash, isFaded: several && is_beside && !isMeasured });
}

const hasValues = (run, path) => (path[0] === "steps" ? run.steps.step.length > 0 : run.rows.some((row) => isNumber(valueAt(row, path))));

// Of many values, such as one for each layer, the median.
function valueAt(row, path) {
  const found = path.reduce((value, key) => value?.[key], row);
  if (!Array.isArray(found)) return found;
  const kept = found.filter(isNumber).sort((a, b) => a - b);
  return kept.length ? kept[kept.length >> 1] : null;
}

const columns = new WeakMap(); // of a run's evaluations: steps and values by path, taken further as evaluations come

function column({ rows }, path) {
  if (!columns.has(rows)) columns.set(rows, new Map());
  const known = columns.get(rows);
  const name = path.join("/");
  if (!known.has(name)) known.set(name, { read: 0, steps: [], values: [] });
  const found = known.get(name);
  for (; found.read < rows.length; found.read += 1) {
    const value = valueAt(rows[found.read], path) ?? null;
    if (value !== null) {
      found.steps.push(rows[found.read].step);
      found.values.push(value);
    }
  }
  return found;
}

const named = (id, label) => (state.chosen.length > 1 ? `${titleOf(id)} ${label}` : label);

// A run's name, where it was given one, else the beginning of its id.
export function titleOf(id) {
  return state.project.runs.find((run) => run.id === id)?.name || id.slice(0, 6);
}

function stepLines(id, name, label, several) {
  const run = state.runs[id];
  const { step, width, [name]: found } = run.detail ?? run.steps;
  const xs = places(run, state.axis, step);
  if (!xs.length) return [];
  const colour = colourOf(id);
  const main = { label: named(id, width > 1 ? `${label}, mean` : label), table: [xs, found.mean], colour, width: several ? 1.3 : 1.5 };
  if (width <= 1 || state.smoothing) return averaged(main);
  return [
    { label: named(id, "highest"), table: [xs, found.high], colour: faint(colour, 0.35), width: 0.5, isQuiet: true },
    { label: named(id, "lowest"), table: [xs, found.low], colour: faint(colour, 0.35), width: 0.5, isQuiet: true, band: faint(colour, 0.16) },
    main,
  ];
}

function rowLine(id, path, { label, dash, colour, isFaded }) {
  const { steps, values } = column(state.runs[id], path);
  const xs = places(state.runs[id], state.axis, steps);
  if (!xs.length) return [];
  const own = colour ?? colourOf(id);
  return averaged({ label: named(id, label), table: [xs, values], colour: isFaded ? faint(own, 0.55) : own, width: 1.8, dash, points: xs.length < 25 });
}

// A line, or with smoothing the same faintly behind its moving average.
function averaged(line) {
  if (!state.smoothing) return [line];
  const [xs, ys] = line.table;
  return [
    { ...line, label: `${line.label}, as it is`, colour: faint(line.colour, FADED), width: 1, points: false, isQuiet: true },
    { ...line, saved: `${line.label}, smoothed`, table: [xs, smoothed(xs, ys, state.smoothing)], points: false },
  ];
}

// The trials of a search that have ended: each one's value, and the best until then.
export function trialChart({ metric, trials }) {
  const ended = trials.filter((trial) => isNumber(trial.value) && trial.state !== "running");
  const better = metric.mode === "min" ? Math.min : Math.max;
  const best = [];
  for (const { value } of ended) best.push(best.length ? better(best.at(-1), value) : value);
  const nrs = ended.map((trial) => trial.nr);
  const lines = [
    { label: words(metric.name), table: [nrs, ended.map((trial) => trial.value)], colour: COLOURS[0], width: 0, points: true },
    { label: "best so far", table: [nrs, best], colour: COLOURS[1], width: 1.5 },
  ];
  return ended.length > 1 ? { name: "trials", title: "Trials", note: "best value of each, in order", isTrials: true, wide: true, lines: () => lines } : null;
}
