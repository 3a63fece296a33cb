"""Bad gradients handed to the vjp functions, and calls that are unusual but right."""

import headspan as hs
import numpy as np
import pytest
from bad_calls import DYNAMIC, GOOD, HYBRID, MERGE, QKV, TABLE, public
from bad_values import INF, check_sentence, ones

GRAD_OUT = [
    ("other tokens", ValueError, ones(1, 4, 6, 2)),
    ("head_dim of the key", ValueError, ones(1, 4, 5, 3)),
    ("fewer axes", ValueError, ones(4, 5, 2)),
    ("would broadcast", ValueError, ones(1, 4, 1, 2)),
    ("float32", TypeError, ones(1, 4, 5, 2, dtype=np.float32)),
    ("integers", TypeError, ones(1, 4, 5, 2, dtype=int)),
    ("objects", TypeError, ones(1, 4, 5, 2).astype(object)),
    ("None", TypeError, None),
]
GRAD_LSE = [
    ("grad_lse with an axis too many", ValueError, ones(1, 4, 5, 1)),
    ("grad_lse of other tokens", ValueError, ones(1, 4, 6)),
    ("grad_lse of float32", TypeError, ones(1, 4, 5, dtype=np.float32)),
]
GRAD_SPAN = [
    ("other heads", ValueError, ones(2, 3, 5)),
    ("two axes", ValueError, ones(4, 5)),
    ("float32", TypeError, ones(2, 4, 5, dtype=np.float32)),
    ("None", TypeError, None),
]


def table(rows):
    return pytest.mark.parametrize(("error", "value"), [(e, v) for _, e, v in rows], ids=[name for name, _, _ in rows])


@table(GRAD_OUT)
def test_attention_vjp_grad_out(error, value):
    _, vjp = hs.attention_vjp(**QKV)
    with pytest.raises(error) as caught:
        vjp(value)
    check_sentence(caught.value, "grad_out")
    assert np.isfinite(vjp(ones(1, 4, 5, 2)).query).all()  # and it is still usable


@table(GRAD_LSE)
def test_attention_vjp_grad_lse(error, value):
    _, vjp = hs.attention_vjp(**QKV, return_lse=True)
    with pytest.raises(error) as caught:
        vjp(ones(1, 4, 5, 2), value)
    check_sentence(caught.value, "grad_lse")


@table([("shape", ValueError, ones(2, 5, 4)), ("integers", TypeError, ones(2, 5, 3, dtype=int))])
def test_merge_attention_vjp_grad_out(error, value):
    _, vjp = hs.merge_attention_vjp(**MERGE)
    with pytest.raises(error) as caught:
        vjp(value)
    check_sentence(caught.value, "grad_out")


@table([("shape", ValueError, ones(2, 4)), ("float32", TypeError, ones(2, 5, dtype=np.float32))])
def test_merge_attention_vjp_grad_lse(error, value):
    _, vjp = hs.merge_attention_vjp(**MERGE)
    with pytest.raises(error) as caught:
        vjp(ones(2, 5, 3), value)
    check_sentence(caught.value, "grad_lse")


@table(GRAD_SPAN)
def test_dynamic_span_vjp_grad_span(error, value):
    _, vjp = hs.dynamic_span_vjp(**DYNAMIC)
    with pytest.raises(error) as caught:
        vjp(value)
    check_sentence(caught.value, "grad_span")


@table([("fewer axes", ValueError, ones(5, 6)), ("float32", TypeError, ones(2, 5, 6, dtype=np.float32))])
def test_hybrid_attention_vjp_grad_out(error, value):
    _, vjp = hs.hybrid.hybrid_attention_vjp(**HYBRID)
    with pytest.raises(error) as caught:
        vjp(value)
    check_sentence(caught.value, "grad_out")


@table([("per item", ValueError, ones(2, 1)), ("float32", TypeError, ones(2, 3, dtype=np.float32))])
def test_hybrid_attention_vjp_grad_span(error, value):
    _, vjp = hs.hybrid.hybrid_attention_vjp(**HYBRID)
    with pytest.raises(error) as caught:
        vjp(ones(2, 5, 6), value)
    check_sentence(caught.value, "grad_span")


@pytest.mark.parametrize("per", ["batch", "head"])
def test_hybrid_attention_cannot_average_what_is_to_come(per):
    arguments = HYBRID | {"per": per, "parameters": hs.hybrid.hybrid_parameters(6, 3, per=per), "causal": True}
    with pytest.raises(ValueError, match=f"looks ahead.*{per}") as caught:
        hs.hybrid.hybrid_attention(**arguments)
    check_sentence(caught.value, "per")


@pytest.mark.parametrize("function", [name for name in GOOD if name != "set_num_threads"])
def test_missing_argument(function):
    first, *_ = GOOD[function]
    rest = {name: value for name, value in GOOD[function].items() if name != first}
    with pytest.raises(TypeError) as caught:
        public(function)(**rest)
    check_sentence(caught.value, first)


def test_options_are_keyword_only():
    with pytest.raises(TypeError) as caught:
        hs.attention(*QKV.values(), 3.0)
    check_sentence(caught.value, "positional")


@pytest.mark.parametrize("lead", [(), (3,)], ids=["one head", "three heads"])
@pytest.mark.parametrize("name", ["span", "temperature", "alibi_slopes"])
def test_parameters_with_axes_the_query_does_not_have(name, lead):
    arrays = [ones(*lead, 5, 2)] * 3
    with pytest.raises(ValueError) as caught:
        hs.attention(*arrays, **{name: ones(1, *lead, 5)})
    check_sentence(caught.value, name)


def test_messages_repeat_what_was_given():
    """The reader should not have to look for the number that was wrong."""
    for option, value, shown in (("span", -7.5, "-7.5"), ("ramp", -3, "-3"), ("scale", INF, "inf")):
        with pytest.raises(ValueError, match=shown):
            hs.attention(**QKV, **{option: value})
    with pytest.raises(ValueError, match="7"):
        hs.attention(**{**QKV, "query": ones(1, 4, 5, 7)})
    with pytest.raises(TypeError, match="float16"):
        hs.attention(**{**QKV, "query": ones(1, 4, 5, 3, dtype=np.float16)})


def test_every_public_function_is_in_the_table():
    modules = {"": hs, "hybrid.": hs.hybrid, "memory.": hs.memory, "sparse.": hs.sparse}
    public = [
        (f"{prefix}{name}", getattr(module, name)) for prefix, module in modules.items() for name in module.__all__
    ]
    functions = {name for name, member in public if callable(member) and name.islower()}
    elsewhere = {"get_num_threads", "build_info", "explore"}  # no arguments; in tests/views
    assert functions <= set(TABLE) | elsewhere


ACCEPTED = {
    "NumPy booleans": {"causal": np.bool_(False), "include_self": np.bool_(True)},
    "NumPy scalars": {"span": np.float32(3), "ramp": np.int64(2), "scale": np.float64(0.5)},
    "integers": {"span": 3, "ramp": 2, "scale": 1, "temperature": 2, "alibi_slopes": 1},
    "zero span and ramp": {"span": 0, "ramp": 0},
}


@pytest.mark.parametrize("options", ACCEPTED.values(), ids=ACCEPTED)
def test_unusual_but_right(options):
    assert np.isfinite(hs.attention(**QKV, **options)).all()


@pytest.mark.parametrize("name", ["key", "value"])
def test_types_are_compared_where_all_shapes_are_alike(name):
    same = {n: ones(1, 2, 5, 3) for n in ("query", "key", "value")}
    with pytest.raises(TypeError) as caught:
        hs.attention(**{**same, name: ones(1, 2, 5, 3, dtype=np.float32)})
    check_sentence(caught.value, name)


@pytest.mark.parametrize(
    ("shape", "named"),
    [((1, 2, 0, 3), "key must have at least one token"), ((1, 0, 5, 3), "heads of query"), ((1, 2, 5, 0), "head_dim")],
    ids=str,
)
def test_empty_axes_are_named_where_all_shapes_are_alike(shape, named):
    with pytest.raises(ValueError, match=named):
        hs.attention(*[ones(*shape)] * 3)


@pytest.mark.parametrize("name", ["causal", "include_self"])
@pytest.mark.parametrize("flag", [True, False])
def test_numpy_booleans_mean_what_they_say(name, flag):
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, 2, 5, 3))
    expected = hs.attention(q, k, v, **{name: flag})
    np.testing.assert_array_equal(hs.attention(q, k, v, **{name: np.bool_(flag)}), expected)


def test_merge_takes_no_numbers():
    with pytest.raises(ValueError, match="outs"):
        hs.merge_attention([np.float64(1.0)], [np.float64(0.0)])
