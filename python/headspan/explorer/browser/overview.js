// The overview of a view of layers: a row per layer and a column per head, with a small map or the mean distance.
import { paintWeights, paletteCss, shadeAt } from "./paint.js";
import { element } from "./parts.js";
import { counted, isUnlimited, reachWords, short, withCommas } from "./words.js";

const MAX_HEADS_IN_ROW = 16; // heads per layer of a table that fits next to the large map

export function overviewBox(data, id, choose) {
  const layers = [...new Set(data.heads.map(([layer]) => layer))];
  const columns = [...new Set(data.heads.map(([, head]) => head))].sort((a, b) => a - b);
  const overview = { inputs: [], canvases: [], smalls: [], distances: [], picture: "map", pointed: null };
  overview.note = element("p", { className: "note" });
  overview.scale = distanceScale(data);
  const tiles = data.heads.map(([layer, head], i) => tile(overview, data, i, id, layers.indexOf(layer), columns.indexOf(head)));
  const named = (text, row, col, kind = "") => {
    const made = element("span", { className: `number ${kind}`, textContent: text, "aria-hidden": "true" });
    made.style.gridArea = `${row} / ${col}`;
    return made;
  };
  const grid = element(
    "div",
    { className: "tiles" },
    named("", 1, 1, "corner"),
    ...columns.map((head, col) => named(head, 1, col + 2, "column")),
    ...layers.map((layer, row) => named(`layer ${layer}`, row + 2, 1)),
    ...tiles,
  );
  overview.scroller = element("div", { className: "scroller" }, grid);
  const legend = element("legend", { textContent: "Layers and heads" });
  overview.box = element("fieldset", { className: "overview" }, legend, pictures(overview, data, id), overview.scroller, overview.scale, overview.note);
  overview.box.style.setProperty("--columns", columns.length);
  overview.box.classList.toggle("wide", columns.length > MAX_HEADS_IN_ROW);
  overview.place = () => [overview.scroller.scrollLeft, overview.scroller.scrollTop];
  overview.moveTo = (place) => ([overview.scroller.scrollLeft, overview.scroller.scrollTop] = place);
  overview.show = (index) => scrollTo(overview, index);
  overview.inputs.forEach((input, i) => input.addEventListener("change", () => choose(i)));
  grid.addEventListener("keydown", (event) => stepRow(overview, data, event, choose));
  return overview;
}

function tile(overview, data, index, id, row, col) {
  const input = element("input", { type: "radio", name: id, value: index, "aria-label": data.names[index] });
  const canvas = element("canvas", { width: 1, height: 1, "aria-hidden": "true" });
  overview.inputs.push(input);
  overview.canvases.push(canvas);
  const label = element("label", { title: data.names[index] }, input, canvas);
  label.style.gridArea = `${row + 2} / ${col + 2}`;
  label.addEventListener("pointerenter", () => point(overview, data, index));
  label.addEventListener("pointerleave", () => point(overview, data, null));
  return label;
}

// Scrolls the table, but not the page, to a head.
function scrollTo({ scroller, inputs }, index) {
  const label = inputs[index].parentElement;
  const top = label.offsetTop - scroller.offsetTop;
  if (top + label.offsetHeight > scroller.clientHeight) scroller.scrollTop = top - scroller.clientHeight / 2;
}

// A choice between the two pictures of a head.
function pictures(overview, data, id) {
  const box = element("div", { className: "tools" });
  for (const [picture, text] of [["map", "Maps"], ["distance", "Mean distance"]]) {
    const input = element("input", { type: "radio", name: `${id}-picture`, value: picture, checked: picture === "map" });
    input.addEventListener("change", () => {
      overview.picture = picture;
      overview.scale.hidden = picture === "map";
      overview.smalls.forEach((small, index) => draw(overview, data, index));
      writeNote(overview, data);
    });
    box.append(element("label", { className: "quiet" }, input, text));
  }
  return box;
}

// The colours of mean distances; the middle of the logarithmic scale has its number, too.
function distanceScale(data) {
  const bar = element("div", { className: "bar" });
  bar.style.background = `linear-gradient(to right, ${paletteCss()})`;
  const end = largest(data);
  const texts = [0, Math.round(Math.expm1(Math.log1p(end) / 2)), end].map(withCommas);
  const ticks = element("div", { className: "ticks" }, ...texts.map((textContent) => element("span", { textContent })));
  return element("div", { className: "scale", hidden: true }, element("div", { className: "ramp" }, bar, ticks), data.unit);
}

function largest(data) {
  return Math.max(1, data.total.keys - 1);
}

export function paintTile(overview, data, index, small, distance) {
  overview.smalls[index] = small;
  overview.distances[index] = distance;
  draw(overview, data, index);
  writeNote(overview, data);
}

function draw({ canvases, smalls, distances, picture }, data, index) {
  const canvas = canvases[index];
  if (picture === "map") return paintWeights(canvas, smalls[index].weights, smalls[index].rows, smalls[index].cols);
  canvas.width = canvas.height = 1;
  const distance = distances[index];
  if (distance === null) return;
  const image = new ImageData(1, 1);
  new Uint32Array(image.data.buffer)[0] = shadeAt(placeOf(distance, data));
  canvas.getContext("2d").putImageData(image, 0, 0);
}

// The place of a mean distance among the colours, on a logarithmic scale up to the largest distance.
function placeOf(distance, data) {
  return Math.log1p(distance) / Math.log1p(largest(data));
}

export function describeOverview(overview, data, state) {
  overview.state = state;
  overview.inputs.forEach((input, index) => (input.checked = index === state.index));
  writeNote(overview, data);
}

function point(overview, data, index) {
  overview.pointed = index;
  writeNote(overview, data);
}

// The name, the mean distance and the span of the head under the pointer, or else of the selected one.
function writeNote({ note, pointed, distances, state }, data) {
  if (!state) return;
  const index = pointed ?? state.index;
  const [span, distance] = [state.spans[index], distances[index]];
  const words = [data.names[index]];
  if (distance !== null && distance !== undefined) words.push(`mean distance ${counted(data, Number(short(distance)))}`);
  words.push(isUnlimited(data, span) ? "no span" : `span ${short(span)}, ${reachWords(data, index, span, state.ramp)}`);
  note.textContent = `${words.join(", ")}.`;
}

// The arrow keys move within a row on their own, as in every group of radio buttons, and here also between rows.
function stepRow(overview, data, event, choose) {
  const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  const from = overview.inputs.indexOf(event.target);
  if (!step || from < 0) return;
  event.preventDefault();
  const layers = [...new Set(data.heads.map(([layer]) => layer))];
  const [layer, head] = data.heads[from];
  const next = layers[layers.indexOf(layer) + step];
  const to = data.heads.findIndex(([one, other]) => one === next && other === head);
  if (to < 0) return;
  overview.inputs[to].focus();
  choose(to);
}
