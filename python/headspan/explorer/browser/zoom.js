// Zooming: which queries and keys are in the picture, and what the sliders of a long input require.
import { positionOf, tokenAt } from "./numbers.js";
import { element } from "./parts.js";
import { bytes, some, withCommas } from "./words.js";

const STEP = 4; // factor of the number of queries and keys
const LEAST = 16;

// The buttons of a view with Python; listen() of input.js handles their clicks.
export function zoomButtons(data) {
  const button = (name, textContent) => element("button", { type: "button", className: "quiet", name, textContent });
  const names = { in: "Zoom in", out: "Zoom out", all: "Show all" };
  const buttons = Object.fromEntries(Object.entries(names).map(([name, text]) => [name, button(`zoom-${name}`, text)]));
  buttons.out.disabled = buttons.all.disabled = !data.zoomed;
  buttons.in.disabled = Math.max(data.queries, data.width) <= LEAST;
  return buttons;
}

// Fewer or more queries and keys, around the pair under the pointer, the pinned query or the middle; null shows all.
export function zoomBy(view, state, inward) {
  const { data } = view;
  const row = view.hover?.row ?? state.pinned ?? Math.floor(data.rows / 2);
  const firstKey = tokenAt(data, 0);
  const position = positionOf(data, row * data.rowBlock);
  const nearest = Math.min(Math.max(position, firstKey), firstKey + data.width - 1);
  const key = view.hover ? tokenAt(data, view.hover.col) : nearest;
  const size = (count) => Math.max(LEAST, inward ? Math.ceil(count / STEP) : count * STEP);
  const rows = around(row * data.rowBlock + data.firstQuery, size(data.queries), data.total.queries);
  const cols = around(key, size(data.width), data.total.keys);
  return unlessAll(data, rows, cols);
}

// The region between two pairs of the picture.
export function zoomBetween({ data }, from, to) {
  const ends = (a, b, block, first, length) => {
    const [low, high] = [Math.min(a, b) * block, Math.min((Math.max(a, b) + 1) * block, length)];
    return [first + low, first + high];
  };
  const rows = ends(from.row, to.row, data.rowBlock, data.firstQuery, data.queries);
  const cols = ends(from.col, to.col, data.colBlock, tokenAt(data, 0), data.width);
  return unlessAll(data, rows, cols);
}

function around(middle, size, length) {
  const first = Math.max(0, Math.min(middle - Math.floor(size / 2), length - size));
  return [first, Math.min(length, first + size)];
}

function unlessAll({ total }, rows, cols) {
  const all = rows[1] - rows[0] === total.queries && cols[1] - cols[0] === total.keys;
  return all ? null : [rows, cols];
}

// A hint for a view of layers whose queries and keys are too many, so that only those of a layer or a head are here.
function hintOfSome(data, live) {
  const blocks = `blocks of ${data.blocks.rowBlock} by ${data.blocks.colBlock}`;
  const layer = `layer ${data.heads[data.loaded[0]][0]}`;
  const held = data.loaded.length > 1 ? layer : data.names[data.loaded[0]];
  if (live) return `Heads other than those of ${held} are in ${blocks}: all would need ${bytes(data.needs)}.`;
  const saved = `This page has single pairs and sliders for ${held}, which was selected when it was saved.`;
  return data.pooled ? `${saved} This head is in ${blocks}.` : `${saved} Other heads are in ${blocks}, for the settings at that time.`;
}

// A hint for readers of a long input.
export function hintOf(data, live, movable) {
  const larger = Math.max(data.queries, data.width);
  if (data.loaded.length && !data.complete) return hintOfSome(data, live);
  const size = `${bytes(data.needs)} of queries and keys`;
  if (data.pooled && larger > data.maxTokens) {
    const count = some(larger, "token", "tokens");
    const why = `Shown in blocks, because ${count} are more than max_tokens=${data.maxTokens}.`;
    const everyPair = data.layered ? "every pair of the selected head" : `every pair and need ${size}`;
    const more = `With max_tokens=${larger} the browser would compute ${everyPair}.`;
    const saved = movable ? "The bill follows the sliders, but the map needs" : "The sliders need";
    const now = live ? "Zoom in to see pairs." : `${saved} Python, or a page saved after zooming in.`;
    return `${why} ${now} ${more}`;
  }
  if (data.pooled) {
    const why = `Spans reach so far that the browser would need ${size}.`;
    if (live) return `${why} Python computes the map instead.`;
    return `${why} The sliders need Python; shorter spans or fewer heads need less.`;
  }
  if (live || data.reach === null) return "";
  return `This page holds the keys for a reach of up to ${withCommas(data.reach)}, which limits the sliders.`;
}
