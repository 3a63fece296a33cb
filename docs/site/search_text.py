"""The text of all sections, for the excerpts on the page of the search.

Sphinx's script fetches the excerpts from the pages, which a browser forbids to a page that is opened from a file.
"""

import json
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

SKIPPED = (nodes.title, nodes.raw, nodes.math_block, nodes.comment, addnodes.desc_signature, addnodes.toctree)
Section = list[str]  # its anchor, its title and its text


def _collect(node: nodes.Node, section: Section, sections: list[Section]) -> None:
    """Add the text of a node to the section, and append the sections and the documented names inside the node."""
    for child in node.children:
        if isinstance(child, nodes.Text):
            section[2] += child.astext()
        elif isinstance(child, nodes.section):
            sections.append([child["ids"][0], child[0].astext(), ""])
            _collect(child, sections[-1], sections)
        elif isinstance(child, addnodes.desc) and child[0]["ids"]:
            name = child[0]["ids"][0]
            sections.append([name, name, ""])
            _collect(child, sections[-1], sections)
        elif not isinstance(child, SKIPPED):
            _collect(child, section, sections)
            section[2] += "" if isinstance(child, nodes.Inline) else " "


def _add_page(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    sections: list[Section] = []
    _collect(doctree, ["", "", ""], sections)
    app.search_text[docname] = [[anchor, title, " ".join(text.split())] for anchor, title, text in sections]


def _add_scripts(app: Sphinx, pagename: str, *_: Any) -> None:
    if pagename == "search":
        app.add_js_file("search_text.js")
        app.add_js_file("search.js")


def _write(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        text = f"const searchText = {json.dumps(app.search_text, ensure_ascii=False)};\n"
        Path(app.outdir, "_static", "search_text.js").write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Collect the text of the pages while they are written."""
    app.search_text: dict[str, list[Section]] = {}
    app.connect("doctree-resolved", _add_page)
    app.connect("html-page-context", _add_scripts)
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": False}
