// A table whose head sorts it. A column: {key, title, value} and, where it shows more than its value, `cell`; both are given a row.

import { isNumber, make, short } from "./dom.js";
import { csvOf, saveCsv } from "./save.js";
import { changed, state } from "./state.js";
import { saveButtons } from "./drawing.js";

const MOST_ROWS = 200;

export function sorted(name, columns, rows) {
  const { key, isDown } = state.sort[name] ?? {};
  const column = columns.find((one) => one.key === key);
  return column ? [...rows].sort((a, b) => compared(column.value(a), column.value(b), isDown ? -1 : 1)) : rows;
}

// What is not known stands last, whatever the direction.
function compared(a, b, sign) {
  const [isUnknown, isOtherUnknown] = [a, b].map((value) => value === null || value === undefined || value === "");
  if (isUnknown || isOtherUnknown) return isUnknown - isOtherUnknown;
  return sign * (isNumber(a) && isNumber(b) ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
}

function sortBy(name, key) {
  const before = state.sort[name];
  state.sort[name] = { key, isDown: before?.key === key ? !before.isDown : false };
  changed();
}

// The table's elements: what it is called, how to save it, and its rows in their order.
export function sortable(name, title, columns, rows, marked = () => null) {
  const ordered = sorted(name, columns, rows);
  const save = () => saveCsv(title, csvOf(columns.map((column) => column.title), ordered.map((row) => columns.map((column) => column.value(row)))));
  const more = ordered.length > MOST_ROWS ? [make("p", { class: "quiet" }, `The first ${MOST_ROWS} of ${ordered.length}: filter them, or sort them by another column.`)] : [];
  return [
    make("div", { class: "title" }, make("h2", {}, title), saveButtons(title, { CSV: save })),
    make("div", { class: "scroll" }, make("table", {},
      make("thead", {}, make("tr", {}, ...columns.map((column) => head(name, column)))),
      make("tbody", {}, ...ordered.slice(0, MOST_ROWS).map((row) => make("tr", { class: marked(row) }, ...columns.map((column) => cell(column, row))))))),
    ...more,
  ];
}

function head(name, { key, title }) {
  const { key: by, isDown } = state.sort[name] ?? {};
  const isBy = by === key;
  return make("th", { scope: "col", "aria-sort": isBy ? (isDown ? "descending" : "ascending") : "none" },
    make("button", { type: "button", "data-focus": `sort ${key}`, onclick: () => sortBy(name, key) }, title, make("span", { "aria-hidden": "true" }, isBy ? (isDown ? " ▾" : " ▴") : "")));
}

function cell(column, row) {
  const value = column.value(row);
  return make("td", { class: isNumber(value) ? "right" : null }, column.cell ? column.cell(row) : short(value));
}
