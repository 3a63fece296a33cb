"""The directive `{explore}`: Python that makes a `view` is run and shown, and under it the view itself, to be moved.

The page holds the view as `Explorer.save` writes it: no server, no kernel, nothing asked of anybody.
"""

import re
import tempfile
from pathlib import Path

from docutils import nodes
from headspan.explorer import page
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class Explore(SphinxDirective):
    """Run the content and put its `view` into the page."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the code and the view."""
        code = "\n".join(self.content)
        names: dict[str, object] = {}
        exec(code, names)
        with tempfile.TemporaryDirectory() as folder:
            saved = names["view"].save(Path(folder) / "view.html").read_text(encoding="utf-8")
        view = re.search(r'<div id="headspan-view">.*</script>', saved, re.DOTALL)[0]
        number = self.env.new_serialno("explore")  # a page may have several views
        view = re.sub(r'(id="|getElementById\(")(headspan-\w+)"', rf'\g<1>\g<2>-{number}"', view)
        html = f'<style>{page.style()}</style>\n<div class="live">\n{view}\n</div>'
        return [nodes.literal_block(code, code, language="python"), nodes.raw("", html, format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("explore", Explore)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
