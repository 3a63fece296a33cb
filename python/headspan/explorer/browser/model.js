// The loss and the predictions of a language model, which Python recomputes when spans change.
import { bdi, element } from "./parts.js";
import { some, visible } from "./words.js";

const WAIT = 150; // milliseconds without a change before Python is asked

function settingsOf(model) {
  return { span: model.get("span"), ramp: model.get("ramp") };
}

function same(one, other) {
  return one.ramp === other.ramp && one.span.every((span, i) => span === other.span[i]);
}

// The settings of the last answer, which is the recording at first.
function answered(model) {
  const predicted = model.get("predicted");
  return predicted?.span ? predicted : model.get("recorded");
}

// Asks Python for predictions when spans have stopped changing: one request at a time, for the latest spans.
export function askForPredictions(model) {
  const recorded = model.get("recorded");
  if (model.saved || !recorded?.span || recorded.refusal) return () => {};
  let [timer, isWaiting] = [null, false];
  const ask = () => {
    const asked = settingsOf(model);
    if (isWaiting || same(asked, answered(model))) return;
    isWaiting = true;
    model.set("asked", asked);
    model.save_changes();
  };
  const plan = () => {
    clearTimeout(timer);
    timer = setTimeout(ask, WAIT);
  };
  const handlers = { span: plan, ramp: plan, predicted: () => ((isWaiting = false), plan()) };
  for (const [name, handler] of Object.entries(handlers)) model.on(`change:${name}`, handler);
  plan();
  return () => {
    clearTimeout(timer);
    for (const [name, handler] of Object.entries(handlers)) model.off(`change:${name}`, handler);
  };
}

// ---- elements

// The box of a view of a language model, or null for other views.
export function modelBox({ model, data }) {
  const recorded = model.get("recorded");
  if (!recorded?.span) return null;
  const rows = [recorded.limited ? "recorded spans" : "full attention", "these spans", "full attention"].map(lossRow);
  const caption = `Loss, nats per token, of ${some(data.total.keys - 1, "next token", "next tokens")}`;
  const loss = element("table", {}, element("caption", { textContent: caption }), element("tbody", {}, ...rows.map(({ row }) => row)));
  const status = element("p", { className: "note", role: "status" });
  const title = element("caption");
  const heading = (textContent) => element("th", { scope: "col", colSpan: 2, textContent });
  const head = element("tr", {}, heading(rows[0].name), heading("these spans"));
  const body = element("tbody");
  const following = element("p", { className: "note following" });
  const columns = ["", "share first", "", "share"].map((className) => element("col", { className }));
  const next = element("table", { className: "next" }, title, element("colgroup", {}, ...columns), element("thead", {}, head), body);
  return { box: element("div", { className: "model" }, loss, status, next, following), rows, status, title, body, following };
}

function lossRow(name) {
  const cells = [element("td"), element("td")];
  return { name, cells, row: element("tr", {}, element("th", { scope: "row", textContent: name }), ...cells) };
}

// ---- filling

export function fillModel({ modelBox: parts, model, data }, state) {
  if (!parts) return;
  const recorded = model.get("recorded");
  const answer = answered(model);
  const settings = settingsOf(model);
  const isRecorded = same(settings, recorded);
  const isBusy = !model.saved && !recorded.refusal && !same(settings, answer);
  const isKnown = same(settings, answer) && !answer.error;
  const shown = isRecorded ? recorded : isKnown || isBusy ? answer : null;
  parts.box.classList.toggle("busy-model", isBusy && !isRecorded);
  fillLoss(parts.rows, recorded, shown?.error ? null : shown, model.get("predicted")?.full);
  const status = statusOf(model, { recorded, answer, isRecorded, isBusy, isKnown });
  if (parts.status.textContent !== status) parts.status.textContent = status;
  const position = state.selected ?? data.total.keys - 1;
  const prefix = shown === recorded ? "recorded_" : "";
  const before = { ...predictionsAt(model, "recorded_", position, data), texts: recorded.texts };
  const now = shown && !shown.error ? { ...predictionsAt(model, prefix, position, data), texts: shown.texts } : null;
  fillNext(parts, data, position, before, now);
}

function fillLoss([first, now, full], recorded, shown, fullLoss) {
  const change = (loss) => (loss === recorded.loss ? "" : percentChange(loss / recorded.loss - 1));
  const texts = (loss) => (loss === null || loss === undefined ? ["\u2013", ""] : [loss.toFixed(3), change(loss)]);
  const fill = ({ cells }, values) => values.forEach((text, i) => (cells[i].textContent = text));
  fill(first, texts(recorded.loss));
  fill(now, texts(shown?.loss));
  fill(full, texts(fullLoss));
  full.row.hidden = !recorded.limited || fullLoss === null || fullLoss === undefined;
}

function percentChange(share) {
  const size = Math.abs(100 * share);
  return `${share < 0 ? "\u2212" : "+"}${size.toFixed(size < 1 ? 2 : 1)}\u00a0%`;
}

function statusOf(model, { recorded, answer, isRecorded, isBusy, isKnown }) {
  const fixed = "The loss and the predictions are those of the recording";
  if (model.saved) {
    const when = isRecorded || !isKnown ? fixed : "The loss and the predictions were computed before the page was saved";
    return `${when}. This page has no model: if you move a span, the bill follows, but they do not.`;
  }
  if (recorded.refusal) return `${fixed}. The model is not recomputed: ${recorded.refusal}.`;
  if (isBusy) return "Python is recomputing the model.";
  if (answer.error) return answer.error;
  if (answer === recorded) return "Move a span, and Python recomputes the model from its layer on.";
  const time = answer.seconds < 0.095 ? "less than 0.1" : answer.seconds.toFixed(1);
  return `Recomputed ${answer.layers} of ${some(recorded.allLayers, "layer", "layers")} in ${time} s.`;
}

// The most probable tokens after a position, and the probability of the one that follows in the text.
function predictionsAt(model, prefix, position, { total }) {
  const [ids, shares] = ["candidates", "probabilities"].map((name) => model.get(prefix + name));
  const count = ids.byteLength / 4 / total.keys;
  const share = (k) => shares.getFloat32(4 * (position * (count + 1) + k), true);
  const tokens = Array.from({ length: count }, (_, k) => ids.getInt32(4 * (position * count + k), true));
  return { tokens, shares: tokens.map((_, k) => share(k)), following: share(count) };
}

function fillNext({ title, body, following }, { tokens }, position, before, now) {
  const nameOf = (text, kind) => bdi(visible(text), kind);
  const [token, next] = [tokens?.[position], tokens?.[position + 1]];
  title.replaceChildren("Next token after ", ...(token === undefined ? [] : [nameOf(token, "b"), ", "]), `token\u00a0${position}`);
  const cells = (prediction, k) => {
    if (!prediction) return [element("td"), element("td")];
    const [id, share] = [prediction.tokens[k], prediction.shares[k]];
    const text = prediction.texts[id];
    const name = element("td", { className: "candidate" }, text === undefined ? `token ${id}` : nameOf(text));
    name.title = text ?? "";
    name.style.setProperty("--share", `${100 * share}%`);
    if (text !== undefined && text === next) name.classList.add("actual");
    return [name, element("td", { textContent: percent(share) })];
  };
  body.replaceChildren(...before.tokens.map((_, k) => element("tr", {}, ...cells(before, k), ...cells(now, k))));
  const shares = [before, now].filter((prediction) => prediction).map((prediction) => percent(prediction.following));
  const name = next === undefined ? "The next token of the text" : nameOf(next, "b");
  following.replaceChildren(...(Number.isNaN(before.following) ? [] : ["In the text: ", name, `, ${shares.join(" \u2192 ")}.`]));
}

function percent(share) {
  return share < 0.001 ? "<\u20090.1\u00a0%" : `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)}\u00a0%`;
}
