// Input and surroundings: pointer and keyboard on the map and the text, the buttons, the theme and width of the page.
import { positionOf, tokenAt } from "./numbers.js";
import { layoutOf, resize } from "./paint.js";
import { visible } from "./words.js";
import { zoomBetween, zoomBy } from "./zoom.js";

const DRAG = 6; // pixels that the pointer may move during a click

// ---- pointing

export function listen(view, point, stateOf) {
  const { over } = view;
  over.addEventListener("pointermove", (event) => {
    const cell = cellAt(view, event);
    over.title = cell ? "" : labelAt(view, event);
    point(cell);
  });
  over.addEventListener("pointerleave", (event) => leave(event, point));
  listenToPresses(view, point);
  over.addEventListener("keydown", (event) => walk(view, event, point, stateOf));
  over.addEventListener("blur", (event) => view.readout.box.contains(event.relatedTarget) || point(null));
  view.unpin.addEventListener("click", () => {
    point(null);
    set(view, { selected: null });
  });
  view.reset.addEventListener("click", () => set(view, view.first));
  view.full?.addEventListener("click", () => set(view, { span: view.data.heads.map(() => view.data.total.keys) }));
  listenToHeads(view);
  if (view.text) listenToText(view, point);
  if (!view.zoom) return;
  view.zoom.in.addEventListener("click", () => set(view, { zoom: zoomBy(view, stateOf(), true) }));
  view.zoom.out.addEventListener("click", () => set(view, { zoom: zoomBy(view, stateOf(), false) }));
  view.zoom.all.addEventListener("click", () => set(view, { zoom: null }));
}

export function listenToHeads(view) {
  for (const input of view.heads.inputs) {
    input.addEventListener("change", () => set(view, { head: view.data.heads[Number(input.value)] }));
  }
}

// A click pins a query. Dragging with a mouse zooms, dragging with a finger scrolls.
function listenToPresses(view, point) {
  const { over } = view;
  let start = null;
  over.addEventListener("pointerdown", (event) => {
    const cell = cellAt(view, event);
    start = cell && { cell, x: event.clientX, y: event.clientY };
    point(cell);
  });
  over.addEventListener("pointercancel", () => (start = null));
  over.addEventListener("pointerup", (event) => {
    const [from, to] = [start, cellAt(view, event)];
    start = null;
    if (!from) return;
    const slipped = Math.hypot(event.clientX - from.x, event.clientY - from.y);
    if (slipped <= DRAG || event.pointerType === "touch" || !view.zoom) pin(view, from.cell.row);
    else if (to) set(view, { zoom: zoomBetween(view, from.cell, to) });
  });
}

// A finger leaves the map when it lifts, but the pair that it pointed at must remain readable.
function leave(event, point) {
  if (event.pointerType !== "touch") point(null);
}

export function set({ model }, values) {
  for (const [name, value] of Object.entries(values)) model.set(name, value);
  model.save_changes();
}

// A second click on the same query unpins it.
function pin(view, row) {
  const { rowBlock, firstQuery } = view.data;
  const selected = view.model.get("selected");
  const same = selected !== null && Math.floor((selected - firstQuery) / rowBlock) === row;
  set(view, { selected: same ? null : firstQuery + row * rowBlock });
}

// The token at the left or bottom of the map, whose name may be cut off.
function labelAt(view, event) {
  const { layout, data } = view;
  if (!layout.names) return "";
  const box = view.over.getBoundingClientRect();
  const [x, y] = [event.clientX - box.left - layout.left, event.clientY - box.top - layout.top];
  const [row, col] = [Math.floor((y / layout.height) * data.rows), Math.floor((x / layout.width) * data.cols)];
  if (x < 0 && row >= 0 && row < data.rows) return data.tokens[positionOf(data, row)] ?? "";
  if (y > layout.height && col >= 0 && col < data.cols) return data.tokens[tokenAt(data, col)];
  return "";
}

function cellAt(view, event) {
  const { layout, data } = view;
  const box = view.over.getBoundingClientRect();
  const col = Math.floor(((event.clientX - box.left - layout.left) / layout.width) * data.cols);
  const row = Math.floor(((event.clientY - box.top - layout.top) / layout.height) * data.rows);
  const inside = row >= 0 && row < data.rows && col >= 0 && col < data.cols;
  return inside ? { row, col } : null;
}

const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

function walk(view, event, point, stateOf) {
  const { data } = view;
  const from = view.hover ?? startOfWalk(view);
  if (STEPS[event.key]) {
    const [down, right] = STEPS[event.key].map((step) => step * (event.shiftKey ? 10 : 1));
    const within = (x, count) => Math.min(Math.max(x, 0), count - 1);
    const start = view.hover ? { row: from.row + down, col: from.col + right } : from;
    point({ row: within(start.row, data.rows), col: within(start.col, data.cols) });
  } else if (event.key === "Enter" || event.key === " ") pin(view, from.row);
  else if (view.zoom && (event.key === "+" || event.key === "-")) {
    set(view, { zoom: zoomBy(view, stateOf(), event.key === "+") });
  } else if (event.key === "Escape") {
    point(null);
    set(view, { selected: null });
  } else return;
  event.preventDefault();
}

// The first step moves to the pinned query or, without one, to the last, and to the key at the same position.
function startOfWalk({ data, model }) {
  const selected = model.get("selected");
  const pinned = selected === null ? -1 : Math.floor((selected - data.firstQuery) / data.rowBlock);
  const row = pinned >= 0 && pinned < data.rows ? pinned : data.rows - 1;
  const col = Math.floor((positionOf(data, row * data.rowBlock) - tokenAt(data, 0)) / data.colBlock);
  return { row, col: Math.max(0, Math.min(data.cols - 1, col)) };
}

function listenToText(view, point) {
  const { strip, spans } = view.text;
  const placeOf = new Map(spans.map((span, j) => [span, j]));
  const rowOf = (event) => {
    const place = placeOf.get(event.target);
    const row = place === undefined ? -1 : tokenAt(view.data, place) - positionOf(view.data, 0);
    return row < 0 || row >= view.data.rows ? null : { row, col: place };
  };
  strip.addEventListener("pointerover", (event) => point(rowOf(event)));
  strip.addEventListener("pointerleave", (event) => leave(event, point));
  strip.addEventListener("click", (event) => rowOf(event) && pin(view, rowOf(event).row));
}

// ---- the surrounding page

// The text colour of the page tells whether the page is dark, in every notebook and with every theme.
export function watchTheme(view, el, redraw) {
  const look = () => {
    const [r, g, b] = (getComputedStyle(el).color.match(/[\d.]+/g) ?? [0, 0, 0]).map(Number);
    view.root.classList.toggle("dark", 0.2126 * r + 0.7152 * g + 0.0722 * b > 128);
    view.colours = coloursOf(view.root);
  };
  view.look = look;
  const both = () => (look(), redraw());
  const lookAgain = () => [0, 300, 1000].forEach((wait) => setTimeout(both, wait)); // style sheets may load later
  const observer = new MutationObserver(lookAgain);
  const attributeFilter = ["class", "style", "data-theme", "data-jp-theme-name"];
  for (const page of [document.documentElement, document.body]) observer.observe(page, { attributeFilter });
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", lookAgain);
  look();
  return () => {
    observer.disconnect();
    dark.removeEventListener("change", lookAgain);
  };
}

function coloursOf(root) {
  const style = getComputedStyle(root);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const colours = { empty: colour("empty"), quiet: colour("quiet"), accent: colour("accent") };
  return { ...colours, font: style.fontFamily, mono: style.getPropertyValue("--mono") };
}

export function watchSize(view, redraw) {
  const longest = longestName(view.data.tokens);
  const fit = () => {
    const width = Math.floor(view.map.clientWidth);
    if (!width) return; // not attached to the page yet
    view.look(); // colours are known only on the page
    view.layout = layoutOf(view.data, width, longest);
    resize(view.over, width, view.layout.total);
    view.map.style.height = `${view.layout.total}px`;
    view.root.style.setProperty("--left", `${view.layout.left}px`);
    // Elements that scroll must be reachable by keyboard.
    if (view.text) view.text.strip.tabIndex = view.text.strip.scrollHeight > view.text.strip.clientHeight ? 0 : -1;
    redraw();
  };
  const observer = new ResizeObserver(fit);
  observer.observe(view.map);
  fit();
  return () => observer.disconnect();
}

function longestName(tokens) {
  const context = document.createElement("canvas").getContext("2d");
  context.font = "12px monospace";
  return (tokens ?? []).reduce((most, token) => Math.max(most, context.measureText(visible(token)).width), 0);
}
