"""Layers with learned spans: what they compute, what their spans learn, and what torch does with layers."""

import copy
import pickle
import re

import headspan as hs
import numpy as np
import pytest
from headspan.patterns import Global, Window
from tensors import torch, warnings_of_torch
from torch.utils.checkpoint import checkpoint

import headspan.torch  # isort: skip
from headspan.torch import AdaptiveSpan, AdaptiveSpanAttention, DynamicSpan, TransformerBlock  # isort: skip

WIDTH, HEADS = 24, 4
VARIANTS = {
    "static": {},
    "dynamic": {"dynamic": True},
    "shared keys": {"num_key_heads": 2},
    "without rotary": {"rotary": False},
    "sinks and a soft cap": {"sinks": True, "softcap": 1.5},
    "a pattern": {"pattern": Window(6) | Global(0)},
    "patterns": {"pattern": [Window(6), Window(3), Window(4, dilation=2), Window(10)], "dynamic": True},
}
variants = pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)


def layer_of(kind=AdaptiveSpanAttention, **variant):
    torch.manual_seed(0)
    layer = kind(WIDTH, HEADS, max_span=12, ramp=3, **variant).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(0, 0.4)
        for module in layer.modules():
            if isinstance(module, AdaptiveSpan):
                module.fraction.copy_(torch.tensor([0.05, 0.3, 0.61, 0.9]))
    return layer


def tokens(count=15, batch=2):
    return torch.randn(batch, count, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def turned(x, positions):
    """Rotary positions as a product of complex numbers; x is (batch, tokens, heads, head_dim)."""
    half = x.shape[-1] // 2
    angles = np.asarray(positions, float)[..., :, None, None] * 10000.0 ** (-np.arange(half) / half)
    z = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angles)
    return np.concatenate([z.real, z.imag], -1)


def dense(layer, x, **options):
    """The result that the layer should have, by the dense definition."""
    weights = {name: p.detach().numpy() for name, p in layer.named_parameters()}
    x = x.numpy()
    heads = [x @ weights[f"{name}_proj.weight"].T for name in "qkv"]
    heads = [part.reshape(*x.shape[:2], -1, WIDTH // HEADS) for part in heads]
    if layer.rotary:
        positions = [options.get(name, np.arange(x.shape[1])) for name in ("query_positions", "key_positions")]
        heads[:2] = (turned(part, position) for part, position in zip(heads[:2], positions, strict=True))
    if "span.fraction" in weights:
        span = 12 * np.clip(weights["span.fraction"], 0, 1)
    else:
        span = hs.dynamic_span(x, weights["span.projection.weight"], weights["span.projection.bias"], 12)
    terms = {"span": span, "ramp": 3, "sinks": weights.get("sinks"), "softcap": layer.softcap}
    out = hs.reference.attention(*(part.swapaxes(1, 2) for part in heads), **terms, pattern=layer.pattern, **options)
    return out.swapaxes(1, 2).reshape(x.shape) @ weights["out_proj.weight"].T


@variants
def test_the_layer_computes_the_definition(variant):
    layer, x = layer_of(**variant), tokens()
    options = {"causal": True} if "pattern" in variant else {}
    out, span = layer(x, return_span=True, **options)
    np.testing.assert_allclose(out.detach(), dense(layer, x, **options), rtol=1e-11, atol=1e-11)
    assert span.shape == ((2, HEADS, 15) if variant.get("dynamic") else (HEADS,))
    assert torch.equal(layer(x, **options), out)


@variants
def test_gradcheck(variant):
    layer, x = layer_of(**variant), tokens(7)
    names, values = zip(*layer.named_parameters(), strict=True)

    def out(x, *values):
        parameters = dict(zip(names, values, strict=True))
        return torch.func.functional_call(layer, parameters, (x,), {"causal": True})

    inputs = [part.detach().clone().requires_grad_() for part in (x, *values)]
    assert torch.autograd.gradcheck(out, inputs, fast_mode=True)


def test_padding_and_documents_are_those_of_attention():
    layer, x = layer_of(), tokens()
    padded = layer(x, key_stop=torch.tensor([15, 6]), causal=False)
    torch.testing.assert_close(padded[1:, :6], layer(x[1:, :6], causal=False))
    packed = layer(x, segment_ids=[0] * 6 + [1] * 9)
    torch.testing.assert_close(packed[:, 6:], layer(x[:, 6:]))


def test_positions_turn_queries_and_keys():
    layer, x = layer_of(), tokens()
    shifted = np.arange(15) + 7.5
    torch.testing.assert_close(layer(x, query_positions=shifted, key_positions=shifted), layer(x))
    torch.testing.assert_close(layer(x, key_positions=shifted), layer(x))
    places = {
        "query_positions": np.linspace(3, 20, 15),
        "key_positions": np.sort(np.random.default_rng(0).random(15) * 20),
    }
    np.testing.assert_allclose(layer(x, **places).detach(), dense(layer, x, **places), rtol=1e-11, atol=1e-11)


def trained(span, gradient, steps, optimizer=torch.optim.SGD, lr=0.1):
    optimizer = optimizer(span.parameters(), lr=lr)
    seen = []
    for _ in range(steps):
        optimizer.zero_grad()
        span().backward(torch.tensor(gradient))
        optimizer.step()
        seen.append(span().detach().clone())
    return torch.stack(seen)


@pytest.mark.parametrize(("optimizer", "steps"), [(torch.optim.SGD, 1), (torch.optim.Adam, 20)])
def test_a_span_stays_within_its_limits_and_comes_back_from_them(optimizer, steps):
    """The span comes back however long it was pushed outward; momentum takes some steps to turn."""
    span = AdaptiveSpan(2, max_span=10.0, initial=[1.0, 9.0])
    for pushed in (50, 500):
        seen = trained(span, [1.0, -1.0], pushed, optimizer)
        assert (seen >= 0).all()
        assert (seen <= 10).all()
        assert span().tolist() == [0.0, 10.0]
        trained(span, [-1.0, 1.0], steps, optimizer)
        assert span()[0] > 0
        assert span()[1] < 10


@pytest.mark.parametrize("compiled", [False, True])
def test_steps_equal_clamping_after_each_step(compiled):
    """For plain gradient descent, however far steps lead out, and also if only the penalty is computed."""
    span = AdaptiveSpan(1, max_span=100.0, initial=10.0)
    share, optimizer = np.float64(0.1), torch.optim.SGD(span.parameters(), lr=1.0)
    drawn = np.random.default_rng(0).normal(0, 0.7, 30)
    call = torch.compile(span, backend="aot_eager", fullgraph=True) if compiled else span
    with warnings_of_torch():
        for i, step in enumerate([-0.6, 0.2, 0.2, *drawn]):
            optimizer.zero_grad()
            if i % 3 == 2:
                (-step / 100 * span.penalty()).backward()
            else:
                call().backward(torch.tensor([-step / 100]))
            optimizer.step()
            share = np.clip(share + step, 0, 1)
            with torch.no_grad():
                assert call().item() == pytest.approx(100 * share, abs=1e-4)
            if i == 2:
                assert call().item() == pytest.approx(40)


def test_gradients_at_a_bound_lead_both_ways():
    span = AdaptiveSpan(4, max_span=10.0, initial=[0.0, 0.0, 10.0, 10.0])
    span().backward(torch.tensor([1.0, -1.0, 1.0, -1.0]))
    assert span.fraction.grad.tolist() == [10.0, -10.0, 10.0, -10.0]


@pytest.mark.parametrize("at", [0.0, 0.5, 1.0])
def test_gradients_of_parts_add_up_to_that_of_the_batch(at):
    """Also if spans are at a bound and parts do not agree on the direction."""
    layer, x = layer_of(), torch.randn(16, 20, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        layer.span.fraction.fill_(at)
    gradients, signs = [], []
    for parts in (1, 8):
        layer.zero_grad()
        before = torch.zeros(4)
        for part in x.chunk(parts):
            ((layer(part) - part.roll(1, 1)).square().mean() / parts + layer.span.penalty() * 1e-4 / parts).backward()
            signs.append((layer.span.fraction.grad - before).sign())
            before = layer.span.fraction.grad.clone()
        gradients.append(before)
    assert any((one != other).any() for one in signs for other in signs)
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-12)


def test_spans_start_at_the_limit():
    assert AdaptiveSpan(2, max_span=9.5)().tolist() == [9.5, 9.5]
    assert AdaptiveSpanAttention(8, 2, max_span=30).span().tolist() == [30, 30]
    assert AdaptiveSpan(2, max_span=9.5, initial=0)().tolist() == [0, 0]


def test_a_parameter_is_written_to_only_before_a_step():
    span = AdaptiveSpan(2, max_span=10.0)
    taken = torch.tensor([-0.5, 1.5])
    with torch.no_grad():
        span.fraction.copy_(taken)
        assert span().tolist() == [0.0, 10.0]
    with torch.inference_mode():
        assert span().tolist() == [0.0, 10.0]
    parameters = {"fraction": taken.clone()}
    gradient = torch.func.grad(lambda parameters: torch.func.functional_call(span, parameters, ()).sum())(parameters)
    assert gradient["fraction"].tolist() == [10.0, 10.0]
    assert torch.equal(parameters["fraction"], taken)
    assert torch.equal(span.fraction, taken)
    kept = span.fraction.square().sum()
    span()
    assert span.fraction.tolist() == [0.0, 1.0]
    kept = span.fraction.square().sum()
    span().sum().backward()
    kept.backward()  # the saved tensor was not overwritten


def test_penalty_is_the_mean_span_and_shortens_spans():
    span = AdaptiveSpan(3, max_span=100, initial=[10, 20, 60])
    assert span.penalty().item() == pytest.approx(30)
    assert hs.span_penalty(span().detach().numpy(), 1.0) == pytest.approx(span.penalty().item())
    optimizer = torch.optim.SGD(span.parameters(), lr=1e-3)
    for _ in range(100):
        optimizer.zero_grad()
        span.penalty().backward()
        optimizer.step()
    assert span().tolist() == [0.0, 0.0, 0.0]


def test_spans_learn_what_a_task_needs():
    """Each token should return the one before last: the penalty shortens spans to those that this needs."""
    torch.manual_seed(0)
    layer = AdaptiveSpanAttention(16, 2, max_span=40, ramp=4)
    with torch.no_grad():
        layer.span.fraction.fill_(0.9)
    optimizer = torch.optim.Adam(layer.parameters(), lr=1e-2)
    losses = []
    for _ in range(150):
        x = torch.randn(4, 40, 16)
        loss = (layer(x)[:, 2:] - x[:, :-2]).square().mean()
        optimizer.zero_grad()
        (loss + 0.02 * layer.span.penalty()).backward()
        optimizer.step()
        losses.append(loss.item())
    assert layer.span.penalty() < 10
    assert layer.span().max() > 0
    assert np.mean(losses[-10:]) < 0.75 * losses[0]


@variants
def test_a_block_is_trained_saved_and_loaded(variant, tmp_path):
    block, x = layer_of(TransformerBlock, **variant), tokens()
    before = block(x, causal=True)
    optimizer = torch.optim.AdamW(block.parameters(), lr=1e-2)
    out, span = block(x, return_span=True, causal=True)
    (out.square().mean() + 0.01 * span.mean()).backward()
    assert all(torch.isfinite(p.grad).all() for p in block.parameters())
    assert all(p.grad.abs().max() > 0 for p in block.parameters())
    optimizer.step()
    after = block(x, causal=True)
    assert not torch.equal(before, after)
    torch.save(block.state_dict(), tmp_path / "block.pt")
    other = TransformerBlock(WIDTH, HEADS, max_span=12, ramp=3, **variant).double()
    other.load_state_dict(torch.load(tmp_path / "block.pt"))
    for restored in (other, copy.deepcopy(block), pickle.loads(pickle.dumps(block))):
        assert torch.equal(restored(x, causal=True), after)


def test_names_of_the_parameters():
    names = AdaptiveSpanAttention(WIDTH, HEADS, max_span=12, ramp=3, sinks=True).state_dict()
    assert [*names] == [
        "sinks", "span.fraction", "q_proj.weight", "k_proj.weight", "v_proj.weight", "out_proj.weight",
    ]  # fmt: skip


@variants
def test_compiled_as_one_graph_and_checkpointed(variant):
    block, x = layer_of(TransformerBlock, **variant), tokens()
    expected = block(x, causal=True)
    gradients = torch.autograd.grad(expected.square().sum(), [*block.parameters()])
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    functions = {
        "compiled": lambda: compiled(x, causal=True),
        "checkpointed": lambda: checkpoint(block, x, causal=True, use_reentrant=False),
    }
    for function in functions.values():
        with warnings_of_torch():
            out = function()
        torch.testing.assert_close(out, expected)
        results = torch.autograd.grad(out.square().sum(), [*block.parameters()])
        for ours, theirs in zip(results, gradients, strict=True):
            torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("dynamic", [False, True])
def test_autocast_and_bfloat16(dynamic):
    block, x = layer_of(TransformerBlock, dynamic=dynamic, sinks=True).float(), tokens().float()
    expected = block(x)
    with torch.autocast("cpu", torch.bfloat16):
        out, span = block(x, return_span=True)
    assert span.dtype == torch.float32
    assert (out - expected).abs().max() < 0.05 * expected.abs().max()
    out.float().square().mean().backward()
    assert all(torch.isfinite(p.grad).all() and p.grad.dtype == p.dtype for p in block.parameters())
    out, span = block.bfloat16()(x.bfloat16(), return_span=True)
    assert out.dtype == torch.bfloat16
    assert span.dtype == torch.float32


def test_meta_device_and_repr():
    with torch.device("meta"):
        block = TransformerBlock(WIDTH, HEADS, max_span=12, ramp=3, num_key_heads=2, pattern=Window(4))
        assert block(torch.empty(2, 5, WIDTH)).shape == (2, 5, WIDTH)
    assert "num_heads=4, num_key_heads=2, ramp=3" in repr(block)
    assert "Window(" in repr(block)
    assert "max_span=12" in repr(block)


WRONG = {
    "heads that do not divide": (lambda: AdaptiveSpanAttention(10, 4, max_span=9, ramp=1),
                                 "embed_dim must be a multiple of num_heads, not 10 and 4"),
    "key heads that do not": (lambda: AdaptiveSpanAttention(24, 4, max_span=9, ramp=1, num_key_heads=3),
                              "num_heads must be a multiple of num_key_heads, not 4 and 3"),
    "odd heads": (lambda: AdaptiveSpanAttention(12, 4, max_span=9, ramp=1),
                  "head_dim must be even for rotary positions, not 3; see rotary"),
    "no limit": (lambda: AdaptiveSpanAttention(24, 4, max_span=0, ramp=1), "max_span must be greater than 0, not 0"),
    "a ramp below 0": (lambda: TransformerBlock(24, 4, max_span=9, ramp=-1), "ramp must be at least 0, not -1"),
    "a soft cap of 0": (lambda: AdaptiveSpanAttention(24, 4, max_span=9, ramp=1, softcap=0), "softcap must be between"),
    "no pattern": (lambda: AdaptiveSpanAttention(24, 4, max_span=9, ramp=1, pattern=Window),
                   "the class Window; write Window(...)"),
    "a span of no head": (lambda: AdaptiveSpan(0, 9), "num_heads must be at least 1, not 0"),
    "a start beyond the limit": (lambda: AdaptiveSpan(2, 9, initial=[1, 10]),
                                 "initial must be between 0 and the max_span of 9, got 10"),
    "starts of other heads": (lambda: AdaptiveSpan(2, 9, initial=[1, 2, 3]),
                              "initial must be a number or of shape (2,)"),
    "no width": (lambda: DynamicSpan(0, 2, 9), "embed_dim must be at least 1, not 0"),
    "tokens of another width": (lambda: layer_of()(torch.ones(2, 5, 7)),
                                "x must be of shape (batch, tokens, 24), not (2, 5, 7)"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments(case):
    call, sentence = WRONG[case]
    with pytest.raises((ValueError, TypeError), match=re.escape(sentence)):
        call()


def test_groups_of_parameters():
    model = torch.nn.Sequential(layer_of(), headspan.torch.LearnedBlocks(1, 4, tokens=12), torch.nn.Linear(3, 3))
    model[2].bias.requires_grad_(False)
    weights, shares = headspan.torch.parameter_groups(model, span_lr=0.05)
    assert [id(x) for x in shares["params"]] == [id(model[0].span.fraction), id(model[1].gates)]
    assert {id(x) for x in weights["params"]} | {id(x) for x in shares["params"]} == {
        id(x) for x in model.parameters() if x is not model[2].bias
    }
    optimizer = torch.optim.AdamW([weights, shares], lr=1e-9)
    before = model[0].span.fraction.detach().clone()
    sum(x.square().sum() + x.sum() for x in model.parameters()).backward()
    optimizer.step()
    assert torch.allclose((model[0].span.fraction - before).abs(), torch.tensor(0.05, dtype=before.dtype))
    with pytest.raises(ValueError, match="model must have learned spans"):
        headspan.torch.parameter_groups(torch.nn.Linear(3, 3))
    with pytest.raises(ValueError, match="span_lr must be"):
        headspan.torch.parameter_groups(model, span_lr=0)
