// The parts of the view as HTML elements. Strings from the user are always inserted as text, never as markup.
import { ruleOf } from "./allowed.js";
import { costOf, fullCostOf, isOfPart, sharedBytes } from "./cost.js";
import { farthestOf, softMask } from "./numbers.js";
import { niceStep, paletteCss } from "./paint.js";
import { bytes, counted, one, range, scaled, visible, withCommas } from "./words.js";

export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made && name !== "role") made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// A string from the user, isolated so that its writing direction does not affect the text around it.
export function bdi(text, tag = "bdi") {
  return element(tag, { dir: "auto", textContent: text });
}

const SVG = "http://www.w3.org/2000/svg";

function drawn(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// A slider; read returns its label, position, text and optionally a new end, write receives a new position.
export function slider({ id, min, max, step, read, write }) {
  const input = element("input", { type: "range", id, min, max, step });
  const output = element("span", { className: "value", "aria-hidden": "true" }); // screen readers use aria-valuetext
  const name = element("label", { htmlFor: id });
  const row = element("div", { className: "slider" }, name, output, input);
  input.addEventListener("input", () => write(Number(input.value)));
  const update = () => {
    const { label, place, text, end } = read();
    name.textContent = label;
    input.max = Math.max(end ?? max, place);
    input.value = place;
    output.textContent = text;
    input.setAttribute("aria-valuetext", text);
    input.style.setProperty("--done", `${(100 * (input.value - input.min)) / Math.max(input.max - input.min, 1e-9)}%`);
  };
  return { row, input, update };
}

// The legend: the colours of a map and the lines over it.
export function legendBox(pooled) {
  const bar = element("div", { className: "bar" });
  bar.style.background = `linear-gradient(to right, ${paletteCss()})`;
  const ticks = ["0.001", "0.01", "0.1", "1"].map((text) => element("span", { textContent: text }));
  const what = pooled ? "weight on a block of keys" : "weight of a pair";
  const sign = (kind, words) => element("span", {}, element("i", { className: kind }), words);
  const lines = [sign("line", "span"), sign("line dashed", "reach (span + ramp)")];
  const nan = sign("nan", "not a number");
  const box = element(
    "div",
    { className: "scale" },
    element("span", { textContent: what }),
    element("div", { className: "ramp" }, bar, element("div", { className: "ticks" }, ...ticks)),
    element("div", { className: "signs" }, sign("empty", "not computed"), nan, ...lines),
  );
  return { box, lines, nan };
}

// ---- the pair under the pointer

// A block of pairs has no single score or mask.
export function fieldsOf(data) {
  if (data.pooled) return ["distance", "weight"];
  const values = data.norms ? ["weight \u00d7 |value|"] : [];
  return ["distance", "score", "mask", "weight", ...values, ...(data.scores?.some(({ sink }) => sink !== null) ? ["sink"] : [])];
}

export function readout(fields) {
  const values = fields.map(() => element("dd", { textContent: "\u2013" }));
  const field = (name, i) => element("div", {}, element("dt", { textContent: name }), values[i]);
  const list = element("dl", {}, ...fields.map(field));
  const sentence = element("p", { className: "pair" });
  const box = element("div", { className: "readout", role: "status", "aria-live": "polite" }, sentence, list);
  return { box, sentence, values };
}

export function tokenName(data, what, index, position) {
  const name = element("span", { className: "token" });
  const text = data.tokens ? data.tokens[position] : undefined;
  if (text !== undefined) {
    const shown = bdi(visible(text), "b");
    shown.title = text; // the full text, in case it is cut off
    name.append(shown, " ");
  }
  name.append(element("span", { className: "index", textContent: `${what}\u00a0${index}` }));
  return name;
}

export function fill(view, words, numbers) {
  const { sentence } = view.readout;
  const before = sentence.textContent;
  const after = element("p", {}, ...words);
  if (after.textContent !== before) {
    sentence.replaceChildren(...after.childNodes); // otherwise a screen reader reads it again
    // A name that is cut off is shown in full while it has the focus, for touch and keyboard, which cannot hover.
    for (const name of sentence.querySelectorAll("b")) name.tabIndex = name.scrollWidth > name.clientWidth ? 0 : -1;
  }
  view.readout.values.forEach((field, i) => (field.textContent = numbers[i] ?? "\u2013"));
}

// ---- the mask

// The heads in the same layer as a head.
export function headsOfLayer(data, index) {
  const all = [...data.heads.keys()];
  return data.layered ? all.filter((i) => data.heads[i][0] === data.heads[index][0]) : all;
}

const [WIDTH, HEIGHT, LEFT, BOTTOM] = [320, 128, 30, 30];

export function curveBox() {
  return drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", class: "curve" });
}

// The end of the axis stays the same while a slider moves, as long as the curve fits.
function axisEnd(data, { index, span, ramp }) {
  const needed = Math.max(4, 1.05 * (span + ramp));
  return Math.min(Math.max(farthestOf(data, index), 4), niceStep(needed, 1));
}

export function drawCurve(svg, data, state, distance, value) {
  const end = axisEnd(data, state);
  const x = (tokens) => LEFT + (Math.min(tokens, end) / end) * (WIDTH - LEFT - 12);
  const y = (mask) => HEIGHT - BOTTOM - mask * (HEIGHT - BOTTOM - 14);
  const line = (span) => corners(span, state.ramp, end).map(([tokens, mask]) => `${x(tokens)},${y(mask)}`).join(" ");
  const where = ruleOf(data, state.index).grid ? "along an axis of the grid" : `in ${data.unit}`;
  const parts = axesOf(end, x, y, `distance ${where}`);
  for (const index of headsOfLayer(data, state.index).slice(0, 32)) {
    parts.push(drawn("polyline", { points: line(state.spans[index]), class: "other" }));
  }
  parts.push(drawn("polyline", { points: line(state.span), class: "own" }));
  const far = Math.abs(distance ?? Infinity);
  if (far <= end) {
    parts.push(drawn("circle", { cx: x(far), cy: y(value), r: 4.5, class: "here" }));
  }
  svg.replaceChildren(...parts);
  const [first, last] = [counted(data, state.span), counted(data, state.span + state.ramp)];
  svg.setAttribute("aria-label", `Mask against distance: 1 up to ${first}, 0 from ${last} on`);
}

// The straight lines of a mask, up to the end of the picture.
function corners(span, ramp, end) {
  const points = [[0, 1], [span, 1], [span + ramp, 0], [Math.max(end, span + ramp), 0]];
  const seen = points.filter(([tokens]) => tokens <= end);
  if (seen.length === points.length) return points;
  return [...seen, [end, span >= end ? 1 : softMask(end, span, ramp)]];
}

function axesOf(end, x, y, name) {
  const parts = [];
  for (const mask of [0, 0.5, 1]) {
    parts.push(drawn("line", { x1: x(0), x2: x(end), y1: y(mask), y2: y(mask), class: "grid" }));
    parts.push(drawn("text", { x: LEFT - 6, y: y(mask) + 4, "text-anchor": "end" }, String(mask)));
  }
  const step = niceStep(end, 4);
  for (let tick = 0; tick <= end; tick += step) {
    parts.push(drawn("text", { x: x(tick), y: HEIGHT - BOTTOM + 14, "text-anchor": "middle" }, String(tick)));
  }
  parts.push(drawn("text", { x: (x(0) + x(end)) / 2, y: HEIGHT - 3, "text-anchor": "middle" }, name));
  return parts;
}

// ---- the cost

export function costBox(data) {
  const read = data.rules.some(({ open, causal }) => !open || !causal);
  const names = ["Pairs", "FLOPs", read ? "KV read" : "KV cache"];
  const meanings = [
    "pairs of a query and a key with a mask above 0",
    "multiplications and additions of the forward pass, 4 per pair and channel",
    `keys and values that ${read ? "the last query reads" : `must be kept to generate the next ${one(data)}`}`,
  ];
  const rows = names.map((name, i) => {
    const cells = [0, 1, 2, 3].map(() => element("td"));
    const heading = element("th", { scope: "row", textContent: name });
    return { cells, row: element("tr", {}, heading, ...cells) };
  });
  const heading = (text) => element("th", { scope: "col", textContent: text });
  const head = element("tr", {}, element("td"), ...["this head", "of full", "all heads", "of full"].map(heading));
  const table = element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows.map(({ row }) => row)));
  const { firstQuery, queries } = data;
  const part = isOfPart(data) ? ` The numbers are for queries ${range(firstQuery, firstQuery + queries)}.` : "";
  const unknown = !data.complete && data.rules.some(({ open }) => !open) && !data.counts.some(Boolean);
  const uncounted = unknown ? " Pairs of a pattern within documents, ranges or padding are not counted for maps in blocks." : "";
  const shared = new Set(data.keyHeads).size < data.heads.length;
  const longest = shared ? " Heads that share keys keep them once, for the longest of their spans." : "";
  const note = names.map((name, i) => `${name}: ${meanings[i]}.`).join(" ") + longest + part + uncounted;
  const box = element("div", { className: "cost" }, table, element("p", { className: "meanings", textContent: note }));
  return { box, cells: rows.map(({ cells }) => cells) };
}

export function fillCost(cells, data, state) {
  const costs = state.spans.map((span, index) => costOf(data, index, span, state.ramp));
  const full = state.spans.map((_, index) => fullCostOf(data, index));
  const units = {
    pairs: (x) => (x < 1e7 ? withCommas(x) : scaled(x, 1000, ["", "k", "M", "G", "T", "P"])),
    flops: (x) => scaled(x, 1000, ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"]),
    bytes,
  };
  const share = (part, all) => `${((100 * part) / (all || 1)).toFixed(part < 0.1 * all ? 1 : 0)}\u00a0%`;
  Object.entries(units).forEach(([name, write], i) => {
    const head = costs[state.index][name];
    const sum = name === "bytes" ? (list) => sharedBytes(data, list) : (list) => list.reduce((total, cost) => total + cost[name], 0);
    const [all, most] = [sum(costs), sum(full)];
    const texts = [write(head), share(head, full[state.index][name]), write(all), share(all, most)];
    const unknown = [head, head, all, all].map(Number.isNaN);
    texts.forEach((text, k) => (cells[i][k].textContent = unknown[k] ? "\u2013" : text));
  });
}

// ---- the text

// Whether tokens contain whitespace, so that concatenating them gives the text.
export function flows(tokens) {
  return tokens.some((token) => /\s/.test(token));
}

export function textStrip(data) {
  if (!data.tokens || data.pooled) return null;
  const first = data.keyAt[data.firstCol];
  const tokens = data.tokens.slice(first, first + data.width);
  const flowing = flows(tokens);
  const spans = tokens.map((token) => element("span", { textContent: token, title: flowing ? "" : token }));
  const strip = element("div", { className: flowing ? "text" : "text words", role: "group", dir: "auto" }, ...spans);
  strip.setAttribute("aria-label", "Text");
  return { strip, spans };
}

// The weight of every token for a query, and below it the reach of the span.
export function fillStrip(spans, weights, masks, query) {
  spans.forEach((span, j) => {
    const weight = weights ? weights[j] : 0;
    span.style.setProperty("--w", weight > 0 ? Math.sqrt(weight).toFixed(3) : "0");
    span.className = !weights ? "" : j === query ? "query" : masks[j] === 1 ? "inside" : masks[j] > 0 ? "edge" : "";
  });
}

// Scrolls the text, but not the page, to the pinned query.
export function showQuery(text) {
  const query = text?.strip.querySelector(".query");
  if (!query) return;
  const { strip } = text;
  const top = query.offsetTop - strip.offsetTop;
  if (top >= strip.scrollTop && top + query.offsetHeight <= strip.scrollTop + strip.clientHeight) return;
  strip.scrollTop = top - strip.clientHeight / 2;
}
