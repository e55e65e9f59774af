// The connection: what is new comes by server-sent events; a range of steps is asked for.

import { $ } from "./dom.js";
import { stepsBetween } from "./axes.js";
import { changed, state } from "./state.js";

const MOST_POINTS = 3000; // of a run that grows; then its steps are fetched again, thinned
const MOST_RUNS = 12; // side by side, as the server follows them
const RETRY_MS = 3000;
let source = null;

export function connect() {
  if (source) source.close();
  state.isAdopting = !state.isAsked && !state.chosen.length;
  const asked = new URLSearchParams(state.isAdopting ? [["unasked", 1]] : state.chosen.map((id) => ["run", id]));
  source = new EventSource(`events?${asked}`);
  source.addEventListener("project", (event) => { state.project = JSON.parse(event.data); onProject(); });
  source.addEventListener("run", (event) => { take(JSON.parse(event.data)); changed(); });
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
  changed();
}

export function choose(ids, isAsked = true) {
  state.isAsked = state.isAsked || isAsked;
  state.chosen = ids;
  state.zoom = null;
  for (const id of Object.keys(state.runs)) if (!ids.includes(id)) delete state.runs[id];
  connect();
  changed();
}

export function toggle(id) {
  const without = state.chosen.filter((other) => other !== id);
  choose(without.length === state.chosen.length ? [...without, id].slice(-MOST_RUNS) : without);
}

function take(news) {
  const run = news.whole ? { rows: [], facts: {}, steps: null, detail: null } : state.runs[news.run];
  if (!run) return;
  state.runs[news.run] = run;
  run.steps = run.steps ? joined(run.steps, news.steps) : news.steps;
  run.rows.push(...news.rows);
  run.first = news.first;
  run.last = news.last;
  run.rate = news.rate;
  if (news.facts) run.facts = news.facts;
  if (run.steps.step.length > MOST_POINTS && !run.isFetching) refetch(news.run, run);
}

function after(steps, last) {
  const from = steps.step.findIndex((step) => step > last);
  if (from < 0) return { step: [], loss: { mean: [], low: [], high: [] }, norm: { mean: [], low: [], high: [] }, nonfinite: [] };
  const cut = ({ mean, low, high }) => ({ mean: mean.slice(from), low: low.slice(from), high: high.slice(from) });
  return { step: steps.step.slice(from), loss: cut(steps.loss), norm: cut(steps.norm), nonfinite: steps.nonfinite.filter((step) => step > last) };
}

function joined(steps, more) {
  steps.step.push(...more.step);
  for (const name of ["loss", "norm"]) for (const key of ["mean", "low", "high"]) steps[name][key].push(...more[name][key]);
  steps.nonfinite.push(...more.nonfinite);
  return steps;
}

export async function fetched(path, asked) {
  const answer = await fetch(`${path}?${new URLSearchParams(asked)}`);
  return answer.ok ? answer.json() : null;
}

async function refetch(id, run) {
  run.isFetching = true;
  const last = run.last;
  const found = await fetched("steps", { run: id, last });
  run.isFetching = false;
  if (!found || state.runs[id] !== run) return;
  run.steps = joined(found, after(run.steps, last));
  changed();
}

// Shows a part of the x axis alone, in all charts; null shows all. Its steps are read anew, in full where they fit.
export async function zoom(first, last) {
  state.zoom = first === null ? null : [first, last];
  for (const run of Object.values(state.runs)) run.detail = null;
  changed();
  if (first === null) return;
  const asked = state.zoom;
  await Promise.all(state.chosen.filter((id) => state.runs[id]).map(async (id) => {
    const found = await fetched("steps", { run: id, ...stepsBetween(state.runs[id], state.axis, first, last) });
    if (found && state.runs[id] && state.zoom === asked) state.runs[id].detail = found;
  }));
  changed();
}

const answers = new Map();

// What the server answers to a question, as soon as it has; it is asked again where `mark` is other than before.
export function answer(path, asked, mark) {
  const name = JSON.stringify([path, asked]);
  const known = answers.get(name);
  if (known?.mark !== mark) {
    const one = { mark, value: known?.value };
    answers.set(name, one);
    fetched(path, asked).then((value) => { one.value = value ?? one.value; changed(); }, () => {}); // the connection's own state tells it
  }
  return answers.get(name).value;
}
