// The monitor's page: what is drawn, in which order, and the keys that hold everywhere.

import { AXES } from "./axes.js";
import { drawCharts, flipLog } from "./charts.js";
import { drawClasses } from "./classes.js";
import { $, fill, make } from "./dom.js";
import { drawCompare, drawFindings, drawHeads, drawStudy } from "./heads.js";
import { drawLayers } from "./layers.js";
import { connect } from "./link.js";
import { drawPhases, drawReports, drawRuns } from "./lists.js";
import { drawTable } from "./runs.js";
import { drawSearch } from "./search.js";
import { changed, onChange, state } from "./state.js";

const VIEWS = {
  curves: { title: "Curves", parts: [drawCharts, drawCompare] },
  runs: { title: "Runs", parts: [drawTable] },
  layers: { title: "Layers", parts: [drawLayers] },
  classes: { title: "Classes", parts: [drawClasses] },
  search: { title: "Search", parts: [drawSearch] },
};
const OF_RUNS = ["curves", "layers", "classes"]; // views of the chosen runs

for (const part of [drawPhases, drawRuns, drawReports, drawStudy, drawHeads, drawFindings, drawView]) onChange(part);

function drawView() {
  for (const view of Object.keys(VIEWS)) {
    const tab = $(`tab-${view}`);
    tab.setAttribute("aria-selected", String(view === state.view));
    tab.tabIndex = view === state.view ? 0 : -1;
    $(`view-${view}`).hidden = view !== state.view;
  }
  $("heads").hidden = !OF_RUNS.includes(state.view);
  $("findings").hidden = state.view !== "curves";
  for (const part of VIEWS[state.view].parts) part();
}

function open(view) {
  state.view = view;
  changed();
}

function tabKey(event, view) {
  const all = Object.keys(VIEWS);
  const next = { ArrowRight: all.indexOf(view) + 1, ArrowLeft: all.indexOf(view) - 1, Home: 0, End: -1 }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  const there = all.at(next % all.length);
  $(`tab-${there}`).focus();
  open(there);
}

function flipTheme() {
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (isDark ? "dark" : "light");
  document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
  localStorage.setItem("mltrainer-theme", document.documentElement.dataset.theme);
  changed();
}

function chooseAxis(axis) {
  state.axis = axis;
  state.zoom = null;
  for (const run of Object.values(state.runs)) run.detail = null;
  changed();
}

function smooth() {
  state.smoothing = Number($("smoothing").value);
  $("smoothed").textContent = state.smoothing ? state.smoothing.toFixed(2) : "off";
  changed();
}

$("views").append(...Object.entries(VIEWS).map(([view, { title }]) => make("button", {
  type: "button", role: "tab", id: `tab-${view}`, "aria-controls": `view-${view}`, onclick: () => open(view), onkeydown: (event) => tabKey(event, view),
}, title)));
fill($("axes"), "axes", () => Object.entries(AXES).map(([axis, { title, note }]) => make("label", { title: note }, make("input", {
  type: "radio", name: "axis", value: axis, checked: axis === state.axis ? "" : null, onchange: () => chooseAxis(axis),
}), title)));
$("smoothing").addEventListener("input", smooth);
$("chart-filter").addEventListener("input", changed);
$("filter").addEventListener("input", () => { state.filter = $("filter").value; changed(); });
$("theme").addEventListener("click", flipTheme);
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input[type=search], select")) return;
  if (event.key === "t") flipTheme();
  if (event.key === "l") flipLog();
});
if (matchMedia("(max-width: 760px)").matches) $("lists").open = false;
connect();
