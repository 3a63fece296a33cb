"""The site that `nox -s docs` builds: `sphinx-build -c docs/site . build/docs`.

Its sources are read from the root of the project, so that a link between a page, a notebook and a file of the code is
the same link here and where the repository is browsed. Nothing is fetched, when it is built and when it is read.
"""

import os
import sys
from pathlib import Path

import headspan

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

project, author, release = "headspan", "the headspan developers", headspan.__version__
copyright = author
extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "matplotlib.sphinxext.plot_directive",
    "sphinx_copybutton",
    "formulas",
    "public_names",
    "live_view",
    "search_text",
]

root_doc = "docs/start/index"
include_patterns = [
    "docs/**/*.md",
    "notebooks/*.ipynb",
    "experiments/*.md",
    "experiments/**/*.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
]
exclude_patterns = ["docs/site/**"]
nitpicky = True  # a name of headspan that does not exist is an error
html_math_renderer = "mathml"
default_role = "py:obj"
suppress_warnings = ["mystnb.unknown_mime_type"]

# The tests run every notebook and hold what is stored to what a run shows, so that here it is only read:
# HEADSPAN_DOCS_EXECUTE=force, with the extra notebooks installed, runs all of them once more.
nb_execution_mode = os.environ.get("HEADSPAN_DOCS_EXECUTE", "off")
nb_execution_timeout = 240
nb_execution_raise_on_error = True
nb_ipywidgets_js = {}  # no view of a notebook needs them, and they would come from elsewhere
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3

autodoc_typehints = "none"  # types and shapes stand in the sections of the docstrings
autodoc_member_order = "bysource"
maximum_signature_line_length = 80
numpydoc_show_class_members = False
plot_html_show_source_link = False
plot_html_show_formats = False
plot_formats = [("svg", 100)]
plot_rcparams = {"figure.constrained_layout.use": True, "svg.fonttype": "path", "svg.hashsalt": "headspan"}

html_theme = "furo"
html_title = "headspan"
html_static_path = ["style"]
html_css_files = ["site.css"]
html_js_files = [("pictures.js", {"defer": "defer"})]
html_extra_path = ["root"]  # index.html, which leads to the page of the start
html_copy_source = False
html_show_search_summary = False  # search_text.py shows excerpts
html_show_copyright = html_show_sphinx = False
templates_path = []
