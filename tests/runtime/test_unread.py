"""Keys that no query sees are never read: their memory is unmapped, so a read of it ends the process."""

import pytest
from cases import DTYPES
from headspan import _core
from helpers import run_python

VARIANTS = [
    name if name == _core.isa() else pytest.param(name, marks=pytest.mark.thorough) for name in _core.variants()
]
EDGES = """
import sys
import headspan as hs
import numpy as np
from unmapped import PAGE, copy_without

def fenced(array, first, last, side):
    '''A copy in which only rows first..last (of tokens) and not a byte around them can be read.

    Row `first` starts at a page boundary, or row `last` ends at one: two runs check both sides.
    '''
    edge = (first if side == 'start' else last) * array[0].nbytes
    offset = -edge % PAGE
    return copy_without(array, [(0, offset + edge) if side == 'start' else (offset + edge, None)], offset)

def results(query, key, value, grad_out, options, cols):
    (out, lse), vjp = hs.attention_vjp(query, key, value, return_lse=True, **options)
    gradients = vjp(grad_out, np.ones_like(lse))
    weights = hs.attention_weights(query, key, rows=slice(0, 90), cols=cols, **options)
    return [np.asarray(a).tobytes() for a in (out, lse, weights, *gradients) if a is not None]

dtype, count = np.dtype(sys.argv[1]), int(sys.argv[2])
tokens, dim = 700, 11
rng = np.random.default_rng(0)
draw = lambda n: rng.standard_normal((n, dim)).astype(dtype)
query, key, value, grad_out = draw(count), draw(tokens), draw(tokens), draw(count)
for side in ('start', 'end'):
    for causal in (True, False):
        print(side, causal, flush=True)
        spans, shift = np.full(count, 30.0), tokens - count
        if side == 'start':  # soft: 37 is the last distance below 30 + 7.5
            ramp, first, last = 7.5, shift - 37, tokens
        else:  # hard: the last queries see nothing, not even themselves
            blind = min(60, count - 1)
            ramp, first, last = 0, shift - 30, tokens - blind - 1 if causal else min(tokens - blind + 30, tokens)
            spans[-blind:] = 0
        given = dict(span=spans, ramp=ramp, include_self=False, causal=causal), slice(first, last)
        expected = results(query, key, value, grad_out, *given)
        queries, keys = (0, count, side), (first, last, side)
        assert expected == results(
            fenced(query, *queries), fenced(key, *keys), fenced(value, *keys), fenced(grad_out, *queries), *given)
print('same bits')
"""


@pytest.mark.unsanitized
@pytest.mark.parametrize("queries", [3, 300])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_nothing_is_read_beyond_what_is_in_reach(variant, dtype, queries):
    assert run_python(EDGES, dtype, queries, HEADSPAN_ISA=variant).endswith("\nsame bits\n")


ROWS = """
import sys
import headspan as hs
import numpy as np
from headspan.patterns import Blocks, Window, Neighborhood, Strided
from unmapped import PAGE, copy_without

dtype = np.dtype(sys.argv[1])
dim = PAGE // dtype.itemsize  # a row is a page

def without(array, rows):
    return copy_without(array, [(row * PAGE, (row + 1) * PAGE) for row in rows.tolist()])

tokens = np.arange(130)
one_of_five = {'key_bias': np.where(tokens % 5, 0, -np.inf).astype(dtype)}
some_blocks = Blocks(np.arange(81).reshape(9, 9) % 3 == 0, 16)
# queries, keys, options
CASES = {
    'removed': (130, 130, {**one_of_five, 'causal': False}),
    'removed, two queries': (2, 130, one_of_five),
    'removed, in a band': (130, 130, {**one_of_five, 'span': 7.0}),
    'lengths': (130, 130, {'key_stop': 70, 'causal': False}),
    'the last key': (130, 130, {'include_self': False}),
    'ranges': (130, 130, {'key_ranges': np.clip(tokens[:, None] // 3 * 3 + [-8, 1], 5, 90), 'causal': False}),
    'ranges in no order': (40, 130, {'key_ranges': tokens[:40, None] * 31 % 60 * 2 + [0, 1], 'causal': False}),
    'ranges of a cache': (2, 130, {'key_ranges': [[0, 51], [0, 52]], 'query_positions': [50, 51]}),
    'ranges, of themselves not': (
        130, 130, {'pattern': Strided(2), 'key_ranges': np.tile([0, 70], (130, 1)), 'causal': False}),
    'a prefix': (30, 130, {'prefix_lengths': 20, 'span': np.arange(30.0) % 3 * 45, 'ramp': 0, 'include_self': False}),
    'segments': (130, 130, {'segment_ids': tokens // 7, 'include_self': False}),
    'segments of both': (
        40, 130, {'query_segments': np.repeat([1, 3], 20), 'key_segments': tokens // 30, 'causal': False}),
    'spans': (130, 130, {'span': np.where(tokens % 9, 0, 3.0), 'ramp': 0, 'include_self': False}),
    'far apart': (12, 90, {'query_positions': np.arange(12) * 7.0, 'span': 1.0, 'ramp': 0, 'causal': False}),
    'stride, few queries': (3, 90, {'pattern': Strided(5)}),
    'stride, some queries': (20, 190, {'pattern': Strided(50)}),
    'stride, the last keys': (130, 130, {'pattern': Strided(2), 'include_self': False}),
    'stride, lengths': (130, 130, {'pattern': Strided(2), 'key_stop': 100, 'causal': False}),
    'stride, removed': (130, 130, {**one_of_five, 'pattern': Strided(2), 'causal': False}),
    'stride and blocks': (130, 130, {'pattern': Strided(2) & some_blocks, 'causal': False}),
    'dilated': (2, 90, {'pattern': Window(71, dilation=7)}),
    'dilated, fewer queries': (70, 200, {'pattern': Window(11, dilation=2)}),
    'blocks': (130, 130, {'pattern': some_blocks, 'causal': False}),
    'small blocks': (90, 90, {'pattern': Blocks(np.tile(np.arange(90) % 3 == 0, (90, 1)), 1), 'causal': False}),
    'grid': (4, 90, {'pattern': Neighborhood((9, 10), 3, dilation=2), 'causal': False}),
}

def results(query, key, value, grad_out, options):
    (out, lse), vjp = hs.attention_vjp(query, key, value, return_lse=True, **options)
    gradients = vjp(grad_out, np.ones_like(lse))
    weights = hs.attention_weights(query, key, **options)
    return [np.asarray(a).tobytes() for a in (out, lse, weights, *gradients) if a is not None]

for name, (queries, keys, options) in CASES.items():
    print(name, flush=True)
    rng = np.random.default_rng(0)
    query, grad_out = rng.standard_normal((2, queries, dim)).astype(dtype)
    key, value = rng.standard_normal((2, keys, dim)).astype(dtype)
    unseen = np.flatnonzero(~hs.attention_weights(query, key, **options).any(axis=0))
    assert unseen.size
    expected = results(query, key, value, grad_out, options)
    assert expected == results(query, without(key, unseen), without(value, unseen), grad_out, options)
print('same bits')
"""


@pytest.mark.unsanitized
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_key_that_nobody_sees_is_never_read(variant, dtype):
    assert run_python(ROWS, dtype, HEADSPAN_ISA=variant).endswith("\nsame bits\n")
