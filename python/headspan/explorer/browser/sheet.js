// The elements of the view on the page.
import { element } from "./parts.js";
import { hintOf } from "./zoom.js";

export function assemble(view) {
  const heading = (text) => element("h3", { textContent: text });
  view.title = element("h2");
  view.subtitle = element("p", { className: "subtitle" });
  view.unpin = element("button", { type: "button", className: "quiet", textContent: "Unpin" });
  view.reset = element("button", { type: "button", className: "quiet", textContent: "Reset" });
  const hint = hintOf(view.data, !view.model.saved, view.movable);
  const note = hint ? [element("p", { className: "note", textContent: hint })] : [];
  const zoom = view.zoom ? [element("div", { className: "tools" }, ...Object.values(view.zoom))] : [];
  view.reset.hidden = !view.movable;
  const buttons = [view.reset];
  if (view.modelBox) {
    view.full = element("button", { type: "button", className: "quiet", textContent: "Full attention" });
    view.reset.textContent = "Recorded spans";
    buttons.unshift(view.full);
  }
  const head = element("div", { className: "head" }, heading("Reach"), element("div", { className: "buttons" }, ...buttons));
  const controls = [head, ...view.sliders.map((slider) => slider.row)];
  if (view.layerChoice) controls.splice(2, 0, view.layerChoice);
  view.computing = element("p", { className: "busy", role: "status" });
  const map = element("div", { className: "large" }, view.map, view.computing);
  const left = element("div", { className: "left" }, ...note, ...zoom, map, view.legend.box, view.readout.box);
  const right = element(
    "div",
    { className: "right" },
    element("section", { className: "controls" }, ...controls),
    ...(view.modelBox ? [element("section", {}, heading("Model"), view.modelBox.box)] : []),
    element("section", {}, heading("Mask"), view.curve),
    element("section", {}, heading("Bill"), view.cost.box),
  );
  const text = view.text ? [element("section", {}, heading("Text"), view.text.strip)] : [];
  if (view.pinned) text.unshift(view.pinned);
  const top = element("header", {}, element("div", {}, view.title, view.subtitle), view.unpin);
  const body = element("div", { className: "columns" }, left, right);
  const inside = element("div", { className: "sheet" }, top, body, ...text, view.heads.box);
  if (view.overview) body.prepend(view.overview.box);
  const box = element("div", { className: "headspan-view", role: "group", "aria-label": "Attention with spans" }, inside);
  // Otherwise JupyterLab takes keys for its shortcuts: an arrow would select another cell and not move a slider.
  box.addEventListener("focusin", ({ target }) => target.setAttribute("data-lm-suppress-shortcuts", "true"));
  return box;
}
