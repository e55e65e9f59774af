// A run's layers: norms at each evaluation as heat maps, and recorded histograms as ridges, from the first time to the last.

import { $, draw, fill, isNumber, make, short } from "./dom.js";
import { cut, figure, key, LEVELS, shade, text } from "./drawing.js";
import { answer } from "./link.js";
import { csvOf } from "./save.js";
import { changed, state } from "./state.js";

const MOST_COLUMNS = 120;
const HIGH = 15; // of a layer's row
const [LEFT, WIDE] = [190, 900];
const HEAT = { layer_norms: ["Gradient norm of each layer", "median of the steps before each evaluation, before clipping"], update_ratios: ["Update / weight of each layer", "of the last step before each evaluation"] };
const RIDGES = { weights: ["Weights", "the middle 99 %, each ridge to its own height"], activations: ["Activations", "of a validation batch, likewise"] };
const [PEAK, STEP] = [34, 15]; // of a ridge, and from one to the next

export function drawLayers() {
  const run = state.runs[lookedAt()];
  if (!run) return fill($("layers"), [lookedAt() ?? null], () => [make("p", { class: "empty" }, "Choose a run.")]);
  const mark = run.facts.state === "running" ? Math.floor(4 * Math.log2(run.rows.length + 1)) : `${run.facts.state} ${run.rows.length}`;
  const found = answer("layers", { run: lookedAt() }, mark);
  fill($("layers"), [lookedAt(), state.chosen, run.rows.length, found?.times, document.documentElement.dataset.theme], () => [
    ...runPicker(), make("div", { class: "charts" }, ...Object.entries(HEAT).map(([name, words]) => heat(run, name, ...words)).filter(Boolean), ...ridges(found)),
  ]);
}

// The run that a view of one run shows: of several chosen ones the first, or another that was picked.
export const lookedAt = () => (state.chosen.includes(state.looked) ? state.looked : state.chosen[0]);

export function runPicker() {
  if (state.chosen.length < 2) return [];
  const options = state.chosen.map((id) => make("option", { value: id, selected: id === lookedAt() ? "" : null }, state.project.runs.find((run) => run.id === id)?.name ?? id));
  return [make("p", {}, make("label", {}, "Run ", make("select", { "data-focus": "picker", onchange: (event) => { state.looked = event.target.value; changed(); } }, ...options)))];
}

// --- heat maps -----------------------------------------------------------------------------

function evenly(items, most) {
  if (items.length <= most) return items;
  return [...Array(most).keys()].map((nr) => items[Math.floor((nr * (items.length - 1)) / (most - 1))]);
}

function heat(run, name, title, note) {
  const rows = evenly(run.rows.filter((row) => row[name]?.length), MOST_COLUMNS);
  const layers = run.facts.layers ?? [];
  const values = rows.map((row) => layers.map((_, nr) => row[name][nr] ?? null));
  const logs = values.flat().filter((value) => value > 0).map(Math.log10);
  if (!logs.length) return null;
  const [low, high] = [logs.reduce((a, b) => Math.min(a, b)), logs.reduce((a, b) => Math.max(a, b))];
  const bottom = 30 + HIGH * layers.length;
  const level = (value) => (value > 0 ? Math.round(((Math.log10(value) - low) / (high - low || 1)) * (LEVELS - 1)) : null);
  const drawn = figure({
    name, title, note, wide: true, size: [WIDE, bottom + 26],
    told: `${title}: ${layers.length} layers at ${rows.length} evaluations, from ${short(10 ** low)} to ${short(10 ** high)}`,
    csv: () => csvOf(["step", "epoch", ...layers], rows.map((row, nr) => [row.step, row.epoch, ...values[nr]])),
  }, ...key(WIDE - 230, 16, short(10 ** low), short(10 ** high)),
  ...layers.map((layer, nr) => text(LEFT - 8, 30 + HIGH * (nr + 0.75), cut(layer, 28), { "text-anchor": "end" })),
  ...cells(values.map((column) => column.map(level)), (WIDE - LEFT) / rows.length),
  ...evenly(rows.map((row, nr) => [row, nr]), 8).map(([row, nr]) => text(LEFT + (nr + 0.5) * ((WIDE - LEFT) / rows.length), bottom + 16, `epoch ${short(row.epoch)}`, { "text-anchor": nr === rows.length - 1 && rows.length > 8 ? "end" : "middle" })));
  drawn.append(readout(drawn.querySelector("svg"), rows, layers, values));
  return drawn;
}

// The cells of each colour as one path of strokes as wide as a row is high.
function cells(levels, wide) {
  return [...Array(LEVELS).keys()].map((level) => {
    const path = levels.flatMap((column, x) => column.map((one, y) => (one === level ? `M${(LEFT + x * wide).toFixed(2)} ${30 + HIGH * (y + 0.5)}h${wide.toFixed(2)}` : ""))).join("");
    return path ? draw("path", { d: path, stroke: shade(level / (LEVELS - 1)), "stroke-width": HIGH, fill: "none", "shape-rendering": "crispEdges" }) : null;
  }).filter(Boolean);
}

// A line that reads out the cell under the pointer, or the one that the arrow keys go to.
function readout(drawn, rows, layers, values) {
  const line = make("p", { class: "read", "aria-live": "polite" }, "Point at a cell, or go to one with the arrow keys.");
  const frame = draw("rect", { class: "cursor", width: (WIDE - LEFT) / rows.length, height: HIGH, visibility: "hidden" });
  let [x, y] = [rows.length - 1, 0];
  const show = () => {
    frame.setAttribute("x", LEFT + x * ((WIDE - LEFT) / rows.length));
    frame.setAttribute("y", 30 + y * HIGH);
    frame.setAttribute("visibility", "visible");
    line.textContent = `${layers[y]}, epoch ${short(rows[x].epoch)}, step ${rows[x].step}: ${short(values[x][y])}`;
  };
  drawn.append(frame);
  drawn.setAttribute("tabindex", "0");
  drawn.addEventListener("pointermove", (event) => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(drawn.getScreenCTM().inverse());
    const [column, row] = [Math.floor(((at.x - LEFT) / (WIDE - LEFT)) * rows.length), Math.floor((at.y - 30) / HIGH)];
    if (column >= 0 && column < rows.length && row >= 0 && row < layers.length) { [x, y] = [column, row]; show(); }
  });
  drawn.addEventListener("keydown", (event) => {
    const [right, down] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key] ?? [];
    if (right === undefined) return;
    event.preventDefault();
    [x, y] = [Math.max(0, Math.min(rows.length - 1, x + right)), Math.max(0, Math.min(layers.length - 1, y + down))];
    show();
  });
  return line;
}

// --- ridges -----------------------------------------------------------------------------

function ridges(found) {
  if (!found) return [make("p", { class: "quiet" }, "Reading the histograms.")];
  const drawn = Object.entries(RIDGES).flatMap(([kind, [title, note]]) => Object.entries(found[kind]).map(([layer, rows]) => ridge(kind, `${title}: ${layer}`, note, rows, found.times)));
  return drawn.length ? drawn : [make("p", { class: "quiet" }, "This run recorded no histograms.")];
}

function ridge(kind, title, note, rows, times) {
  const known = rows.filter(([, low, high, counts]) => isNumber(low) && isNumber(high) && counts.some(Boolean));
  const [low, high] = [Math.min(...known.map((row) => row[1])), Math.max(...known.map((row) => row[2]))];
  const bottom = 20 + PEAK + STEP * (known.length - 1);
  const across = (value) => 66 + ((value - low) / (high - low || 1)) * 340;
  const named = (nr) => (times[nr][1] ? `epoch ${short(times[nr][0])}` : "start");
  const lines = known.map(([nr, from, to, counts], place) => {
    const peak = Math.max(...counts);
    const points = counts.map((many, bin) => `${across(from + ((bin + 0.5) * (to - from)) / counts.length).toFixed(1)} ${(20 + PEAK + STEP * place - (PEAK * many) / peak).toFixed(1)}`);
    const ground = 20 + PEAK + STEP * place;
    return draw("path", { class: "ridge", d: `M${across(from).toFixed(1)} ${ground}L${points.join("L")}L${across(to).toFixed(1)} ${ground}Z`, fill: shade((place + 1) / known.length) },
      draw("title", {}, `${named(nr)}: from ${short(from)} to ${short(to)}`));
  });
  return figure({
    name: `${kind} ${title}`, title, note, size: [420, bottom + 28],
    told: `${title}: at ${known.length} times; at first from ${short(known[0]?.[1])} to ${short(known[0]?.[2])}, at last from ${short(known.at(-1)?.[1])} to ${short(known.at(-1)?.[2])}`,
    csv: () => csvOf(["epoch", "step", "from", "to", "count"], known.flatMap(([nr, from, to, counts]) => counts.map((many, bin) => [...times[nr], ...[bin, bin + 1].map((edge) => from + (edge * (to - from)) / counts.length), many]))),
  }, ...[[0, "start"], [0.5, "middle"], [1, "end"]].map(([share, anchor]) => text(66 + 340 * share, bottom + 18, short(low + share * (high - low)), { "text-anchor": anchor })),
  ...(low < 0 && high > 0 ? [draw("line", { class: "rule", x1: across(0), x2: across(0), y1: 14, y2: bottom })] : []),
  ...lines, ...evenly(known.map(([nr], place) => [nr, place]), 14).map(([nr, place]) => text(60, 24 + PEAK + STEP * place, named(nr), { "text-anchor": "end" })));
}
