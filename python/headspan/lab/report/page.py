"""The HTML elements of the report. All texts from outside are escaped here."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
{policy}
<title>{title}</title>
<style>
:root {{
  color-scheme: light dark;
  --ink: #1b1f24; --paper: #ffffff; --quiet: #57606a; --line: #d0d7de; --heat: 213, 94, 0; --most: 0.9;
  --note: #fff4e5; --edge: #d55e00;
}}
@media screen and (prefers-color-scheme: dark) {{
  :root {{
    --ink: #e6edf3; --paper: #12161b; --quiet: #9aa4ae; --line: #343b43; --note: #33230f; --most: 0.7;
    --nothing: #2a3038;
  }}
}}
* {{ box-sizing: border-box; }}
body {{
  margin: 0 auto; max-width: 52rem; padding: 1.5rem 1.25rem 4rem; color: var(--ink);
  background: var(--paper); font: 16px/1.55 system-ui, sans-serif;
}}
h1 {{ font-size: 1.75rem; line-height: 1.2; margin: 1rem 0 0.5rem; }}
h2 {{ font-size: 1.25rem; margin: 2.5rem 0 0.5rem; }}
figure {{ margin: 1rem 0; overflow-x: auto; }}
figure svg {{ width: 100%; height: auto; display: block; max-width: 30rem; }}
figure.wide svg {{ max-width: none; }}
.pair {{ display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); column-gap: 1.5rem; align-items: start; }}
table {{ border-collapse: collapse; width: 100%; margin: 0.75rem 0; font-size: 0.925rem; }}
th, td {{
  text-align: left; vertical-align: top; padding: 0.35rem 0.75rem 0.35rem 0;
  border-bottom: 1px solid var(--line); overflow-wrap: anywhere;
}}
th {{ font-weight: 600; }}
tbody th {{ color: var(--quiet); font-weight: 500; width: 9rem; overflow-wrap: normal; }}
.wide {{ overflow-x: auto; }}
.numbers td, .numbers th {{ text-align: right; font-variant-numeric: tabular-nums; overflow-wrap: normal; }}
.numbers td {{ white-space: nowrap; }}
.numbers tbody th {{ width: 14rem; }}
.numbers td:first-child, .numbers th:first-child {{ text-align: left; }}
@media screen and (max-width: 40rem) {{
  .pair {{ display: block; }}
  figure {{ margin-inline: -0.75rem; }}
  figure.wide svg {{ min-width: 40rem; }} /* its words can be read; it is moved sideways */
  figure.wide::before {{
    content: "Move it sideways to see all of it \u2194"; position: sticky; left: 0.75rem; display: inline-block;
    color: var(--quiet); font-size: 0.85rem;
  }}
  main > table tbody th, .wide tbody th {{ width: auto; min-width: 6rem; }}
}}
pre, code {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }}
pre {{
  font-size: 0.85rem; line-height: 1.5; border: 1px solid var(--line); padding: 0.9rem;
  white-space: pre-wrap; overflow-wrap: anywhere;
}}
code span {{ white-space: nowrap; }} /* an option stays in one piece */
pre span {{ background: rgba(var(--heat), calc(var(--b) * var(--most))); }} /* the text can still be read */
.warning, .note {{
  border-left: 4px solid var(--line); padding: 0.6rem 0.9rem; margin: 0.5rem 0; overflow-wrap: anywhere;
}}
.warning {{ background: var(--note); border-color: var(--edge); }}
@media print {{
  body {{ max-width: none; padding: 0; font-size: 11pt; }}
  figure, table, .warning, .note {{ break-inside: avoid; }}
  h2 {{ break-after: avoid; }}
  pre span {{ -webkit-print-color-adjust: exact; print-color-adjust: exact; }}
  .interactive {{ display: none; }}
}}
{style}
</style>
</head>
<body>
<main>
{remarks}
{body}
</main>
</body>
</html>
"""

# Characters that take this many bits or more have the strongest background.
STRONGEST_BITS = 10.0
_SHADES = 10


def figure(svg: str, label: str, *, wide: bool = False) -> str:
    """Wrap a picture in a figure element, with `label` as its description for screen readers.

    A wide picture keeps its width on a narrow page and scrolls.
    """
    kind = ' class="wide"' if wide else ""
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{html.escape(label)}" ', 1)
    return f"<figure{kind}>{svg}</figure>"


def pair(*figures: str) -> str:
    """Return two figures side by side, or one above the other on a narrow page."""
    return f'<div class="pair">{"".join(figures)}</div>'


def with_code(text: str) -> str:
    """Escape a text and turn the part between backticks, a command or an option, into a code element."""
    before, tick, rest = text.partition("`")
    code, last, after = rest.rpartition("`")
    if not (tick and last):
        return html.escape(text)
    words = (f"<span>{html.escape(w)}</span>" if w.startswith("-") else html.escape(w) for w in code.split(" "))
    return f"{html.escape(before)}<code>{' '.join(words)}</code>{html.escape(after)}"


def table(rows: dict[str, str]) -> str:
    """Return a table of two columns, whose values are formatted by `with_code`."""
    body = "".join(
        f'<tr><th scope="row">{html.escape(name)}</th><td>{with_code(value)}</td></tr>' for name, value in rows.items()
    )
    return f"<table><tbody>{body}</tbody></table>"


def number_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of numbers whose first column holds the row headers."""
    top = "".join(f'<th scope="col">{html.escape(cell)}</th>' if cell else "<td></td>" for cell in head)
    body = "".join(
        f'<tr><th scope="row">{html.escape(first)}</th>'
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in others)
        + "</tr>"
        for first, *others in rows
    )
    numbers = f'<table class="numbers"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>'
    return f'<div class="wide">{numbers}</div>'


def passage_html(data: NDArray[np.uint8], bits: NDArray[Any]) -> str:
    """Return a text in which each character is shaded by its bits.

    Parameters
    ----------
    data : ndarray of uint8, shape (tokens,)
        Bytes of the text. The bytes of a UTF-8 character are shown together.
    bits : ndarray, shape (tokens,)
    """
    parts = []
    for character, number in _characters(data.tobytes(), bits):
        is_finite = bool(np.isfinite(number))
        shade = round(_SHADES * min(max(number / STRONGEST_BITS, 0), 1)) if is_finite else 0
        title = f"{number:.2f} bits" if is_finite else "not a number"
        parts.append(f'<span style="--b:{shade / _SHADES:g}" title="{title}">{html.escape(character)}</span>')
    return f"<pre>{''.join(parts)}</pre>"


def _characters(data: bytes, bits: NDArray[Any]) -> list[tuple[str, float]]:
    """Return the UTF-8 characters of `data` with their bits; invalid bytes become U+FFFD."""
    shown: list[tuple[str, float]] = []
    position = 0
    while position < len(data):
        for size in (1, 2, 3, 4):
            try:
                character = data[position : position + size].decode()
                break
            except UnicodeDecodeError:
                character = ""
        if not character:
            character, size = "\ufffd", 1
        if not (character.isprintable() or character in "\n\t"):
            character = "\ufffd"
        shown.append((character, float(bits[position : position + size].sum())))
        position += size
    return shown
