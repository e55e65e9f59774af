// How each class was told on validation: which was taken for which, and precision and recall of each.

import { $, count, draw, fill, make, short } from "./dom.js";
import { cut, figure, key, shade, text } from "./drawing.js";
import { lookedAt, runPicker } from "./layers.js";
import { answer } from "./link.js";
import { csvOf } from "./save.js";
import { state } from "./state.js";
import { sortable } from "./table.js";

const [LEFT, TOP, WIDE] = [110, 52, 480];
const COUNTED = 25; // classes of a matrix whose counts are written in

export function drawClasses() {
  const run = state.runs[lookedAt()];
  const found = run ? answer("classes", { run: lookedAt() }, `${run.facts.state}`) : null;
  fill($("classes"), [lookedAt() ?? null, state.chosen, found ?? null, state.sort.classes, document.documentElement.dataset.theme], () => [...runPicker(), ...shownOf(run, found)]);
}

function shownOf(run, found) {
  if (!run) return [make("p", { class: "empty" }, "Choose a run.")];
  if (!found?.length) return [make("p", { class: "empty" }, run.facts.state === "running" ? "Classes are counted when the run ends, for its best checkpoint." : "This run has no counts by class.")];
  return found.flatMap((target) => [
    make("div", { class: "charts" }, ...(target.matrix ? [matrix(target)] : []), make("section", { class: "card" }, ...table(target))),
  ]);
}

const titled = (title, { name }) => (name ? `${title}: ${name}` : title);

function matrix(target) {
  const labels = target.rows.map(([label]) => label);
  const size = (WIDE - LEFT) / labels.length;
  const small = size < 22 ? Math.max(5, size * 0.55) : 11;
  const right = target.rows.reduce((sum, row) => sum + row[3], 0);
  const all = target.rows.reduce((sum, row) => sum + row[1], 0);
  const squares = target.matrix.flatMap((row, y) => row.map((many, x) => square(labels, many, target.rows[y][1], x, y, size, small)));
  const names = labels.flatMap((label, nr) => [
    text(LEFT - 6, TOP + size * (nr + 0.5) + small / 3, cut(label, 15), { "text-anchor": "end", "font-size": small }),
    text(0, 0, cut(label, 8), { "text-anchor": labels.length > 12 ? "start" : "middle", "font-size": small, transform: `translate(${LEFT + size * (nr + 0.5) + (labels.length > 12 ? small / 3 : 0)} ${TOP - 6})${labels.length > 12 ? " rotate(-60)" : ""}` }),
  ]);
  return figure({
    name: "confusion", title: titled("Which class was taken for which", target), note: "rows are true, columns predicted", size: [WIDE + 4, TOP + WIDE - LEFT + 30],
    told: `Confusion matrix of ${labels.length} classes: ${right} of ${all} samples on the diagonal`,
    csv: () => csvOf(["true \\ predicted", ...labels], target.matrix.map((row, nr) => [labels[nr], ...row])),
  }, ...squares, ...names, ...key(WIDE - 240, TOP + WIDE - LEFT + 22, "0 %", "100 % of a row", ground));
}

// Less than half of a row is pale and more is strong, with a step between them: counts can be read on both.
const ground = (share) => shade(share > 0.5 ? 0.4 + 0.6 * share : 0.8 * share);

function square(labels, many, of, x, y, size, small) {
  const share = of ? many / of : 0;
  const parts = [draw("rect", { x: LEFT + x * size, y: TOP + y * size, width: size, height: size, fill: ground(share), class: "cell" })];
  if (labels.length <= COUNTED && many) parts.push(text(LEFT + (x + 0.5) * size, TOP + (y + 0.5) * size + small / 3, many, { "text-anchor": "middle", "font-size": small, class: share > 0.5 ? "label on" : "label in" }));
  return draw("g", {}, ...parts, draw("title", {}, `${labels[y]} taken for ${labels[x]}: ${many} of ${of}`));
}

function table(target) {
  const ratio = (part, whole) => (whole ? part / whole : null);
  const rows = target.rows.map(([label, samples, taken, right]) => {
    const [precision, recall] = [ratio(right, taken), ratio(right, samples)];
    return { label, samples, taken, precision, recall, f1: ratio(2 * right, samples + taken) };
  });
  const columns = [["label", "Class"], ["samples", "Samples"], ["taken", "Predicted"], ["precision", "Precision"], ["recall", "Recall"], ["f1", "F1"]]
    .map(([name, title]) => ({ key: name, title, value: (row) => row[name], cell: (row) => (typeof row[name] === "number" && name !== "samples" && name !== "taken" ? short(row[name]) : name === "label" ? row[name] : count(row[name])) }));
  return [...sortable("classes", titled("Each class", target), columns, rows), make("p", { class: "quiet" }, "Of the validation split, by the run's best checkpoint.")];
}
