/* Adds an excerpt to each result that Sphinx's search lists. The text is that of search_text.py. */
"use strict";

(() => {
  const LENGTH = 220;
  const WORD = /[\p{Letter}\p{Number}_]+/gu;
  const query = new URLSearchParams(location.search).get("q") || "";
  const wanted = [...new Set(query.toLowerCase().match(WORD))];

  const stems = new Map();
  const stem = (word) => {
    if (!stems.has(word)) stems.set(word, new Stemmer().stemWord(word));
    return stems.get(word);
  };

  /* The places of one word of the query, also in other forms, or inside of other words if there are none. */
  const places = (tokens, word) => {
    const forms = tokens.filter((token) => token.word.startsWith(word) || stem(token.word) === stem(word));
    const matches = forms.length ? forms : tokens.filter((token) => token.word.includes(word));
    return matches.map(({ start, end }) => ({ word, start, end }));
  };

  /* The places in the part of a text that has the most words of the query, close together. */
  const findBest = ([anchor, title, text]) => {
    const tokens = [...text.matchAll(WORD)].map((match) => ({
      word: match[0].toLowerCase(),
      start: match.index,
      end: match.index + match[0].length,
    }));
    const all = wanted.flatMap((word) => places(tokens, word)).sort((a, b) => a.start - b.start);
    const best = { anchor, title, text, places: [], score: 0 };
    for (const first of all) {
      const near = all.filter((place) => place.start >= first.start && place.end <= first.start + LENGTH);
      const count = new Set(near.map((place) => place.word)).size;
      const ends = [...new Set(near.map((place) => place.word))].map((word) => near.find((p) => p.word === word).end);
      const score = count - (Math.max(...ends) - first.start) / (2 * LENGTH);
      if (score > best.score) Object.assign(best, { places: near, score });
    }
    return best;
  };

  const excerpt = ({ text, places }) => {
    const shown = document.createElement("p");
    shown.className = "context";
    const start = places.length ? text.lastIndexOf(" ", Math.max(places[0].start - 60, 0)) + 1 : 0;
    const end = text.length > start + LENGTH ? text.lastIndexOf(" ", start + LENGTH) : text.length;
    let at = start;
    if (start) shown.append("… ");
    for (const place of places.filter((place) => place.end <= end)) {
      shown.append(text.slice(at, Math.max(at, place.start)));
      shown.appendChild(document.createElement("mark")).textContent = text.slice(Math.max(at, place.start), place.end);
      at = Math.max(at, place.end);
    }
    shown.append(text.slice(at, end), end < text.length ? " …" : "");
    return shown;
  };

  const listed = new Set();
  const complete = (item) => {
    const link = item.querySelector("a");
    const [file, anchor] = link.getAttribute("href").split("#");
    const sections = searchText[file.replace(/\.html$/, "")] || [];
    const candidates = anchor ? sections.filter((section) => section[0] === anchor) : sections;
    if (!candidates.length) return;
    const best = candidates.map(findBest).reduce((a, b) => (b.score > a.score ? b : a));
    if (best.anchor !== candidates[0][0]) {
      link.setAttribute("href", `${file}#${best.anchor}`);
      link.append(` > ${best.title}`);
    }
    if (listed.has(link.href)) return item.remove();
    listed.add(link.href);
    if (best.text) item.append(excerpt(best));
  };

  new MutationObserver((changes) => {
    for (const { addedNodes } of changes)
      for (const node of addedNodes) if (node.matches?.("ul.search > li")) complete(node);
  }).observe(document.getElementById("search-results"), { childList: true, subtree: true });
})();
