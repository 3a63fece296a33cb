// Drawing: weights as colours, the axes of a map, and the overlay.
import { ruleOf } from "./allowed.js";
import { positionOf, reachOf, tokenAt } from "./numbers.js";
import { one, visible } from "./words.js";

// matplotlib's viridis at 17 points, which is perceptually uniform, also in grey print and for colour-blind readers.
const VIRIDIS =
  "440154 48186a 472d7b 424086 3b528b 33638d 2c728e 26828e 21918c " +
  "1fa088 28ae80 3fbc73 5ec962 84d44b addc30 d8e219 fde725";
export const DECADES = 3; // colours show weights from 0.001 to 1
const SHADES = 256;

function channels(hex) {
  return [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

export const PALETTE = makePalette(VIRIDIS.split(" ").map(channels));

// One 32-bit pixel per shade in the format of a canvas: red is the lowest byte.
function makePalette(stops) {
  return Uint32Array.from({ length: SHADES }, (_, i) => {
    const x = (i / (SHADES - 1)) * (stops.length - 1);
    const low = Math.min(Math.floor(x), stops.length - 2);
    const [r, g, b] = stops[low].map((c, k) => Math.round(c + (x - low) * (stops[low + 1][k] - c)));
    return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
  });
}

export function paletteCss() {
  return VIRIDIS.split(" ").map((hex) => `#${hex}`).join(", ");
}

const NOT_A_NUMBER = 0xff0055d5;

// A number from 0 to 1.
export function shadeAt(x) {
  return PALETTE[Math.max(0, Math.min(SHADES - 1, Math.floor(x * SHADES)))];
}

// A pair that is not computed is transparent.
export function shadeOf(weight) {
  if (weight === 0) return 0;
  if (weight !== weight) return NOT_A_NUMBER;
  return shadeAt(1 + Math.log10(weight) / DECADES);
}

// One pixel per pair; the canvas is scaled when it is drawn.
export function paintWeights(canvas, weights, rows, cols) {
  canvas.width = cols;
  canvas.height = rows;
  const context = canvas.getContext("2d");
  const image = context.createImageData(cols, rows);
  const pixels = new Uint32Array(image.data.buffer);
  for (let i = 0; i < pixels.length; i++) pixels[i] = shadeOf(weights[i]);
  context.putImageData(image, 0, 0);
}

export function resize(canvas, width, height) {
  const ratio = globalThis.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

// The position of the map in its canvas and the size of a pair. Token names need a wider margin than numbers.
export function layoutOf(data, width, longestName) {
  const named = data.tokens && !data.pooled && Math.max(data.cols, data.rows) <= 64;
  const roomy = named ? layoutWith(data, width, Math.min(longestName, 100), true) : null;
  return roomy?.names ? roomy : layoutWith(data, width, 0, false);
}

function layoutWith(data, width, longest, named) {
  const left = named ? Math.min(Math.max(44, longest + 12), width * 0.24) : 44;
  const bottom = named && longest > 14 ? Math.min(longest + 12, width * 0.24) : 24;
  const inner = Math.max(40, width - left - 4);
  const cell = inner / data.cols;
  const tall = Math.min(inner, Math.max(inner * (data.rows / data.cols), Math.min(24 * data.rows, inner / 3)));
  const names = named && cell >= 9 && tall / data.rows >= 9;
  return { left, top: 4, width: inner, height: tall, total: tall + bottom + 22, bottom, names, longest };
}

export function drawMap(canvas, source, data, layout, colours) {
  const context = resize(canvas, layout.left + layout.width + 4, layout.total);
  context.fillStyle = colours.empty;
  context.fillRect(layout.left, layout.top, layout.width, layout.height);
  context.imageSmoothingEnabled = source.width > layout.width * (globalThis.devicePixelRatio || 1);
  context.drawImage(source, layout.left, layout.top, layout.width, layout.height);
  context.fillStyle = colours.quiet;
  context.textBaseline = "middle";
  if (layout.names) drawNames(context, data, layout, colours);
  else drawTicks(context, data, layout, colours);
  context.font = `12px ${colours.font}`;
  context.textAlign = "center";
  const long = `query \u2193 the ${one(data)} that looks \u00b7 key \u2192 the ${one(data)} looked at`;
  const words = layout.width < 400 ? "query \u2193 \u00b7 key \u2192" : long;
  context.fillText(words, layout.left + layout.width / 2, layout.total - 9);
}

function fitted(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  const signs = [...text]; // keeps surrogate pairs together
  let n = Math.min(signs.length, 64);
  while (n > 1 && context.measureText(`${signs.slice(0, n).join("")}\u2026`).width > room) n--;
  return `${signs.slice(0, n).join("")}\u2026`;
}

function drawNames(context, data, layout, colours) {
  const [cell, tall] = [layout.width / data.cols, layout.height / data.rows];
  context.font = `${Math.min(12, Math.min(cell, tall) * 0.95)}px ${colours.mono}`;
  context.textAlign = "right";
  for (let i = 0; i < data.rows; i++) {
    const text = fitted(context, visible(data.tokens[positionOf(data, i)] ?? ""), layout.left - 8);
    context.fillText(text, layout.left - 6, layout.top + (i + 0.5) * tall);
  }
  const upright = layout.longest <= 14;
  for (let j = 0; j < data.cols; j++) {
    context.save();
    context.translate(layout.left + (j + 0.5) * cell, layout.top + layout.height + (upright ? 11 : 6));
    context.textAlign = upright ? "center" : "right";
    if (!upright) context.rotate(-Math.PI / 2);
    const name = visible(data.tokens[tokenAt(data, j)]);
    context.fillText(upright ? name : fitted(context, name, layout.bottom - 8), 0, 0);
    context.restore();
  }
}

export function niceStep(range, most) {
  const raw = Math.max(1, range / most);
  const power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((k) => k * power).find((step) => step >= raw);
}

function ticksOf(first, count, most) {
  const step = niceStep(count, most);
  const ticks = [];
  for (let tick = Math.ceil(first / step) * step; tick < first + count; tick += step) ticks.push(tick);
  return ticks;
}

function drawTicks(context, data, layout, colours) {
  context.font = `11px ${colours.font}`;
  context.textAlign = "center";
  const firstKey = tokenAt(data, 0);
  for (const j of ticksOf(firstKey, data.width, Math.max(2, layout.width / 70))) {
    const x = layout.left + ((j - firstKey + 0.5) / data.colBlock / data.cols) * layout.width;
    context.fillText(String(j), x, layout.top + layout.height + 12);
  }
  context.textAlign = "right";
  for (const i of ticksOf(data.firstQuery, data.queries, Math.max(1, layout.height / 50))) {
    const y = layout.top + ((i - data.firstQuery + 0.5) / data.rowBlock / data.rows) * layout.height;
    context.fillText(String(i), layout.left - 6, Math.max(y, 8));
  }
}

// The row of the pinned query and the pair under the pointer.
export function drawOver(canvas, data, layout, state, colours) {
  const context = resize(canvas, layout.left + layout.width + 4, layout.total);
  context.save();
  context.beginPath();
  context.rect(layout.left, layout.top, layout.width, layout.height);
  context.clip();
  for (const { reach, dashes } of edgesOf(data, state)) {
    for (const side of ruleOf(data, state.index).causal ? [-1] : [-1, 1]) drawEdge(context, data, layout, reach, dashes, side);
  }
  context.restore();
  if (state.pinned !== null) outline(context, data, layout, state.pinned, null, colours);
  if (state.hover) outline(context, data, layout, state.hover.row, state.hover.col, colours);
}

// The numbers of distances before the mask starts to fall and before it is 0, which are equal for a hard mask. On a
// grid, distances have no edge along the tokens.
export function edgesOf(data, { index, span, ramp }) {
  if (ruleOf(data, index).grid) return [];
  const solid = { reach: reachOf(span, 0), dashes: [] };
  return ramp > 0 ? [solid, { reach: reachOf(span, ramp), dashes: [5, 4] }] : [solid];
}

// Draws a line along the last cells within reach, on their outer side, so that it covers no pair within reach: around
// each cell if cells are large, otherwise past their corners. If cells are tiny and few are in reach, the line would
// cover them all and is omitted. The line is light on dark, so it is visible on every colour.
function drawEdge(context, data, layout, reach, dashes, side) {
  const cell = { x: layout.width / data.cols, y: layout.height / data.rows };
  const size = Math.min(cell.x, cell.y);
  if (size < 3 && reach < 3 * data.colBlock) return;
  const width = Math.min(1.5, Math.max(1, size / 4));
  context.beginPath();
  for (let row = 0; row < data.rows; row++) {
    const place = positionOf(data, row * data.rowBlock + (side < 0 ? 0 : data.rowBlock - 1)) - tokenAt(data, 0);
    const last = Math.floor((place + side * (reach - 1)) / data.colBlock) + (side < 0 ? 0 : 1);
    const [x, y] = [layout.left + last * cell.x + side * width, layout.top + row * cell.y - side * width];
    if (size >= 8 || side > 0) context.lineTo(x, y);
    if (size >= 8 || side < 0) context.lineTo(x, y + cell.y);
  }
  context.setLineDash([]);
  context.lineWidth = 2 * width;
  context.strokeStyle = "rgba(0, 0, 0, 0.45)";
  context.stroke();
  context.setLineDash(dashes);
  context.lineWidth = width;
  context.strokeStyle = "#fff";
  context.stroke();
}

// A row and optionally a column: a frame around large pairs, otherwise a line through them.
function outline(context, data, layout, row, col, colours) {
  const [w, h] = [layout.width / data.cols, layout.height / data.rows];
  const [x, y] = [layout.left + (col ?? 0) * w, layout.top + row * h];
  context.strokeStyle = colours.accent;
  context.lineWidth = col === null ? 2 : 1;
  frame(context, layout.left, y, layout.width, h);
  if (col === null) return;
  frame(context, x, layout.top, w, layout.height);
  context.lineWidth = 2.5;
  context.strokeRect(x - 2, y - 2, w + 4, h + 4);
}

function frame(context, x, y, width, height) {
  const thin = 5;
  if (Math.min(width, height) >= thin) return context.strokeRect(x, y, width, height);
  context.beginPath();
  context.moveTo(height < width ? x : x + width / 2, height < width ? y + height / 2 : y);
  context.lineTo(height < width ? x + width : x + width / 2, height < width ? y + height / 2 : y + height);
  return context.stroke();
}
