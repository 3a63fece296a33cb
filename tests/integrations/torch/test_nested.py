"""Nested tensors: texts of different lengths, each computed as if it were alone."""

import pytest
from tensors import torch

from headspan.patterns import Window  # isort: skip
from headspan.torch import attention  # isort: skip

pytestmark = pytest.mark.filterwarnings("ignore:.*prototype stage:UserWarning")
LENGTHS, HEADS, KEY_HEADS, DIM = (5, 1, 12, 0, 7), 4, 2, 8
MORE = (3, 4, 0, 2, 1)  # keys before the first query
OPTIONS = {
    "nothing": {},
    "spans": {"span": torch.tensor([0.0, 2.5, 6.0, 20.0]), "ramp": 2.0},
    "both ways": {"causal": False, "scale": 0.4, "softcap": 5.0},
    "of heads": {"sinks": torch.tensor([0.1, -0.3, 0.5, 1.0]), "alibi_slopes": torch.tensor([0.1, 0.2, 0.3, 0.4])},
    "a number": {"span": 3.0, "temperature": 0.7},
}


def nested(lengths, heads, seed):
    """Texts of these lengths, (batch, heads, tokens, head_dim), as a projection of nested tokens gives them."""
    generator = torch.Generator().manual_seed(seed)
    texts = [torch.randn(n, heads, DIM, dtype=torch.float64, generator=generator) for n in lengths]
    tokens = torch.nested.nested_tensor(texts, layout=torch.jagged, requires_grad=True)
    return tokens, tokens.transpose(1, 2)


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("name", OPTIONS)
def test_each_text_is_computed_as_if_it_were_alone(name, before):
    keys = tuple(n + before * m for n, m in zip(LENGTHS, MORE, strict=True))
    leaves, tensors = zip(
        nested(LENGTHS, HEADS, 0), nested(keys, KEY_HEADS, 1), nested(keys, KEY_HEADS, 2), strict=True
    )
    out = attention(*tensors, **OPTIONS[name])
    assert out.is_nested
    assert out.shape[:2] == (len(LENGTHS), HEADS)
    upstream = torch.randn(sum(LENGTHS), HEADS, DIM, dtype=torch.float64)
    packed = out.transpose(1, 2).values()
    grads = torch.autograd.grad(packed, leaves, upstream)
    pieces = [leaf.detach().unbind() for leaf in leaves]
    for i, rows in enumerate(upstream.split(LENGTHS)):
        if not keys[i]:
            continue  # a text without keys cannot be computed alone
        alone = [piece[i].transpose(0, 1).clone().requires_grad_() for piece in pieces]
        expected = attention(*alone, **OPTIONS[name])
        torch.testing.assert_close(out.detach().unbind()[i], expected.detach(), rtol=1e-12, atol=1e-12)
        wanted = torch.autograd.grad(expected, alone, rows.transpose(0, 1))
        for grad, one in zip(grads, wanted, strict=True):
            torch.testing.assert_close(grad.unbind()[i], one.transpose(0, 1), rtol=1e-12, atol=1e-12)


def test_torch_computes_the_same():
    _, query = nested(LENGTHS[:3], HEADS, 0)
    expected = torch.nn.functional.scaled_dot_product_attention(query, query, query)  # on CPUs it is not causal
    out = attention(query, query, query, causal=False)
    torch.testing.assert_close(out.transpose(1, 2).values(), expected.transpose(1, 2).values())


@pytest.mark.parametrize(
    ("kind", "words", "options"),
    [
        (NotImplementedError, "pattern cannot", {"pattern": Window(4)}),
        (NotImplementedError, "key_bias cannot", {"key_bias": torch.zeros(25)}),
        (NotImplementedError, "span .* but as one number or one for each head", {"span": torch.ones(5, HEADS)}),
        (NotImplementedError, "return_lse", {"return_lse": True}),
    ],
)
def test_options_of_single_texts_are_refused(kind, words, options):
    _, query = nested(LENGTHS, HEADS, 0)
    with pytest.raises(kind, match=words):
        attention(query, query, query, **options)


def test_other_forms_are_refused():
    tokens, query = nested(LENGTHS, HEADS, 0)
    _, fewer = nested(LENGTHS[:3], HEADS, 0)
    _, shorter = nested((5, 1, 12, 0, 6), HEADS, 0)
    old = torch.nested.nested_tensor([torch.randn(HEADS, 3, DIM)], layout=torch.strided)
    for tensors, words in (
        ((query, torch.randn(5, HEADS, 3, DIM), query), "key must be nested .* got a plain tensor"),
        ((tokens, tokens, tokens), r"query must be .* \(batch, heads, tokens, head_dim\)"),
        ((old, old, old), "query must be .* layout=torch.jagged"),
        ((query, fewer, fewer), "key must have as many texts as query, 5, got 3"),
        ((query, query, shorter), "value must have as many tokens in each text as key"),
    ):
        with pytest.raises(ValueError, match=words):
            attention(*tensors)
