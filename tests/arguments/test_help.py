"""What `help` and the interpreter display: types of results in signatures, and objects in one line."""

import inspect
import pydoc

import headspan as hs
import numpy as np
import pytest

RESULTS = {
    hs.attention: "np.ndarray | tuple[np.ndarray, np.ndarray]",
    hs.reference.attention: "np.ndarray | tuple[np.ndarray, np.ndarray]",
    hs.SpanCache.attend: "np.ndarray | tuple[np.ndarray, np.ndarray]",
    hs.memory.StreamingAttention.attend: "np.ndarray | tuple[np.ndarray, np.ndarray]",
    hs.memory.KeyValueStore.attend: "np.ndarray | tuple[np.ndarray, np.ndarray]",
    hs.memory.retrieval_attention: "np.ndarray | tuple[np.ndarray, np.ndarray]",
    hs.sparse.hierarchical_attention: "np.ndarray | tuple[np.ndarray, np.ndarray]",
    hs.hybrid.hybrid_attention: "np.ndarray | tuple[np.ndarray, np.ndarray, np.ndarray]",
    hs.attention_weights: "npt.NDArray[np.floating]",
    hs.dynamic_span: "npt.NDArray[np.floating]",
    hs.key_importance: "npt.NDArray[np.floating]",
    hs.merge_attention: "tuple[npt.NDArray[np.floating], npt.NDArray[np.floating]]",
    hs.soft_mask: "npt.NDArray[np.float64]",
}
PUBLIC = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in (hs, hs.hybrid, hs.memory, hs.plot, hs.sparse, hs.reference)
    for name in getattr(module, "__all__", ["attention"])
    if inspect.isfunction(getattr(module, name))
}


@pytest.mark.parametrize("function", RESULTS, ids=lambda function: function.__qualname__)
def test_help_displays_the_arrays_that_a_function_returns(function):
    assert f" -> '{RESULTS[function]}'\n" in pydoc.plain(pydoc.render_doc(function))


@pytest.mark.parametrize("name", PUBLIC)
def test_no_public_function_returns_any(name):
    result = inspect.signature(PUBLIC[name]).return_annotation
    assert result not in ("Any", inspect.Signature.empty)


def test_help_on_gradients_displays_arrays():
    assert str(inspect.signature(hs.Gradients).parameters["span"]) == "span: 'ndarray | None'"


def test_a_cache_and_a_stream_describe_themselves():
    cache = hs.SpanCache(1, 2, 4, span=[4, np.inf], ramp=8, dtype="int8")
    cache.append(*np.ones((2, 1, 2, 30, 4), np.float32))
    assert repr(cache) == (
        "SpanCache(batch=1, num_key_heads=2, head_dim=4, span=[4, inf], ramp=8.0, dtype='int8', count=30, "
        f"nbytes={cache.nbytes})"
    )
    assert "span=8," in repr(hs.SpanCache(1, 2, 4, span=8))
    assert "span=None," in repr(hs.SpanCache(1, 2, 4))
    assert "span=<64 from 1 to 64>," in repr(hs.SpanCache(1, 2, 4, span=np.arange(1, 65)))
    stream = hs.memory.StreamingAttention(1, 2, 4, slots=16, window=4, decay=0.9, span=20)
    assert repr(stream) == (
        "StreamingAttention(batch=1, num_key_heads=2, head_dim=4, slots=16, window=4, decay=0.9, merge=False, span=20, "
        f"ramp=32.0, dtype=float32, count=0, nbytes={stream.nbytes})"
    )


def test_an_index_describes_itself(tmp_path):
    index = hs.memory.KeyIndex(2, 4)
    index.add(np.ones((2, 5, 4), np.float32))
    assert repr(index) == "<KeyIndex(num_key_heads=2, head_dim=4, dtype=float32) with 5 keys>"
    store = hs.memory.KeyValueStore(tmp_path / "store", 2, 4)
    store.append(*np.ones((2, 2, 7, 4), np.float32))
    index = hs.memory.KeyIndex.of_store(store)
    assert repr(index) == "<KeyIndex(num_key_heads=2, head_dim=4, dtype=float32) with 7 keys of a store>"
