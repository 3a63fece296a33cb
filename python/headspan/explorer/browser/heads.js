// Small pictures of all heads: the map of each, and its weights for the query that is pinned or under the pointer.
import {
  blockDistance, dotProducts, onPicture, pooledMap, positionOf, someRows, sumColumns, weightsOf,
} from "./numbers.js";
import { paintWeights } from "./paint.js";
import { bdi, element } from "./parts.js";
import { visible } from "./words.js";

const PIXELS = 64; // side length of a small picture
const MOST_ROWS = 64; // heads whose rows are computed while the pointer moves

export function headPictures(data, id) {
  const pictures = { canvases: [], inputs: [], captions: [], strips: [], peaks: [] };
  const labels = data.heads.map((number, i) => {
    const parts = {
      inputs: element("input", { type: "radio", name: `${id}-head`, value: number }),
      canvases: element("canvas", { width: 1, height: 1, "aria-hidden": "true" }),
      strips: element("canvas", { className: "strip", width: 1, height: 1, "aria-hidden": "true" }),
      name: element("span", { title: data.names[i] }, bdi(data.names[i])),
      captions: element("small"),
      peaks: element("small", { className: "peak", "aria-hidden": "true" }),
    };
    for (const kind of Object.keys(pictures)) pictures[kind].push(parts[kind]);
    return element("label", {}, parts.inputs, parts.canvases, parts.strips, parts.name, parts.captions, parts.peaks);
  });
  const grid = element("div", { className: "heads" }, ...labels);
  if (data.names.some((name) => name.length > 10)) grid.style.setProperty("--cell", "106px");
  const box = element("fieldset", {}, element("legend", { textContent: "Heads" }), grid);
  return { box, ...pictures };
}

function settingOf(state, index) {
  return { index, span: state.spans[index], ramp: state.ramp, temperature: state.temperature };
}

export function paintHead(view, index, state) {
  const { data } = view;
  let small = { weights: null, rows: data.rows, cols: data.cols };
  if (data.pooled) small.weights = pooledMap(data, index);
  else {
    const rows = someRows(data, PIXELS);
    view.someDots ??= new Map();
    if (!view.someDots.has(index)) view.someDots.set(index, dotProducts(data, index, rows));
    const weights = weightsOf(data, view.someDots.get(index), rows, settingOf(state, index));
    small = sumColumns(onPicture(data, weights, rows.length), rows.length, data.width, PIXELS);
  }
  paintWeights(view.heads.canvases[index], small.weights, small.rows, small.cols);
}

// The weights of one query in every head: a strip over all keys, and the key with the most weight.
export function showRow(view, state, row) {
  const { data, heads } = view;
  const shown = row === null || data.heads.length > MOST_ROWS ? null : row;
  heads.box.classList.toggle("rows", shown !== null);
  if (shown === null) return;
  heads.strips.forEach((strip, index) => {
    const weights = rowOf(data, index, shown, settingOf(state, index));
    const small = sumColumns(data.pooled ? weights : onPicture(data, weights, 1), 1, data.cols, PIXELS);
    paintWeights(strip, small.weights, 1, small.cols);
    const peak = peakOf(data, weights, shown);
    heads.peaks[index].replaceChildren(...peak);
    heads.peaks[index].title = heads.peaks[index].textContent;
  });
}

function rowOf(data, index, row, setting) {
  if (data.pooled) return pooledMap(data, index).subarray(row * data.cols, (row + 1) * data.cols);
  return weightsOf(data, dotProducts(data, index, [row]), [row], setting);
}

// The position of the key with the most weight, which is shorter than the weight and more useful next to a strip.
function peakOf(data, weights, row) {
  const most = weights.reduce((best, weight, j) => (weight > weights[best] ? j : best), 0);
  if (!(weights[most] > 0)) return ["sees no key"];
  if (data.pooled) return [`most ${where(blockDistance(data, row, most), data.causal && !data.prefix)}`];
  const token = data.keyAt[most];
  const far = positionOf(data, row) - token;
  if (!far) return ["at itself"];
  return data.tokens ? ["at ", bdi(visible(data.tokens[token])), `, ${where(far)}`] : [`most ${where(far)}`];
}

// The first key of a block may be later than the query, where no key is visible.
function where(far, causal = false) {
  return far < 0 && !causal ? `${-far} ahead` : `${Math.max(0, far)} back`;
}
