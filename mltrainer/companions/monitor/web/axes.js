// Places on the x axis, and the moving average: numbers in, numbers out.

import { isNumber } from "./dom.js";

// Knots between which steps lie evenly: [step, place]. Time is known at evaluations alone.
function knots({ first, rows, facts }, axis) {
  const { steps, epochs } = facts.planned ?? {};
  if (axis === "epoch" && steps > 0 && epochs > 0) return [[0, 0], [steps, epochs]];
  const found = [axis === "time" ? [first - 1, 0] : [0, 0]]; // a fork begins where its parent was
  for (const row of rows) {
    const place = axis === "epoch" ? row.epoch : found.at(-1)[1] + (row.seconds ?? NaN);
    if (isNumber(place) && row.step > found.at(-1)[0]) found.push([row.step, place]);
  }
  return found;
}

// Between two knots by their line, beyond the last by that of the last two; null where there is but one.
function between(found, value, from, to) {
  if (found.length < 2) return null;
  let low = 0;
  let high = found.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (found[middle][from] <= value) low = middle;
    else high = middle;
  }
  const [first, last] = [found[low], found[high]];
  const span = last[from] - first[from];
  return span > 0 ? first[to] + ((value - first[from]) / span) * (last[to] - first[to]) : last[to];
}

// Where steps of a run stand on an axis; none where that is not known.
export function places(run, axis, steps) {
  if (axis === "step") return steps;
  const found = knots(run, axis);
  return found.length < 2 ? [] : steps.map((step) => between(found, step, 0, 1));
}

// The steps of a run in a stretch of an axis.
export function stepsBetween(run, axis, first, last) {
  const found = axis === "step" ? null : knots(run, axis);
  const [from, to] = found ? [first, last].map((place) => between(found, place, 1, 0) ?? 0) : [first, last];
  return { first: Math.max(0, Math.floor(from)), last: Math.ceil(to) };
}

// The exponential moving average of values, debiased: divided by the sum of its weights, so that the first value is not pulled to 0.
// Of evenly spaced values it is m = w m + (1 - w) v, over 1 - w^n. A longer or shorter way to the value before counts as more or less.
export function smoothed(xs, values, weight) {
  const kept = xs.filter((_, nr) => isNumber(values[nr]));
  const usual = (kept.at(-1) - kept[0]) / Math.max(1, kept.length - 1) || 1;
  let [mean, sum, before] = [0, 0, null];
  return values.map((value, nr) => {
    if (!isNumber(value)) return value;
    const share = weight ** (before === null ? 1 : (xs[nr] - before) / usual);
    before = xs[nr];
    mean = share * mean + (1 - share) * value;
    sum = share * sum + (1 - share);
    return sum > 0 ? mean / sum : value;
  });
}

export const CLOCK = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 432000, 864000];

// Seconds as hours, minutes and seconds.
export function clock(s) {
  const two = (value) => String(Math.floor(value)).padStart(2, "0");
  if (s < 60) return `${+s.toFixed(1)} s`;
  return s < 3600 ? `${Math.floor(s / 60)}:${two(s % 60)}` : `${Math.floor(s / 3600)}:${two((s / 60) % 60)}:${two(s % 60)}`;
}

export const AXES = {
  step: { title: "Step", label: "step", least: 1, value: (x) => Math.round(x).toLocaleString("en"), tick: (x) => (x >= 1e6 ? `${x / 1e6} M` : x >= 1e4 ? `${x / 1e3} k` : Number.isInteger(x) ? String(x) : "") },
  epoch: { title: "Epoch", label: "epoch", least: 0, value: (x) => String(+x.toFixed(2)), tick: (x) => String(+x.toFixed(2)) },
  time: { title: "Time", note: "Of training, as evaluations tell it; between them steps are taken to be even", label: "time", least: 0, value: clock, tick: clock, increments: CLOCK },
};
