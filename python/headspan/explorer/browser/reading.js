// Texts about the pair or block under the pointer and, for a long input, about the pinned query and the keys with the
// most weight for it.
import { ruleOf } from "./allowed.js";
import { blockDistance, pairOf, positionOf, scoresOf, sinkShare, tokenAt, weightsOf } from "./numbers.js";
import { bdi, element, fill, flows, tokenName } from "./parts.js";
import { one, range, short, some, visible } from "./words.js";

const HINT = "Move with the pointer or the arrow keys. Click or press Enter to pin a query";
const ZOOM = "; drag a box or press + and \u2212 to zoom";
const AROUND = 24; // characters of text on each side of a token

// Describes the input: its size, which keys the queries of the head see, what changes its scores, and which part is in
// the picture.
export function subtitleOf(data, index) {
  const { total } = data;
  const rule = ruleOf(data, index);
  const apart = `${some(total.queries, "query", "queries")}, ${some(total.keys, "key", "keys")}`;
  const words = [
    ...(data.layered ? [some(new Set(data.heads.map(([layer]) => layer)).size, "layer", "layers")] : []),
    some(data.heads.length, "head", "heads"),
    total.queries === total.keys ? some(total.keys, one(data), data.unit) : apart,
    !rule.causal ? "bidirectional" : rule.prefix ? `causal after a prefix of ${rule.prefix}` : "causal",
  ];
  if (rule.segments) words.push(some(new Set(rule.segments).size, "document", "documents"));
  if (rule.name) words.push(`within ${rule.name}`);
  const { softcap, sink, slope, biased } = scoresOf(data, index);
  if (softcap !== null) words.push(`soft cap ${short(softcap)}`);
  if (sink !== null) words.push(`sink ${short(sink)}`);
  if (slope !== null) words.push(`ALiBi slope ${short(slope)}`);
  if (biased) words.push("bias on keys");
  if (data.zoomed) {
    const keys = range(tokenAt(data, 0), tokenAt(data, 0) + data.width);
    words.push(`shown: queries ${range(data.firstQuery, data.firstQuery + data.queries)}, keys ${keys}`);
  }
  if (data.pooled) words.push(`in blocks of ${data.rowBlock} by ${data.colBlock}`);
  return words.join(", ");
}

export function readPair(view, state, pair) {
  const { data, hover } = view;
  if (!hover) {
    if (state.selected === null) return fill(view, [`${HINT}${view.zoom ? ZOOM : ""}.`], []);
    const position = state.selected + data.total.keys - data.total.queries;
    return fill(view, ["Pinned: ", tokenName(data, "query", state.selected, position)], []);
  }
  if (!pair) return readBlock(view, state);
  const [position, token] = [positionOf(data, hover.row), tokenAt(data, hover.col)];
  const names = [
    tokenName(data, "query", hover.row + data.firstQuery, position), " \u2192 ", tokenName(data, "key", token, token),
  ];
  if (pair.later) names.push(" \u2013 later, not computed");
  else if (pair.reason) names.push(` \u2013 ${pair.reason}, not computed`);
  else if (pair.mask === 0) names.push(" \u2013 beyond the reach, not computed");
  else if (pair.free) names.push(" \u2013 global, no span limits it");
  else if (pair.mask < 1) names.push(" \u2013 beyond the span, on the ramp");
  const { score, mask, weight, norm, sink } = pair;
  const numbers = [pair.distance, score, mask, weight, ...(data.norms ? [weight * norm] : []), sink];
  return fill(view, names, numbers.map(short));
}

function readBlock(view, state) {
  const { data, hover } = view;
  const block = (at, size, first, length) => range(first + at * size, first + Math.min((at + 1) * size, length));
  const queries = block(hover.row, data.rowBlock, data.firstQuery, data.queries);
  const keys = block(hover.col, data.colBlock, tokenAt(data, 0), data.width);
  const words = [`queries ${queries} \u2192 keys ${keys}, mean of the queries`];
  const onGrid = Boolean(ruleOf(data, state.index).grid); // the pairs of a block have different distances
  const distance = onGrid ? "\u2013" : `\u2248 ${short(blockDistance(data, hover.row, hover.col))}`;
  fill(view, words, [distance, short(view.weights[hover.row * data.cols + hover.col])]);
}

export function pairAt(view, state, dots) {
  const { row, col } = view.hover;
  const pair = pairOf(view.data, row, col, dots, view.weights, state);
  return { ...pair, sink: sinkShare(view.data, row, dots, state) };
}

// ---- the pinned query of a long input

export function pinnedBox(data) {
  if (!data.zoomed && !data.pooled) return null; // the whole text is shown
  const box = element("div", { className: "pinned" });
  return element("section", {}, element("h3", { textContent: "Pinned query" }), box);
}

export function fillPinned(section, data, state, dots, strongest) {
  const box = section.lastChild;
  if (state.selected === null) {
    const how = "Pin a query, by a click or Enter, to see the keys with the most weight.";
    return box.replaceChildren(element("p", { className: "note", textContent: how }));
  }
  const position = state.selected + data.total.keys - data.total.queries;
  const query = element("p", {}, `query\u00a0${state.selected} `, excerpt(data, position));
  const keys = data.pooled ? keysFromPython(state, strongest) : keysHere(data, state, dots);
  if (!keys) {
    const why = data.pooled ? "Its strongest keys need Python." : "This query is not in the picture.";
    return box.replaceChildren(query, element("p", { className: "note", textContent: why }));
  }
  const item = ([token, weight]) => {
    const far = position - token;
    const where = far === 0 ? "itself" : far > 0 ? `${far} back` : `${-far} ahead`;
    const weightText = element("b", { textContent: short(weight) });
    return element("li", {}, weightText, ` key\u00a0${token}, ${where} `, excerpt(data, token));
  };
  const list = element("ol", { "aria-label": "Strongest keys" }, ...keys.map(item));
  const none = element("p", { className: "note", textContent: "This query sees no key." });
  return box.replaceChildren(query, keys.length ? list : none);
}

// Python computed the keys for one state. In a saved page the state may have changed, and they are out of date.
function keysFromPython(state, strongest) {
  const settings = [state.span, state.ramp, state.temperature];
  const current = strongest && String(strongest.head) === String(state.number) && strongest.query === state.selected &&
    settings.every((value, i) => value === strongest.settings[i]);
  return current ? strongest.keys : null;
}

function keysHere(data, state, dots) {
  const row = state.selected - data.firstQuery;
  if (row < 0 || row >= data.queries) return null;
  const weights = weightsOf(data, dots.subarray(row * data.keys, (row + 1) * data.keys), [row], state);
  const keys = Array.from(weights, (weight, j) => [data.keyAt[j], weight]).filter(([, weight]) => weight > 0);
  return keys.sort(([, a], [, b]) => b - a).slice(0, data.strongest);
}

// A token with the text around it.
function excerpt(data, position) {
  const { tokens } = data;
  if (!tokens || tokens[position] === undefined) return "";
  const between = flows(tokens.slice(Math.max(0, position - 99), position + 99)) ? "" : " ";
  const side = (step) => {
    let text = "";
    for (let j = position + step; text.length < AROUND && tokens[j] !== undefined; j += step) {
      text = step < 0 ? tokens[j] + between + text : text + between + tokens[j];
    }
    const signs = [...text.replace(/\n/g, "\u21b5")];
    if (signs.length <= AROUND) return signs.join("");
    return step < 0 ? `\u2026${signs.slice(-AROUND).join("")}` : `${signs.slice(0, AROUND).join("")}\u2026`;
  };
  const made = bdi("");
  made.className = "excerpt";
  made.append(side(-1), element("mark", { textContent: visible(tokens[position]) }), side(1));
  return made;
}

