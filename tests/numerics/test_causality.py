"""What an attention takes for causal where it is not told, and what a grid says of it."""

import headspan as hs
import numpy as np
import pytest
from cases import normals
from headspan.patterns import Global, Neighborhood, Pattern, Window

# Patterns as their descriptions, made when a test runs: what pytest holds to its end, the sanitizer takes for a leak.
SEQUENCES = [
    "Full()", "Window(4)", "Strided(4)", "Strided(4, offset=1)", "Fixed(4, 1)", "Blockwise(4, back=1)",
    "Global([0, 9])",
    "Random(2, 4)", "Blocks([[True, False], [True, True]], 8)", "Window(4) | Global(2)", "Window(6) & Strided(2)",
    ["Window(3)", "Full()"], "Neighborhood(16, 5, causal=True)",
]  # fmt: skip
TWO_SIDED = {
    "Neighborhood((4, 4), window=3)": "Neighborhood((4, 4), 3)",
    "Window(4, ahead=1)": "Window(4, ahead=1)",
    "Blockwise(4, ahead=1)": "Blockwise(4, ahead=1)",
    "Window(1, ahead=2)": "Full() | (Window(1, ahead=2) & Strided(2))",
    "Window(2, ahead=1)": ["Full()", "Window(2, ahead=1)"],
}
ARRAYS = [normals(i, 2, 16, 4) for i in range(3)]
CALLS = {
    "attention": lambda **options: hs.attention(*ARRAYS, **options),
    "attention_vjp": lambda **options: hs.attention_vjp(*ARRAYS, **options)[0],
    "attention_weights": lambda **options: hs.attention_weights(*ARRAYS[:2], **options),
    "reference": lambda **options: hs.reference.attention(*ARRAYS, **options),
    "cost": lambda **options: hs.cost(tokens=16, num_heads=2, head_dim=4, **options).head_pairs,
}


def made(spec):
    return [made(one) for one in spec] if isinstance(spec, list) else spec and Pattern.from_spec(spec)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("spec", [None, *SEQUENCES], ids=str)
def test_a_sequence_is_causal_unless_said_otherwise(call, spec):
    pattern = made(spec)
    np.testing.assert_array_equal(call(pattern=pattern), call(pattern=pattern, causal=True))
    np.testing.assert_array_equal(call(pattern=pattern, causal=None), call(pattern=pattern, causal=True))


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(("name", "spec"), TWO_SIDED.items(), ids=TWO_SIDED)
def test_a_pattern_that_looks_both_ways_asks(call, name, spec):
    pattern = made(spec)
    with pytest.raises(ValueError, match="causal must be given with") as raised:
        call(pattern=pattern)
    assert name in str(raised.value)
    assert (call(pattern=pattern, causal=True) != call(pattern=pattern, causal=False)).any()


def test_a_neighborhood_keeps_all_its_pairs():
    pattern = Neighborhood((8, 8), 3)
    assert hs.cost(pattern=pattern, tokens=64, num_heads=1, head_dim=4, causal=False).pairs == 576
    assert pattern.mask(64).sum() == 576


@pytest.mark.parametrize("causal", [True, (True, True), (True, False), (False, True), (False, False), False], ids=str)
def test_a_grid_that_is_causal_by_itself_needs_no_choice(causal):
    pattern = Neighborhood((4, 4), (3, 2), causal=causal)
    row, column = np.divmod(np.arange(16), 4)
    flags = causal if isinstance(causal, tuple) else (causal, causal)
    for axis, flag in zip((row, column), flags, strict=True):
        later = axis[:, None] < axis
        assert pattern.mask(16)[later].any() != flag
    np.testing.assert_array_equal(CALLS["attention_weights"](pattern=pattern)[0] > 0, pattern.mask(16))
    np.testing.assert_array_equal(
        CALLS["attention"](pattern=pattern), CALLS["attention"](pattern=pattern, causal=False)
    )
    assert CALLS["cost"](pattern=pattern)[0] == pattern.mask(16).sum()


def test_heads_that_disagree_ask():
    with pytest.raises(ValueError, match="causal must be given"):
        CALLS["attention"](pattern=[Window(4), Neighborhood((4, 4), 3, causal=(True, False))])


@pytest.mark.parametrize("call", [hs.attention, hs.attention_vjp, hs.reference.attention])
def test_more_queries_than_keys_ask(call):
    query, key = normals(1, 9, 4), normals(2, 5, 4)
    with pytest.raises(ValueError, match=r"causal must be given.*9 and 5.*queries before all keys see none"):
        call(query, key, key)
    call(query, key, key, causal=False)
    call(query, key, key, causal=True)
    call(query, key, key, query_positions=np.arange(9), key_positions=np.arange(5))


def test_frames_of_a_film_by_hand():
    """Two frames of one row of three pixels: those of the frame before, and all neighbours in the own."""
    allowed = Neighborhood((2, 3), (2, 3), causal=(True, False)).mask(6).astype(int)
    np.testing.assert_array_equal(allowed, [[1, 1, 1, 0, 0, 0]] * 3 + [[1, 1, 1, 1, 1, 1]] * 3)
    dilated = Neighborhood(7, 3, dilation=2, causal=True).mask(7).astype(int)[5]
    np.testing.assert_array_equal(dilated, [0, 1, 0, 1, 0, 1, 0])


# ---- tokens outside a grid


@pytest.mark.parametrize(
    "spec",
    [
        "Neighborhood((3, 3), 3, extra=2)",
        "Neighborhood((3, 3), 3) | Global([9, 10])",
        "Neighborhood((3, 3), 3, extra=(0, 2))",
    ],
)
def test_tokens_after_a_grid_see_all_and_are_seen_by_all(spec):
    pattern = made(spec)
    mask = pattern.mask(11)
    assert mask[9:].all()
    assert mask[:, 9:].all()
    np.testing.assert_array_equal(mask[:9, :9], Neighborhood((3, 3), 3).mask(9))
    assert pattern.global_tokens == (9, 10)


def test_tokens_before_a_grid():
    mask = Neighborhood((3, 3), 3, extra=(1, 0)).mask(10)
    assert mask[0].all()
    assert mask[:, 0].all()
    np.testing.assert_array_equal(mask[1:, 1:], Neighborhood((3, 3), 3).mask(9))


@pytest.mark.parametrize("extra", [(1, 0), 1])
def test_no_span_limits_a_token_beside_a_grid(extra):
    pattern = Neighborhood((3, 5), 3, extra=extra)
    query, key, value = (normals(i, 2, 16, 4) for i in range(3))
    weights = hs.attention_weights(query, key, pattern=pattern, causal=False, span=0, ramp=0)
    token = 0 if extra == (1, 0) else 15
    assert (weights[:, token] > 0).all()
    assert (weights[:, :, token] > 0).all()
    assert (weights > 0).sum() == 2 * (16 + 15 + 15)  # and of the others each sees itself
    np.testing.assert_allclose(
        hs.attention(query, key, value, pattern=pattern, causal=False, span=1.5, ramp=1),
        hs.reference.attention(query, key, value, pattern=pattern, causal=False, span=1.5, ramp=1),
        atol=1e-12,
    )


def test_a_token_beside_a_grid_has_no_distance():
    pattern = Neighborhood((3, 5), 3, extra=1)
    with pytest.raises(ValueError, match="alibi_slopes require distances"):
        CALLS["attention"](pattern=pattern, causal=False, alibi_slopes=0.5)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Neighborhood((3, 3), 3).mask(10), "shape of Neighborhood must hold the 10 keys, not 9; extra="),
        (lambda: Neighborhood((3, 3), 3, extra=2).mask(10), "must hold the 10 keys, not 11$"),
        (lambda: (Neighborhood((3, 3), 3) | Global(10)).mask(11), "must hold the 11 keys, not 10; extra="),
        (lambda: Neighborhood(9, 3, extra=(1, 1, 1)), r"extra of Neighborhood must be a number or \(before, after\)"),
        (lambda: Neighborhood(9, 3, extra=-1), "extra of Neighborhood must be at least 0"),
        (lambda: Neighborhood((3, 3), 3, causal=(True,)), "causal of Neighborhood must be a bool or have 2 axes"),
        (lambda: Neighborhood(9, 3, extra=1) | Neighborhood(9, 3, extra=(1, 0)), "must start at the same token"),
    ],
)
def test_bad_extra(make, said):
    with pytest.raises(ValueError, match=said):
        make()
