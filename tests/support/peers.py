"""Small models of other libraries with random weights, the attentions that they compute, and a comparison with ours.

Files that import this are skipped where torch or transformers are not installed.
"""

import sys
from typing import Any, NamedTuple

import headspan as hs
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch and transformers: nox -s peers")
transformers = pytest.importorskip("transformers", reason="needs torch and transformers: nox -s peers")

VOCABULARY = 50
# In every decoder here two heads share keys, and head_dim is not hidden_size / num_attention_heads.
DECODER = {
    "vocab_size": VOCABULARY,
    "hidden_size": 24,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "pad_token_id": 0,
}


class Attended(NamedTuple):
    """One attention of a model: its layer, the tensors that it was computed from, and the result."""

    layer: Any
    query: Any
    key: Any
    value: Any
    out: Any


def model_of(kind, config):
    """A model with random weights, large enough for a softmax that is far from uniform."""
    torch.manual_seed(0)
    config._attn_implementation = "eager"
    model = kind(config).eval()
    make_loud(model)
    return model


def decoder(window=None):
    """Llama, or Mistral where there is a window."""
    if window is None:
        return model_of(transformers.LlamaModel, transformers.LlamaConfig(**DECODER))
    return model_of(transformers.MistralModel, transformers.MistralConfig(**DECODER, sliding_window=window))


def make_loud(module):
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)


def tokens(count, batch=2):
    return torch.randint(1, VOCABULARY, (batch, count), generator=torch.Generator().manual_seed(1))


def attentions(model, monkeypatch, *, part=None, **inputs):
    """Run a model, and return the attentions that it computed, or those of a part, in their order."""
    module = sys.modules[type(model if part is None else part).__module__]
    original = module.eager_attention_forward
    seen = []

    def watching(layer, query, key, value, *args, **kwargs):
        out, weights = original(layer, query, key, value, *args, **kwargs)
        seen.append(Attended(layer, query, key, value, out.transpose(1, 2)))
        return out, weights

    with monkeypatch.context() as patched:
        patched.setattr(module, "eager_attention_forward", watching)
        model(**inputs)
    assert seen
    return seen


def array(tensor):
    return tensor.detach().numpy()


def assert_close(ours, theirs, what):
    """Compare with an error of 1e-5 in float32 and 1e-11 in float64 of the largest value."""
    assert ours.shape == theirs.shape, what
    bound = 1e-5 if theirs.dtype == np.float32 else 1e-11
    largest = max(1.0, np.max(np.abs(theirs)))
    assert np.max(np.abs(ours - theirs)) <= bound * largest, what


def agree(attended, *, learned=None, counted=None, **options):
    """Compare the result, and the gradients of query, key, value and learned parameters, with those of headspan.

    `counted` says which queries of which batch item count, where some are padding.
    """
    _, *inputs, out = attended
    learned = learned or {}
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(2), dtype=out.dtype)
    if counted is not None:
        weight = weight * counted[:, None, :, None]
    gradients = torch.autograd.grad((out * weight).sum(), [*inputs, *learned.values()], retain_graph=True)

    parameters = {name: array(parameter) for name, parameter in learned.items()}
    ours, vjp = hs.attention_vjp(*map(array, inputs), **parameters, **options)
    kept = np.ones(out.shape) if counted is None else array(counted)[:, None, :, None]
    assert_close(ours * kept.astype(ours.dtype), array(out) * kept.astype(ours.dtype), "out")
    our_gradients = vjp(weight.numpy())
    for name, gradient in zip(("query", "key", "value", *learned), gradients, strict=True):
        assert_close(getattr(our_gradients, name), array(gradient), name)
