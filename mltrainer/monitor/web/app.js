// The monitor's page: what is drawn, in which order, and the keys that hold everywhere.

import { drawCharts, drawIn, flipLog } from "./charts.js";
import { $, fill, make } from "./dom.js";
import { drawCompare, drawFindings, drawHeads, drawStudy } from "./heads.js";
import { connect } from "./link.js";
import { AXES } from "./axes.js";
import { trialChart } from "./lines.js";
import { drawPhases, drawReports, drawRuns } from "./lists.js";
import { changed, onChange, state } from "./state.js";

const drawTrials = () => drawIn($("trials"), [trialChart()].filter(Boolean));
for (const part of [drawPhases, drawRuns, drawReports, drawHeads, drawFindings, drawStudy, drawTrials, drawCharts, drawCompare]) onChange(part);

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

fill($("axes"), "axes", () => Object.entries(AXES).map(([axis, { title }]) => make("label", {}, make("input", {
  type: "radio", name: "axis", value: axis, checked: axis === state.axis ? "" : null, onchange: () => chooseAxis(axis),
}), title)));
$("smoothing").addEventListener("input", smooth);
$("chart-filter").addEventListener("input", changed);
$("theme").addEventListener("click", flipTheme);
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input[type=search], input[type=text]")) return;
  if (event.key === "t") flipTheme();
  if (event.key === "l") flipLog();
});
if (matchMedia("(max-width: 760px)").matches) $("lists").open = false;
connect();
