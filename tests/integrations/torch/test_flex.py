"""flex_attention: masks and score functions give the values and gradients of their dense definition."""

import math

import numpy as np
import pytest
from tensors import torch

from headspan.torch import attention, flex_attention  # isort: skip

flex = pytest.importorskip("torch.nn.attention.flex_attention")

LENGTHS = (65, 130, 200)
DOCUMENTS = {n: torch.sort(torch.randint(0, 4, (n,), generator=torch.Generator().manual_seed(n)))[0] for n in LENGTHS}
PLACES = {n: torch.randperm(n, generator=torch.Generator().manual_seed(n)) for n in LENGTHS}


def causal(b, h, q, k):
    return q >= k


def window(size):
    return lambda b, h, q, k: (q >= k) & (q - k < size)


def both_sides(size):
    return lambda b, h, q, k: (q - k).abs() <= size


def prefix(size):
    return lambda b, h, q, k: (q >= k) | (k < size)


def documents(n):
    ids = DOCUMENTS[n]
    return lambda b, h, q, k: ids[q] == ids[k]


def causal_documents(n):
    return flex.and_masks(causal, documents(n))


def prefixes_of_documents(n):
    """Each document starts with a prefix of seven tokens, which all of its tokens see."""
    ids = DOCUMENTS[n]
    starts = torch.searchsorted(ids, torch.arange(4))
    return lambda b, h, q, k: (ids[q] == ids[k]) & ((q >= k) | (k - starts[ids[k]] < 7))


def dilated(size, step):
    return lambda b, h, q, k: (q >= k) & (q - k < size * step) & ((q - k) % step == 0)


def neighborhood(width, size):
    """A square around each token of an image, moved inside at its edges."""

    def mask(b, h, q, k):
        row, column = q // width, q % width
        middle = column.clamp(size, width - 1 - size)
        return ((row - k // width).abs() <= size) & ((middle - k % width).abs() <= size)

    return mask


def tiled_neighborhood(width, size, side=4):
    """The same for an image that is written tile by tile."""

    def place(token):
        tiles = width // side
        tile, inside = token // (side * side), token % (side * side)
        return tile // tiles * side + inside // side, tile % tiles * side + inside % side

    def mask(b, h, q, k):
        (row, column), (other_row, other_column) = place(q), place(k)
        return ((row - other_row).abs() <= size) & ((column - other_column).abs() <= size)

    return mask


def curved_neighborhood(size):
    """The same for an image whose tokens follow a Z-order curve, whose bits are those of the coordinates in turn."""

    def coordinate(token, axis):
        return sum(((token >> (2 * bit + axis)) & 1) << bit for bit in range(4))

    def mask(b, h, q, k):
        apart = [(coordinate(q, axis) - coordinate(k, axis)).abs() for axis in (0, 1)]
        return (apart[0] <= size) & (apart[1] <= size)

    return mask


def images_in_text(n):
    """Text is causal, and the tokens of an image see each other."""
    images = torch.full((n,), -1)
    images[10:30], images[60:100] = 0, 1
    return lambda b, h, q, k: (q >= k) | ((images[q] == images[k]) & (images[q] >= 0))


def last_image(n):
    """A token of a text sees the image that came last before it, of which each has 16 keys."""
    last = torch.bucketize(torch.arange(n), torch.tensor([0, 25, 40, 55]), right=True) - 1
    return lambda b, h, q, k: last[q] == k // 16


def strided(step):
    return lambda b, h, q, k: (q >= k) & ((q - k) % step == 0)


def first_tokens(count, size):
    return flex.or_masks(flex.and_masks(causal, lambda b, h, q, k: k < count), window(size))


def permuted(n):
    """Tokens in an order of their own."""
    place = PLACES[n]
    return lambda b, h, q, k: place[q] >= place[k]


def of_heads(b, h, q, k):
    return (q >= k) & (q - k < 20 * (h + 1))


def of_items(b, h, q, k):
    return (q >= k) & (k >= 9 * b)


def of_items_and_heads(b, h, q, k):
    return (q - k).abs() <= 10 * b + 30 * h


def nobody_before(place):
    return lambda b, h, q, k: (q >= k) & (q >= place)


def checkered(b, h, q, k):
    return (q // 16 + k // 16) % 2 == 0


def triangle(b, h, q, k):
    return q + k < 150


MASKS = {
    "none": lambda n: None,
    "causal": lambda n: causal,
    **{f"window of {size}": lambda n, size=size: window(size) for size in (1, 10, 64, 100)},
    **{f"both sides, {size}": lambda n, size=size: both_sides(size) for size in (0, 5, 70)},
    **{f"prefix of {size}": lambda n, size=size: prefix(size) for size in (1, 50, 64)},
    "documents": documents,
    "causal documents": causal_documents,
    "prefixes of documents": prefixes_of_documents,
    "window in documents": lambda n: flex.and_masks(documents(n), window(20)),
    "documents or first tokens": lambda n: flex.or_masks(documents(n), lambda b, h, q, k: k < 3),
    **{f"dilated by {step}": lambda n, step=step: dilated(9, step) for step in (2, 7)},
    **{f"strided by {step}": lambda n, step=step: strided(step) for step in (3, 16)},
    **{f"neighborhood of {size}": lambda n, size=size: neighborhood(13, size) for size in (1, 3)},
    "tiled neighborhood": lambda n: tiled_neighborhood(16, 2),
    "neighborhood along a curve": lambda n: curved_neighborhood(2),
    "images in text": images_in_text,
    "the last image": last_image,
    "first tokens and a window": lambda n: first_tokens(4, 30),
    "permuted": permuted,
    "of heads": lambda n: of_heads,
    "of items": lambda n: of_items,
    "of items and heads": lambda n: of_items_and_heads,
    "nobody before 40": lambda n: nobody_before(40),
    "nobody": lambda n: lambda b, h, q, k: q < 0,
    "everybody": lambda n: lambda b, h, q, k: q >= 0,
    "checkered": lambda n: checkered,
    "triangle": lambda n: triangle,
    "later keys": lambda n: lambda b, h, q, k: q < k,
    "own key": lambda n: lambda b, h, q, k: q == k,
    "one key": lambda n: lambda b, h, q, k: k == 7,
    "two windows": lambda n: flex.or_masks(window(5), lambda b, h, q, k: (q - k >= 40) & (q - k < 50)),
    "halves": lambda n: lambda b, h, q, k: (q < n // 2) == (k < n // 2),
    "causal or the last": lambda n: flex.or_masks(causal, lambda b, h, q, k: k == n - 1),
    "every second query": lambda n: lambda b, h, q, k: (q % 2 == 0) & (q >= k),
    "parity of heads": lambda n: lambda b, h, q, k: (q + k + h) % 2 == 0,
}


def tensors(n, keys=None, heads=2, key_heads=2, dtype=torch.float64):
    generator = torch.Generator().manual_seed(n)
    shapes = (2, heads, n, 8), (2, key_heads, keys or n, 8), (2, key_heads, keys or n, 8)
    return [torch.randn(shape, generator=generator, dtype=dtype, requires_grad=True) for shape in shapes]


def indices(batch, heads, queries, keys):
    return torch.meshgrid(*(torch.arange(size) for size in (batch, heads, queries, keys)), indexing="ij")


def dense(query, key, value, score_mod=None, mask_mod=None, scale=None):
    """The definition: all scores, their mod, and a softmax that is 0 for a query without keys."""
    batch, heads, queries, dim = query.shape
    group = heads // key.shape[1]
    key, value = (x.repeat_interleave(group, dim=1) for x in (key, value))
    scores = query @ key.mT * (dim**-0.5 if scale is None else scale)
    places = indices(batch, heads, queries, key.shape[2])
    if score_mod is not None:
        scores = score_mod(scores, *places)
    if mask_mod is not None:
        scores = torch.where(mask_mod(*places), scores, -torch.inf)
    lse = scores.logsumexp(-1)
    seen = torch.isfinite(lse)[..., None]
    weights = torch.where(seen, (scores - torch.where(seen, lse[..., None], 0.0)).exp(), 0.0)
    return weights @ value, lse


def agree(arrays, mod=None, mask=None, captured=(), scale=None):
    """Compare values, log-sum-exps and gradients; mask is a mask_mod."""
    query, key, _ = arrays
    sizes = query.shape[2], key.shape[2]
    block_mask = None if mask is None else flex.create_block_mask(mask, *query.shape[:2], *sizes, device="cpu")
    options = {"enable_gqa": query.shape[1] != key.shape[1], "scale": scale}
    out, lse = flex_attention(*arrays, mod, block_mask, return_lse=True, **options)
    expected, expected_lse = dense(*arrays, mod, mask, scale)
    single = query.dtype == torch.float32
    close = {"rtol": 1e-5, "atol": 2e-5 if single else 1e-9}
    torch.testing.assert_close(out, expected, **close)
    torch.testing.assert_close(lse, expected_lse, **close)
    grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=out.dtype)
    inputs = [*arrays, *captured]
    gradients = torch.autograd.grad(out, inputs, grad, retain_graph=True)
    for one, other in zip(gradients, torch.autograd.grad(expected, inputs, grad), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=2e-4 if single else 1e-8)
    return out


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("name", MASKS)
def test_masks(name, n):
    mask = MASKS[name](n)
    agree(tensors(n), mask=mask)


def test_there_are_as_many_masks_as_promised():
    assert len(MASKS) >= 40


def slopes_of(requires_grad=False):
    return torch.tensor([0.25, 0.0625], dtype=torch.float64, requires_grad=requires_grad)


def test_relative_positions():
    agree(tensors(130), lambda s, b, h, q, k: s + (q - k), causal)


def test_a_soft_cap():
    agree(tensors(130), lambda s, b, h, q, k: 2.5 * torch.tanh(s / 2.5), causal)


def test_a_soft_cap_with_slopes():
    slopes = slopes_of()
    agree(tensors(130), lambda s, b, h, q, k: 3 * torch.tanh(s / 3) - slopes[h] * (q - k), causal)


@pytest.mark.parametrize("factor", [0.3, -2.0, 1.0])
def test_a_factor_of_the_score(factor):
    agree(tensors(70), lambda s, b, h, q, k: s * factor, causal, scale=0.7)


def test_slopes_with_a_gradient():
    slopes = slopes_of(True)
    agree(tensors(130), lambda s, b, h, q, k: s - slopes[h] * (q - k), causal, [slopes])


def test_slopes_in_both_directions_without_a_mask():
    slopes = slopes_of(True)
    agree(tensors(65), lambda s, b, h, q, k: s - slopes[h] * (q - k).abs() + 0.1 * (q > k), None, [slopes])


def test_a_table_by_distance_with_a_gradient():
    table = torch.randn(2, 16, dtype=torch.float64, requires_grad=True)
    mod = lambda s, b, h, q, k: s + table[h, ((q - k) // 4).clamp(0, 15)]  # noqa: E731
    agree(tensors(130), mod, causal, [table])
    agree(tensors(130), mod, None, [table])


def test_a_span_of_each_head_with_a_gradient():
    """The soft mask of the paper; the spans are not integers, so that the dense definition also has a gradient."""
    span = torch.tensor([20.3, 70.6], dtype=torch.float64, requires_grad=True)

    def soft_mask(s, b, h, q, k):
        return s + torch.log(((16 + span[h] - (q - k)) / 16).clamp(0, 1))

    arrays = tensors(200)
    block_mask = flex.create_block_mask(causal, None, None, 200, 200, device="cpu")
    out = flex_attention(*arrays, soft_mask, block_mask)
    expected = attention(*arrays, span=span, ramp=16)
    torch.testing.assert_close(out, expected)
    gradients = torch.autograd.grad(out.square().sum(), [span, *arrays])
    for one, other in zip(gradients, torch.autograd.grad(expected.square().sum(), [span, *arrays]), strict=True):
        torch.testing.assert_close(one, other)


def test_a_bias_by_pair_with_a_gradient():
    bias = torch.randn(130, 130, dtype=torch.float64, requires_grad=True)
    agree(tensors(130), lambda s, b, h, q, k: s + bias[q, k], causal, [bias])


def test_a_bias_by_item_head_and_pair():
    bias = torch.randn(2, 2, 65, 65, dtype=torch.float64, requires_grad=True)
    agree(tensors(65), lambda s, b, h, q, k: s + bias[b, h, q, k], None, [bias])


def test_a_bias_of_keys():
    bias = torch.randn(65, dtype=torch.float64, requires_grad=True)
    agree(tensors(65), lambda s, b, h, q, k: s + bias[k], causal, [bias])


def test_a_bias_by_pair_that_starts_at_zero():
    """Its values do not tell it from a table by distance, but its gradient does."""
    bias = torch.zeros(130, 130, dtype=torch.float64, requires_grad=True)
    mod = lambda s, b, h, q, k: s + bias[q, k]  # noqa: E731
    agree(tensors(130), mod, causal, [bias])
    with torch.no_grad():
        bias.copy_(torch.randn(130, 130))
    agree(tensors(130), mod, causal, [bias])
    table = torch.zeros(2, 130, dtype=torch.float64, requires_grad=True)
    agree(tensors(130), lambda s, b, h, q, k: s + table[h, q - k], causal, [table])


def test_a_bias_of_one_key_among_many():
    """A sample of pairs hardly ever has the key; the call is too large for a comparison of all pairs in every call."""
    n = 600
    bias = torch.tensor(0.0, dtype=torch.float64, requires_grad=True)
    mod = lambda s, b, h, q, k: s + torch.where(k == 123, bias + 2, 0.0)  # noqa: E731
    agree(tensors(n), mod, causal, [bias])
    with torch.no_grad():
        agree_without_gradient(tensors(n), mod)
        agree_without_gradient(tensors(n), lambda s, b, h, q, k: torch.where((q == 400) & (k == 399), -torch.inf, s))
    assert "for the score" in refused(lambda s, b, h, q, k: torch.where((q == 400) & (k == 399), 2 * s, s), n)


def agree_without_gradient(arrays, mod):
    torch.testing.assert_close(flex_attention(*arrays, mod), dense(*arrays, mod)[0])


def test_a_parameter_that_reaches_the_function_through_other_operations():
    weight = torch.tensor([0.1, -2.0], dtype=torch.float64, requires_grad=True)
    slopes = torch.nn.functional.softplus(weight)
    agree(tensors(130), lambda s, b, h, q, k: s - slopes[h] * (q - k), causal, [weight])


def test_a_method_of_a_module():
    class Bias(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Parameter(torch.randn(9, dtype=torch.float64))

        def mod(self, s, b, h, q, k):
            return s + self.table[(q - k).clamp(0, 8)]

    bias = Bias()
    agree(tensors(65), bias.mod, causal, [bias.table])
    with torch.no_grad():
        bias.table.mul_(3)
    agree(tensors(65), bias.mod, causal, [bias.table])


def test_a_score_mod_that_masks():
    ids = DOCUMENTS[130]
    agree(tensors(130), lambda s, b, h, q, k: torch.where(q >= k, s, -torch.inf))
    agree(tensors(130), lambda s, b, h, q, k: torch.where((q - k).abs() < 20 * (h + 1), s, -torch.inf))
    agree(tensors(130), lambda s, b, h, q, k: torch.where((q >= k) & (ids[q] == ids[k]), s, -torch.inf))


def test_a_score_mod_that_masks_with_a_gradient_that_is_infinite_there():
    scale = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    bias = torch.arange(130.0, dtype=torch.float64) % 5

    def mod(s, b, h, q, k):
        return s + scale * torch.log(bias[k] * bias[q])  # -inf for every fifth token, where its derivative is as well

    out = flex_attention(*tensors(130), mod)
    (gradient,) = torch.autograd.grad(out.square().sum(), scale)
    assert torch.isfinite(gradient)
    step = 1e-5
    sums = []
    with torch.no_grad():
        for shift in (step, -step):
            scale.add_(shift)
            sums.append(flex_attention(*tensors(130), mod).square().sum())
            scale.sub_(shift)
    torch.testing.assert_close(gradient, (sums[0] - sums[1]) / (2 * step), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("queries", "keys"), [(65, 130), (130, 65), (1, 200)])
def test_other_numbers_of_keys(queries, keys):
    slopes = slopes_of(True)
    mod = lambda s, b, h, q, k: s - slopes[h] * (q - k).abs()  # noqa: E731
    agree(tensors(queries, keys), mod, lambda b, h, q, k: (q - k).abs() < 40, [slopes])
    agree(tensors(queries, keys), mod, None, [slopes])


def test_grouped_heads():
    agree(tensors(65, heads=4, key_heads=2), None, of_heads)


def test_float32():
    slopes = slopes_of().float()
    agree(tensors(130, dtype=torch.float32), lambda s, b, h, q, k: s - slopes[h] * (q - k), causal)


@pytest.mark.parametrize("size", [32, (64, 128), 256])
def test_blocks_of_other_sizes(size):
    arrays = tensors(200)
    block_mask = flex.create_block_mask(window(70), None, None, 200, 200, device="cpu", BLOCK_SIZE=size)
    torch.testing.assert_close(flex_attention(*arrays, None, block_mask), dense(*arrays, None, window(70))[0])


def test_lists_of_blocks_are_read_as_they_are():
    """Full blocks hold all of their pairs, whatever mask_mod says, and pairs outside all blocks do not exist."""
    counts, blocks = torch.tensor([[[1, 1]]]), torch.tensor([[[[0, 0], [1, 0]]]])
    full = torch.tensor([[[0, 1]]]), torch.tensor([[[[0, 0], [0, 0]]]])
    block_mask = flex.BlockMask.from_kv_blocks(
        counts, blocks, *full, BLOCK_SIZE=128, mask_mod=causal, seq_lengths=(200, 200)
    )

    def pairs(b, h, q, k):
        return ((q // 128 == k // 128) & (q >= k)) | ((q // 128 == 1) & (k // 128 == 0))

    arrays = tensors(200)
    torch.testing.assert_close(flex_attention(*arrays, None, block_mask), dense(*arrays, None, pairs)[0])


def test_a_mask_mod_that_tells_heads_apart_although_its_lists_do_not():
    block_mask = flex.create_block_mask(
        lambda b, h, q, k: (q >= k) & (k >= 5 * h + b), None, None, 65, 65, device="cpu"
    )
    arrays = tensors(65)
    expected = dense(*arrays, None, lambda b, h, q, k: (q >= k) & (k >= 5 * h + b))[0]
    torch.testing.assert_close(flex_attention(*arrays, None, block_mask), expected)


def test_a_captured_tensor_that_changes():
    ids = torch.zeros(65, dtype=torch.int64)
    slopes = slopes_of()
    mask = lambda b, h, q, k: (ids[q] == ids[k]) & (q >= k)  # noqa: E731
    mod = lambda s, b, h, q, k: s - slopes[h] * (q - k)  # noqa: E731
    block_mask = flex.create_block_mask(mask, None, None, 65, 65, device="cpu")
    arrays = tensors(65)
    flex_attention(*arrays, mod, block_mask)
    ids[30:] = 1
    slopes.mul_(2)
    torch.testing.assert_close(flex_attention(*arrays, mod, block_mask), dense(*arrays, mod, mask)[0])


def test_keys_without_a_batch():
    query, key, value = tensors(65)
    arrays = query, key[:1].detach().requires_grad_(), value[:1].detach().requires_grad_()
    expected, _ = dense(arrays[0], *(x.expand(2, -1, -1, -1) for x in arrays[1:]), None, causal)
    block_mask = flex.create_block_mask(causal, None, None, 65, 65, device="cpu")
    out = flex_attention(*arrays, None, block_mask)
    torch.testing.assert_close(out, expected)
    gradients = torch.autograd.grad(out.sum(), arrays)
    for one, other in zip(gradients, torch.autograd.grad(expected.sum(), arrays), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_it_agrees_with_torch_and_returns_the_same():
    query, key, value = (x.detach() for x in tensors(65, dtype=torch.float32))
    block_mask = flex.create_block_mask(causal, None, None, 65, 65, device="cpu")
    aux = flex.AuxRequest(lse=True)
    out, with_lse = flex_attention(query, key, value, None, block_mask, return_aux=aux)
    expected, of_torch = flex.flex_attention(query, key, value, None, block_mask, return_aux=aux)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(with_lse.lse, of_torch.lse)
    assert with_lse.max_scores is None


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_within_a_compiled_function():
    block_mask = flex.create_block_mask(causal, None, None, 65, 65, device="cpu")
    arrays = tensors(65)
    compiled = torch.compile(lambda *x: 2 * flex_attention(*x, None, block_mask), backend="eager")
    torch.testing.assert_close(compiled(*arrays), 2 * dense(*arrays, None, causal)[0])


def test_the_same_bits_for_any_number_of_threads():
    arrays = tensors(200)
    block_mask = flex.create_block_mask(permuted(200), None, None, 200, 200, device="cpu")
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            out = flex_attention(*arrays, None, block_mask)
            results.append([out, *torch.autograd.grad(out.sum(), arrays)])
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(one, two) for one, two in zip(results[0], other, strict=True))


def refused(score_mod, n=65, **options):
    with pytest.raises(NotImplementedError) as caught:
        flex_attention(*tensors(n), score_mod, **options)
    return str(caught.value)


def test_what_is_refused():
    weight = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    assert "for the score" in refused(lambda s, b, h, q, k: s * s)
    assert "for the score" in refused(lambda s, b, h, q, k: s * (1 + h))
    assert "for the score" in refused(lambda s, b, h, q, k: torch.relu(s))
    assert "for the score" in refused(lambda s, b, h, q, k: 3 * torch.tanh((s + k) / 3))
    assert "-inf" in refused(lambda s, b, h, q, k: torch.where(s > 0, s, -torch.inf))
    assert "finite" in refused(lambda s, b, h, q, k: s + torch.where(q == k, torch.nan, 0.0))
    assert "gradient" in refused(lambda s, b, h, q, k: s * weight)
    assert "gradient" in refused(lambda s, b, h, q, k: weight * torch.tanh(s / weight))
    assert "scores" in refused(None, return_aux=flex.AuxRequest(lse=True, max_scores=True))


@pytest.mark.parametrize(
    ("words", "change"),
    [
        ("four axes", {"query": torch.zeros(2, 65, 8)}),
        ("enable_gqa", {"key": torch.zeros(2, 1, 65, 8)}),
        ("batch items", {"key": torch.zeros(3, 2, 65, 8)}),
        ("65 queries", {"block_mask": flex.create_block_mask(causal, None, None, 130, 130, device="cpu")}),
        ("batch items", {"block_mask": flex.create_block_mask(causal, 3, None, 65, 65, device="cpu")}),
        ("must not both", {"return_lse": True, "return_aux": flex.AuxRequest(lse=True)}),
    ],
)
def test_bad_calls(words, change):
    arrays = dict(zip(("query", "key", "value"), (x.float() for x in tensors(65)), strict=True))
    with pytest.raises(ValueError, match=words):
        flex_attention(**(arrays | change))


def test_a_model_with_packed_documents_trains_as_with_dense_attention():
    """A block of the form of torchtune's, of which only the import of flex_attention changes."""
    n, losses = 200, {}
    ids = DOCUMENTS[n]
    mask = flex.create_block_mask(causal_documents(n), None, None, n, n, device="cpu")
    allowed = (ids[:, None] == ids) & torch.ones(n, n).tril().bool()
    tokens = torch.from_numpy(np.random.default_rng(0).integers(0, 11, (2, n)))

    class Block(torch.nn.Module):
        def __init__(self, attend):
            super().__init__()
            self.attend = attend
            self.embedding, self.out = torch.nn.Embedding(11, 32), torch.nn.Linear(32, 11)
            self.qkv, self.mix = torch.nn.Linear(32, 96), torch.nn.Linear(32, 32)

        def forward(self, x):
            x = self.embedding(x)
            query, key, value = self.qkv(x).unflatten(-1, (3, 2, 16)).permute(2, 0, 3, 1, 4)
            return self.out(x + self.mix(self.attend(query, key, value).transpose(1, 2).flatten(2)))

    ways = {
        "flex": lambda *x: flex_attention(*x, block_mask=mask),
        "dense": lambda *x: torch.nn.functional.scaled_dot_product_attention(*x, attn_mask=allowed),
    }
    for name, attend in ways.items():
        torch.manual_seed(0)
        model = Block(attend)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        losses[name] = []
        for _ in range(20):
            loss = torch.nn.functional.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[name].append(loss.item())
    assert losses["flex"][-1] < losses["flex"][0] - 0.1
    assert math.isclose(losses["flex"][0], losses["dense"][0], rel_tol=1e-6)
    np.testing.assert_allclose(losses["flex"], losses["dense"], rtol=1e-4)
