// The view: state lives in the model, the widget's traits or a plain object in a saved page; everything drawn follows.
import { patternOf } from "./allowed.js";
import {
  blockDistance, counted, decode, dotProducts, everyRow, floatsOf, maskOf, one, pairOf, pooledMap, positionOf, short,
  spanWords, weightsOf,
} from "./numbers.js";
import { drawMap, drawOver, edgesOf, paintWeights } from "./paint.js";
import {
  billBox, curveBox, drawCurve, element, fieldsOf, fill, fillBill, fillStrip, legendBox, readout, slider, textStrip,
  tokenName,
} from "./parts.js";
import { headPictures, paintHead, showRow } from "./heads.js";
import { listen, set, watchSize, watchTheme } from "./input.js";

const KEPT = 8e6; // dot products kept, of all heads together
const HINT = "Point at a pair, or walk with the arrow keys. A click or Enter pins the query.";

function render({ model, el }) {
  const view = build(model);
  el.append(view.root);
  const redraw = () => redrawMap(view);
  const stop = [watchModel(view), watchTheme(view, el, redraw), watchSize(view, redraw)];
  listen(view, (cell) => {
    if (cell?.row === view.hover?.row && cell?.col === view.hover?.col) return;
    view.hover = cell;
    overlay(view);
  });
  refresh(view);
  showComputing(view);
  return () => stop.forEach((end) => end());
}

function build(model) {
  const bytes = Object.fromEntries(["query", "key", "norms", "maps", "allowed"].map((name) => [name, model.get(name)]));
  const data = decode(model.get("meta"), bytes);
  data.counts = model.get("counts");
  const view = { model, data, id: `headspan-${Math.random().toString(36).slice(2)}`, hover: null };
  view.first = Object.fromEntries(["span", "ramp", "temperature"].map((name) => [name, model.get(name)]));
  view.spans = view.first.span;
  view.live = !data.pooled || !model.saved; // a saved page has nobody to ask for other pooled maps
  view.rows = data.pooled ? null : everyRow(data);
  view.dots = new Map();
  view.source = document.createElement("canvas");
  view.base = element("canvas", { "aria-hidden": "true" });
  view.over = element("canvas", { tabIndex: 0, role: "application", "aria-roledescription": "attention map" });
  view.map = element("div", { className: "map" }, view.base, view.over);
  view.legend = legendBox(data.pooled);
  view.readout = readout(fieldsOf(data));
  view.sliders = sliders(view);
  view.curve = curveBox();
  view.bill = billBox(data);
  view.text = textStrip(data);
  view.heads = headPictures(data, view.id);
  view.waiting = new Set(view.heads.canvases.keys());
  view.root = assemble(view);
  return view;
}

function assemble(view) {
  const heading = (text) => element("h3", { textContent: text });
  view.title = element("h2");
  view.subtitle = element("p", { className: "subtitle" });
  view.unpin = element("button", { type: "button", className: "quiet", textContent: "Unpin" });
  view.reset = element("button", { type: "button", className: "quiet", textContent: "Reset" });
  const words = "Saved from pooled maps: the sliders need Python.";
  const note = view.live ? [] : [element("p", { className: "note", textContent: words })];
  view.reset.hidden = !view.live;
  const head = element("div", { className: "head" }, heading("Reach"), view.reset);
  const controls = [head, ...view.sliders.map((slider) => slider.row), ...note];
  view.computing = element("p", { className: "busy", role: "status" });
  const map = element("div", { className: "large" }, view.map, view.computing);
  const left = element("div", { className: "left" }, map, view.legend.box, view.readout.box);
  const right = element(
    "div",
    { className: "right" },
    element("section", { className: "controls" }, ...controls),
    element("section", {}, heading("Mask"), view.curve),
    element("section", {}, heading("Bill"), view.bill.box),
  );
  const text = view.text ? [element("section", {}, heading("Text"), view.text.strip)] : [];
  const top = element("header", {}, element("div", {}, view.title, view.subtitle), view.unpin);
  const body = element("div", { className: "columns" }, left, right);
  const inside = element("div", { className: "sheet" }, top, body, ...text, view.heads.box);
  return element("div", { className: "headspan-view", role: "group", "aria-label": "Attention with spans" }, inside);
}

function sliders(view) {
  const { model, data, id } = view;
  const setSpan = (place) => {
    const state = stateOf(view);
    set(view, { span: state.spans.map((span, i) => (i === state.index ? place : span)) });
  };
  const rampEnd = Math.max(64, Math.ceil(data.keys / 2), Math.ceil(model.get("ramp")));
  const specs = [
    ["span", "Span of this head", 0, data.keys, 1, (s) => [s.span, spanWords(data, s.span)], setSpan],
    ["ramp", "Ramp", 0, rampEnd, 1, (s) => [s.ramp, counted(data, s.ramp)], (x) => set(view, { ramp: x })],
    // A step is a hundredth of a power of ten, so that halving is as far as doubling.
    ["temperature", "Temperature", -1, 1, 0.01, (s) => [Math.log10(s.temperature), short(s.temperature)],
      (x) => set(view, { temperature: 10 ** x })],
  ];
  return specs.map(([name, label, min, max, step, read, write]) => {
    const made = slider({
      id: `${id}-${name}`, label, min, max, step, write,
      read: () => {
        const [place, text] = read(stateOf(view));
        return { place, text };
      },
    });
    made.input.disabled = !view.live;
    made.input.dataset.name = name;
    return made;
  });
}

// ---- state

function stateOf({ model, data }) {
  const number = model.get("head");
  const index = Math.max(0, data.heads.indexOf(number));
  const spans = model.get("span");
  const selected = model.get("selected");
  return {
    number, index, spans, span: spans[index], ramp: model.get("ramp"), temperature: model.get("temperature"), selected,
    pinned: selected === null || selected === undefined ? null : Math.floor(selected / data.rowBlock),
  };
}

function watchModel(view) {
  const { model } = view;
  let planned = false;
  const plan = () => {
    // Several traits may change at once; a microtask still draws them in the same frame.
    if (!planned) queueMicrotask(() => ((planned = false), refresh(view)));
    planned = true;
  };
  const handlers = {
    head: plan,
    span: () => (changedHeads(view).forEach((i) => view.waiting.add(i)), plan()),
    ramp: () => (everyHead(view), plan()),
    temperature: () => (everyHead(view), plan()),
    selected: () => overlay(view),
    maps: () => ((view.data.maps = floatsOf(model.get("maps"))), everyHead(view), plan()),
    counts: () => ((view.data.counts = model.get("counts")), plan()),
    computing: () => showComputing(view),
  };
  for (const [name, handler] of Object.entries(handlers)) model.on(`change:${name}`, handler);
  return () => Object.entries(handlers).forEach(([name, handler]) => model.off(`change:${name}`, handler));
}

// Pooled maps come from Python, which may take a while.
function showComputing({ model, root, computing }) {
  const busy = model.get("computing") === true;
  root.classList.toggle("computing", busy);
  computing.textContent = busy ? "Python is computing." : "";
}

function everyHead(view) {
  view.heads.canvases.forEach((_, i) => view.waiting.add(i));
}

function changedHeads(view) {
  const spans = view.model.get("span");
  const before = view.spans ?? [];
  view.spans = spans;
  return [...spans.keys()].filter((i) => spans[i] !== before[i]);
}

// ---- what is computed and drawn

function dotsOf(view, index) {
  const { data, dots } = view;
  if (!dots.has(index)) {
    const room = Math.max(1, Math.floor(KEPT / (data.queries * data.keys)));
    while (dots.size >= room) dots.delete(dots.keys().next().value);
    dots.set(index, dotProducts(data, index, view.rows));
  }
  return dots.get(index);
}

function weightsNow(view, state) {
  if (view.data.pooled) return pooledMap(view.data, state.index);
  return weightsOf(view.data, dotsOf(view, state.index), view.rows, state);
}

function redrawMap(view) {
  if (!view.layout || !view.colours || !view.weights) return;
  drawMap(view.base, view.source, view.data, view.layout, view.colours);
  if (view.root.drawn) view.root.drawn.layout = view.layout;
  overlay(view);
}

function refresh(view) {
  const started = performance.now();
  const { data } = view;
  const state = stateOf(view);
  view.weights = weightsNow(view, state);
  paintWeights(view.source, view.weights, data.rows, data.cols);
  redrawMap(view);
  view.sliders.forEach((slider) => slider.update());
  fillBill(view.bill.cells, data, state);
  describe(view, state);
  // What is on the canvas, for whoever wants the numbers behind the picture.
  const milliseconds = performance.now() - started;
  const { weights, layout } = view;
  view.root.drawn = { head: state.number, rows: data.rows, cols: data.cols, weights, layout, milliseconds };
  paintHeadsLater(view);
}

function describe(view, state) {
  const { data } = view;
  const some = (n, one, more) => `${n}\u00a0${n === 1 ? one : more}`;
  const keys = some(data.keys, "key", "keys");
  const queries = some(data.queries, "query", "queries");
  const count = data.queries === data.keys ? some(data.keys, one(data), data.unit) : `${queries}, ${keys}`;
  const pooled = data.pooled ? `, in blocks of ${data.rowBlock} by ${data.colBlock}` : "";
  view.title.textContent = `Where ${data.names[state.index]} looks`;
  const pattern = patternOf(data, state.index);
  const inside = pattern ? `, within ${pattern.name}` : "";
  view.subtitle.textContent = `${some(data.heads.length, "head", "heads")}, ${count}${pooled}${inside}`;
  view.over.setAttribute("aria-label", `Attention map of ${data.names[state.index]}, queries down, keys to the right`);
  const edges = edgesOf(data, state).length;
  view.legend.lines.forEach((line, i) => (line.style.visibility = i < edges ? "" : "hidden")); // its place stays
  view.heads.inputs.forEach((input, i) => {
    input.checked = i === state.index;
    view.heads.captions[i].textContent = state.spans[i] >= data.keys ? "no limit" : `span ${short(state.spans[i])}`;
  });
}

// Small pictures are drawn a few at a time, so that the slider that changed them all does not wait for them.
function paintHeadsLater(view) {
  if (view.painting || !view.waiting.size) return;
  view.painting = setTimeout(() => {
    view.painting = null;
    const end = performance.now() + 6;
    const state = stateOf(view);
    for (const index of view.waiting) {
      view.waiting.delete(index);
      paintHead(view, index, state);
      if (performance.now() > end) break;
    }
    paintHeadsLater(view);
  }, 0);
}

function overlay(view) {
  const state = stateOf(view);
  view.unpin.hidden = state.pinned === null;
  if (view.layout) {
    const drawnState = { ...state, hover: view.hover };
    drawOver(view.over, view.data, view.layout, drawnState, view.colours);
  }
  const row = view.hover ? view.hover.row : state.pinned;
  const pair = view.hover && !view.data.pooled ? pairAt(view, state) : null;
  readPair(view, state, pair);
  drawCurve(view.curve, view.data, state, pair ? pair.distance : null, pair ? pair.mask : 0);
  if (view.text) lightText(view, state, state.pinned ?? row);
  showRow(view, state, state.pinned ?? row);
}

function pairAt(view, state) {
  const { row, col } = view.hover;
  return pairOf(view.data, row, col, dotsOf(view, state.index), view.weights, state);
}

function readPair(view, state, pair) {
  const { data, hover } = view;
  if (!hover) {
    if (state.pinned === null) return fill(view, [HINT], []);
    return fill(view, ["Pinned: ", tokenName(data, "query", state.selected, positionOf(data, state.selected))], []);
  }
  if (!pair) return readBlock(view, state);
  const names = [
    tokenName(data, "query", hover.row, positionOf(data, hover.row)), " \u2192 ",
    tokenName(data, "key", hover.col, hover.col),
  ];
  if (pair.later) names.push(" \u2013 later, not computed");
  else if (!pair.allowed) names.push(" \u2013 not in the pattern, not computed");
  else if (pair.mask === 0) names.push(" \u2013 beyond the span, not computed");
  else if (pair.free) names.push(" \u2013 global, no span limits it");
  const { score, mask, weight, norm } = pair;
  return fill(view, names, [short(pair.distance), short(score), short(mask), short(weight), short(weight * norm)]);
}

function readBlock(view, state) {
  const { data, hover } = view;
  const range = (block, size, length) => `${block * size}\u2013${Math.min((block + 1) * size, length) - 1}`;
  const queries = range(hover.row, data.rowBlock, data.queries);
  const words = [`queries ${queries} \u2192 keys ${range(hover.col, data.colBlock, data.keys)}, mean of the queries`];
  const onGrid = Boolean(patternOf(data, state.index)?.grid); // blocks of it have no one distance
  const distance = onGrid ? "\u2013" : `\u2248 ${short(blockDistance(data, hover.row, hover.col))}`;
  fill(view, words, [distance, short(view.weights[hover.row * data.cols + hover.col])]);
}

function lightText(view, state, row) {
  const { data } = view;
  if (row === null) return fillStrip(view.text.spans, null, null, -1);
  const position = positionOf(data, row);
  const masks = Array.from({ length: data.keys }, (_, j) => maskOf(data, row, j, state));
  const weights = view.weights.subarray(row * data.cols, (row + 1) * data.cols);
  return fillStrip(view.text.spans, weights, masks, position);
}

export default { render };
