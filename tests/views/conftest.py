"""A browser, and views that are opened in it."""

from contextlib import contextmanager
from pathlib import Path

import pytest
from screen.browser import chromium


@pytest.fixture(scope="module")
def browser():
    with chromium() as running:
        yield running


@pytest.fixture
def opened(browser, tmp_path):
    """Opens saved views; at the end no console may have complained and nothing but the file may have been asked for."""
    complaints, requests, contexts = [], [], []

    @contextmanager
    def guarded():
        yield
        for context in contexts:
            context.close()
        assert complaints == []
        assert all(url.startswith("file://") for url in requests)
        assert len(requests) == len(contexts)

    def opens(view, width=1000, shown=".headspan-view", **options):
        context = browser.new_context(viewport={"width": width, "height": 800}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: requests.append(request.url))
        path = view if isinstance(view, Path) else view.save(tmp_path / f"{len(contexts)}.html")
        page.goto(path.as_uri())
        if options.get("java_script_enabled", True):
            page.wait_for_selector(shown)
        return page

    with guarded():
        yield opens


@pytest.fixture
def live(opened, tmp_path):
    """A page with a server, as in a notebook: `asked` holds its requests, and `models` receives messages."""

    def opens(view, **options):
        path = view.save(tmp_path / "live.html")
        text = path.read_text().replace("saved: true,", "saved: false,")
        text = text.replace("save_changes: () => {},", "save_changes: () => { globalThis.asked = state; },")
        path.write_text(
            text.replace("const saved = JSON", "globalThis.models = [];\nconst saved = JSON").replace(
                "render({ model: savedModel(savedState(saved)),",
                "render({ model: (models[0] = savedModel(savedState(saved))),",
            )
        )
        return opened(path, **options)

    return opens
