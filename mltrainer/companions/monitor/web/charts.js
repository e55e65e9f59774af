// The charts: uPlot draws the lines, at a common stretch of the x axis.

import { AXES, places } from "./axes.js";
import { $, fill, isNumber, make, short, shown } from "./dom.js";
import { saveButtons } from "./drawing.js";
import { runCharts, wholeRange } from "./lines.js";
import { zoom } from "./link.js";
import { csvOf, saveCsv, savePng } from "./save.js";
import { changed, state } from "./state.js";

export const charts = new Map();
const GROUPS = { quality: "Loss and metrics", training: "Steps and layers", machine: "Speed and memory" };
const NEAR = "300px"; // of what is seen: charts as near are drawn, too
const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) for (const chart of charts.values()) if (chart.figure === entry.target) chart.isNear = entry.isIntersecting;
  if (entries.some((entry) => entry.isIntersecting)) changed();
}, { rootMargin: NEAR });

export function drawCharts() {
  $("tools").hidden = !state.chosen.some((id) => state.runs[id]);
  const all = runCharts();
  const text = $("chart-filter").value.trim().toLowerCase();
  const wanted = all.filter((one) => `${one.title} ${one.name}`.toLowerCase().includes(text));
  drawIn($("charts"), wanted, GROUPS);
}

// Draws charts into an element, a heading before each group; those that were there before and are not wanted go.
export function drawIn(element, wanted, groups = {}) {
  for (const [name, chart] of charts) if (chart.element === element && !wanted.some((one) => one.name === name)) remove(name, chart);
  const [min, max] = wanted[0]?.isTrials ? trialRange(wanted[0]) : state.zoom ?? wholeRange();
  const range = [min, max > min ? max : min + 1];
  const nodes = [];
  for (const [group, title] of [...Object.entries(groups), [undefined, null]]) {
    const members = wanted.filter((one) => one.group === group);
    if (members.length && title) nodes.push(heading(element, group, title));
    for (const one of members) nodes.push(placed(element, one).figure);
  }
  nodes.forEach((node, nr) => { if (element.children[nr] !== node) element.insertBefore(node, element.children[nr] ?? null); }); // one that is moved loses the focus
  while (element.children.length > nodes.length) element.lastChild.remove();
  for (const one of wanted) drawChart(charts.get(one.name), one, range);
}

function trialRange(one) {
  const [nrs] = one.lines()[0].table;
  return [nrs[0], nrs.at(-1)];
}

const heading = (element, group, title) => element.querySelector(`:scope > [data-group="${group}"]`) ?? make("h2", { "data-group": group }, title);

function remove(name, chart) {
  seen.unobserve(chart.figure);
  chart.plot?.destroy();
  chart.figure.remove();
  charts.delete(name);
}

function placed(element, one) {
  if (charts.has(one.name)) return charts.get(one.name);
  const chart = { element, isNear: false, caption: make("figcaption"), body: make("div", { class: "plot", tabindex: "0", role: "img" }) };
  chart.figure = make("figure", { class: `chart${one.wide ? " wide" : ""}`, "data-name": one.name }, chart.caption, chart.body);
  chart.body.addEventListener("keydown", (event) => chartKey(event, chart));
  charts.set(one.name, chart);
  new ResizeObserver(() => { if (chart.body.clientWidth) chart.plot?.setSize({ width: chart.body.clientWidth, height: height(one) }); }).observe(chart.body); // a hidden one keeps its size
  seen.observe(chart.figure);
  return chart;
}

function drawChart(chart, one, range) {
  chart.one = one;
  fill(chart.caption, [one.title, one.note], () => [one.title, make("small", {}, one.note ?? ""), saveButtons(one.title, {
    PNG: () => savePng(chart), CSV: () => saveCsv(one.title, chartTable(chart.one)),
  })]);
  if (!chart.isNear) return;
  const lines = one.lines();
  chart.lines = lines;
  chart.body.setAttribute("aria-label", `${one.title}: ${lines.filter((line) => !line.isQuiet).map(lastValue).join(", ")}`);
  const key = JSON.stringify([lines.map((line) => [line.label, line.colour, line.dash, line.band, line.points]), isLog(one, lines), state.axis, document.documentElement.dataset.theme]);
  const drawn = JSON.stringify([key, range, state.smoothing, lines.map(({ table: [xs, ys] }) => [xs.length, xs[0], xs.at(-1), ys.at(-1)]), marked(one)]);
  if (chart.drawn === drawn) return; // each redraw costs milliseconds, and most charts change at evaluations alone
  chart.drawn = drawn;
  const data = uPlot.join(tables(lines, isLog(one, lines)));
  if (chart.key !== key) {
    chart.plot?.destroy();
    chart.plot = new uPlot(options(one, lines, chart.body.clientWidth), data, chart.body);
    chart.key = key;
  } else {
    chart.plot.setData(data, false);
  }
  chart.plot.setScale("x", { min: range[0], max: range[1] });
}

function chartTable(one) {
  const lines = one.lines();
  const [xs, ...columns] = uPlot.join(lines.map((line) => line.table));
  return csvOf([one.isTrials ? "trial" : state.axis === "time" ? "seconds" : state.axis, ...lines.map((line) => line.saved ?? line.label)], [...xs].map((x, nr) => [x, ...columns.map((column) => column[nr])]));
}

const lastValue = (line) => `${line.label} ${short(line.table[1].at(-1))}`;
const height = (one) => (one.wide ? 300 : 200);
const isLog = (one, lines) => Boolean(one.canLog && (state.isLog[one.name] ?? one.isLog) && lines.some((line) => line.table[1].some((value) => value > 0)));
const tables = (lines, isLogarithmic) => lines.map(({ table: [xs, ys] }) => (isLogarithmic ? [xs, ys.map((y) => (y > 0 ? y : null))] : [xs, ys]));

function options(one, lines, width) {
  const ink = shown("--quiet");
  const line = shown("--line");
  const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
  const across = one.isTrials ? { ...AXES.step, label: "trial" } : AXES[state.axis];
  return {
    width, height: height(one), legend: { live: true },
    scales: { x: { time: false }, y: isLog(one, lines) ? { distr: 3 } : {} },
    cursor: { sync: one.isTrials ? undefined : { key: "steps" }, drag: { x: true, y: false, setScale: false }, focus: { prox: 24 }, points: { size: 6 } },
    focus: { alpha: 0.6 },
    axes: [
      { ...axis, size: 28, values: (_, ticks) => ticks.map(across.tick), ...(across.increments ? { incrs: across.increments } : {}) },
      { ...axis, size: 58, grid: isLog(one, lines) ? { ...axis.grid, filter: (_, splits) => splits.map(decade) } : axis.grid, values: (_, ticks) => ticks.map((value) => (value === null ? "" : short(value))) },
    ],
    series: [{ label: across.label, value: (_, value) => (value === null ? "–" : across.value(value)) }, ...lines.map(series)],
    bands: lines.flatMap((each, place) => (each.band ? [{ series: [place, place + 1], fill: each.band }] : [])),
    hooks: { setSelect: [(plot) => selected(plot, one)], drawClear: [(plot) => marks(plot, one)], ready: [(plot) => begun(plot, lines)] },
  };
}

function series(line) {
  return { label: line.label, stroke: line.colour, width: line.width, dash: line.dash ?? undefined, spanGaps: false, points: { show: Boolean(line.points), size: line.width ? 4 : 6, fill: line.colour }, paths: line.width ? undefined : () => null, value: (_, value) => short(value) };
}

const decade = (value) => (Math.abs(Math.log10(value) % 1) < 1e-9 ? value : null);

function begun(plot, lines) {
  plot.over.addEventListener("dblclick", () => zoom(null));
  const rows = plot.root.querySelectorAll(".u-legend .u-series");
  lines.forEach((line, place) => { rows[place + 1].hidden = Boolean(line.isQuiet); });
}

function selected(plot, one) {
  if (plot.select.width < 4 || one.isTrials) return;
  const [first, last] = [plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x")];
  plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
  zoomTo(first, last);
}

const zoomTo = (first, last) => zoom(Math.max(AXES[state.axis].least, first), state.axis === "step" ? Math.max(first + 1, last) : last);

// --- marks -----------------------------------------------------------------------------

const stepMarks = (id) => [
  ...(state.runs[id]?.facts.findings ?? []).map(({ step, severity }) => ({ step, colour: severity === "critical" ? "--bad" : "--warn", dash: [4, 4] })),
  ...(state.runs[id]?.steps?.nonfinite ?? []).map((step) => ({ step, colour: "--bad", dash: [] })),
].filter(({ step }) => isNumber(step));
const marked = (one) => (one.isTrials ? [] : state.chosen.map(stepMarks));

// Upright lines where a finding was told, and where a number was not finite.
function marks(plot, one) {
  if (one.isTrials) return;
  for (const id of state.chosen) {
    for (const { step, colour, dash } of stepMarks(id)) {
      const [place] = places(state.runs[id], state.axis, [step]);
      if (isNumber(place)) upright(plot, place, shown(colour), dash);
    }
  }
}

function upright(plot, place, colour, dash) {
  const x = plot.valToPos(place, "x", true);
  const { left, top, width, height: tall } = plot.bbox;
  if (x < left || x > left + width) return;
  plot.ctx.save();
  plot.ctx.strokeStyle = colour;
  plot.ctx.setLineDash(dash);
  plot.ctx.beginPath();
  plot.ctx.moveTo(x, top);
  plot.ctx.lineTo(x, top + tall);
  plot.ctx.stroke();
  plot.ctx.restore();
}

// --- keys -----------------------------------------------------------------------------

function chartKey(event, { plot, one }) {
  if (!plot) return;
  const { min, max } = plot.scales.x;
  const last = plot.data[0].length;
  const move = { ArrowLeft: -1, ArrowRight: 1, Home: -last, End: last }[event.key];
  if (move) {
    event.preventDefault();
    const place = Math.max(0, Math.min(last - 1, (plot.cursor.idx ?? (move > 0 ? -1 : last)) + move));
    plot.setCursor({ left: plot.valToPos(plot.data[0][place], "x"), top: 20 });
  } else if ((event.key === "+" || event.key === "-") && !one.isTrials) {
    const middle = isNumber(plot.cursor.idx) ? plot.data[0][plot.cursor.idx] : (min + max) / 2;
    const half = ((max - min) / 2) * (event.key === "+" ? 0.5 : 2);
    const all = plot.data[0];
    if (event.key === "-" && middle - half <= all[0] && middle + half >= all.at(-1)) zoom(null);
    else zoomTo(middle - half, middle + half);
  } else if (event.key === "0") {
    zoom(null);
  }
}

export function flipLog() {
  for (const { one } of charts.values()) if (one.canLog) state.isLog[one.name] = !isLog(one, one.lines());
  changed();
}
