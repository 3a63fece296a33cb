"""The JavaScript module of the view, and HTML pages that show a view."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

# Each file uses only files before it.
MODULES = (
    "allowed.js",  # which pairs are allowed
    "numbers.js",  # weights
    "words.js",
    "cost.js",
    "paint.js",  # maps and their axes
    "parts.js",  # elements of the page
    "model.js",  # the loss and the predictions of a language model
    "overview.js",  # the table of layers and heads
    "heads.js",  # small pictures of heads
    "reading.js",  # texts about the pair under the pointer
    "zoom.js",
    "input.js",
    "state.js",
    "sheet.js",  # puts the elements together
    "view.js",  # connects all of them
)

# Pages must not load anything from a network.
POLICY = (
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
    "script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:\">"
)

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
{policy}
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ margin: 0; padding: 0 max(16px, 3vw); background: #fff; color: #1b1f24; font: 14px/1.5 system-ui, sans-serif; }}
@media (prefers-color-scheme: dark) {{ body {{ background: #12161b; color: #e6edf3; }} }}
h1 {{ position: absolute; width: 1px; height: 1px; margin: 0; overflow: hidden; clip-path: inset(50%); }}
{style}
</style>
</head>
<body>
<main>
<h1>{title}</h1>
<noscript><p>This view is computed in the browser and needs JavaScript.</p></noscript>
{view}
</main>
</body>
</html>
"""

_VIEW = """<div id="headspan-view"></div>
<script type="application/json" id="headspan-data">{data}</script>
<script type="module">
{module}
{start}
</script>"""

# A replacement for the model of a widget, without a Python process.
_START = """
function savedModel(state) {
  const handlers = {};
  return {
    saved: true,
    get: (name) => state[name],
    set: (name, value) => {
      state[name] = value;
      for (const handler of handlers[`change:${name}`] ?? []) handler();
    },
    save_changes: () => {},
    on: (name, handler) => (handlers[name] ??= new Set()).add(handler),
    off: (name, handler) => handlers[name]?.delete(handler),
  };
}

function savedState({ traits, arrays }) {
  const bytes = (text) => {
    const signs = atob(text);
    const array = new Uint8Array(signs.length);
    for (let i = 0; i < signs.length; i++) array[i] = signs.charCodeAt(i); // quick, for many megabytes
    return new DataView(array.buffer);
  };
  return { ...traits, ...Object.fromEntries(Object.entries(arrays).map(([name, text]) => [name, bytes(text)])) };
}

const saved = JSON.parse(document.getElementById("headspan-data").textContent);
render({ model: savedModel(savedState(saved)), el: document.getElementById("headspan-view") });
"""


def module() -> str:
    """Return the JavaScript of the view as one ES module, which is its files in order without imports."""
    return "\n".join(_without_imports(_asset(name)) for name in MODULES)


def style() -> str:
    """Return the style sheet of the view."""
    return _asset("view.css")


def embedded(traits: Mapping[str, Any], arrays: Mapping[str, bytes]) -> str:
    """Return a view as elements of a page. The page must contain the style sheet and no other view.

    Parameters
    ----------
    traits : mapping
        Traits that JSON can represent: meta, head, span, ramp, temperature, selected.
    arrays : mapping of str to bytes
    """
    texts = {name: base64.b64encode(array).decode() for name, array in arrays.items()}
    data = json.dumps({"traits": dict(traits), "arrays": texts})
    data = data.replace("<", "\\u003c")  # so that no text can close the script element
    return _VIEW.format(data=data, module=module(), start=_START)


def page(title: str, traits: Mapping[str, Any], arrays: Mapping[str, bytes]) -> str:
    """Return a self-contained page that shows a view. The arguments are those of `embedded`."""
    return _PAGE.format(title=html.escape(title), policy=POLICY, style=style(), view=embedded(traits, arrays))


def _asset(name: str) -> str:
    return (files(__package__) / "browser" / name).read_text(encoding="utf-8")


def _without_imports(source: str) -> str:
    source = re.sub(r"^import [^;]*;\n", "", source, flags=re.MULTILINE)
    return re.sub(r"^export (?!default)", "", source, flags=re.MULTILINE)
