"""Formulas as MathML, which browsers draw without a script, and the font in which they draw them."""

import logging
import re
from importlib.metadata import distribution
from pathlib import Path

from docutils import nodes
from fontTools import subset
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

# Latin, Greek, punctuation, and the letters, arrows and operators of mathematics.
CHARACTERS = [
    *range(0x20, 0x180),
    *range(0x370, 0x400),
    *range(0x2000, 0x2070),
    *range(0x20D0, 0x2150),
    *range(0x2190, 0x2400),
    *range(0x27C0, 0x2800),
    *range(0x1D400, 0x1D800),
]


def _mathml(formula: str, display: str) -> str:
    """Convert a formula, without the space that browsers put around signs and bars, as if they were operators."""
    math = convert(formula, display=display).replace("<mo>&#x0221E;</mo>", "<mi>&#x0221E;</mi>")
    math = math.replace('<mo stretchy="false">&#x0007C;', '<mo stretchy="false" lspace="0" rspace="0">&#x0007C;')
    return re.sub("(<mrow>|(?:&#x00028;|&#x0003D;)</mo>)<mo>&#x02212;", r'\1<mo form="prefix">&#x02212;', math)


def _inline(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(_mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def _block(translator: HTML5Translator, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="formula">{_mathml(node.astext(), "block")}</div>\n')
    raise nodes.SkipNode


def _write_font(app: Sphinx, error: Exception | None) -> None:
    """Write STIX Two Math, which the package ziamath ships, without the characters that no formula needs.

    The font has the SIL Open Font License, which allows this and which the names in the file state.
    """
    if error is None and app.builder.format == "html":
        logging.getLogger("fontTools.subset").setLevel(logging.WARNING)
        options = subset.Options(flavor="woff", name_IDs=["*"])
        font = subset.load_font(distribution("ziamath").locate_file("ziamath/fonts/STIXTwoMath-Regular.ttf"), options)
        subsetter = subset.Subsetter(options)
        subsetter.populate(unicodes=CHARACTERS)
        subsetter.subset(font)
        subset.save_font(font, Path(app.outdir, "_static", "math.woff"), options)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer, which `html_math_renderer` of the configuration names."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.connect("build-finished", _write_font)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
