// The definition of attention with a span, in plain loops over the arrays that came from Python; no picture in here.
//
import { allows, distanceIn, isFree, patternOf, patternsOf, tallyOf, within } from "./allowed.js";

// data: { heads, queries, keys, dim, scale, pool, query, key, norms, maps, patterns, counts, rows, cols }; arrays are
// Float32Array.
// Query i stands at position i + keys - queries, so that the last query sees the last key.

export function decode(meta, bytes) {
  const data = { ...meta, query: floatsOf(bytes.query), key: floatsOf(bytes.key), norms: floatsOf(bytes.norms) };
  data.maps = floatsOf(bytes.maps);
  data.patterns = patternsOf(meta, bytes.allowed);
  data.pooled = Boolean(meta.pool);
  [data.rowBlock, data.colBlock] = meta.pool ?? [1, 1];
  data.rows = Math.ceil(meta.queries / data.rowBlock);
  data.cols = Math.ceil(meta.keys / data.colBlock);
  return data;
}

// A view of bytes may start anywhere; an array of floats may not.
export function floatsOf(view) {
  if (!view || !view.byteLength) return null;
  return new Float32Array(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength));
}

export function positionOf(data, query) {
  return query + data.keys - data.queries;
}

// Of two blocks of a pooled map: from the first query to the first key.
export function blockDistance(data, row, col) {
  return positionOf(data, row * data.rowBlock) - col * data.colBlock;
}

export function softMask(distance, span, ramp) {
  if (distance < 0) return 0;
  if (ramp === 0) return distance <= span ? 1 : 0;
  return Math.min(1, Math.max(0, (ramp + span - distance) / ramp));
}

// How many distances, from 0 on, have a mask above 0.
export function reachOf(span, ramp) {
  return ramp === 0 ? Math.floor(span) + 1 : Math.ceil(span + ramp);
}

// The largest distance there is from a query to a key that is not later.
export function farthestOf(data, index) {
  const grid = patternOf(data, index)?.grid;
  return grid ? Math.max(...grid) - 1 : data.keys - 1;
}

export function everyRow(data) {
  return Array.from({ length: data.queries }, (_, i) => i);
}

// Some rows, evenly spread and with the last: what a small picture has room for.
export function someRows(data, count) {
  const n = Math.min(count, data.queries);
  return Array.from({ length: n }, (_, i) => Math.floor(((i + 1) * data.queries) / n) - 1);
}

// Dot products of chosen queries with all keys that are not later; they stay while span, ramp and temperature move.
export function dotProducts(data, head, rows) {
  const { keys, dim, query, key } = data;
  const out = new Float64Array(rows.length * keys);
  const firstKey = head * keys * dim;
  for (let r = 0; r < rows.length; r++) {
    const q = query.subarray((head * data.queries + rows[r]) * dim, (head * data.queries + rows[r] + 1) * dim);
    const last = Math.min(keys - 1, positionOf(data, rows[r]));
    for (let j = 0; j <= last; j++) out[r * keys + j] = dot(q, key, firstKey + j * dim, dim);
  }
  return out;
}

function dot(q, key, at, dim) {
  let sum = 0;
  for (let d = 0; d < dim; d++) sum += q[d] * key[at + d];
  return sum;
}

// Of any pair that is not later: what the span leaves of it, and 0 where the pattern does not allow it.
export function maskOf(data, row, col, { index, span, ramp }) {
  const pattern = patternOf(data, index);
  const position = positionOf(data, row);
  if (position < col || (pattern && !allows(pattern, row * data.keys + col))) return 0;
  return pattern && isFree(pattern, position, col) ? 1 : softMask(distanceIn(pattern, position, col), span, ramp);
}

// Weights of chosen queries on all keys: m exp(s) over its sum, over the pairs with m > 0 only.
export function weightsOf(data, dots, rows, setting) {
  const { keys } = data;
  const out = new Float32Array(rows.length * keys);
  const factor = data.scale / setting.temperature;
  const { span, ramp } = setting;
  const pattern = patternOf(data, setting.index);
  const reach = reachOf(span, ramp);
  const byDistance = Float64Array.from({ length: keys }, (_, x) => softMask(x, span, ramp));
  const masks = new Float64Array(keys);
  const terms = new Float64Array(keys);
  for (let r = 0; r < rows.length; r++) {
    const position = positionOf(data, rows[r]);
    const first = pattern ? 0 : Math.max(0, position + 1 - reach);
    if (pattern) masksOfRow(masks, pattern, byDistance, rows[r] * keys, position);
    else for (let j = first; j <= position; j++) masks[j] = byDistance[position - j];
    softmaxRow(dots, r * keys, factor, masks, position, first, terms, out);
  }
  return out;
}

function masksOfRow(masks, pattern, byDistance, firstPair, position) {
  for (let j = 0; j <= position; j++) {
    if (!allows(pattern, firstPair + j)) masks[j] = 0;
    else masks[j] = isFree(pattern, position, j) ? 1 : byDistance[distanceIn(pattern, position, j)];
  }
}

// A pair with a mask of 0 is not read, whatever its score.
function softmaxRow(dots, start, factor, masks, position, first, terms, out) {
  let top = -Infinity;
  for (let j = first; j <= position; j++) {
    if (masks[j] > 0) top = Math.max(top, factor * dots[start + j]);
  }
  let sum = 0;
  for (let j = first; j <= position; j++) {
    terms[j] = masks[j] > 0 ? masks[j] * Math.exp(factor * dots[start + j] - top) : 0;
    sum += terms[j];
  }
  for (let j = first; j <= position; j++) out[start + j] = masks[j] > 0 ? terms[j] / sum : 0;
}

export function pooledMap(data, head) {
  const size = data.rows * data.cols;
  return data.maps.subarray(head * size, (head + 1) * size);
}

// Neighbouring columns of a map become one: their sum, so that rows still sum to 1.
export function sumColumns(weights, rows, cols, wanted) {
  const block = Math.ceil(cols / wanted);
  const width = Math.ceil(cols / block);
  const out = new Float32Array(rows * width);
  for (let r = 0; r < rows; r++) {
    for (let j = 0; j < cols; j++) out[r * width + Math.floor(j / block)] += weights[r * cols + j];
  }
  return { weights: out, rows, cols: width };
}

// Pairs with a mask above 0, as headspan.cost counts them.
export function pairsOf(data, reach) {
  let pairs = 0;
  for (let i = 0; i < data.queries; i++) {
    pairs += Math.max(0, Math.min(positionOf(data, i) + 1, reach));
  }
  return pairs;
}

// What one head costs: 4 operations for each pair and channel; keys and values that generating the next token needs,
// or, with a pattern, that the last query reads.
export function billOf(data, index, span, ramp) {
  const reach = reachOf(span, ramp);
  const pattern = patternOf(data, index);
  if (!pattern) return written(data, pairsOf(data, reach), Math.min(reach, data.keys));
  if (data.pooled) return written(data, ...data.counts[index]); // counted in Python
  const { all, last } = tallyOf(data, pattern);
  return written(data, within(all, reach), within(last, reach));
}

export function fullBillOf(data) {
  return written(data, pairsOf(data, data.keys), data.keys);
}

function written(data, pairs, kept) {
  return { pairs, flops: 4 * data.dim * pairs, bytes: kept * (data.dim + data.valueDim) * data.itemsize };
}

export function pairOf(data, row, col, dots, weights, setting) {
  const [position, at] = [positionOf(data, row), row * data.keys + col];
  const pattern = patternOf(data, setting.index);
  const later = position < col;
  const allowed = !pattern || allows(pattern, at);
  return {
    later,
    allowed,
    free: Boolean(pattern) && !later && allowed && isFree(pattern, position, col),
    distance: later ? position - col : distanceIn(pattern, position, col),
    score: later ? NaN : (data.scale / setting.temperature) * dots[at],
    mask: maskOf(data, row, col, setting),
    weight: weights[at],
    norm: data.norms ? data.norms[setting.index * data.keys + col] : NaN,
  };
}

// A number of tokens, or of whatever the unit of the data is.
export function counted({ unit }, x) {
  return `${short(x)} ${x === 1 ? one({ unit }) : unit}`;
}

export function one({ unit }) {
  return unit.replace(/s$/, "");
}

export function spanWords(data, span) {
  return span >= data.keys ? "no limit" : counted(data, span);
}

export function short(x) {
  if (Number.isNaN(x)) return "\u2013";
  const size = Math.abs(x);
  const text = size < 1000 ? String(Number(x.toPrecision(3))) : String(Math.round(x));
  return (size > 0 && size < 0.001 ? x.toExponential(1) : text).replace("-", "\u2212");
}

export function scaled(x, base, units) {
  let unit = 0;
  while (x >= base && unit < units.length - 1) {
    x /= base;
    unit++;
  }
  return `${unit && x < 100 ? x.toPrecision(3) : Math.round(x)}\u00a0${units[unit]}`;
}

export function whole(x) {
  return x.toLocaleString("en");
}
