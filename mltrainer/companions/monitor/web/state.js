// What is looked at. Everything that is drawn follows from `state` alone; whoever changes it calls `changed`.

export const COLOURS = ["#3d7fe8", "#e07b2e", "#2ca678", "#9a6bd8", "#d6544f", "#1fa3b0", "#b08a2e", "#d067a6", "#7d8896", "#5f9e3a", "#8a5a44", "#4a5fc1"];

export const state = {
  project: null, runs: {}, chosen: [], isAsked: false, open: null, unfolded: new Set(), filter: "",
  view: "curves", axis: "step", smoothing: 0, zoom: null, isLog: {}, sort: {}, brush: {}, looked: null,
};

const listeners = [];
let isDue = false;

export const colourOf = (id) => COLOURS[Math.max(0, state.chosen.indexOf(id)) % COLOURS.length];
export const onChange = (listener) => listeners.push(listener);

// Draws once, with the browser's next frame.
export function changed() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    if (state.project) listeners.forEach((listener) => listener());
  });
}
