"""The widget in a real JupyterLab: it draws, Python moves it, and it moves Python's traits."""

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request

import headspan as hs
import numpy as np
import pytest
from screen.browser import TEXTS, drawn, overlapping, set_slider, spilling

pytest.importorskip("anywidget", reason="needs anywidget: pip install '.[widget]'")
pytest.importorskip("jupyterlab", reason="needs JupyterLab: pip install jupyterlab")
pytestmark = [pytest.mark.browser, pytest.mark.unsanitized]

SHORT = [
    """import json
import numpy as np
import headspan as hs
q, k = np.random.default_rng(0).standard_normal((2, 3, 40, 8), dtype=np.float32)
view = hs.explore(q, k, span=[2, 4, 8], ramp=3, tokens=["<script>alert(1)</script>"] * 40)
view""",
    "view.head, view.span, view.temperature = 1, [2, 11.5, 8], 0.5",
    """state = {name: getattr(view, name) for name in ("head", "span", "ramp", "temperature", "selected")}
with open("state.json", "w") as file:
    json.dump(state, file)""",
]
LONG = [
    """import numpy as np
import headspan as hs
long = hs.explore(*np.random.default_rng(0).standard_normal((2, 2, 1000, 8), dtype=np.float32), span=[100, 400])
long""",
]

LONGEST = [
    """import numpy as np
import headspan as hs
longest = hs.explore(*np.random.default_rng(0).standard_normal((2, 2, 100_000, 16), dtype=np.float32), span=[100, 400])
longest""",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lab")
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    for name, sources in (("short", SHORT), ("long", LONG), ("longest", LONGEST)):
        cells = [
            {"cell_type": "code", "id": f"c{i}", "source": text, "metadata": {}, "outputs": [], "execution_count": None}
            for i, text in enumerate(sources)
        ]
        notebook = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
        (folder / f"{name}.ipynb").write_text(json.dumps(notebook))
    return folder


@pytest.fixture(scope="module")
def server(folder, tmp_path_factory):
    """A separate JupyterLab without settings of the user."""
    home = tmp_path_factory.mktemp("home")
    places = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    environment = {**os.environ, **{name: str(home / name) for name in places}}
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--expose-app-in-browser"]
    command += ["--ServerApp.port=0", "--IdentityProvider.token=", f"--ServerApp.root_dir={folder}"]
    command += ["--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate", "--LabApp.news_url="]
    with (home / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
        try:
            yield _wait_for(process, home)
        finally:
            process.terminate()
            process.wait(20)
            shutil.rmtree(home, ignore_errors=True)


def _wait_for(process, home):
    end = time.monotonic() + 90
    while time.monotonic() < end:
        for file in (home / "JUPYTER_RUNTIME_DIR").glob("jpserver-*.json"):
            try:
                url = json.loads(file.read_text())["url"]
                urllib.request.urlopen(f"{url}api", timeout=5).close()
                return url
            except (urllib.error.URLError, ValueError, OSError):
                pass  # not ready yet
        if process.poll() is not None:
            break
        time.sleep(0.3)
    pytest.fail(f"JupyterLab does not start: {(home / 'log').read_text()[-2000:]}")


@pytest.fixture
def opened(browser, server):
    """Opens a notebook; at the end no script may have failed, and all requests must have gone to the server."""
    complaints, asked = [], []
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    page.set_default_timeout(60_000)

    def opens(name):
        page.on("pageerror", lambda error: complaints.append(error.stack) if is_ours(error) else None)
        page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{server}lab/workspaces/{name}/tree/{name}.ipynb")  # without the notebooks of before
        page.wait_for_selector(".jp-Notebook .jp-CodeCell")
        page.wait_for_function("globalThis.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel != null")
        # The first answer of a kernel says that it listens.
        page.evaluate(
            """async () => {
              const { sessionContext } = jupyterapp.shell.currentWidget;
              await sessionContext.ready;
              await sessionContext.session.kernel.info;
            }"""
        )
        return page

    yield opens
    page.close()
    assert complaints == []
    assert [url for url in asked if not url.startswith((server, "data:", "blob:"))] == []


def is_ours(error):
    """Whether code that JupyterLab did not bring had a part in it: its themes stumble over each other by themselves."""
    return "blob:" in (error.stack or "") or "/static/lab/" not in (error.stack or "")


def run_cell(page, number):
    page.evaluate(
        """async (number) => {
          jupyterapp.shell.currentWidget.content.activeCellIndex = number;
          await jupyterapp.commands.execute("notebook:run-cell");
        }""",
        number,
    )


def wait_for_drawn(page, expected):
    """Waits until the widget shows an array."""
    end, weights = time.monotonic() + 30, np.zeros(0)
    while time.monotonic() < end:
        weights = drawn(page)[1]
        if weights.shape == expected.shape and np.allclose(weights, expected, rtol=0, atol=1e-5):
            return
        page.wait_for_timeout(100)
    np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-5)


def wait_for_state(page, folder, **expected):
    """Runs the cell that writes the traits until they are what the browser set."""
    end, state = time.monotonic() + 30, {}
    while time.monotonic() < end:
        (folder / "state.json").unlink(missing_ok=True)
        run_cell(page, 2)
        page.wait_for_timeout(300)
        if (folder / "state.json").exists():
            state = json.loads((folder / "state.json").read_text())
            if expected.items() <= state.items():
                return
    assert state == expected


def test_the_widget_in_a_notebook(opened, folder):
    page = opened("short")
    q, k = np.random.default_rng(0).standard_normal((2, 3, 40, 8), dtype=np.float32)
    run_cell(page, 0)
    page.wait_for_selector(".headspan-view canvas")
    wait_for_drawn(page, hs.attention_weights(q, k, span=[2, 4, 8], ramp=3)[0])
    assert page.locator(".headspan-view.dark").count() == 0

    run_cell(page, 1)  # Python moves the view
    wait_for_drawn(page, hs.attention_weights(q, k, span=[2, 11.5, 8], ramp=3, temperature=0.5)[1])

    set_slider(page, "span", 21)  # the view moves Python
    set_slider(page, "ramp", 7)
    wait_for_drawn(page, hs.attention_weights(q, k, span=[2, 21, 8], ramp=7, temperature=0.5)[1])
    page.locator("input[data-name=span]").focus()
    for key in ("ArrowLeft", "d", "d"):  # for JupyterLab, an arrow selects another cell, and "d d" deletes one
        page.keyboard.press(key)
    wait_for_drawn(page, hs.attention_weights(q, k, span=[2, 20, 8], ramp=7, temperature=0.5)[1])
    assert page.locator(".jp-Notebook .jp-CodeCell").count() == len(SHORT)
    page.locator(".headspan-view .text span").nth(5).click()
    wait_for_state(page, folder, head=1, span=[2.0, 20, 8.0], ramp=7, temperature=0.5, selected=5)

    assert spilling(page) == []
    assert overlapping(page, TEXTS) == []  # a notebook has style sheets of its own
    page.evaluate("jupyterapp.commands.execute('apputils:change-theme', { theme: 'JupyterLab Dark' })")
    page.wait_for_selector(".headspan-view.dark")
    page.evaluate("jupyterapp.commands.execute('apputils:change-theme', { theme: 'JupyterLab Light' })")
    page.wait_for_selector(".headspan-view:not(.dark)")


def test_long_inputs_are_recomputed_by_python(opened):
    page = opened("long")
    q, k = np.random.default_rng(0).standard_normal((2, 2, 1000, 8), dtype=np.float32)
    run_cell(page, 0)
    page.wait_for_selector(".headspan-view canvas")
    wait_for_drawn(page, hs.attention_weights(q, k, span=[100, 400], pool=8)[0])
    set_slider(page, "span", 30)
    wait_for_drawn(page, hs.attention_weights(q, k, span=[30, 400], pool=8)[0])


def test_a_part_of_a_long_input_is_computed_where_it_is_seen(opened):
    page = opened("long")
    q, k = np.random.default_rng(0).standard_normal((2, 2, 1000, 8), dtype=np.float32)
    run_cell(page, 0)
    page.wait_for_selector(".headspan-view canvas")
    button = page.get_by_role("button", name="Zoom in")
    button.click()
    part = {"rows": slice(371, 621), "cols": slice(371, 621)}  # a quarter, around the first query of the 63rd block
    wait_for_drawn(page, hs.attention_weights(q, k, span=[100, 400], **part)[0])
    assert page.locator(".headspan-view").count() == 1
    assert button.evaluate("e => e === document.activeElement")
    set_slider(page, "span", 30)  # in the browser, as quick as the hand
    wait_for_drawn(page, hs.attention_weights(q, k, span=[30, 400], **part)[0])
    page.get_by_role("button", name="Show all").click()
    wait_for_drawn(page, hs.attention_weights(q, k, span=[30, 400], pool=8)[0])


def test_a_hundred_thousand_tokens_do_not_stop_the_page(opened):
    """While Python takes seconds for a map, the page says so and answers."""
    page = opened("longest")
    run_cell(page, 0)
    page.wait_for_selector(".headspan-view canvas")
    busy, title = ".headspan-view.computing", page.locator(".headspan-view h2")
    set_slider(page, "span", 60_000)
    page.wait_for_selector(busy)
    page.locator(".headspan-view input[type=radio]").nth(1).click()
    page.wait_for_function("document.querySelector('.headspan-view h2').textContent.includes('head 1')")
    page.locator(".headspan-view .map canvas").last.hover(position={"x": 80, "y": 100})
    page.wait_for_function("document.querySelector('.headspan-view .pair').textContent.startsWith('queries ')")
    assert page.locator(busy).count() == 1
    page.locator(".headspan-view input[type=radio]").nth(0).click()
    page.wait_for_selector(busy, state="detached")
    assert title.text_content() == "Where head 0 looks"
    q, k = np.random.default_rng(0).standard_normal((2, 2, 100_000, 16), dtype=np.float32)
    wait_for_drawn(page, hs.attention_weights(q[0], k[0], span=60_000, pool=782))
