// What is told of the chosen runs beside their curves: how they stand, findings, and in what they differ.

import { $, count, fill, isNumber, make, short, time, words } from "./dom.js";
import { colourOf, state } from "./state.js";

const FEW = 3; // runs whose heads have room

export function drawHeads() {
  const known = state.chosen.filter((id) => state.runs[id]);
  $("heads").classList.toggle("many", known.length > FEW);
  fill($("heads"), [known.map((id) => [id, state.runs[id].last, state.runs[id].rate, state.runs[id].facts, state.runs[id].rows.length, colourOf(id), nameOf(id)]), state.chosen], () => (
    known.length ? known.map(head) : [make("p", { class: "empty" }, nothing())]));
}

const nameOf = (id) => state.project.runs.find((run) => run.id === id)?.name;

function nothing() {
  if (state.chosen.length) return `Reading ${state.chosen.join(", ")}.`;
  return state.project.runs.length ? "Choose a run." : "Nothing has been trained yet. As soon as a run begins, its curves appear here.";
}

function head(id) {
  const { facts, rows, last, rate } = state.runs[id];
  const name = nameOf(id);
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
    ["samples/s", isLive && isNumber(row?.samples_per_s) ? short(row.samples_per_s) : null],
    ["tokens/s", isLive && isNumber(row?.samples_per_s) && facts.tokens_per_sample ? short(row.samples_per_s * facts.tokens_per_sample) : null],
    ["left", isLive && isNumber(rate) && planned > last ? time((planned - last) / rate) : null],
    ["took", !isLive && isNumber(facts.wall_s) ? time(facts.wall_s) : null],
    ["speed", isLive ? null : facts.speed],
    ["memory", facts.usage ? `${count(facts.usage.memory_mb)} MiB` : null],
    ["GPU", (facts.usage?.gpus ?? []).map((gpu) => `${gpu.percent} %, ${count(gpu.memory_mb)} MiB`).join("; ")],
    ["processors", isNumber(facts.usage?.processors) ? facts.usage.processors.toFixed(1) : null],
  ].filter(([, value]) => value);
  return make("div", { class: "head" },
    make("div", {}, dot, name ? make("b", {}, `${name} `) : null, make(name ? "small" : "b", {}, make("code", {}, id))),
    ...parts.map(([name, value]) => make("div", {}, name ? make("small", {}, name) : null, value)),
    isLive && planned ? make("progress", { max: planned, value: last, "aria-label": `steps of ${id}` }) : null);
}

function bestRow(rows, metric) {
  const known = rows.filter((row) => isNumber(row.validation[metric?.name]));
  const sign = metric?.mode === "min" ? -1 : 1;
  return known.reduce((best, row) => (!best || sign * row.validation[metric.name] > sign * best.validation[metric.name] ? row : best), null);
}

export function drawFindings() {
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

export function drawStudy() {
  const { study } = state.project;
  $("study").hidden = !study;
  if (study) fill($("study"), study, () => [
    make("h2", {}, `Search: ${study.done} of ${study.planned} ${study.what}`),
    make("p", { class: "quiet" }, [isNumber(study.left_s) ? `${time(study.left_s)} left` : null, study.best ? `best ${words(study.metric)} ${short(study.best.value)} of trial ${study.best.nr}: ${Object.entries(study.best.values).map(([key, value]) => `${key}=${short(value)}`).join(", ")}` : null].filter(Boolean).join("; ")),
    ...study.running.map((one) => make("div", { class: "quiet" }, `${study.what.replace(/s$/, "")} ${one.nr}: ${one.epoch ? `epoch ${one.epoch} of ${one.epochs}` : "starts"}${isNumber(one.value) ? `, ${words(study.metric)} ${short(one.value)}` : ""}`)),
  ]);
}

export function drawCompare() {
  const runs = state.chosen.filter((id) => state.runs[id]?.facts.config);
  $("compare").hidden = runs.length < 2;
  if (runs.length < 2) return;
  fill($("compare"), runs.map((id) => [id, nameOf(id), state.runs[id].facts.config, state.runs[id].rows.length]), () => comparison(runs));
}

function comparison(runs) {
  const configs = runs.map((id) => state.runs[id].facts.config);
  const keys = [...new Set(configs.flatMap(Object.keys))].filter((key) => key !== "id" && new Set(configs.map((config) => JSON.stringify(config[key]))).size > 1);
  const best = runs.map((id) => bestRow(state.runs[id].rows, state.runs[id].facts.metric));
  const names = [...new Set(best.flatMap((row) => Object.keys(row?.validation ?? {})))];
  const line = (name, cells) => make("tr", {}, make("th", { scope: "row" }, name), ...cells.map((cell) => make("td", {}, cell)));
  return [
    make("h2", {}, "Side by side"),
    make("table", {}, line("", runs.map((id) => nameOf(id) ?? make("code", {}, id))),
      ...names.map((name) => line(words(name), best.map((row) => short(row?.validation[name])))),
      ...keys.map((key) => line(key, configs.map((config) => JSON.stringify(config[key]) ?? "–")))),
    make("p", { class: "quiet" }, keys.length ? "Metrics on validation at each run's best evaluation; below them what differs in the configs." : "Metrics on validation at each run's best evaluation; the configs are equal."),
  ];
}
