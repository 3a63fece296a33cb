"""Blocks of keys that the content chooses, against their definition, block by block."""

import headspan as hs
import numpy as np
import pytest
from cases import DTYPES, normals

NEIGHBOURS = 16
ALWAYS = ("own", "previous", "first")


def defined(query, key, keep, sides, always=ALWAYS, shortlist=None, causal=True, window=None):
    """Which blocks of keys each block of queries of one head sees, as an array of bool."""
    tokens, before = len(key), len(key) - len(query)
    shortlist = 16 * keep if shortlist is None else shortlist
    rows, columns = (-(-tokens // side) for side in sides)
    means = np.array([key[b * sides[1] : (b + 1) * sides[1]].mean(0) for b in range(columns)])
    seen = np.zeros((rows, columns), bool)
    for row in range(rows):
        first, last = row * sides[0], min((row + 1) * sides[0], tokens)
        back = sides[0] if window is None else window
        begin, end = max(first - back, 0) if "previous" in always else first, last if "own" in always else first
        stretch = range(begin // sides[1], -(-end // sides[1]) if begin < end else begin // sides[1])
        anyway = {*stretch} | ({0} if "first" in always else set())
        queries = query[max(first - before, 0) : max(last - before, 0)]
        queries = queries[:1] if causal else queries
        allowed = [b for b in range(columns) if b not in anyway and (not causal or b < stretch.start)]
        if not len(queries):
            allowed = []
        mean = queries.mean(0) if len(queries) else np.zeros(query.shape[1])
        if len(allowed) > shortlist:
            groups = [
                n
                for n in range(columns // NEIGHBOURS)
                if all(b in allowed for b in range(n * NEIGHBOURS, (n + 1) * NEIGHBOURS))
            ]
            score = {n: means[n * NEIGHBOURS : (n + 1) * NEIGHBOURS].mean(0) @ mean for n in groups}
            best = sorted(groups, key=lambda n: -score[n])[: max(shortlist // NEIGHBOURS, 1)]
            allowed = [b for b in allowed if b // NEIGHBOURS in best or b // NEIGHBOURS not in groups]
        chosen = sorted(allowed, key=lambda b: -(means[b] @ mean))[:keep]
        seen[row, [*anyway, *chosen]] = True
    return seen


def by_token(blocks, sides, tokens, queries):
    p, j = np.arange(tokens - queries, tokens)[:, None] // sides[0], np.arange(tokens) // sides[1]
    return blocks[p, j]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("tokens", "queries"), [(1, 1), (7, 7), (64, 64), (333, 333), (300, 41)])
@pytest.mark.parametrize(
    ("sides", "keep", "shortlist"),
    [
        ((16, 4), 3, None),
        ((1, 4), 3, None),
        ((64, 4), 0, None),
        ((10, 3), 2, 500),
        ((8, 1), 5, 20),
        ((3, 7), 1, 1),
        ((500, 500), 9, None),
    ],
)
def test_blocks_are_those_of_the_definition(sides, keep, shortlist, tokens, queries, causal, dtype):
    query, key = normals(0, 2, 4, queries, 8, dtype=dtype), normals(1, 2, 2, tokens, 8, dtype=dtype)
    options = {"keep": keep, "shortlist": shortlist, "causal": causal}
    pattern = hs.sparse.selected_blocks(query, key, block_size=sides, **options)
    mask = pattern.mask(queries, tokens)
    for batch, head in np.ndindex(2, 4):
        blocks = defined(query[batch, head], key[batch, head // 2], sides=sides, **options)
        assert (mask[batch, head] == by_token(blocks, sides, tokens, queries)).all()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("always", [(), ("own",), ("previous",), ("first", "own"), "own"])
def test_what_is_always_seen(always, causal):
    query, key = normals(0, 200, 8), normals(1, 200, 8)
    pattern = hs.sparse.selected_blocks(
        query, key, keep=2, block_size=(16, 4), always=always, shortlist=16, causal=causal
    )
    names = {always} if isinstance(always, str) else always
    blocks = defined(query, key, 2, (16, 4), names, 16, causal)
    assert (pattern.mask(200)[0] == by_token(blocks, (16, 4), 200, 200)).all()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("always", [(), ("own",), ("previous",), ("first",), ("first", "own"), ("first", "previous")])
def test_blocks_of_any_sizes(always, causal):
    """Pair by pair: the blocks of keys with a token that `always` names are seen anyway, and no other key is."""
    rng = np.random.default_rng(0)
    for sides in np.ndindex(7, 7):
        query_block, key_block = sides[0] + 1, sides[1] + 1
        tokens, window = int(rng.integers(1, 24)), int(rng.integers(6))
        queries = int(rng.integers(1, tokens + 1))
        query, key = normals(0, queries, 4), normals(1, tokens, 4)
        options = {"block_size": (query_block, key_block), "always": always, "window": window}
        none, some = (
            hs.sparse.selected_blocks(query, key, keep=keep, causal=causal, **options).mask(queries, tokens)[0]
            for keep in (0, 2)
        )
        place, block = np.arange(tokens), np.arange(tokens) // key_block
        for i, p in enumerate(range(tokens - queries, tokens)):
            first = p // query_block * query_block
            named = ("own" in always) & (place >= first) & (place < first + query_block)
            named = named | (("previous" in always) & (place >= first - window) & (place < first))
            anyway = np.isin(block, block[named]) | (("first" in always) & (block == 0))
            np.testing.assert_array_equal(none[i], anyway, err_msg=f"{sides}, query {p} of {tokens}")
            others = set(block[~anyway & ((place < first) | (not causal))])
            if causal:
                others = {other for other in others if place[block == other].max() < first}
            chosen = set(block[some[i] & ~anyway])
            assert chosen <= others
            assert len(chosen) == min(2, len(others))
            np.testing.assert_array_equal(some[i], anyway | np.isin(block, list(chosen)))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [0, 1, 7, 40, 500])
def test_a_window_before_each_block(window, causal):
    query, key = normals(0, 200, 8), normals(1, 200, 8)
    options = {"keep": 2, "window": window, "causal": causal}
    for sides in ((16, 4), (1, 4), (1, 1), (10, 3)):
        pattern = hs.sparse.selected_blocks(query, key, block_size=sides, **options)
        assert (pattern.mask(200)[0] == by_token(defined(query, key, sides=sides, **options), sides, 200, 200)).all()


@pytest.mark.parametrize("query_block", [32, 16, 5, 1])
@pytest.mark.parametrize("shortlist", [None, 8, 10_000])
def test_no_output_depends_on_later_tokens(shortlist, query_block):
    """Bits are equal, except for the order of sums if blocks of few queries are computed together."""
    q, k, v = (normals(i, 1, 2, 400, 8, dtype="float32") for i in range(3))

    def attend():
        pattern = hs.sparse.selected_blocks(q, k, keep=4, block_size=(query_block, 4), shortlist=shortlist)
        return pattern.mask(400) & np.tri(400, dtype=bool), hs.attention(q, k, v, pattern=pattern)

    seen_before, before = attend()
    for changed in (399, 385, 200, 131):
        for array in (q, k, v):
            array[:, :, changed:] = normals(changed, *array[:, :, changed:].shape, dtype="float32") * 10
        seen, out = attend()
        assert (seen[:, :changed] == seen_before[:, :changed]).all()
        order = 0 if query_block >= 16 else 5e-7
        np.testing.assert_allclose(out[:, :, :changed], before[:, :, :changed], rtol=0, atol=order)


def test_the_choice_follows_the_content():
    """Queries find the one block of keys that is like the first of them, wherever it lies."""
    tokens, rng = 4096, np.random.default_rng(0)
    q, k = 0.1 * rng.standard_normal((2, tokens, 16))
    q[:] += 1
    for place in (100, 1031, 2900):
        keys = k.copy()
        keys[place // 4 * 4 : place // 4 * 4 + 4] += 5
        mask = hs.sparse.selected_blocks(q, keys, keep=1, shortlist=64).mask(tokens)[0]
        assert mask[3500, place]
        assert mask[3500].sum() == 4 + 64 + 64 + 4  # chosen, own, previous, first


def test_nan_chooses_nothing_and_is_not_chosen():
    q, k = normals(0, 256, 8), normals(1, 256, 8)
    q[64:128], k[8:12] = np.nan, np.nan
    mask = hs.sparse.selected_blocks(q, k, keep=10, block_size=(64, 4), always=["own"]).mask(256)[0]
    assert mask[64].sum() == 64
    assert mask[128].sum() == 64 + 40
    assert not mask[:, 8:12][128:].any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_choices_are_the_same_for_any_number_of_threads(dtype):
    q, k = normals(0, 2, 4, 3000, 32, dtype=dtype), normals(1, 2, 2, 3000, 32, dtype=dtype)
    patterns = []
    for threads in (1, 2, 5):
        hs.set_num_threads(threads)
        patterns.append(hs.sparse.selected_blocks(q, k, keep=6))
    assert patterns[0] == patterns[1] == patterns[2]


def test_gradients_are_those_of_the_chosen_pairs():
    q, k, v, grad = (normals(i, 1, 2, 150, 8) for i in range(4))
    pattern = hs.sparse.selected_blocks(q, k, keep=3, block_size=(16, 4))
    _, vjp = hs.attention_vjp(q, k, v, pattern=pattern)
    gradients = vjp(grad)
    allowed = pattern.mask(150) & np.tri(150, dtype=bool)
    _, dense_vjp = hs.attention_vjp(q, k, v, pair_bias=np.where(allowed, 0, -1e300))
    for name in ("query", "key", "value"):
        np.testing.assert_allclose(getattr(gradients, name), getattr(dense_vjp(grad), name), rtol=0, atol=1e-10)
