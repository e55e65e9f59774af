// Files of what is shown: the numbers as CSV, a drawing as SVG, a chart's canvas as PNG.

import { shown } from "./dom.js";

const FONT = "system-ui, sans-serif";

function save(title, kind, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = `${title.toLowerCase().replace(/[^a-z0-9]+/g, "_").replace(/^_|_$/g, "")}.${kind}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// --- numbers -----------------------------------------------------------------------------

// A spreadsheet would compute a text that begins like a formula.
function cell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = String(value);
  const tame = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(tame) ? `"${tame.replaceAll('"', '""')}"` : tame;
}

export const csvOf = (names, rows) => `${[names, ...rows].map((row) => row.map(cell).join(",")).join("\n")}\n`;

export const saveCsv = (title, text) => save(title, "csv", new Blob([text], { type: "text/csv" }));

// --- drawings -----------------------------------------------------------------------------

const SHOWN = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "opacity", "font-size", "font-weight", "text-anchor", "dominant-baseline"];

// An SVG as a file of its own: with the colours of the present theme in it, and a ground.
export function svgText(drawing) {
  const copy = drawing.cloneNode(true);
  const [from, to] = [drawing, copy].map((one) => [...one.querySelectorAll("*")]);
  from.forEach((one, nr) => {
    const style = getComputedStyle(one);
    for (const name of SHOWN) if (style.getPropertyValue(name)) to[nr].setAttribute(name, style.getPropertyValue(name));
    for (const name of ["class", "tabindex", "style"]) to[nr].removeAttribute(name);
  });
  const { width, height } = drawing.viewBox.baseVal;
  const ground = document.createElementNS(drawing.namespaceURI, "rect");
  for (const [name, value] of Object.entries({ width, height, fill: shown("--card") })) ground.setAttribute(name, value);
  copy.prepend(ground);
  copy.setAttribute("font-family", FONT);
  return new XMLSerializer().serializeToString(copy);
}

export const saveSvg = (title, drawing) => save(title, "svg", new Blob([svgText(drawing)], { type: "image/svg+xml" }));

// A chart with its title and legend, as large as its canvas is.
export function savePng({ plot, one, lines }) {
  const ratio = plot.ctx.canvas.width / plot.width;
  const canvas = document.createElement("canvas");
  const [top, bottom] = [30, 26];
  canvas.width = plot.ctx.canvas.width;
  canvas.height = plot.ctx.canvas.height + (top + bottom) * ratio;
  const ctx = canvas.getContext("2d");
  ctx.fillStyle = shown("--card");
  ctx.fillRect(0, 0, canvas.width, canvas.height);
  ctx.drawImage(plot.ctx.canvas, 0, top * ratio);
  ctx.scale(ratio, ratio);
  ctx.fillStyle = shown("--ink");
  ctx.font = `600 14px ${FONT}`;
  ctx.fillText(one.title, 10, 20);
  legend(ctx, lines.filter((line) => !line.isQuiet), top + plot.height + 16, plot.width);
  canvas.toBlob((blob) => save(one.title, "png", blob));
}

function legend(ctx, lines, y, width) {
  ctx.font = `12px ${FONT}`;
  let x = 10;
  for (const { label, colour } of lines) {
    const wide = ctx.measureText(label).width + 30;
    if (x + wide > width) return;
    ctx.fillStyle = colour;
    ctx.fillRect(x, y - 9, 10, 10);
    ctx.fillStyle = shown("--ink");
    ctx.fillText(label, x + 15, y);
    x += wide;
  }
}
