// The view. It draws the state of the model, which is the widget's traits or a plain object in a saved page.
import {
  decode, dotProducts, everyRow, floatsOf, maskOf, onPicture, pooledMap, positionOf, reachOf, tokenAt, weightsOf,
} from "./numbers.js";
import { isUnlimited, reachWords, short } from "./words.js";
import { drawMap, drawOver, edgesOf, paintWeights } from "./paint.js";
import {
  bdi, costBox, curveBox, drawCurve, element, fieldsOf, fillCost, fillStrip, headsOfLayer, legendBox, readout, showQuery,
  textStrip,
} from "./parts.js";
import { headPictures, paintHead, showRow } from "./heads.js";
import { askForPredictions, fillModel, modelBox } from "./model.js";
import { describeOverview, overviewBox } from "./overview.js";
import { fillPinned, pairAt, pinnedBox, readPair, subtitleOf } from "./reading.js";
import { zoomButtons } from "./zoom.js";
import { listen, listenToHeads, set, watchSize, watchTheme } from "./input.js";
import { countsOf, indexOf, layerChoice, longestSpan, sliders, stateOf } from "./state.js";
import { assemble } from "./sheet.js";

const KEPT = 8e6; // number of cached dot products, over all heads
const ARRAYS = ["query", "key", "norms", "bias", "maps", "allowed"];

// A new part of the input is a new view in place of the previous one, and so is a head that is in blocks after one that
// is not. The focus moves to the control of the same name. The overview of all heads stays.
function render({ model, el }) {
  const first = Object.fromEntries(["span", "ramp", "temperature"].map((name) => [name, model.get(name)]));
  const fixed = { first, id: `headspan-${Math.random().toString(36).slice(2)}`, moves: { layer: false } };
  let view = mount(model, el, fixed);
  const again = () => {
    const { activeElement } = el.getRootNode();
    const focused = view.root.contains(activeElement) ? activeElement.name : null;
    const place = view.overview?.place();
    view.stop();
    view = mount(model, el, fixed, view);
    view.overview?.moveTo(place);
    const named = `[name="${focused}"]`;
    if (focused === undefined) view.over.focus();
    else if (focused) view.root.querySelector(`${named}:checked, ${named}:not([type=radio])`)?.focus();
  };
  const changed = () => {
    if (!view.gone) queueMicrotask(again); // by then all changes of the same message have arrived
    view.gone = true;
  };
  const headChanged = () => {
    const inBlocks = view.data.slot[stateOf(view).index] < 0;
    if (inBlocks === view.data.pooled) return;
    changed();
    // Blocks in a saved page are those of the settings with which it was saved.
    if (model.saved && inBlocks) set(view, { ...(view.movable ? {} : { ramp: first.ramp }), temperature: first.temperature });
  };
  const stopAsking = askForPredictions(model);
  model.on("change:meta", changed);
  model.on("change:head", headChanged);
  return () => {
    stopAsking();
    model.off("change:meta", changed);
    model.off("change:head", headChanged);
    view.stop();
  };
}

function mount(model, el, fixed, before) {
  const view = build(model, fixed, before);
  el.append(view.root);
  const redraw = () => redrawMap(view);
  const stop = [watchModel(view), watchTheme(view, el, redraw), watchSize(view, redraw)];
  const point = (cell) => {
    if (cell?.row === view.hover?.row && cell?.col === view.hover?.col) return;
    view.hover = cell;
    overlay(view);
  };
  listen(view, point, () => stateOf(view));
  view.stop = () => {
    stop.forEach((end) => end());
    clearTimeout(view.painting);
    view.root.remove();
  };
  refresh(view);
  showQuery(view.text);
  if (!before) view.overview?.show(stateOf(view).index);
  return view;
}

function build(model, { first, id, moves }, before) {
  const meta = model.get("meta");
  const index = indexOf(meta, model.get("head"));
  const data = decode(meta, Object.fromEntries(ARRAYS.map((name) => [name, model.get(name)])), index);
  const view = { model, data, first, id, moves, hover: null };
  data.counts = countsOf(view);
  view.spans = model.get("span");
  view.live = !data.pooled || !model.saved; // a saved page cannot ask Python for other pooled maps
  view.movable = view.live || model.get("recorded")?.span !== undefined; // the bill of a model follows, if no map does
  view.rows = data.pooled ? null : everyRow(data);
  view.dots = new Map();
  view.source = document.createElement("canvas");
  view.base = element("canvas", { "aria-hidden": "true" });
  view.over = element("canvas", { tabIndex: 0, role: "application", "aria-roledescription": "attention map" });
  view.map = element("div", { className: "map" }, view.base, view.over);
  view.legend = legendBox(data.pooled);
  view.readout = readout(fieldsOf(data));
  view.sliders = sliders(view);
  view.layerChoice = layerChoice(view);
  view.curve = curveBox();
  view.cost = costBox(data);
  view.modelBox = modelBox(view);
  view.text = textStrip(data);
  view.pinned = pinnedBox(data);
  view.zoom = model.saved ? null : zoomButtons(data);
  view.heads = headPictures(data, view.id, headsOfLayer(data, index));
  view.overview = !data.layered ? null : before?.overview ?? overviewBox(data, `${id}-overview`, (i) => {
    set({ model }, { head: meta.heads[i] });
  });
  view.waiting = new Set(data.heads.keys());
  view.root = assemble(view);
  return view;
}

// ---- changes of the model

function watchModel(view) {
  const { model } = view;
  let planned = false;
  const plan = () => {
    // Several traits may change at once; a microtask draws them all in the same frame.
    if (!planned) queueMicrotask(() => ((planned = false), view.gone || refresh(view)));
    planned = true;
  };
  const handlers = {
    head: plan,
    span: () => (changedHeads(view).forEach((i) => view.waiting.add(i)), plan()),
    ramp: () => (everyHead(view), plan()),
    temperature: () => (everyHead(view), plan()),
    selected: () => view.gone || (overlay(view), showQuery(view.text), fillModel(view, stateOf(view))),
    predicted: () => view.gone || fillModel(view, stateOf(view)),
    strongest: () => view.gone || overlay(view),
    maps: () => ((view.data.maps = floatsOf(model.get("maps"))), everyHead(view), plan()),
    counts: plan,
    computing: () => showComputing(view),
  };
  for (const [name, handler] of Object.entries(handlers)) model.on(`change:${name}`, handler);
  return () => Object.entries(handlers).forEach(([name, handler]) => model.off(`change:${name}`, handler));
}

// Maps in blocks and more distant keys come from Python, which may take a while.
function showComputing({ model, root, computing, lacksKeys }) {
  const busy = model.get("computing") === true || lacksKeys;
  root.classList.toggle("computing", busy);
  computing.textContent = busy ? "Python is computing." : "";
}

function everyHead(view) {
  view.data.heads.forEach((_, i) => view.waiting.add(i));
}

function changedHeads(view) {
  const spans = view.model.get("span");
  const before = view.spans ?? [];
  view.spans = spans;
  return [...spans.keys()].filter((i) => spans[i] !== before[i]);
}

// ---- computing and drawing

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
  const { data } = view;
  if (data.pooled) return pooledMap(data, state.index);
  return onPicture(data, weightsOf(data, dotsOf(view, state.index), view.rows, state), data.rows);
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
  data.counts = countsOf(view);
  view.sliders.forEach((slider) => slider.update());
  view.lacksKeys = data.reach !== null && reachOf(longestSpan(data, state.spans), state.ramp) - 1 > data.reach;
  showComputing(view);
  if (view.lacksKeys) return; // Python sends a new view with more keys
  view.weights = weightsNow(view, state);
  paintWeights(view.source, view.weights, data.rows, data.cols);
  redrawMap(view);
  fillCost(view.cost.cells, data, state);
  fillModel(view, state);
  describe(view, state);
  // The numbers behind the picture, for tests and scripts.
  const milliseconds = performance.now() - started;
  const { weights, layout } = view;
  view.root.drawn = { head: state.number, rows: data.rows, cols: data.cols, weights, layout, milliseconds };
  paintHeadsLater(view);
}

function describe(view, state) {
  const { data } = view;
  view.title.replaceChildren("Where ", bdi(data.names[state.index]), " looks");
  view.subtitle.textContent = subtitleOf(data, state.index);
  view.over.setAttribute("aria-label", `Attention map of ${data.names[state.index]}, queries down, keys to the right`);
  const edges = edgesOf(data, state).length;
  view.legend.nan.hidden = !view.weights.some(Number.isNaN);
  view.legend.lines.forEach((line, i) => (line.style.visibility = i < edges ? "" : "hidden")); // keeps its space
  if (!view.heads.indices.includes(state.index)) showLayer(view, state.index);
  view.heads.indices.forEach((index, i) => {
    view.heads.inputs[i].checked = index === state.index;
    const [span, ramp] = [state.spans[index], state.ramp];
    const words = `span ${short(span)}\n${reachWords(data, index, span, ramp)}`;
    view.heads.captions[i].textContent = isUnlimited(data, span) ? "no limit" : words;
  });
  if (view.overview) describeOverview(view.overview, data, state);
}

// Shows the heads of another layer below the map.
function showLayer(view, index) {
  const before = view.heads.box;
  view.heads = headPictures(view.data, view.id, headsOfLayer(view.data, index));
  before.replaceWith(view.heads.box);
  listenToHeads(view);
  view.heads.indices.forEach((other) => view.waiting.add(other));
}

// Draws a few small pictures at a time, so that a slider that changes all of them stays responsive.
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
  const dots = view.data.pooled ? null : dotsOf(view, state.index);
  const pair = view.hover && dots ? pairAt(view, state, dots) : null;
  readPair(view, state, pair);
  drawCurve(view.curve, view.data, state, pair ? pair.distance : null, pair ? pair.mask : 0);
  if (view.text) lightText(view, state, state.pinned ?? row);
  if (view.pinned) fillPinned(view.pinned, view.data, state, dots, view.model.get("strongest"));
  showRow(view, state, state.pinned ?? row);
}

function lightText(view, state, row) {
  const { data } = view;
  if (row === null) return fillStrip(view.text.spans, null, null, -1);
  const masks = Array.from({ length: data.width }, (_, col) => maskOf(data, row, data.firstCol + col, state));
  const weights = view.weights.subarray(row * data.cols, (row + 1) * data.cols);
  return fillStrip(view.text.spans, weights, masks, positionOf(data, row) - tokenAt(data, 0));
}

export default { render };
