// The state of the model, and the sliders that change it.
import { set } from "./input.js";
import { element, headsOfLayer, slider } from "./parts.js";
import { counted, short, spanWords } from "./words.js";

// A head is a number or, in a view of layers, a pair of numbers.
export function indexOf({ heads }, head) {
  return Math.max(0, heads.findIndex((other) => String(other) === String(head)));
}

// The longest span of the heads that are computed here.
export function longestSpan(data, spans) {
  return Math.max(...(data.loaded.length ? data.loaded.map((index) => spans[index]) : spans));
}

// Counts from Python. In a saved page they are out of date after a slider moved.
export function countsOf({ model, data, first }) {
  const [spans, ramp] = [model.get("span"), model.get("ramp")];
  const isMoved = ramp !== first.ramp || spans.some((span, i) => span !== first.span[i]);
  const isStale = data.pooled ? isMoved : data.loaded.length && !data.complete;
  return model.saved && isStale ? [] : model.get("counts") ?? [];
}

export function stateOf({ model, data }) {
  const number = model.get("head");
  const index = indexOf(data, number);
  const spans = model.get("span");
  const selected = model.get("selected") ?? null;
  const row = selected === null ? -1 : Math.floor((selected - data.firstQuery) / data.rowBlock);
  return {
    number, index, spans, span: spans[index], ramp: model.get("ramp"), temperature: model.get("temperature"), selected,
    pinned: row >= 0 && row < data.rows ? row : null, // in the picture
  };
}

// Whether the slider moves the spans of all heads of a layer: a choice in views of layers.
export function layerChoice(view) {
  const { data, moves } = view;
  if (!data.layered || !view.movable) return null;
  const input = element("input", { type: "checkbox", name: "layer", checked: moves.layer });
  input.addEventListener("change", () => {
    moves.layer = input.checked;
    view.sliders.forEach((slider) => slider.update());
  });
  return element("label", { className: "choice" }, input, "Move all heads of the layer");
}

export function sliders(view) {
  const { model, data, id } = view;
  const setSpan = (place) => {
    const state = stateOf(view);
    const moved = view.moves.layer ? headsOfLayer(data, state.index) : [state.index];
    set(view, { span: state.spans.map((span, i) => (moved.includes(i) ? place : span)) });
  };
  const rampEnd = Math.max(64, Math.ceil(data.total.keys / 2), Math.ceil(model.get("ramp")));
  // A saved page cannot ask Python for more keys.
  const ends = (most, other) => (model.saved && data.reach !== null ? Math.max(0, data.reach - other) : most);
  const spanOf = (s) => [s.span, spanWords(data, s.index, s.span, s.ramp), ends(data.total.keys, s.ramp)];
  const rampOf = (s) => [s.ramp, counted(data, s.ramp), ends(rampEnd, longestSpan(data, s.spans))];
  const nameOf = (s) => (view.moves.layer ? `Span of layer ${data.heads[s.index][0]}` : "Span of this head");
  const specs = [
    ["span", nameOf, 0, data.total.keys, 1, spanOf, setSpan],
    ["ramp", () => "Ramp", 0, rampEnd, 1, rampOf, (x) => set(view, { ramp: x })],
    // A step is a hundredth of a power of ten, so that halving and doubling move the slider equally far.
    ["temperature", () => "Temperature", -1, 1, 0.01, (s) => [Math.log10(s.temperature), short(s.temperature)],
      (x) => set(view, { temperature: 10 ** x })],
  ];
  return specs.map(([name, label, min, max, step, read, write]) => {
    const made = slider({
      id: `${id}-${name}`, min, max, step, write,
      read: () => {
        const state = stateOf(view);
        const [place, text, end] = read(state);
        return { label: label(state), place, text, end };
      },
    });
    made.input.disabled = !(name === "temperature" ? view.live : view.movable);
    made.input.dataset.name = made.input.name = name;
    return made;
  });
}
