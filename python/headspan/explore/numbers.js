// The definition of attention with a span, in plain loops over the arrays that came from Python; no picture in here.
//
// data: { heads, queries, keys, dim, scale, pool, query, key, norms, maps, rows, cols }; arrays are Float32Array.
// Query i stands at position i + keys - queries, so that the last query sees the last key.

export function decode(meta, bytes) {
  const floats = (view) => (view && view.byteLength ? new Float32Array(copyOf(view)) : null);
  const data = { ...meta, query: floats(bytes.query), key: floats(bytes.key), norms: floats(bytes.norms) };
  data.maps = floats(bytes.maps);
  data.pooled = Boolean(meta.pool);
  [data.rowBlock, data.colBlock] = meta.pool ?? [1, 1];
  data.rows = Math.ceil(meta.queries / data.rowBlock);
  data.cols = Math.ceil(meta.keys / data.colBlock);
  return data;
}

// A view of bytes may start anywhere; an array of floats may not.
export function copyOf(view) {
  return view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength);
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

// Weights of chosen queries on all keys: m exp(s) over its sum, over the pairs with m > 0 only.
export function weightsOf(data, dots, rows, { span, ramp, temperature }) {
  const { keys } = data;
  const out = new Float32Array(rows.length * keys);
  const factor = data.scale / temperature;
  const reach = reachOf(span, ramp);
  const masks = Float64Array.from({ length: Math.min(reach, keys) }, (_, x) => softMask(x, span, ramp));
  const terms = new Float64Array(keys);
  for (let r = 0; r < rows.length; r++) {
    const position = positionOf(data, rows[r]);
    const first = Math.max(0, position + 1 - reach);
    softmaxRow(dots, r * keys, factor, masks, position, first, terms, out);
  }
  return out;
}

function softmaxRow(dots, start, factor, masks, position, first, terms, out) {
  let top = -Infinity;
  for (let j = first; j <= position; j++) top = Math.max(top, factor * dots[start + j]);
  let sum = 0;
  for (let j = first; j <= position; j++) {
    terms[j] = masks[position - j] * Math.exp(factor * dots[start + j] - top);
    sum += terms[j];
  }
  for (let j = first; j <= position; j++) out[start + j] = terms[j] / sum;
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

// What one head costs: 4 operations for each pair and channel; keys and values that generating the next token needs.
export function billOf(data, span, ramp) {
  const reach = reachOf(span, ramp);
  const pairs = pairsOf(data, reach);
  const bytes = Math.min(reach, data.keys) * (data.dim + data.valueDim) * data.itemsize;
  return { pairs, flops: 4 * data.dim * pairs, bytes };
}

export function pairOf(data, head, row, col, dots, weights, { span, ramp, temperature }) {
  const distance = positionOf(data, row) - col;
  const at = row * data.keys + col;
  const later = distance < 0;
  return {
    distance,
    score: later ? NaN : (data.scale / temperature) * dots[at],
    mask: softMask(distance, span, ramp),
    weight: weights[at],
    norm: data.norms ? data.norms[head * data.keys + col] : NaN,
  };
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
