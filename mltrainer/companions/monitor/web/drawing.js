// Drawings in SVG: their frame, their colours from pale to strong, and the buttons that save what a figure shows.

import { draw, make, shown } from "./dom.js";
import { saveCsv, saveSvg } from "./save.js";

export const LEVELS = 16;

// Buttons that save what a figure shows, by the kind of file.
export function saveButtons(title, savers) {
  return make("span", { class: "save" }, ...Object.entries(savers).map(([kind, save]) => make("button", {
    type: "button", "data-focus": `${title} ${kind}`, title: `Save as ${kind}`, "aria-label": `Save ${title} as ${kind}`, onclick: save,
  }, kind)));
}

// A figure with a drawing of so many units; `told` is what somebody who cannot see it should know, `csv` gives its numbers.
export function figure({ name, title, note, told, wide, size: [width, height], csv }, ...parts) {
  const drawn = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": told ?? title }, ...parts);
  const savers = { SVG: () => saveSvg(title, drawn), CSV: () => saveCsv(title, csv()) };
  return make("figure", { class: `chart drawn${wide ? " wide" : ""}`, "data-name": name },
    make("figcaption", {}, title, make("small", {}, note ?? ""), saveButtons(title, savers)), drawn);
}

export const text = (x, y, content, attributes = {}) => draw("text", { x, y, class: "label", ...attributes }, cut(content));
export const cut = (content, most = 24) => (String(content).length > most ? `${String(content).slice(0, most - 1)}…` : String(content));

// The colour of a share from 0 to 1, in the present theme.
export function shade(share) {
  const [from, to] = ["--pale", "--strong"].map((name) => shown(name).match(/[\d.]+/g).map(Number));
  const at = Math.max(0, Math.min(1, share));
  return `rgb(${[0, 1, 2].map((nr) => Math.round(from[nr] + at * (to[nr] - from[nr]))).join(",")})`;
}

// The key of the colours, from the lowest value to the highest.
export function key(x, y, low, high, colour = shade) {
  const cells = [...Array(LEVELS).keys()].map((nr) => draw("rect", { x: x + 8 * nr, y: y - 9, width: 8, height: 10, fill: colour(nr / (LEVELS - 1)) }));
  return [text(x - 6, y, low, { "text-anchor": "end" }), ...cells, text(x + 8 * LEVELS + 6, y, high)];
}
