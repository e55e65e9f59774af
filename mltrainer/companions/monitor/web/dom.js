// Elements and words: what each part of the page makes them with.

const SVG = "http://www.w3.org/2000/svg";
const probe = document.createElement("span");

export const $ = (id) => document.getElementById(id);

export const make = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);
export const draw = (tag, attributes = {}, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);

function filled(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// Replaces what an element holds where it is other than before, so that focus and selection stay.
export function fill(element, key, children) {
  const text = JSON.stringify(key);
  if (element.dataset.key === text) return;
  const focused = element.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
  element.dataset.key = text;
  element.replaceChildren(...children());
  if (focused) element.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
}

export const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
export const count = (value) => (isNumber(value) ? Math.round(value).toLocaleString("en") : "–");
export const words = (name) => String(name).replaceAll("_", " ");
export const faint = (colour, share) => colour.slice(0, 7) + Math.round(share * 255).toString(16).padStart(2, "0");

export function short(value) {
  if (!isNumber(value)) return value === null || value === undefined ? "–" : typeof value === "object" ? JSON.stringify(value) : String(value);
  const isExtreme = value !== 0 && (Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3);
  return isExtreme ? value.toExponential(2) : String(+value.toPrecision(4));
}

export function time(s) {
  if (!isNumber(s)) return "–";
  if (s < 90) return `${s.toFixed(s < 10 ? 1 : 0)} s`;
  return s < 5400 ? `${(s / 60).toFixed(0)} min` : `${(s / 3600).toFixed(1)} h`;
}

// The colour behind a variable of the style sheet, in the present theme.
export function shown(variable) {
  if (!probe.isConnected) { probe.hidden = true; document.body.append(probe); }
  probe.style.color = `var(${variable})`;
  return getComputedStyle(probe).color;
}
