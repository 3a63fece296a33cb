"""Global tokens that come later: until then, a cache keeps the keys that they will see."""

import headspan as hs
import numpy as np
import pytest
from cases import normals
from headspan.patterns import Blockwise, Full, Global, Window

TOKENS = 40


def draw(rng):
    """Return the arguments of a cache, the pattern of all its tokens, and query, key and value."""
    key_heads, shared = int(rng.integers(1, 3)), int(rng.integers(1, 3))
    heads = key_heads * shared
    spans = None if rng.random() < 0.5 else rng.integers(0, 12, heads).astype(float)
    first_tokens = int(rng.choice([0, 0, 3]))

    def one():
        tokens = sorted(int(token) for token in rng.choice(TOKENS, rng.integers(1, 4)))
        near = [Window(int(rng.integers(5)) + 1), Blockwise(3, back=1), Full()][rng.integers(3)]
        return near & Global(tokens) | Window(3) if rng.random() < 0.2 else near | Global(tokens)

    pattern = one() if spans is None or rng.random() < 0.5 else [one() for _ in range(heads)]
    arguments = {"span": spans, "ramp": 2, "pattern": pattern, "first_tokens": first_tokens, "dtype": "float64"}
    arguments["slack"] = int(rng.integers(4))
    combined = pattern
    if first_tokens:
        parts = pattern if isinstance(pattern, list) else [pattern]
        combined = [part | Global(range(first_tokens)) for part in (parts if len(parts) == heads else parts * heads)]
    arrays = [normals(int(rng.integers(99)), 1, n, TOKENS, 8) for n in (heads, key_heads, key_heads)]
    return key_heads, arguments, hs.attention(*arrays, span=spans, ramp=2, pattern=combined), arrays


@pytest.mark.parametrize("seed", range(60))
def test_any_order_of_calls(seed):
    """Every call gives the results of attention over all tokens, whatever was appended, truncated and copied before."""
    rng = np.random.default_rng(seed)
    key_heads, arguments, expected, (query, key, value) = draw(rng)
    cache = hs.SpanCache(1, key_heads, 8, **arguments)
    most = 0  # the highest count so far, from which slack= counts
    for _ in range(60):
        count, kind = cache.count, rng.random()
        most = max(most, count)
        least = max(most - arguments["slack"], 0)
        new = min(int(rng.choice([1, 1, 2, 5, 9])), TOKENS - count)
        tokens, queries = slice(count, count + new), slice(count, count + new)
        if kind < 0.1:
            cache = hs.SpanCache.from_state_dict(cache.state_dict()) if rng.random() < 0.5 else cache.copy()
        elif kind < 0.3 and count:
            cache.truncate(int(rng.integers(least, count + 1)))
        elif kind < 0.5 and new:
            cache.append(key[:, :, tokens], value[:, :, tokens])
            oldest = max(most, count + new) - 1 - arguments["slack"]
            last = slice(int(rng.integers(max(oldest, 0), count + new)), count + new)
            np.testing.assert_allclose(cache.attend(query[:, :, last]), expected[:, :, last], atol=1e-12)
        elif new:
            out = cache.attend(query[:, :, queries], key[:, :, tokens], value[:, :, tokens])
            np.testing.assert_allclose(out, expected[:, :, queries], atol=1e-12)


def test_memory_is_released():
    """All tokens are kept until the last global one has come, and then what the window and later queries need."""
    key, value = normals(0, 2, 1, 1, 40, 8).astype(np.float32)
    cache = hs.SpanCache(1, 1, 8, pattern=Window(3) | Global([0, 1, 20]), slack=3)
    rows = []
    for i in range(40):
        cache.append(key[:, :, [i]], value[:, :, [i]])
        rows.append(cache.nbytes // (2 * 8 * 4))
    assert rows == [22 + 3] * 24 + [6 + 3] * 16  # but for tokens 0 and 1, which are kept anyway
    only_first = hs.SpanCache(1, 1, 8, pattern=Window(3) | Global([0, 1, 2, 3]))
    assert only_first.nbytes == (3 + 4) * 2 * 8 * 4  # sinks see nothing but sinks


def test_queries_of_dropped_keys_are_refused():
    query, key, value = normals(0, 3, 1, 1, 40, 8)
    cache = hs.SpanCache(1, 1, 8, dtype="float64", pattern=Window(3) | Global([7]), slack=1)
    cache.append(key[:, :, :10], value[:, :, :10])
    with pytest.raises(ValueError, match=r"token 7 is global and sees all earlier tokens, but key head 0 of the"):
        cache.attend(query[:, :, 7:10])
    with pytest.raises(ValueError, match=r"count must leave the keys that the next token can see"):
        cache.truncate(7)
    assert cache.attend(query[:, :, 8:10]).shape == (1, 1, 2, 8)


@pytest.mark.parametrize("kind", ["alone", "of one head"])
def test_patterns_that_look_ahead_are_refused(kind):
    pattern = Window(4, ahead=2) if kind == "alone" else [Blockwise(4, ahead=1) | Global(0), Full()]
    with pytest.raises(ValueError, match=r"^pattern of a cache must only look back, but .* looks both ways"):
        hs.SpanCache(1, 2, 8, pattern=pattern)


@pytest.mark.parametrize("name", ["SpanCache", "StreamingAttention"])
def test_states_without_an_entry_are_refused(name):
    if name == "SpanCache":
        state = hs.SpanCache(1, 1, 8).state_dict()
    else:
        options = {"slots": 4, "window": 2, "decay": 1, "span": [1, np.inf], "ramp": 0}
        state = hs.memory.StreamingAttention(1, 2, 8, **options).state_dict()
    read = getattr(hs if name == "SpanCache" else hs.memory, name).from_state_dict
    for entry in state:
        with pytest.raises(ValueError, match=f"^state must be a result of {name}.state_dict, but lacks {entry}$"):
            read({other: value for other, value in state.items() if other != entry})
    with pytest.raises(TypeError, match=r"^state must be a result of .*\.state_dict, not None$"):
        read(None)
    for part in {"near", "far"} & state.keys():
        with pytest.raises(ValueError, match=r"^state must be a result of .*\.state_dict, but lacks count"):
            read(state | {part: {name: value for name, value in state[part].items() if name != "count"}})
