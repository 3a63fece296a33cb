// The cost of the pairs: counted here if the browser holds them, otherwise in Python.
import { allows, distanceIn, isFree, isLater, ruleOf } from "./allowed.js";
import { positionOf, reachOf } from "./numbers.js";

// The cost of one head: 4 operations per pair and channel; and the keys and values that are needed to generate the
// next token or, with rules or later keys, that the last query reads.
export function costOf(data, index, span, ramp) {
  const reach = reachOf(span, ramp);
  const rule = ruleOf(data, index);
  if (rule.open) return written(data, pairsOf(data, rule, reach), keysWithin(data, rule, lastRow(data), reach));
  if (data.pooled || (data.zoomed && !data.complete)) return written(data, ...(data.counts[index] ?? [NaN, NaN]));
  const { all, last } = tallyOf(data, rule);
  return written(data, within(all, reach), within(last, reach));
}

export function fullCostOf(data, index) {
  const rule = ruleOf(data, index);
  return written(data, pairsOf(data, rule, Infinity), keysWithin(data, rule, lastRow(data), Infinity));
}

// The bytes of all heads: heads that share keys keep them once, as far as the longest of their spans reaches.
export function sharedBytes({ keyHeads }, costs) {
  const most = [];
  costs.forEach(({ bytes }, index) => (most[keyHeads[index]] = Math.max(most[keyHeads[index]] ?? 0, bytes)));
  return most.reduce((total, bytes) => total + bytes, 0);
}

function written(data, pairs, kept) {
  return { pairs, flops: 4 * data.dim * pairs, bytes: kept * (data.dim + data.valueDim) * data.itemsize };
}

// The cost covers the queries in the picture, except for a part whose pairs are not all here: then all queries.
export function isOfPart(data) {
  return data.zoomed && !data.pooled && data.complete;
}

function lastRow(data) {
  return isOfPart(data) || !data.zoomed ? data.queries - 1 : data.total.queries - 1 - data.firstQuery;
}

// The number of keys of the whole input that a query sees by an open rule: those within reach, and all that no span
// limits; earlier keys, and later ones if not causal.
function keysWithin(data, rule, row, reach) {
  const position = positionOf(data, row);
  const stop = rule.causal ? Math.min(data.total.keys, position + 1) : data.total.keys;
  if (rule.freeKeys[position]) return Math.max(0, stop);
  const [first, end] = [Math.max(0, position - reach + 1), Math.min(stop, position + reach)];
  const within = Math.max(0, end - first);
  const { freeBefore } = rule;
  return within && rule.free.length ? within + freeBefore[first] + Math.max(0, freeBefore[stop] - freeBefore[end]) : within;
}

// Pairs with a mask above 0, as headspan.cost counts them. Many heads have the same reach.
function pairsOf(data, rule, reach) {
  rule.pairs ??= new Map();
  const bounded = Math.min(reach, data.total.keys + data.total.queries);
  if (!rule.pairs.has(bounded)) rule.pairs.set(bounded, countWithin(data, rule, bounded));
  return rule.pairs.get(bounded);
}

function countWithin(data, rule, reach) {
  const last = lastRow(data);
  let pairs = 0;
  for (let row = isOfPart(data) ? 0 : -data.firstQuery; row <= last; row++) pairs += keysWithin(data, rule, row, reach);
  return pairs;
}

// Counts once how many pairs of all loaded queries, and of the last query, are nearer than each distance.
function tallyOf(data, rule) {
  rule.tally ??= { all: countPairs(data, rule, 0), last: countPairs(data, rule, data.queries - 1) };
  return rule.tally;
}

function countPairs(data, rule, firstRow) {
  const nearer = new Float64Array(data.total.keys + data.total.queries + 1);
  let free = 0;
  for (let row = firstRow; row < data.queries; row++) {
    const position = positionOf(data, row);
    for (let j = 0; j < data.keys; j++) {
      const token = data.keyAt[j];
      if (isLater(rule, position, token)) break;
      if (!allows(rule, row * data.keys + j)) continue;
      if (isFree(rule, position, token)) free++;
      else nearer[Math.abs(distanceIn(rule, position, token)) + 1]++;
    }
  }
  for (let x = 0; x + 1 < nearer.length; x++) nearer[x + 1] += nearer[x];
  return { free, nearer };
}

function within({ free, nearer }, reach) {
  return free + nearer[Math.min(reach, nearer.length - 1)];
}
