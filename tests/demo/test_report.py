"""The report: its numbers, that it stands alone, and that it says what went wrong."""

import base64
import json
import re
import xml.etree.ElementTree as ET

import headspan as hs
import matplotlib
import numpy as np
import pytest
from headspan.explorer.part import full_part
from headspan.lab import lm, train, write_report
from headspan.lab.report import maps as _maps
from headspan.lab.report import measure as _measure
from headspan.lab.report import page as _page
from headspan.lab.report import pictures as _pictures
from headspan.lab.report import view as _report_view
from headspan.lab.runs import RunError
from headspan.plot import style as plot_style
from lm_helpers import TRAINING, small_run, small_text

TEXT = small_text()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    run = small_run(tmp_path_factory.mktemp("finished") / "run", TEXT)
    train(run, TEXT)
    summary = write_report(run, TEXT)
    return run, summary, (run.path / "report.html").read_text()


def svgs(page):
    return re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL)


def test_numbers_are_those_of_the_model(finished):
    run, summary, page = finished
    state = run.load()
    test = TEXT.encode(TEXT.part("test"))
    bits = lm.surprisal(state.parameters, lm.ModelConfig(**run.config["model"]), test, TRAINING.context)
    assert summary["test bits per character"] == pytest.approx(bits.mean(), rel=1e-6)
    assert summary["spans"] == state.parameters["span"].tolist()
    assert json.loads((run.path / "summary.json").read_text()) == summary
    sizes = {"tokens": 32, "num_heads": 2, "head_dim": 8}
    pairs = [hs.cost(**sizes, span=span, ramp=4).pairs for span in state.parameters["span"]]
    assert summary["pairs"] == sum(pairs)
    assert summary["full pairs"] == 2 * 2 * (32 * 33 // 2)
    assert f"{sum(pairs):,}" in page
    assert all(summary[name] > 0 for name in summary if name.endswith("seconds"))


def test_page_needs_nothing_else(finished):
    _, _, page = finished
    assert len(page) < 5e6
    assert page.count("<script") == page.count("</script>") == 2  # the data of the view and its module
    assert "default-src 'none'" in page
    assert not re.search(r'(src|href)="(?!#|data:)', page)
    assert "url(http" not in page
    assert "@import" not in page


def test_markup_in_the_text_stays_text(finished):
    _, _, page = finished
    characters = "".join(re.findall(r'<span style="--b[^>]*>(.*?)</span>', page, flags=re.DOTALL))
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in characters
    assert "&amp;" in characters
    assert "é" in characters
    assert "\ufffd" in characters


def test_the_view_holds_the_passage_and_the_spans_of_all_heads(finished):
    run, _, page = finished
    (data,) = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page, flags=re.DOTALL)
    view = json.loads(data)
    traits, meta = view["traits"], view["traits"]["meta"]
    test, parameters = TEXT.encode(TEXT.part("test")), run.load().parameters
    tokens = _measure.sequences(test, TRAINING.context, 1)
    assert meta["names"] == ["layer 0, head 0", "layer 0, head 1", "layer 1, head 0", "layer 1, head 1"]
    assert traits["span"] == parameters["span"].ravel().tolist()
    assert traits["head"] == parameters["span"].argmax()
    shown = TEXT.vocabulary[tokens[0]].tobytes().decode("ascii", errors="replace").replace("\ufffd", "\u00b7")
    assert "".join(meta["tokens"]) == shown
    layers = lm.trace(parameters, lm.ModelConfig(**run.config["model"]), tokens)
    for i, name in enumerate(("query", "key")):
        array = np.frombuffer(base64.b64decode(view["arrays"][name]), "<f4")
        np.testing.assert_allclose(array.reshape(2, 2, 32, 8), [layer[i][0] for layer in layers], atol=1e-5)


def test_the_view_is_no_larger_than_a_page_may_be():
    layers = [tuple(np.ones((1, 8, 600, 64), np.float32) for _ in "qkv")] * 4
    view = _report_view._view_data(layers, np.full((4, 8), 999.0), 32, np.full(600, 65, np.uint8))
    arrays = full_part(view).arrays
    assert len(arrays["query"]) + len(arrays["key"]) <= _report_view.MOST_BYTES
    assert view.layers[0].query.shape == (32, 152, 64)
    assert view.span == [152.0] * 32
    assert view.tokens == ["A"] * 152


@pytest.mark.parametrize(("span", "tokens"), [(1, 128), (50.5, 4 * 58), (500, 512)])
def test_the_passage_of_the_view_is_short_enough_to_see_the_longest_reach(span, tokens):
    layers = [tuple(np.ones((1, 2, 600, 8), np.float32) for _ in "qkv")]
    view = _report_view._view_data(layers, np.array([[span, 1.0]]), 8, np.full(600, 65, np.uint8))
    assert len(view.tokens) == view.layers[0].query.shape[1] == tokens


@pytest.mark.thorough
def test_name_of_the_text_is_escaped(tmp_path):
    text = type(TEXT).from_bytes(TEXT.data.tobytes(), "<b>&\"'.txt")
    run = small_run(tmp_path / "run", text)
    write_report(run, text)
    page = (run.path / "report.html").read_text()
    assert "<b>" not in page
    assert "&lt;b&gt;&amp;" in page


def test_pictures_are_well_formed_and_their_ids_unique(finished):
    run, _, page = finished
    pictures = svgs(page)
    assert len(pictures) == 7
    for svg in pictures:
        assert ET.fromstring(svg).attrib["role"] == "img"
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    used = set(re.findall(r'(?:xlink:href="#|url\(#)([^")]+)', page))
    assert used <= set(ids)
    assert ET.fromstring((run.path / "spans.svg").read_text()).tag.endswith("svg")


def test_pictures_follow_the_colour_of_the_page_and_the_file_has_its_own(finished):
    run, _, page = finished
    for svg in svgs(page):
        assert "currentColor" in svg
        assert _pictures.INK not in svg
    alone = (run.path / "spans.svg").read_text()
    assert _pictures.INK in alone
    assert "currentColor" not in alone


@pytest.mark.thorough
def test_a_second_report_changes_only_measured_times(finished):
    run, summary, page = finished
    again = write_report(run, TEXT)

    def fixed(numbers):
        return {name: value for name, value in numbers.items() if not name.endswith("seconds")}

    assert fixed(again) == fixed(summary)
    assert svgs((run.path / "report.html").read_text()) == svgs(page)


@pytest.mark.thorough
def test_a_run_that_has_not_begun_says_so(tmp_path):
    run = small_run(tmp_path / "run", TEXT)
    write_report(run, TEXT)
    assert "has not been trained yet" in (run.path / "report.html").read_text()


@pytest.mark.thorough
def test_an_interrupted_run_says_so(tmp_path):
    run = small_run(tmp_path / "run", TEXT)
    train(run, TEXT, steps=3)
    write_report(run, TEXT)
    page = (run.path / "report.html").read_text()
    assert "This model has been trained for 3 of 8 steps. To continue: " in page
    assert f"<code>headspan train <span>--resume</span> {run.path}</code>" in page  # no line ends within an option


def test_the_page_says_how_far_heads_look(finished):
    run, _, page = finished
    spans = run.load().parameters["span"]
    wide, narrow = (np.flatnonzero(hs.soft_mask(np.arange(99), z, 4))[-1] for z in (spans.max(), spans.min()))
    assert f"the two heads look at most {wide} and {narrow} characters back" in page


def test_code_stands_between_backticks_and_is_escaped():
    assert _page.with_code("a `b <c> --d-e -f 'g`h'` & i") == (
        "a <code>b &lt;c&gt; <span>--d-e</span> <span>-f</span> &#x27;g`h&#x27;</code> &amp; i"
    )
    assert _page.with_code("<a> ` b") == "&lt;a&gt; ` b"


def test_the_core_is_written_without_brackets(finished):
    (core,) = re.findall(r'<th scope="row">core</th><td>(.*?)</td>', finished[2])
    assert f"isas {' '.join(hs.build_info()['isas'])}, " in core
    assert "[" not in core


def test_a_finished_run_has_no_warning(finished):
    assert 'class="warning"' not in finished[2]


def test_numbers_that_are_not_finite_are_reported(tmp_path):
    run = small_run(tmp_path / "run", TEXT)
    train(run, TEXT)
    state = run.load()
    state.parameters["head"][:] = np.nan
    run.save(state)
    summary = write_report(run, TEXT)
    page = (run.path / "report.html").read_text()
    assert summary["test bits per character"] is None
    assert "not finite" in page
    assert "<script" not in page
    assert len(svgs(page)) == 4


def not_constant(name):
    raise AssertionError(f"{name} is no JSON")


def summary_of(run):
    return json.loads((run.path / "summary.json").read_text(), parse_constant=not_constant)


def test_the_document_has_the_numbers_of_the_page(finished):
    run, summary, page = finished
    described = "|".join(re.findall(r'aria-label="([^"]*)"', page))  # pictures have their numbers as shapes
    text = re.sub(r"<[^>]*>", "|", page) + described
    shown = [f"{summary['test bits per character']:.3f}", f"{summary['parameters']:,} parameters"]
    shown += [f"{summary['xz -9, bits per character']:.3f}", f"{summary['test characters']:,} held-out"]
    shown += [f"{span:.1f}" for row in summary["spans"] for span in row]
    shown += [f"{summary[name]:,}" for name in ("pairs", "full pairs")]
    shown += [f"{1e3 * value:.2f} ms" for name, value in summary.items() if name.endswith("forward seconds")]
    shown += [f"median of {summary['rounds']} rounds", f"{summary['characters']['train']:,} train"]
    for number in shown:
        assert number in text, number
    assert summary["mean span"] == pytest.approx(np.mean(summary["spans"]))
    assert (summary["finished"], summary["step"], summary["steps"], summary["warnings"]) == (True, 8, 8, [])
    rows = run.metrics()
    assert summary["history"]["step"] == [row["step"] for row in rows] == [2, 4, 6, 8]
    assert summary["history"]["bits"] == [row["bits"] for row in rows]
    assert summary["history"]["spans"][-1] == summary["spans"]
    assert [value is None for value in summary["history"]["validation"]] == [True, False, True, False]


@pytest.mark.thorough
def test_pictures_are_written_as_png_files(finished, tmp_path):
    run, _, _ = finished
    image = pytest.importorskip("matplotlib.image")
    write_report(run, TEXT, png=tmp_path / "new" / "folder")
    files = {path.name for path in (tmp_path / "new" / "folder").iterdir()}
    names = {"bits", "learning", "spans", "history", "profiles", "maps", "close"}
    assert files == {f"{name}.png" for name in names}
    for name in files:
        pixels = image.imread(tmp_path / "new" / "folder" / name)
        width = 7.6 if name in ("profiles.png", "maps.png", "close.png") else 4.4  # what a phone shows as a whole
        assert pixels.shape[1] == pytest.approx(width * 160, abs=1)
        assert pixels[0, 0].tolist() == [1, 1, 1, 1]
        assert pixels[..., :3].min() < 0.3  # something is drawn


@pytest.mark.thorough
def test_metrics_that_are_not_finite_are_reported_and_left_out(tmp_path):
    run = small_run(tmp_path / "run", TEXT)
    train(run, TEXT)
    rows = run.metrics()
    rows[1]["bits"] = rows[1]["validation"] = float("nan")
    rows[2]["spans"][0][1] = float("inf")
    (run.path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    summary = write_report(run, TEXT)
    page = (run.path / "report.html").read_text()
    assert summary["warnings"] == ["Spans are not finite in 1 of the 4 rows of the metrics."]
    assert summary["warnings"][0] in page
    assert summary == summary_of(run)
    assert summary["history"]["bits"][1] is None
    assert summary["history"]["spans"][2][0][1] is None
    assert len(svgs(page)) == 7


@pytest.mark.thorough
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_spans_that_are_not_finite_are_reported(tmp_path, value):
    run = small_run(tmp_path / "run", TEXT)
    train(run, TEXT)
    write_report(run, TEXT)
    state = run.load()
    state.parameters["span"][0, 1] = value
    run.save(state)
    summary = write_report(run, TEXT, png=tmp_path / "png")
    page = (run.path / "report.html").read_text()
    assert summary == summary_of(run)
    assert summary["spans"][0][1] is None
    assert summary["spans"][0][0] == state.parameters["span"][0, 0]
    for name in ("test bits per character", "mean span", "pairs", "forward seconds"):
        assert summary[name] is None
    assert "numbers are not finite" in page
    assert "<td>not a number</td>" in page
    assert not (run.path / "spans.svg").exists()
    assert {path.name for path in (tmp_path / "png").iterdir()} == {"bits.png", "learning.png", "history.png"}


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["embedding", "0.query", "1.key"])
def test_weights_that_are_not_finite_do_not_stop_the_report(tmp_path, name):
    run = small_run(tmp_path / "run", TEXT)
    train(run, TEXT, steps=3)
    state = run.load()
    state.parameters[name].flat[0] = np.nan
    run.save(state)
    summary = write_report(run, TEXT)
    assert summary["warnings"][0] == "The model's numbers are not finite; try a smaller `--learning-rate`."
    assert len(summary["notes"]) == 1
    assert summary_of(run)["finished"] is False


@pytest.mark.thorough
def test_metrics_later_than_the_weights_of_a_killed_run_are_left_out(tmp_path):
    run = small_run(tmp_path / "run", TEXT)
    train(run, TEXT, steps=4)
    run.add_metrics({**run.metrics()[-1], "step": 6})
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 8, "bi')
    summary = write_report(run, TEXT)
    assert summary["history"]["step"] == [2, 4]
    assert summary["notes"][0].startswith("This model has been trained for 4 of 8 steps. To continue: ")
    assert summary["finished"] is False


def test_another_text_is_refused_and_nothing_written(tmp_path):
    run = small_run(tmp_path / "run", TEXT)
    with pytest.raises(RunError, match="has changed since"):
        write_report(run, small_text(tail=b"x"))
    assert [path.name for path in run.path.iterdir()] == ["config.json"]


def test_every_span_is_shown_with_its_reach(finished):
    _, summary, page = finished
    spans = np.array(summary["spans"])
    reach = np.ceil(spans + 4).astype(int) - 1  # the last distance with a mask above 0
    names = [f"layer {layer}, head {head}" for layer, head in np.ndindex(2, 2)]
    (said,) = re.findall(r'aria-label="Span of every head in characters. ([^"]*)"', page)
    shown = [f"{z:.1f}, reach {x}" for z, x in zip(spans.ravel(), reach.ravel(), strict=True)]
    assert said == "; ".join(f"{name}: {numbers}" for name, numbers in zip(names, shown, strict=True))
    drawn = _pictures.spans(spans, 4).axes[0].texts
    assert [text.get_text().strip() for text in drawn] == shown
    maps = _maps.maps_by_distance(np.ones((2, 2, 1, 1)), spans, 4)
    assert [ax.get_title().split("\n") for ax in maps.axes[:4]] == [
        [name, f"span {z:.0f}, reach {x}"]
        for name, z, x in zip(names, spans.ravel(), reach.ravel(), strict=True)
    ]  # fmt: skip
    history = _pictures.span_history(np.array([0]), np.ones((1, 1, 1)), 1, 4).axes[0]
    assert history.get_ylabel() == "span (characters; reach: 4 more)"


def test_no_table_repeats_a_picture(finished):
    tables = re.findall(r"<table.*?</table>", finished[2], flags=re.DOTALL)
    spans = [f">{span:.1f}<" for row in finished[1]["spans"] for span in row]
    assert not any(span in table for table in tables for span in spans)


@pytest.mark.parametrize("reach", [5, 90])  # on a linear and on a logarithmic axis
def test_maps_leave_pairs_grey_that_are_not_computed_and_have_the_lines_of_all_maps(finished, reach):
    weights = np.tile(np.arange(reach + 4) < reach, (8, 1)) * 0.25
    figure = _maps.maps_by_distance(weights[None, None], np.array([[reach - 2.5]]), 2)
    ax = figure.axes[0]
    np.testing.assert_array_equal(ax.collections[0].get_array().mask, weights == 0)
    assert ax.get_facecolor() == matplotlib.colors.to_rgba(plot_style.NOTHING)
    assert ax.get_xscale() == ("linear" if reach == 5 else "symlog")
    assert ax.get_xlim()[0] == -0.5
    assert reach + 4 < ax.get_xlim()[1] < 1.1 * (reach + 4)  # no empty part beyond the longest reach
    first, last = ax.lines
    assert (first.get_linestyle(), last.get_linestyle()) == ("-", "--")
    assert set(first.get_xdata()) == {reach - 2.5}
    assert set(last.get_xdata()) == {reach - 0.5}
    close = _maps.close_map(np.tril(weights[:, :8]), list("abcdefgh"), "")
    np.testing.assert_array_equal(close.axes[0].images[0].get_array().mask, np.tril(weights[:, :8]) == 0)
    assert "Grey pairs are not computed" in finished[2]


def test_maps_of_predicted_spans_follow_each_character():
    spans = np.array([[[1.0, 2.0, 0.0]]])
    ax = _maps.maps_by_distance(np.ones((1, 1, 3, 5)), spans, 0).axes[0]
    (line,) = ax.lines
    assert line.get_xdata().tolist() == [1.5, 1.5, 2.5, 2.5, 0.5, 0.5]
    assert line.get_ydata().tolist() == [-0.5, 0.5, 0.5, 1.5, 1.5, 2.5]
    assert ax.get_title() == "layer 0, head 0\nspan 1, reach 2"


def test_bits_of_the_bytes_of_a_character_are_added():
    data = np.frombuffer("aé\x00".encode() + b"\xff", np.uint8)
    shown = _page._characters(data.tobytes(), np.array([1.0, 2.0, 4.0, 8.0, 16.0]))
    assert shown == [("a", 1.0), ("é", 6.0), ("\ufffd", 8.0), ("\ufffd", 16.0)]


@pytest.mark.thorough
def test_history_ends_where_the_table_does(tmp_path, monkeypatch):
    """The run ended between two rows of the metrics."""
    run, drawn, draw = small_run(tmp_path / "run", TEXT), [], _pictures.span_history
    train(run, TEXT, steps=3)
    assert run.metrics()[-1]["step"] == 2
    monkeypatch.setattr(_pictures, "span_history", lambda *arguments: drawn.append(arguments) or draw(*arguments))
    write_report(run, TEXT)
    steps, history, *_ = drawn[0]
    assert steps.tolist() == [0, 2, 3]
    np.testing.assert_array_equal(history[-1], run.load().parameters["span"])
