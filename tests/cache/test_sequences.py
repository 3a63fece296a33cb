"""Any sequence of operations on a cache against a plain array of all keys."""

import copy
import pickle

import headspan as hs
import numpy as np
import pytest
from headspan.patterns import Full, Global
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from storage_oracle import rounded

SLACK = 6
COPIES = {
    "copy": hs.SpanCache.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda cache: pickle.loads(pickle.dumps(cache)),
    "state": lambda cache: hs.SpanCache.from_state_dict(cache.state_dict()),
}


class CacheAndArray(RuleBasedStateMachine):
    """The same tokens in a cache and in arrays that keep them all."""

    @initialize(
        key_heads=st.integers(1, 2),
        share=st.integers(1, 3),
        spans=st.lists(st.one_of(st.integers(0, 90), st.sampled_from([10**9, 1e30])), min_size=6, max_size=6),
        ramp=st.sampled_from([0, 1, 8, 32]),
        sinks=st.integers(0, 3),
        dtype=st.sampled_from(["float32", "float64", "float16", "bfloat16", "int8"]),
    )
    def begin(self, key_heads, share, spans, ramp, sinks, dtype):
        self.rng = np.random.default_rng(0)
        self.spans, self.ramp, self.sinks, self.kept_as = np.array(spans[: key_heads * share]), ramp, sinks, dtype
        self.dtype = "float64" if dtype == "float64" else "float32"
        self.cache = hs.SpanCache(
            2, key_heads, 4, span=self.spans, ramp=ramp, first_tokens=sinks, slack=SLACK, dtype=dtype, value_dim=3
        )
        self.key, self.value = self.draw(0, 4), self.draw(0, 3)
        self.back = 0  # tokens taken back since the last were added

    def draw(self, tokens, dim, heads=None):
        heads = self.cache._key_heads if heads is None else heads
        batch = len(self.key) if hasattr(self, "key") else 2
        return self.rng.standard_normal((batch, heads, tokens, dim)).astype(self.dtype)

    def add(self, tokens):
        new = self.draw(tokens, 4), self.draw(tokens, 3)
        kept = [rounded(array, self.kept_as) for array in new] if self.kept_as not in ("float32", "float64") else new
        self.key, self.value = (np.concatenate(both, axis=2) for both in zip((self.key, self.value), kept, strict=True))
        self.back = max(self.back - tokens, 0)
        return new

    def check(self, query, out):
        pattern = Full() | Global(range(min(self.sinks, self.key.shape[2]))) if self.sinks else None
        expected = hs.attention(query, self.key, self.value, span=self.spans, ramp=self.ramp, pattern=pattern)
        if self.kept_as == "int8":  # its scales may be applied to products and weights
            np.testing.assert_allclose(out, expected, rtol=0, atol=3e-6)
        else:
            assert np.array_equal(out, expected)

    @rule(tokens=st.sampled_from([0, 1, 2, 13, 70, 200]))
    def append(self, tokens):
        self.cache.append(*self.add(tokens))

    @rule(tokens=st.sampled_from([1, 1, 1, 3, 20, 130]))
    def attend(self, tokens):
        query = self.draw(tokens, 4, self.spans.size)
        self.check(query, self.cache.attend(query, *self.add(tokens)))

    @rule(tokens=st.integers(1, SLACK))
    def attend_again(self, tokens):
        tokens = min(tokens, SLACK + 1 - self.back, self.key.shape[2])
        if tokens > 0:
            query = self.draw(tokens, 4, self.spans.size)
            self.check(query, self.cache.attend(query))

    @rule(tokens=st.integers(0, SLACK))
    def truncate(self, tokens):
        tokens = min(tokens, SLACK - self.back, self.key.shape[2])
        left = self.key.shape[2] - tokens
        self.cache.truncate(left)
        self.key, self.value = self.key[:, :, :left], self.value[:, :, :left]
        self.back += tokens

    @rule(items=st.lists(st.integers(0, 1), min_size=1, max_size=3))
    def reorder(self, items):
        items = np.minimum(items, len(self.key) - 1)
        self.cache.reorder(items)
        self.key, self.value = self.key[items], self.value[items]

    @rule(factor=st.sampled_from([1, 0.9, 0.5]))
    def shrink(self, factor):
        self.spans = np.floor(self.spans * factor)
        self.cache.span = self.spans

    @rule(most=st.sampled_from([300, 60, 10**9]))
    def end_what_is_without_limit(self, most):
        self.spans = np.minimum(self.spans, most)
        self.cache.span = self.spans

    @rule(way=st.sampled_from(sorted(COPIES)))
    def go_on_with_a_copy(self, way):
        old = self.cache
        self.cache = COPIES[way](old)
        old.append(self.draw(3, 4), self.draw(3, 3))  # which the copy must not see

    @invariant()
    def counts(self):
        if hasattr(self, "key"):
            assert self.cache.count == self.key.shape[2]


CacheAndArray.TestCase.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
TestSequences = CacheAndArray.TestCase


def test_beams_of_a_single_item():
    cache = hs.SpanCache(1, 2, 4, span=[3, 9])
    with pytest.raises(ValueError, match="items"):
        cache.reorder([0, 1])
    with pytest.raises(TypeError, match="items"):
        cache.reorder([0.5])
