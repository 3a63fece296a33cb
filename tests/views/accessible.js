// What tools for accessibility look for in a page, in short: returns a sentence for everything that is wrong.
() => {
  const wrong = [];
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const say = (element, what) => wrong.push(`${element.tagName}.${element.getAttribute("class") ?? ""}: ${what}`);
  const seen = (e) => e.getClientRects().length > 0 && getComputedStyle(e).visibility === "visible";
  const hidden = (e) => e.closest("[aria-hidden=true]") !== null;
  const ROLES = ["application", "group", "img", "note", "status"];

  // names
  const nameOf = (e) => {
    const labels = [...(e.labels ?? [])].map((label) => label.textContent).join(" ");
    const ids = (e.getAttribute("aria-labelledby") ?? "").split(" ").filter(Boolean);
    const others = ids.map((id) => document.getElementById(id)?.textContent ?? "").join(" ");
    return (e.getAttribute("aria-label") ?? (others || labels || e.textContent)).trim();
  };
  for (const e of all("input, button, select, textarea, a[href], [tabindex], [role=img], [role=application]")) {
    if (!nameOf(e)) say(e, "has no name");
    if (hidden(e)) say(e, "can be reached but is hidden from some");
  }
  for (const e of all("[role]")) if (!ROLES.includes(e.getAttribute("role"))) say(e, `role ${e.getAttribute("role")}`);
  for (const e of all("img, canvas, svg")) {
    if (!hidden(e) && !nameOf(e) && e.parentElement?.closest("svg") === null) say(e, "is a picture without words");
  }
  for (const e of all("fieldset")) if (!e.querySelector("legend")?.textContent) say(e, "has no legend");
  for (const e of all("label[for]")) if (!document.getElementById(e.htmlFor)) say(e, "names nothing");
  const ids = all("[id]").map((e) => e.id);
  for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) wrong.push(`id ${id} twice`);
  if (all("[tabindex]").some((e) => e.tabIndex > 0)) wrong.push("an order of its own for the Tab key");

  // structure
  if (!document.documentElement.lang) wrong.push("no language");
  if (!document.title.trim()) wrong.push("no title");
  if (all("main").length !== 1) wrong.push("not one main part");
  const levels = all("h1, h2, h3, h4, h5, h6").map((e) => Number(e.tagName[1]));
  if (levels[0] !== 1 || levels.filter((level) => level === 1).length !== 1) wrong.push(`headings ${levels}`);
  levels.forEach((level, i) => i && level > levels[i - 1] + 1 && wrong.push(`a heading is left out: ${levels}`));
  for (const e of all("th")) if (!e.textContent.trim() || !e.scope) say(e, "is a heading of nothing");
  for (const e of all("tr")) if (!e.querySelector("th")) say(e, `row without a heading: ${e.textContent}`);
  for (const e of all("*")) {
    const scrolls = e.scrollHeight > e.clientHeight + 1 && /auto|scroll/.test(getComputedStyle(e).overflowY);
    const page = e === document.documentElement || e === document.body;
    if (scrolls && !page && e.tabIndex < 0 && !e.querySelector("input, button")) say(e, "cannot be scrolled by key");
  }

  // contrast of every text with what is behind it
  const channels = (colour) => {
    const numbers = (colour.match(/-?[\d.]+(e-?\d+)?/g) ?? [0, 0, 0, 0]).map(Number);
    const unit = colour.startsWith("color(") ? 1 : 255;
    return [...numbers.slice(0, 3).map((c) => c / unit), numbers[3] ?? 1];
  };
  const over = ([r, g, b, a], below) => [r, g, b].map((c, i) => a * c + (1 - a) * below[i]);
  const behind = (e) => {
    const layers = [];
    for (let at = e; at; at = at.parentElement) layers.push(channels(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, layer) => over(layer, below), [1, 1, 1]);
  };
  const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const luminance = (c) => 0.2126 * linear(c[0]) + 0.7152 * linear(c[1]) + 0.0722 * linear(c[2]);
  const texts = all("body *").filter(
    (e) => !hidden(e) && seen(e) && !e.matches("script, style, noscript") && !e.closest(":disabled") &&
      [...e.childNodes].some((node) => node.nodeType === 3 && node.data.trim()),
  );
  for (const e of texts) {
    const style = getComputedStyle(e);
    const ground = behind(e);
    const ink = over(channels(e instanceof SVGElement ? style.fill : style.color), ground);
    const [low, high] = [luminance(ink), luminance(ground)].sort((a, b) => a - b);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < (large ? 3 : 4.5)) say(e, `contrast ${ratio.toFixed(2)}: ${e.textContent.slice(0, 30)}`);
  }
  return { wrong: [...new Set(wrong)], texts: texts.length };
}
