// The definition of attention with a span, in plain loops over the arrays from Python. Nothing is drawn here.
import { allows, distanceIn, isFree, isLater, reasonOf, ruleOf, rulesOf } from "./allowed.js";

// data: the queries and keys in the picture, which may be a part of the whole input, for the large map of one head.
//   total            numbers of queries and keys of the whole input; query i has position i + keys - queries, so
//                    that the last one sees the last key
//   queries, keys    numbers of loaded queries, from firstQuery on, and of loaded keys, in ascending order in keyAt:
//                    those in the picture and all that its queries see within meta.reach
//   firstCol, width  the keys in the picture, among the loaded ones
//   rows, cols       numbers of blocks in the picture, of rowBlock by colBlock pairs, which are single pairs unless the
//                    large map is one from Python: then data is pooled
//   blocks           the same four numbers of the maps from Python
//   loaded, slot     the heads whose queries and keys are here, and the place of each head among them, or -1
// Arrays are Float32Array; they are empty for a map from Python.

export function decode(meta, bytes, index) {
  const data = { ...meta, query: floatsOf(bytes.query), key: floatsOf(bytes.key), norms: floatsOf(bytes.norms) };
  data.maps = floatsOf(bytes.maps);
  data.bias = floatsOf(bytes.bias);
  data.total = { queries: meta.queries, keys: meta.keys };
  data.slot = meta.heads.map((_, i) => meta.loaded.indexOf(i));
  data.complete = meta.loaded.length === meta.heads.length;
  data.pooled = data.slot[index] < 0;
  if (data.pooled) Object.assign(data, { keptKeys: null, firstKey: meta.cols[0], reach: null });
  [data.rowBlock, data.colBlock] = data.pooled ? meta.pool : [1, 1];
  data.firstQuery = meta.rows[0];
  data.queries = meta.rows[1] - meta.rows[0];
  data.width = meta.cols[1] - meta.cols[0];
  data.keyAt = Int32Array.from(meta.keptKeys ?? { length: heldKeys(data) }, (key, j) => key ?? meta.firstKey + j);
  data.keys = data.keyAt.length;
  data.firstCol = data.keyAt.indexOf(meta.cols[0]);
  Object.assign(data, sizesIn(data, data.rowBlock, data.colBlock));
  data.blocks = sizesIn(data, ...(meta.pool ?? [1, 1]));
  data.zoomed = data.queries < data.total.queries || data.width < data.total.keys;
  data.rules = rulesOf(data, data.pooled ? null : bytes.allowed);
  return data;
}

function sizesIn({ queries, width }, rowBlock, colBlock) {
  return { rows: Math.ceil(queries / rowBlock), cols: Math.ceil(width / colBlock), rowBlock, colBlock };
}

function heldKeys(data) {
  return data.pooled ? data.width : data.key.length / (data.dim * (Math.max(...data.keyOf) + 1));
}

// Whether only a map in blocks is drawn for a head.
export function isInBlocks(data, index) {
  return data.pooled || data.slot[index] < 0;
}

// A DataView may start at any byte, but a Float32Array must be aligned.
export function floatsOf(view) {
  if (!view || !view.byteLength) return null;
  return new Float32Array(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength));
}

// The position of a query among the keys of the whole input, from its row among the loaded queries.
export function positionOf(data, row) {
  return row + data.firstQuery + data.total.keys - data.total.queries;
}

// The token of a column in the picture.
export function tokenAt(data, col) {
  return data.cols === data.width ? data.keyAt[data.firstCol + col] : col * data.colBlock + data.keyAt[data.firstCol];
}

// The distance of a block of a map: from its first query to its first key.
export function blockDistance(data, row, col) {
  const { rowBlock, colBlock } = data.blocks;
  return positionOf(data, row * rowBlock) - data.keyAt[data.firstCol] - col * colBlock;
}

export function softMask(distance, span, ramp) {
  if (ramp === 0) return distance <= span ? 1 : 0;
  return Math.min(1, Math.max(0, (ramp + span - distance) / ramp));
}

// How many distances, from 0 on, have a mask above 0.
export function reachOf(span, ramp) {
  return ramp === 0 ? Math.floor(span) + 1 : Math.max(Math.ceil(span + ramp), Math.floor(span) + 1);
}

// The largest distance from a query to a key that it may see.
export function farthestOf(data, index) {
  const { grid } = ruleOf(data, index);
  return grid ? Math.max(...grid) - 1 : data.total.keys - 1;
}

export function everyRow(data) {
  return Array.from({ length: data.queries }, (_, i) => i);
}

// The rows that a small picture shows: evenly spaced, including the last.
export function someRows(data, count) {
  const n = Math.min(count, data.queries);
  return Array.from({ length: n }, (_, i) => Math.floor(((i + 1) * data.queries) / n) - 1);
}

// The first loaded key at this token or after it.
function firstFrom(data, token) {
  let [low, high] = [0, data.keys];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (data.keyAt[middle] < token) low = middle + 1;
    else high = middle;
  }
  return low;
}

// The loaded keys that causality lets a query at this position see and, with a reach, those within it.
function keysOf(data, { causal, prefix }, position, reach = Infinity) {
  const begin = reach === Infinity ? 0 : firstFrom(data, position - reach + 1);
  const end = causal ? Math.max(position + 1, Math.min(prefix, position + reach)) : position + reach;
  return [begin, end === Infinity ? data.keys : firstFrom(data, end)];
}

// Dot products of chosen queries with all loaded keys, except for later ones if causal. They stay valid while span,
// ramp and temperature change.
export function dotProducts(data, index, rows) {
  const { keys, dim, query, key } = data;
  const out = new Float64Array(rows.length * keys);
  const [firstQuery, firstKey] = [data.slot[index] * data.queries, data.keyOf[data.slot[index]] * keys * dim];
  for (let r = 0; r < rows.length; r++) {
    const q = query.subarray((firstQuery + rows[r]) * dim, (firstQuery + rows[r] + 1) * dim);
    const [begin, end] = keysOf(data, ruleOf(data, index), positionOf(data, rows[r]));
    for (let j = begin; j < end; j++) out[r * keys + j] = dot(q, key, firstKey + j * dim, dim);
  }
  return out;
}

function dot(q, key, at, dim) {
  let sum = 0;
  for (let d = 0; d < dim; d++) sum += q[d] * key[at + d];
  return sum;
}

// The mask of a pair, 0 if the key is later or no rule allows the pair; j indexes the loaded keys.
export function maskOf(data, row, j, { index, span, ramp }) {
  const rule = ruleOf(data, index);
  const [position, token] = [positionOf(data, row), data.keyAt[j]];
  if (isLater(rule, position, token) || !allows(rule, row * data.keys + j)) return 0;
  if (isFree(rule, position, token)) return 1;
  return softMask(Math.abs(distanceIn(rule, position, token)), span, ramp);
}

// The score of a pair: the scaled dot product, with a soft cap, ALiBi and the bias on the key.
function scoreOf({ softcap, slope }, product, distance, bias) {
  const bounded = softcap === null ? product : softcap * Math.tanh(product / softcap);
  return bounded - (slope === null ? 0 : slope * Math.abs(distance)) + bias;
}

const PLAIN_SCORES = { softcap: null, sink: null, slope: null, biased: false };

export function scoresOf(data, index) {
  return data.scores?.[index] ?? PLAIN_SCORES;
}

function biasOf(data, index) {
  return data.bias?.subarray(data.slot[index] * data.keys, (data.slot[index] + 1) * data.keys);
}

// Weights of chosen queries on all loaded keys: m exp(s) divided by its sum over the pairs with m > 0, and exp(sink).
export function weightsOf(data, dots, rows, setting) {
  const { keys, keyAt } = data;
  const out = new Float32Array(rows.length * keys);
  const factor = data.scale / setting.temperature;
  const { span, ramp } = setting;
  const rule = ruleOf(data, setting.index);
  const [special, bias] = [scoresOf(data, setting.index), biasOf(data, setting.index)];
  const far = data.total.keys + data.total.queries;
  const byDistance = Float64Array.from({ length: far }, (_, x) => softMask(x, span, ramp));
  const masks = new Float64Array(keys);
  const scores = new Float64Array(keys);
  for (let r = 0; r < rows.length; r++) {
    const position = positionOf(data, rows[r]);
    const [begin, end] = keysOf(data, rule, position, rule.plain ? reachOf(span, ramp) : Infinity);
    if (!rule.plain) masksOfRow(masks, rule, byDistance, data, rows[r], begin, end);
    else for (let j = begin; j < end; j++) masks[j] = byDistance[Math.abs(position - keyAt[j])];
    for (let j = begin; j < end; j++) {
      const distance = special.slope === null ? 0 : distanceIn(rule, position, keyAt[j]);
      scores[j] = scoreOf(special, factor * dots[r * keys + j], distance, bias ? bias[j] : 0);
    }
    softmaxRow(scores, masks, begin, end, special.sink ?? -Infinity, out, r * keys);
  }
  return out;
}

function masksOfRow(masks, rule, byDistance, data, row, begin, end) {
  const position = positionOf(data, row);
  for (let j = begin; j < end; j++) {
    const token = data.keyAt[j];
    if (!allows(rule, row * data.keys + j)) masks[j] = 0;
    else masks[j] = isFree(rule, position, token) ? 1 : byDistance[Math.abs(distanceIn(rule, position, token))];
  }
}

// Replaces scores by their terms. Pairs with a mask of 0 are skipped, whatever their score.
function softmaxRow(scores, masks, begin, end, sink, out, start) {
  let top = sink;
  for (let j = begin; j < end; j++) {
    if (masks[j] > 0) top = Math.max(top, scores[j]);
  }
  let sum = sink === -Infinity ? 0 : Math.exp(sink - top);
  for (let j = begin; j < end; j++) {
    scores[j] = masks[j] > 0 ? masks[j] * Math.exp(scores[j] - top) : 0;
    sum += scores[j];
  }
  for (let j = begin; j < end; j++) out[start + j] = masks[j] > 0 ? scores[j] / sum : 0;
}

export function pooledMap(data, index) {
  const size = data.blocks.rows * data.blocks.cols;
  return data.maps.subarray(index * size, (index + 1) * size);
}

// Selects the columns in the picture from the weights on all loaded keys.
export function onPicture(data, weights, rows) {
  const { keys, firstCol, width } = data;
  if (width === keys) return weights;
  const out = new Float32Array(rows * width);
  for (let r = 0; r < rows; r++) {
    out.set(weights.subarray(r * keys + firstCol, r * keys + firstCol + width), r * width);
  }
  return out;
}

// Adds neighbouring columns of a map, so that rows still sum to 1.
export function sumColumns(weights, rows, cols, wanted) {
  const block = Math.ceil(cols / wanted);
  const width = Math.ceil(cols / block);
  const out = new Float32Array(rows * width);
  for (let r = 0; r < rows; r++) {
    for (let j = 0; j < cols; j++) out[r * width + Math.floor(j / block)] += weights[r * cols + j];
  }
  return { weights: out, rows, cols: width };
}

export function pairOf(data, row, col, dots, weights, setting) {
  const j = data.firstCol + col;
  const [position, token, at] = [positionOf(data, row), data.keyAt[j], row * data.keys + j];
  const rule = ruleOf(data, setting.index);
  const later = isLater(rule, position, token);
  const allowed = allows(rule, at);
  const bias = biasOf(data, setting.index)?.[j] ?? 0;
  const distance = later ? position - token : distanceIn(rule, position, token);
  const product = (data.scale / setting.temperature) * dots[at];
  return {
    later,
    reason: later || allowed ? null : reasonOf(rule, position, token, bias === -Infinity),
    free: !later && allowed && isFree(rule, position, token),
    distance,
    score: later ? NaN : scoreOf(scoresOf(data, setting.index), product, distance, bias),
    mask: maskOf(data, row, j, setting),
    weight: weights[row * data.cols + col],
    norm: data.norms ? data.norms[data.keyOf[data.slot[setting.index]] * data.keys + j] : NaN,
  };
}

// The share of a row that the sink takes, from the weights on all loaded keys; it is 0 without a sink.
export function sinkShare(data, row, dots, setting) {
  if (scoresOf(data, setting.index).sink === null) return 0;
  const weights = weightsOf(data, dots.subarray(row * data.keys, (row + 1) * data.keys), [row], setting);
  return Math.max(0, 1 - weights.reduce((sum, weight) => sum + weight, 0));
}

