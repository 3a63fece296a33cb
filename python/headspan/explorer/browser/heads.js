// Small pictures of all heads, or of those of a layer: the map of each, and its weights for the query that is pinned or
// under the pointer.
import {
  blockDistance, dotProducts, isInBlocks, onPicture, pooledMap, positionOf, someRows, sumColumns, weightsOf,
} from "./numbers.js";
import { ruleOf } from "./allowed.js";
import { paintWeights } from "./paint.js";
import { paintTile } from "./overview.js";
import { bdi, element } from "./parts.js";
import { visible } from "./words.js";

const PIXELS = 64; // side length of a small picture
const MOST_ROWS = 64; // heads whose rows are computed while the pointer moves

export function headPictures(data, id, indices) {
  const pictures = { canvases: [], inputs: [], captions: [], strips: [], peaks: [] };
  const labels = indices.map((i) => {
    const parts = {
      inputs: element("input", { type: "radio", name: `${id}-head`, value: i }),
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
  const title = data.layered ? `Heads of layer ${data.heads[indices[0]][0]}` : "Heads";
  const box = element("fieldset", {}, element("legend", { textContent: title }), grid);
  return { box, indices, ...pictures };
}

function settingOf(state, index) {
  return { index, span: state.spans[index], ramp: state.ramp, temperature: state.temperature };
}

// Draws the small pictures of a head.
export function paintHead(view, index, state) {
  const { data } = view;
  let small = { weights: null, rows: data.blocks.rows, cols: data.blocks.cols };
  let distance = view.model.get("distances")?.[index] ?? null;
  if (isInBlocks(data, index)) small.weights = pooledMap(data, index);
  else {
    const rows = someRows(data, PIXELS);
    view.someDots ??= new Map();
    if (!view.someDots.has(index)) view.someDots.set(index, dotProducts(data, index, rows));
    const weights = weightsOf(data, view.someDots.get(index), rows, settingOf(state, index));
    small = sumColumns(onPicture(data, weights, rows.length), rows.length, data.width, PIXELS);
    distance = meanDistance(data, weights, rows);
  }
  const canvas = view.heads.canvases[view.heads.indices.indexOf(index)];
  if (canvas) paintWeights(canvas, small.weights, small.rows, small.cols);
  if (view.overview) paintTile(view.overview, data, index, small, distance);
}

// The mean distance of some rows of weights on all loaded keys, as in ViewData.mean_distance.
function meanDistance(data, weights, rows) {
  let [sum, total] = [0, 0];
  rows.forEach((row, r) => {
    const position = positionOf(data, row);
    for (let j = 0; j < data.keys; j++) {
      const weight = weights[r * data.keys + j];
      total += weight;
      sum += weight * Math.abs(position - data.keyAt[j]);
    }
  });
  return total ? sum / total : null;
}

// The weights of one query in every head: a strip over all keys, and the key with the most weight.
export function showRow(view, state, row) {
  const { data, heads } = view;
  const shown = row === null || heads.indices.length > MOST_ROWS ? null : row;
  heads.box.classList.toggle("rows", shown !== null);
  if (shown === null) return;
  heads.strips.forEach((strip, i) => {
    const index = heads.indices[i];
    const inBlocks = isInBlocks(data, index);
    const at = inBlocks ? Math.floor((shown * data.rowBlock) / data.blocks.rowBlock) : shown;
    const weights = rowOf(data, index, at, settingOf(state, index));
    const [seen, cols] = inBlocks ? [weights, data.blocks.cols] : [onPicture(data, weights, 1), data.cols];
    const small = sumColumns(seen, 1, cols, PIXELS);
    paintWeights(strip, small.weights, 1, small.cols);
    heads.peaks[i].replaceChildren(...peakOf(data, index, weights, at));
    heads.peaks[i].title = heads.peaks[i].textContent;
  });
}

function rowOf(data, index, row, setting) {
  const { cols } = data.blocks;
  if (isInBlocks(data, index)) return pooledMap(data, index).subarray(row * cols, (row + 1) * cols);
  return weightsOf(data, dotProducts(data, index, [row]), [row], setting);
}

// The position of the key with the most weight, which is shorter than the weight and more useful next to a strip.
function peakOf(data, index, weights, row) {
  const most = weights.reduce((best, weight, j) => (weight > weights[best] ? j : best), 0);
  if (!(weights[most] > 0)) return ["sees no key"];
  const { causal, prefix } = ruleOf(data, index);
  if (isInBlocks(data, index)) return [`most ${where(blockDistance(data, row, most), causal && !prefix)}`];
  const token = data.keyAt[most];
  const far = positionOf(data, row) - token;
  if (!far) return ["at itself"];
  return data.tokens ? ["at ", bdi(visible(data.tokens[token])), `, ${where(far)}`] : [`most ${where(far)}`];
}

// The first key of a block may be later than the query, where no key is visible.
function where(far, causal = false) {
  return far < 0 && !causal ? `${-far} ahead` : `${Math.max(0, far)} back`;
}
