"""The view of a language model: its loss and predictions, what they follow, and what a saved page has of them."""

import headspan as hs
import numpy as np
import pytest
from headspan.explorer.data import ViewData
from headspan.explorer.layers import checked_layers
from headspan.explorer.prediction import Prediction
from headspan.patterns import Full, Global
from screen.browser import TEXTS, overlapping, place_of, set_slider, spilling, state
from screen.views import WORDS, float32_normals

pytest.importorskip("anywidget", reason="needs anywidget: pip install '.[widget]'")
pytestmark = [pytest.mark.browser, pytest.mark.unsanitized]

LAYERS, HEADS, KEY_HEADS, LENGTH = 3, 4, 2, 10


class FakeModel:
    """A model whose loss is a known function of its spans."""

    def __init__(self, spans=None, *, refusal=None, length=LENGTH, first_tokens=0):
        self.spans = np.full((LAYERS, HEADS), np.inf) if spans is None else np.array(spans, float)
        self.ramp, self.first_tokens, self.num_key_heads, self.refusal = 2.0, first_tokens, KEY_HEADS, refusal
        self.length = length
        self.recorded = self.prediction(self.spans, LAYERS)

    def predict(self, spans, ramp):
        if spans.min() == 1:
            raise MemoryError("no memory for a span of 1")
        changed = np.flatnonzero((spans != self.spans).any(axis=1))
        return self.prediction(spans, LAYERS - int(min(changed, default=0)))

    def prediction(self, spans, layers):
        loss = 2 + 1 / (1 + np.minimum(spans, self.length).sum())
        first = np.float32(loss - 2)
        return Prediction(
            loss=float(loss),
            candidates=np.tile(np.arange(5, dtype=np.int32), (self.length, 1)) + np.arange(self.length)[:, None] % 2,
            probabilities=np.tile([0.5 - first, 0.2, 0.1, 0.01, 0.0002], (self.length, 1)).astype(np.float32),
            following=np.append(np.linspace(0.1, 0.9, self.length - 1), np.nan).astype(np.float32),
            texts=dict(enumerate(WORDS[:6])),
            layers=layers,
            seconds=2.13,
        )


def model_view(model=None, length=LENGTH, max_tokens=512):
    from headspan.explorer.model_view import ModelExplorer

    model = model or FakeModel(length=length)
    layers = {}
    for layer, spans in enumerate(model.spans):
        q, k = float32_normals(HEADS, length, 8, seed=layer), float32_normals(KEY_HEADS, length, 8, seed=layer + 9)
        options = {"pattern": Full() | Global(range(model.first_tokens))} if model.first_tokens else {}
        layers[layer] = {"query": q, "key": k, "value": k, "span": spans, "ramp": model.ramp, **options}
    tokens = (WORDS * length)[:length]
    return ModelExplorer(
        ViewData.of(checked_layers(layers), tokens=tokens, max_tokens=max_tokens, unit="tokens"), model
    )


def losses(page):
    rows = page.locator(".model table:not(.next) tr:not([hidden])").all()
    return [[cell.text_content() for cell in row.locator("th, td").all()] for row in rows]


def loss_of(moved, span, spans=None):
    changed = np.full((LAYERS, HEADS), 10.0) if spans is None else np.array(spans, float)
    changed[moved] = span
    return FakeModel().prediction(changed, 1).loss


def note(page):
    return page.locator(".model [role=status]").text_content()


def candidates(page):
    return [row.locator("td").all_text_contents() for row in page.locator(".next tbody tr").all()]


def requests(page):
    return page.evaluate("globalThis.asks ?? 0")


def count_requests(page):
    """Count the requests for predictions, which the browser sends by the trait "asked"."""
    page.evaluate("models[0].on('change:asked', () => { globalThis.asks = (globalThis.asks ?? 0) + 1; })")


def answer(page, view):
    """Let Python answer the last request of a live page."""
    view.span, view.ramp = page.evaluate("models[0].get('asked').span"), page.evaluate("models[0].get('asked').ramp")
    view.asked = {"span": view.span, "ramp": view.ramp}
    arrays = {name: list(getattr(view, name)) for name in ("candidates", "probabilities")}
    page.evaluate(
        """([predicted, arrays]) => {
          for (const [name, list] of Object.entries(arrays)) {
            models[0].set(name, new DataView(Uint8Array.from(list).buffer));
          }
          models[0].set("predicted", predicted);
        }""",
        [view.predicted, arrays],
    )


def move(page, *places):
    """Move the slider of the span without a pause."""
    page.locator("input[data-name=span]").evaluate(
        """(input, places) => places.forEach((place) => {
          input.value = place;
          input.dispatchEvent(new Event("input", { bubbles: true }));
        })""",
        places,
    )


def wait_for_requests(page, count):
    page.wait_for_timeout(400)  # more than twice the time that the browser waits for the last move
    assert requests(page) == count


def test_a_saved_page_shows_the_recording_and_its_bill_follows(opened):
    page = opened(model_view())
    recorded = FakeModel().recorded
    assert losses(page) == [["full attention", f"{recorded.loss:.3f}", ""], ["these spans", f"{recorded.loss:.3f}", ""]]
    assert "those of the recording. This page has no model" in note(page)
    shares = ["49 %", "20 %", "10 %", "1.0 %", "< 0.1 %"]
    names = ["quick", "brown", "fox", "jumps", "over"]  # after the last token, an odd one
    assert [[text.replace("\u00a0", " ").replace("\u2009", " ") for text in row] for row in candidates(page)] == [
        [name, share, name, share] for name, share in zip(names, shares, strict=True)
    ]
    assert page.locator(".following").text_content() == ""  # the text ends there
    bill = page.locator(".cost tbody td").all_text_contents()
    set_slider(page, "span", 3)
    assert losses(page)[1] == ["these spans", "\u2013", ""]
    assert "those of the recording. This page has no model" in note(page)
    assert [row[2:] for row in candidates(page)] == [["", ""]] * 5
    assert page.locator(".cost tbody td").all_text_contents() != bill
    page.get_by_role("button", name="Recorded spans").click()
    assert losses(page)[1] == ["these spans", f"{recorded.loss:.3f}", ""]
    assert page.locator(".cost tbody td").all_text_contents() == bill


def test_the_predictions_are_those_after_the_pinned_token(opened):
    page = opened(model_view())
    page.mouse.click(*place_of(page, 4, 2))
    assert page.locator(".next caption").text_content() == "Next token after jumps, token\u00a04"
    assert [row[0] for row in candidates(page)] == WORDS[:5]
    share = np.linspace(0.1, 0.9, LENGTH - 1)[4]
    percent = f"{100 * share:.0f}\u00a0%"
    assert page.locator(".following").text_content() == f"In the text: over, {percent} \u2192 {percent}."
    assert page.locator(".candidate.actual").count() == 0
    page.locator(".text span").nth(3).click()
    assert page.locator(".candidate.actual").all_text_contents() == ["jumps"] * 2
    page.get_by_role("button", name="Unpin").click()
    assert page.locator(".next caption").text_content() == "Next token after dog, token\u00a09"


def test_a_page_saved_after_a_move_has_its_predictions(opened):
    view = model_view()
    view.span = [3] * HEADS + [10] * 8
    page = opened(view)
    assert losses(page)[1][1] == f"{loss_of((0,), 3):.3f}"
    assert "computed before the page was saved. This page has no model" in note(page)
    set_slider(page, "span", 4)
    assert losses(page)[1][1] == "\u2013"
    set_slider(page, "span", 3)
    assert losses(page)[1][1] == f"{loss_of((0,), 3):.3f}"


def test_moving_a_head_asks_python_once_for_the_last_place(live):
    view = model_view()
    page = live(view)
    count_requests(page)
    wait_for_requests(page, 0)
    assert note(page) == "Move a span, and Python recomputes the model from its layer on."
    page.locator(".overview .tiles label").nth(2 * HEADS + 1).click()
    move(page, 9, 7, 5, 3)
    assert note(page) == "Python is recomputing the model."
    wait_for_requests(page, 1)
    assert page.evaluate("models[0].get('asked').span") == [*[10] * 9, 3, 10, 10]
    move(page, 2, 6)  # while Python computes
    wait_for_requests(page, 1)
    answer(page, view)
    assert note(page) == "Python is recomputing the model."  # the spans have moved on
    wait_for_requests(page, 2)
    answer(page, view)
    loss = loss_of((2, 1), 6)
    change = f"+{100 * (loss / FakeModel().recorded.loss - 1):.2f}\u00a0%"
    assert losses(page)[1] == ["these spans", f"{loss:.3f}", change]
    assert note(page) == "Recomputed 1 of 3\u00a0layers in 2.1 s."
    assert page.locator(".model.busy-model").count() == 0
    wait_for_requests(page, 2)
    assert view.model_spans.spans[2].tolist() == [np.inf, 6, np.inf, np.inf]


def test_all_heads_of_a_layer_move_together(live):
    view = model_view()
    page = live(view)
    count_requests(page)
    page.locator(".overview .tiles label").nth(HEADS).click()
    page.get_by_role("checkbox", name="Move all heads of the layer").check()
    assert page.get_by_role("slider", name="Span of layer 1").count() == 1
    set_slider(page, "span", 4)
    wait_for_requests(page, 1)
    answer(page, view)
    assert losses(page)[1][1] == f"{loss_of((1,), 4):.3f}"
    assert note(page) == "Recomputed 2 of 3\u00a0layers in 2.1 s."
    assert state(page, "span") == "4 tokens, reach\u00a05"
    page.get_by_role("button", name="Recorded spans").click()
    assert losses(page)[1][1] == f"{FakeModel().recorded.loss:.3f}"  # at once
    wait_for_requests(page, 2)  # so that the kept states are those of the recording
    answer(page, view)
    assert losses(page)[1][2] == ""


def test_full_attention_and_the_recorded_spans_are_ways_back(live):
    spans = [[1, 2, 3, 4], [np.inf] * 4, [5] * 4]
    view = model_view(FakeModel(spans))
    page = live(view)
    count_requests(page)
    assert [row[0] for row in losses(page)] == ["recorded spans", "these spans"]
    page.get_by_role("button", name="Full attention").click()
    wait_for_requests(page, 1)
    answer(page, view)
    full = FakeModel().recorded.loss
    assert [row[:2] for row in losses(page)][1:] == [["these spans", f"{full:.3f}"], ["full attention", f"{full:.3f}"]]
    assert np.isinf(view.model_spans.spans).all()
    assert losses(page)[1][2].startswith("\u2212")
    page.get_by_role("button", name="Recorded spans").click()
    assert state(page, "span") == "1 token, reach\u00a02"
    assert losses(page)[1][1] == f"{FakeModel(spans).recorded.loss:.3f}"


def test_an_error_is_a_sentence_and_the_next_move_works(live):
    view = model_view()
    page = live(view)
    count_requests(page)
    set_slider(page, "span", 1)
    wait_for_requests(page, 1)
    answer(page, view)
    assert note(page) == "The model could not be recomputed: no memory for a span of 1."
    assert losses(page)[1][1] == "\u2013"
    wait_for_requests(page, 1)
    set_slider(page, "span", 2)
    wait_for_requests(page, 2)
    answer(page, view)
    assert losses(page)[1][1] == f"{loss_of((0, 0), 2):.3f}"


def test_a_view_that_is_not_live_says_why(live):
    page = live(model_view(FakeModel(refusal="the view was made with live=False")))
    count_requests(page)
    set_slider(page, "span", 4)
    wait_for_requests(page, 0)
    assert note(page).endswith("The model is not recomputed: the view was made with live=False.")
    assert losses(page)[1][1] == "\u2013"


@pytest.mark.parametrize("first_tokens", [0, 3])
def test_the_bill_of_a_saved_page_in_blocks_follows(opened, first_tokens):
    length = 60
    view = model_view(FakeModel(length=length, first_tokens=first_tokens), length=length, max_tokens=50)
    page = opened(view)
    assert page.locator("input[type=range]:enabled").count() == 2  # span and ramp, but not temperature
    assert "The bill follows the sliders" in page.locator(".left > .note").text_content()
    set_slider(page, "span", 6)
    span = np.array([[6.0] + [length] * 3] + [[length] * HEADS] * 2)
    sizes = {"tokens": length, "num_heads": HEADS, "head_dim": 8, "num_key_heads": KEY_HEADS, "ramp": 2}
    if first_tokens:
        sizes["pattern"] = Full() | Global(range(first_tokens))
    costs = [hs.cost(**sizes, span=row) for row in span]
    cells = page.locator(".cost tbody td").all_text_contents()
    assert cells[0] == f"{costs[0].head_pairs[0]:,}"
    assert cells[2] == f"{sum(cost.pairs for cost in costs):,}"


def test_heads_that_share_keys_keep_them_once(opened):
    view = model_view(FakeModel([[2, 4, 10, 10], [1, 1, 3, 0], [10] * 4]))
    page = opened(view)
    cells = page.locator(".cost tbody tr").nth(2).locator("td").all_text_contents()
    sizes = {"tokens": LENGTH, "num_heads": HEADS, "head_dim": 8, "num_key_heads": KEY_HEADS, "ramp": 2}
    kept = sum(hs.cost(**sizes, span=row, decode=True).cache_bytes for row in view.model_spans.spans)
    full = LAYERS * hs.cost(**sizes, decode=True).cache_bytes
    assert cells[2] == f"{kept / 1024:.2f}\u00a0KiB"
    assert cells[3] == f"{100 * kept / full:.0f}\u00a0%"
    assert "Heads that share keys keep them once" in page.locator(".meanings").text_content()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 800, 1280])
def test_nothing_is_cut_off_or_overlaps(opened, width, scheme):
    page = opened(model_view(), width=width, color_scheme=scheme)
    assert spilling(page) == []
    assert overlapping(page, f"{TEXTS}, .headspan-view .choice, .headspan-view .next td, .headspan-view button") == []
    before = page.evaluate("document.documentElement.scrollHeight")
    page.mouse.click(*place_of(page, 6, 6))
    set_slider(page, "span", 3)
    assert page.evaluate("document.documentElement.scrollHeight") == before  # nothing jumps
    assert page.evaluate("document.documentElement.scrollWidth") <= width
