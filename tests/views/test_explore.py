"""The interactive view from Python: its traits, its checks, and the one file it saves."""

import re
import sys
from importlib.resources import files

import headspan as hs
import numpy as np
import pytest
from cases import normals
from headspan.explorer import page as _page
from helpers import run_python
from screen.views import float32_normals

pytest.importorskip("anywidget", reason="needs anywidget: pip install '.[widget]'")
pytestmark = pytest.mark.unsanitized  # the sanitizers have nothing to find in other people's widgets


def view_of(count=3, length=20, **options):
    q, k = float32_normals(2, count, length, 8)
    return hs.explore(q, k, **options)


def test_arrays_and_sizes_reach_the_browser():
    q, k, v = normals(0, 3, 4, 30, 8)
    view = hs.explore(q[:, -20:], k[:2], value=v[:2], span=[1, 2.5, 3, 999], ramp=4, tokens=["x"] * 30, heads=[3, 1])
    sizes = {"heads": [3, 1], "queries": 20, "keys": 30, "dim": 8, "valueDim": 8, "itemsize": 8, "pool": None}
    assert sizes.items() <= view.meta.items()
    assert view.meta["scale"] == pytest.approx(8**-0.5)
    np.testing.assert_array_equal(np.frombuffer(view.query, "f4").reshape(2, 20, 8), q[[3, 1], -20:].astype("f4"))
    np.testing.assert_array_equal(np.frombuffer(view.key, "f4").reshape(2, 30, 8), k[[1, 0]].astype("f4"))
    norms = np.linalg.norm(v[[1, 0]], axis=-1)
    np.testing.assert_allclose(np.frombuffer(view.norms, "f4").reshape(2, 30), norms, rtol=1e-6)
    assert view.span == [30.0, 2.5]  # no larger than the context
    assert (view.head, view.ramp, view.temperature, view.selected) == (3, 4.0, 1.0, None)
    assert view.maps == b""


@pytest.mark.parametrize("shape", [(20, 8), (3, 20, 8), (1, 3, 20, 8)])
def test_leading_axes_may_be_left_out(shape):
    q, k = float32_normals(2, *shape)
    assert hs.explore(q, k).span == [20.0] * (1 if len(shape) == 2 else 3)


def test_traits_can_be_set_and_observed():
    view, seen = view_of(), []
    view.observe(lambda change: seen.append((change["name"], change["new"])))
    view.span = 7
    view.span = np.array([1.0, 2.0, 99.0])
    view.span = None
    view.head = 2
    view.ramp = 0
    view.temperature = 0.5
    view.selected = 19
    view.selected = None
    assert seen == [
        ("span", [7.0, 7.0, 7.0]),
        ("span", [1.0, 2.0, 20.0]),
        ("span", [20.0, 20.0, 20.0]),
        ("head", 2),
        ("ramp", 0.0),
        ("temperature", 0.5),
        ("selected", 19),
        ("selected", None),
    ]


@pytest.mark.parametrize(
    ("trait", "value", "message"),
    [
        ("span", [1, 2], r"span must be a number or 3 numbers, not of shape \(2,\)"),
        ("span", -1, "span must be non-negative"),
        ("span", float("nan"), "span must be finite"),
        ("head", 3, r"head must be one of \[0, 1, 2\], not 3"),
        ("ramp", -1, "ramp must be at least 0"),
        ("temperature", 0, "temperature must be greater than 0, not 0"),
        ("temperature", float("inf"), "temperature must be finite"),
        ("selected", 20, "selected must be None or a query from 0 to 19, not 20"),
    ],
)
def test_traits_refuse_what_is_wrong_and_stay(trait, value, message):
    view = view_of()
    before = getattr(view, trait)
    with pytest.raises(ValueError, match=message):
        setattr(view, trait, value)
    assert getattr(view, trait) == before


def test_long_inputs_are_pooled_maps_that_python_computes_again():
    q, k = float32_normals(2, 2, 1000, 8)
    view = hs.explore(q, k, span=[30, 400], ramp=8)
    assert (view.meta["pool"], view.query, view.key) == ((8, 8), b"", b"")

    def expected(**options):
        return hs.attention_weights(q, k, pool=8, **options)

    def shown():
        return np.frombuffer(view.maps, "f4").reshape(2, 125, 125)

    np.testing.assert_array_equal(shown(), expected(span=[30, 400], ramp=8))
    view.span = [50, 5]
    view.temperature = 0.5
    np.testing.assert_array_equal(shown(), expected(span=[50, 5], ramp=8, temperature=0.5))


def test_max_tokens_decides_who_computes():
    assert view_of(length=20, max_tokens=20).meta["pool"] is None
    assert view_of(length=21, max_tokens=20).maps != b""
    query, key = np.ones((1, 5, 8), np.float32), np.ones((1, 30, 8), np.float32)  # keys count too
    assert hs.explore(query, key, max_tokens=29).meta["pool"] == (1, 1)
    assert hs.explore(query, key, max_tokens=30).meta["pool"] is None


def test_saved_page_stands_alone(tmp_path):
    q, k = float32_normals(2, 1, 3, 8)
    view = hs.explore(q, k, tokens=["</script><script>alert(1)</script>", "&amp;", "\u2028"])
    path = view.save(tmp_path / "view.html")
    page = path.read_text(encoding="utf-8")
    assert path == tmp_path / "view.html"
    assert "</script><script>" not in page
    assert not re.search(
        r"""(src|href)=|url\(|@import|^import|https?://(?!www\.w3\.org/2000/svg)""", page, re.MULTILINE
    )
    assert view.save(str(path)) == path


def test_the_module_is_one_piece_of_small_files():
    module = _page.module()
    assert not re.search(r"^import ", module, re.MULTILINE)
    assert re.findall(r"^export .*", module, re.MULTILINE) == ["export default { render };"]
    shipped = {file.name for file in (files("headspan.explorer") / "browser").iterdir() if file.name.endswith(".js")}
    assert shipped == set(_page.MODULES)
    for name in shipped:
        assert len(((files("headspan.explorer") / "browser") / name).read_text().splitlines()) < 400
    defined = re.findall(r"^(?:async )?(?:function|const) (\w+)", module, re.MULTILINE)
    assert len(defined) == len(set(defined))  # in one module every name means one thing


@pytest.mark.parametrize(
    ("error", "change", "message"),
    [
        (ValueError, {"tokens": ["a"]}, "tokens must hold 20 strings, one per token, not 1"),
        (TypeError, {"tokens": 5}, "tokens must be a sequence of texts, not 5"),
        (ValueError, {"heads": [3]}, "heads must be different numbers from 0 to 2"),
        (ValueError, {"heads": []}, "heads must be different numbers"),
        (ValueError, {"heads": [1, 1]}, "heads must be different numbers"),
        (ValueError, {"heads": iter([5])}, r"heads must be different numbers from 0 to 2, not \[5\]"),
        (TypeError, {"heads": 0}, "heads must be a sequence of integers, not 0"),
        (ValueError, {"span": [1, 2]}, "span must be a number or of shape"),
        (ValueError, {"span": np.ones((3, 20))}, "plot.dynamic_spans draws spans of tokens"),
        (ValueError, {"max_tokens": 0}, "max_tokens must be at least 1"),
        (ValueError, {"ramp": -1}, "ramp must be at least 0"),
    ],
)
def test_errors_say_what_is_wrong(error, change, message):
    with pytest.raises(error, match=message):
        view_of(**change)


def test_a_batch_is_refused():
    q, k = float32_normals(2, 2, 3, 20, 8)
    with pytest.raises(ValueError, match=r"one item of a batch, not 2; query\[0\] is the first"):
        hs.explore(q, k)


def test_anywidget_is_imported_when_used():
    assert run_python("import sys, headspan; print('anywidget' in sys.modules)").strip() == "False"


def test_without_anywidget_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "anywidget", None)
    monkeypatch.delitem(sys.modules, "headspan.explorer.widget", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"pip install '\.\[widget\]'"):
        view_of()
