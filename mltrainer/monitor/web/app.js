// The monitor's page. One connection tells what is new (server-sent events); what is drawn follows from `state` alone.
"use strict";

const COLOURS = ["#3d7fe8", "#e07b2e", "#2ca678", "#9a6bd8", "#d6544f", "#1fa3b0", "#b08a2e", "#d067a6", "#7d8896", "#5f9e3a", "#8a5a44", "#4a5fc1"];
const MARKS = { passed: "✓", skipped: "↷", running: "●", failed: "✕", stale: "!", ready: "○", locked: "·", pass: "✓", fail: "✕", waived: "!", not_applicable: "–" };
const MOST_POINTS = 3000; // of a run that grows; then its steps are fetched again, thinned
const RETRY_MS = 3000;
const LISTED = 8; // runs of a phase that are listed before "more"

const state = { project: null, runs: {}, chosen: [], isAsked: false, isLog: {}, open: null, unfolded: new Set(), zoom: null };
const charts = new Map();
let source = null;
let isDue = false;

// --- small things -----------------------------------------------------------------------------

const $ = (id) => document.getElementById(id);
const make = (tag, attributes = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
};
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const short = (value) => (isNumber(value) ? (value !== 0 && (Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3) ? value.toExponential(2) : String(+value.toPrecision(4))) : value === null || value === undefined ? "–" : String(value));
const count = (value) => (isNumber(value) ? Math.round(value).toLocaleString("en") : "–");
const words = (name) => String(name).replaceAll("_", " ");
const time = (s) => (!isNumber(s) ? "–" : s < 90 ? `${s.toFixed(s < 10 ? 1 : 0)} s` : s < 5400 ? `${(s / 60).toFixed(0)} min` : `${(s / 3600).toFixed(1)} h`);
const colourOf = (id) => COLOURS[Math.max(0, state.chosen.indexOf(id)) % COLOURS.length];
const faint = (colour, share) => colour + Math.round(share * 255).toString(16).padStart(2, "0");
const shown = (variable) => {
  const probe = $("link");
  const before = probe.style.color;
  probe.style.color = `var(${variable})`;
  const found = getComputedStyle(probe).color;
  probe.style.color = before;
  return found;
};

// --- the connection -----------------------------------------------------------------------------

function connect() {
  if (source) source.close();
  state.isAdopting = !state.isAsked && !state.chosen.length;
  const asked = new URLSearchParams(state.isAdopting ? [["unasked", 1]] : state.chosen.map((id) => ["run", id]));
  source = new EventSource(`events?${asked}`);
  source.addEventListener("project", (event) => { state.project = JSON.parse(event.data); onProject(); });
  source.addEventListener("run", (event) => { take(JSON.parse(event.data)); draw(); });
  source.onopen = () => linked(true);
  source.onerror = () => { linked(false); if (source.readyState === EventSource.CLOSED) setTimeout(anew, RETRY_MS); };
}

// The server refused: a run that was looked at is gone, or the monitor was ended.
function anew() {
  state.isAsked = false;
  state.chosen = [];
  connect();
}

function linked(isThere) {
  $("link").textContent = isThere ? "live" : "no connection; trying again";
  $("link").className = isThere ? "" : "lost";
}

// Where the user chose no runs, the monitor does: those that train, else the newest.
function onProject() {
  const { runs, chosen } = state.project;
  const known = new Set(runs.map((run) => run.id));
  const wanted = state.isAsked ? state.chosen.filter((id) => known.has(id)) : chosen;
  if (state.isAdopting) state.chosen = chosen; // these are told already
  else if (String(wanted) !== String(state.chosen)) choose(wanted, false);
  state.isAdopting = false;
  draw();
}

function choose(ids, isAsked = true) {
  state.isAsked = state.isAsked || isAsked;
  state.chosen = ids;
  state.zoom = null;
  for (const id of Object.keys(state.runs)) if (!ids.includes(id)) delete state.runs[id];
  connect();
  draw();
}

function toggle(id) {
  const without = state.chosen.filter((other) => other !== id);
  choose(without.length === state.chosen.length ? [...without, id] : without);
}

function take(news) {
  const run = news.whole ? { rows: [], facts: {}, steps: null, detail: null } : state.runs[news.run];
  if (!run) return;
  state.runs[news.run] = run;
  run.steps = run.steps ? joined(run.steps, news.steps) : news.steps;
  run.rows.push(...news.rows);
  run.last = news.last;
  run.rate = news.rate;
  if (news.facts) run.facts = news.facts;
  if (run.steps.step.length > MOST_POINTS && !run.isFetching) refetch(news.run, run);
}

const after = (steps, last) => {
  const from = steps.step.findIndex((step) => step > last);
  if (from < 0) return { step: [], loss: { mean: [], low: [], high: [] }, norm: { mean: [], low: [], high: [] }, nonfinite: [] };
  const cut = ({ mean, low, high }) => ({ mean: mean.slice(from), low: low.slice(from), high: high.slice(from) });
  return { step: steps.step.slice(from), loss: cut(steps.loss), norm: cut(steps.norm), nonfinite: steps.nonfinite.filter((step) => step > last) };
};

function joined(steps, more) {
  steps.step.push(...more.step);
  for (const name of ["loss", "norm"]) for (const key of ["mean", "low", "high"]) steps[name][key].push(...more[name][key]);
  steps.nonfinite.push(...more.nonfinite);
  return steps;
}

async function fetchSteps(id, range = {}) {
  const answer = await fetch(`steps?${new URLSearchParams({ run: id, points: 1000, ...range })}`);
  return answer.ok ? answer.json() : null;
}

async function refetch(id, run) {
  run.isFetching = true;
  const last = run.last;
  const found = await fetchSteps(id, { last });
  run.isFetching = false;
  if (!found || state.runs[id] !== run) return;
  run.steps = joined(found, after(run.steps, last));
  draw();
}

async function zoom(first, last) {
  state.zoom = first === null ? null : [first, last];
  for (const run of Object.values(state.runs)) run.detail = null;
  draw();
  if (first === null) return;
  await Promise.all(state.chosen.map(async (id) => {
    const found = await fetchSteps(id, { first: Math.floor(first), last: Math.ceil(last) });
    if (found && state.runs[id] && String(state.zoom) === String([first, last])) state.runs[id].detail = found;
  }));
  draw();
}

// --- drawing -----------------------------------------------------------------------------

function draw() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    if (!state.project) return;
    drawPhases();
    drawRuns();
    drawReports();
    drawHeads();
    drawFindings();
    drawStudy();
    drawCharts();
    drawCompare();
  });
}

// Replaces what an element holds where it is other than before, so that focus and selection stay.
function fill(element, key, children) {
  const text = JSON.stringify(key);
  if (element.dataset.key === text) return;
  const focused = element.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
  element.dataset.key = text;
  element.replaceChildren(...children());
  if (focused) element.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
}

function drawPhases() {
  const { project, phases, next } = state.project;
  $("project").textContent = project;
  document.title = `${project} · mltrainer monitor`;
  fill($("phases"), [phases.map((phase) => [phase.name, phase.state]), state.open], () => phases.map((phase) => make("button", {
    type: "button", class: phase.state, "data-focus": phase.name, "aria-expanded": String(state.open === phase.name), title: `${phase.name}: ${phase.state}`,
    onclick: () => { state.open = state.open === phase.name ? null : phase.name; draw(); },
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

function drawRuns() {
  const groups = new Map();
  for (const run of [...state.project.runs].reverse()) {
    const name = run.parent ? "forks" : run.phase ?? "other";
    groups.set(name, [...(groups.get(name) ?? []), run]);
  }
  fill($("runs"), [state.project.runs, state.chosen, [...state.unfolded]], () => groups.size
    ? [...groups].flatMap(([name, runs]) => runGroup(name, runs))
    : [make("p", { class: "quiet group" }, "none yet: mltrainer run")]);
}

function runGroup(name, runs) {
  const isWhole = state.unfolded.has(name) || runs.length <= LISTED + 1;
  const listed = isWhole ? runs : runs.filter((run, place) => place < LISTED || run.state === "running" || state.chosen.includes(run.id));
  const more = isWhole ? [] : [make("button", { type: "button", class: "more", onclick: () => { state.unfolded.add(name); draw(); } }, `${runs.length - listed.length} more`)];
  return [make("div", { class: "group" }, name), ...listed.map(runButton), ...more];
}

function runButton(run) {
  const isChosen = state.chosen.includes(run.id);
  const value = run.metrics[run.metric.name];
  const dot = make("i");
  if (isChosen) dot.style.background = dot.style.borderColor = colourOf(run.id);
  return make("button", {
    type: "button", class: `run ${run.state}`, "data-focus": run.id, "aria-pressed": String(isChosen),
    title: `${run.state}, ${count(run.step)} steps${isNumber(value) ? `, best ${words(run.metric.name)} ${short(value)}` : ""}`,
    onclick: (event) => (event.ctrlKey || event.metaKey || event.shiftKey || event.offsetX < 24 && event.detail ? toggle(run.id) : choose([run.id])),
    onkeydown: (event) => runKey(event, run.id),
  }, dot, make("code", {}, run.id), make("span", {}, run.state === "running" ? "running" : isNumber(value) ? short(value) : run.state));
}

function runKey(event, id) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (event.key === " ") { event.preventDefault(); toggle(id); }
  if (!step) return;
  event.preventDefault();
  const all = [...document.querySelectorAll(".run")];
  all[all.indexOf(event.currentTarget) + step]?.focus();
}

function drawReports() {
  const { reports } = state.project;
  fill($("reports"), reports, () => reports.length
    ? reports.map((one) => make("li", {}, make("a", { href: `report/${one.path}` }, one.title, make("small", {}, ` ${one.phase}`))))
    : [make("li", { class: "quiet group" }, "none yet")]);
}

function drawHeads() {
  const known = state.chosen.filter((id) => state.runs[id]);
  fill($("heads"), known.map((id) => [id, state.runs[id].last, state.runs[id].rate, state.runs[id].facts, state.runs[id].rows.length, colourOf(id)]), () => (
    known.length ? known.map(head) : [make("p", { class: "empty" }, state.project.runs.length ? "Choose a run." : "Nothing has been trained yet. As soon as a run begins, its curves appear here.")]));
}

function head(id) {
  const { facts, rows, last, rate } = state.runs[id];
  const dot = make("span", { class: "dot" });
  dot.style.background = colourOf(id);
  const planned = facts.planned?.steps;
  const row = rows.at(-1);
  const best = bestRow(rows, facts.metric);
  const isLive = facts.state === "running";
  const parts = [
    ["", facts.stop_reason && facts.stop_reason !== "epochs" && !isLive ? `${words(facts.state)}: ${words(facts.stop_reason)}` : words(facts.state ?? "")],
    ["epoch", row ? `${row.epoch}${facts.planned?.epochs ? ` / ${facts.planned.epochs}` : ""}` : null],
    ["step", last ? `${count(last)}${planned ? ` / ${count(planned)}` : ""}` : null],
    [`best ${words(facts.metric?.name ?? "")}`, best ? `${short(best.validation[facts.metric.name])} (epoch ${best.epoch})` : null],
    ["steps/s", isLive && isNumber(rate) ? short(rate) : null],
    ["left", isLive && isNumber(rate) && planned > last ? time((planned - last) / rate) : null],
    ["took", !isLive && isNumber(facts.wall_s) ? time(facts.wall_s) : null],
    ["memory", facts.usage ? `${count(facts.usage.memory_mb)} MiB` : null],
    ["GPU", (facts.usage?.gpus ?? []).map((gpu) => `${gpu.percent} %, ${count(gpu.memory_mb)} MiB`).join("; ")],
    ["processors", isNumber(facts.usage?.processors) ? facts.usage.processors.toFixed(1) : null],
  ].filter(([, value]) => value);
  return make("div", { class: "head" },
    make("div", {}, dot, make("b", {}, make("code", {}, id))),
    ...parts.map(([name, value]) => make("div", {}, name ? make("small", {}, name) : null, value)),
    isLive && planned ? make("progress", { max: planned, value: last, "aria-label": `steps of ${id}` }) : null);
}

function bestRow(rows, metric) {
  const known = rows.filter((row) => isNumber(row.validation[metric?.name]));
  const sign = metric?.mode === "min" ? -1 : 1;
  return known.reduce((best, row) => (!best || sign * row.validation[metric.name] > sign * best.validation[metric.name] ? row : best), null);
}

function drawFindings() {
  const found = state.chosen.flatMap((id) => (state.runs[id]?.facts.findings ?? []).map((one) => ({ ...one, run: id })));
  fill($("findings"), [found, state.chosen.length], () => found.map(finding));
}

function finding(one) {
  const changes = (one.changes ?? []).map((change) => make("p", {}, "try ", make("code", {}, Object.entries(change.set).map(([key, value]) => `${key}=${JSON.stringify(value)}`).join("  ")), change.why ? `: ${change.why}` : ""));
  return make("article", { class: `finding ${one.severity}` },
    make("h3", {}, one.title), make("small", {}, [one.severity, one.epoch ? `told in epoch ${one.epoch}` : null, state.chosen.length > 1 ? one.run : null].filter(Boolean).join(" · ")),
    make("small", {}, make("a", { href: `guide/${one.page}` }, "what to do")),
    make("p", {}, one.reason), ...changes);
}

function drawStudy() {
  const { study } = state.project;
  $("study").hidden = !study;
  if (study) fill($("study"), study, () => [
    make("h2", {}, `Search: ${study.done} of ${study.planned} ${study.what}`),
    make("p", { class: "quiet" }, [isNumber(study.left_s) ? `${time(study.left_s)} left` : null, study.best ? `best ${words(study.metric)} ${short(study.best.value)} of trial ${study.best.nr}: ${Object.entries(study.best.values).map(([key, value]) => `${key}=${short(value)}`).join(", ")}` : null].filter(Boolean).join("; ")),
    ...study.running.map((one) => make("div", { class: "quiet" }, `${study.what.replace(/s$/, "")} ${one.nr}: ${one.epoch ? `epoch ${one.epoch} of ${one.epochs}` : "starts"}${isNumber(one.value) ? `, ${words(study.metric)} ${short(one.value)}` : ""}`)),
  ]);
}

function drawCompare() {
  const runs = state.chosen.filter((id) => state.runs[id]?.facts.config);
  $("compare").hidden = runs.length < 2;
  if (runs.length < 2) return;
  fill($("compare"), runs.map((id) => [id, state.runs[id].facts.config, state.runs[id].rows.length]), () => comparison(runs));
}

function comparison(runs) {
  const configs = runs.map((id) => state.runs[id].facts.config);
  const keys = [...new Set(configs.flatMap(Object.keys))].filter((key) => key !== "id" && new Set(configs.map((config) => JSON.stringify(config[key]))).size > 1);
  const best = runs.map((id) => bestRow(state.runs[id].rows, state.runs[id].facts.metric));
  const names = [...new Set(best.flatMap((row) => Object.keys(row?.validation ?? {})))];
  const line = (name, cells) => make("tr", {}, make("th", { scope: "row" }, name), ...cells.map((cell) => make("td", {}, cell)));
  return [
    make("h2", {}, "Side by side"),
    make("table", {}, line("", runs.map((id) => make("code", {}, id))),
      ...names.map((name) => line(words(name), best.map((row) => short(row?.validation[name])))),
      ...keys.map((key) => line(key, configs.map((config) => JSON.stringify(config[key]) ?? "–")))),
    make("p", { class: "quiet" }, keys.length ? "Metrics on validation at each run's best evaluation; below them what differs in the configs." : "Metrics on validation at each run's best evaluation; the configs are equal."),
  ];
}

// --- charts -----------------------------------------------------------------------------
// A line: {label, table: [x, y], colour, width, dash, points}; a band is drawn between two lines that follow each other.

function drawCharts() {
  const wanted = wantedCharts().filter((chart) => chart.lines.length);
  for (const [name, chart] of charts) if (!wanted.some((one) => one.name === name)) { chart.plot.destroy(); chart.figure.remove(); charts.delete(name); }
  wanted.forEach(drawChart);
}

// Which charts a run has, and where their values stand, its facts tell.
function wantedCharts() {
  const live = state.chosen.filter((id) => state.runs[id]?.steps);
  const { charts: told = [], metric } = live.length ? state.runs[live[0]].facts : {};
  const trials = { name: "trials", title: "Trials", note: "best value of each, in order", isTrials: true, lines: trialLines() };
  const shown = told.filter((chart) => chart.name !== "metric" || metric?.name !== "loss"); // which the chart of the loss has
  return [
    ...(state.project.study ? [{ ...trials, wide: true }] : []),
    ...shown.map((chart) => followed(chart, live)),
    ...(state.project.study ? [] : [trials]),
  ];
}

function followed(chart, live) {
  const several = live.length > 1;
  const isAlone = !several && chart.alone.length > 0;
  const curves = isAlone ? chart.alone : chart.curves;
  const lines = live.flatMap((id) => curves.flatMap((curve, place) => curveLines(id, curve, several, isAlone ? place : null)));
  return { name: chart.name, title: chart.title, note: (isAlone ? chart.alone_note : chart.note) || undefined, wide: chart.is_wide, canLog: chart.can_log, isLog: chart.is_log, lines };
}

function curveLines(id, { name, path, is_beside }, several, layer) {
  if (path[0] === "steps") return stepLines(id, path[1], name, several);
  const isMeasured = name === "validation";
  const colour = layer !== null ? COLOURS[layer % COLOURS.length] : isMeasured && !several ? COLOURS[1] : null;
  const dash = several && is_beside ? (isMeasured ? [6, 4] : [2, 3]) : null;
  return rowLine(id, (row) => valueAt(row, path), { label: name, colour, dash, faded: several && is_beside && !isMeasured });
}

// Of many values, such as one for each layer, the median.
function valueAt(row, path) {
  const found = path.reduce((value, key) => value?.[key], row);
  if (!Array.isArray(found)) return found;
  const kept = found.filter(isNumber).sort((a, b) => a - b);
  return kept.length ? kept[kept.length >> 1] : null;
}

const named = (id, label) => (state.chosen.length > 1 ? `${id.slice(0, 6)} ${label}` : label);

function stepLines(id, name, label, several) {
  const run = state.runs[id];
  const { step, [name]: found } = run.detail ?? run.steps;
  if (!step.length) return [];
  const colour = colourOf(id);
  const isThinned = (run.detail ?? run.steps).width > 1;
  const band = isThinned ? [
    { label: named(id, "highest"), table: [step, found.high], colour: faint(colour, 0.35), width: 0.5, isQuiet: true },
    { label: named(id, "lowest"), table: [step, found.low], colour: faint(colour, 0.35), width: 0.5, isQuiet: true, band: faint(colour, 0.16) },
  ] : [];
  return [...band, { label: named(id, isThinned ? `${label}, mean` : label), table: [step, found.mean], colour, width: several ? 1.3 : 1.5 }];
}

function rowLine(id, pick, { label, dash, colour, faded }) {
  const { rows } = state.runs[id];
  const values = rows.map(pick).map((value) => value ?? null);
  if (!values.some(isNumber)) return [];
  const kept = rows.map((row, place) => [row.step, values[place]]).filter(([, value]) => value !== null);
  const own = colour ?? colourOf(id);
  return [{ label: named(id, label), table: [kept.map(([step]) => step), kept.map(([, value]) => value)], colour: faded ? faint(own, 0.55) : own, width: 1.8, dash, points: kept.length < 25 }];
}

function trialLines() {
  const trials = state.project.runs.filter((run) => run.phase === "optimization" && !run.parent && isNumber(run.metrics[run.metric.name]));
  if (trials.length < 2) return [];
  const values = trials.map((run) => run.metrics[run.metric.name]);
  const better = trials[0].metric.mode === "min" ? Math.min : Math.max;
  const best = values.map((_, place) => better(...values.slice(0, place + 1)));
  const nrs = values.map((_, place) => place + 1);
  return [
    { label: words(trials[0].metric.name), table: [nrs, values], colour: COLOURS[0], width: 0, points: true },
    { label: "best so far", table: [nrs, best], colour: COLOURS[1], width: 1.5 },
  ];
}

function drawChart(one, place) {
  const key = JSON.stringify([one.lines.map((line) => [line.label, line.colour, line.dash, line.band, line.points]), isLog(one), document.documentElement.dataset.theme]);
  let chart = charts.get(one.name);
  if (!chart) {
    const figure = make("figure", { class: `chart${one.wide ? " wide" : ""}`, tabindex: "0", role: "img", "data-name": one.name });
    chart = { figure, caption: make("figcaption"), body: make("div") };
    figure.append(chart.caption, chart.body);
    figure.addEventListener("keydown", (event) => chartKey(event, chart));
    charts.set(one.name, chart);
    new ResizeObserver(() => chart.plot?.setSize({ width: chart.body.clientWidth, height: height(one) })).observe(chart.body);
  }
  const there = $("charts").children[place];
  if (there !== chart.figure) $("charts").insertBefore(chart.figure, there ?? null); // one that is moved loses the focus
  fill(chart.caption, [one.title, one.note], () => [one.title, make("small", {}, one.note ?? "")]);
  chart.figure.setAttribute("aria-label", `${one.title}: ${one.lines.map(lastValue).join(", ")}`);
  chart.one = one;
  const drawn = JSON.stringify([key, state.zoom, one.lines.map(({ table: [xs, ys] }) => [xs.length, xs[0], xs.at(-1), ys.at(-1)]), marked(one)]);
  if (chart.drawn === drawn) return; // each redraw costs milliseconds, and most charts change at evaluations alone
  chart.drawn = drawn;
  const data = uPlot.join(tables(one));
  if (chart.key !== key) {
    chart.plot?.destroy();
    chart.plot = new uPlot(options(one, chart.body.clientWidth), data, chart.body);
    chart.key = key;
  } else {
    chart.plot.setData(data, false);
  }
  setRange(chart, data);
}

const lastValue = (line) => `${line.label} ${short(line.table[1].at(-1))}`;
const height = (one) => (one.wide ? 300 : 200);
const isLog = (one) => Boolean(one.canLog && (state.isLog[one.name] ?? one.isLog) && one.lines.some((line) => line.table[1].some((value) => value > 0)));
const tables = (one) => one.lines.map(({ table: [xs, ys] }) => (isLog(one) ? [xs, ys.map((y) => (y > 0 ? y : null))] : [xs, ys]));

function setRange(chart, data) {
  const xs = data[0];
  const [min, max] = state.zoom && !chart.one.isTrials ? state.zoom : [Math.min(xs[0], chart.one.isTrials ? xs[0] : 1), xs.at(-1)];
  chart.plot.setScale("x", { min, max: max > min ? max : min + 1 });
}

function options(one, width) {
  const ink = shown("--quiet");
  const line = shown("--line");
  const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
  return {
    width, height: height(one), legend: { live: true },
    scales: { x: { time: false }, y: isLog(one) ? { distr: 3 } : {} },
    cursor: { sync: one.isTrials ? undefined : { key: "steps" }, drag: { x: true, y: false, setScale: false }, focus: { prox: 24 }, points: { size: 6 } },
    focus: { alpha: 0.6 },
    axes: [{ ...axis, size: 28, values: (_, ticks) => ticks.map(tick) }, { ...axis, size: 58, grid: isLog(one) ? { ...axis.grid, filter: (_, splits) => splits.map(decade) } : axis.grid, values: (_, ticks) => ticks.map((value) => (value === null ? "" : short(value))) }],
    series: [{ label: one.isTrials ? "trial" : "step", value: (_, value) => (value === null ? "–" : count(value)) }, ...one.lines.map(series)],
    bands: one.lines.flatMap((each, place) => (each.band ? [{ series: [place, place + 1], fill: each.band }] : [])),
    hooks: { setSelect: [(plot) => selected(plot, one)], drawClear: [(plot) => marks(plot, one)], ready: [(plot) => begun(plot, one)] },
  };
}

function series(line) {
  return { label: line.label, stroke: line.colour, width: line.width, dash: line.dash ?? undefined, spanGaps: false, points: { show: Boolean(line.points), size: line.width ? 4 : 6, fill: line.colour }, paths: line.width ? undefined : () => null, value: (_, value) => short(value) };
}

const decade = (value) => (Math.abs(Math.log10(value) % 1) < 1e-9 ? value : null);

function begun(plot, one) {
  plot.over.addEventListener("dblclick", () => zoom(null));
  const rows = plot.root.querySelectorAll(".u-legend .u-series");
  one.lines.forEach((line, place) => { rows[place + 1].hidden = Boolean(line.isQuiet); });
}

const tick = (value) => (value >= 1e6 ? `${value / 1e6} M` : value >= 1e4 ? `${value / 1e3} k` : Number.isInteger(value) ? String(value) : "");

function selected(plot, one) {
  if (plot.select.width < 4 || one.isTrials) return;
  const [first, last] = [plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x")];
  plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
  zoom(Math.max(1, first), Math.max(first + 1, last));
}

const marked = (one) => (one.isTrials ? [] : state.chosen.map((id) => [state.runs[id]?.facts.findings?.map((found) => found.step), state.runs[id]?.steps?.nonfinite]));

// Upright lines where a finding was told, and where a number was not finite.
function marks(plot, one) {
  if (one.isTrials) return;
  for (const id of state.chosen) {
    const { facts, steps } = state.runs[id] ?? {};
    for (const found of facts?.findings ?? []) if (isNumber(found.step)) upright(plot, found.step, shown(found.severity === "critical" ? "--bad" : "--warn"), [4, 4]);
    for (const step of steps?.nonfinite ?? []) upright(plot, step, shown("--bad"), []);
  }
}

function upright(plot, step, colour, dash) {
  const x = plot.valToPos(step, "x", true);
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

function chartKey(event, chart) {
  const { plot, one } = chart;
  const { min, max } = plot.scales.x;
  const places = plot.data[0].length;
  const move = { ArrowLeft: -1, ArrowRight: 1, Home: -places, End: places }[event.key];
  if (move) {
    event.preventDefault();
    const place = Math.max(0, Math.min(places - 1, (plot.cursor.idx ?? (move > 0 ? -1 : places)) + move));
    plot.setCursor({ left: plot.valToPos(plot.data[0][place], "x"), top: 20 });
  } else if ((event.key === "+" || event.key === "-") && !one.isTrials) {
    const middle = isNumber(plot.cursor.idx) ? plot.data[0][plot.cursor.idx] : (min + max) / 2;
    const half = ((max - min) / 2) * (event.key === "+" ? 0.5 : 2);
    const all = plot.data[0];
    if (event.key === "-" && middle - half <= all[0] && middle + half >= all.at(-1)) zoom(null);
    else zoom(Math.max(1, middle - half), middle + half);
  } else if (event.key === "0") {
    zoom(null);
  }
}

function flipLog() {
  for (const { one } of charts.values()) if (one.canLog) state.isLog[one.name] = !isLog(one);
  draw();
}

function flipTheme() {
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (isDark ? "dark" : "light");
  document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
  localStorage.setItem("mltrainer-theme", document.documentElement.dataset.theme);
  draw();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "t") flipTheme();
  if (event.key === "l") flipLog();
});
$("theme").addEventListener("click", flipTheme);
if (matchMedia("(max-width: 760px)").matches) $("lists").open = false;
connect();
