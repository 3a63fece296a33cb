"""Gates of blocks as a layer: the numbers of the function for arrays, closing, and what torch does with layers."""

import copy
import itertools
import re

import headspan as hs
import numpy as np
import pytest
from headspan.ops.adapters import patterns
from headspan.patterns import Blocks, Window
from tensors import qkv, same, torch, warnings_of_torch
from torch.utils.checkpoint import checkpoint

from headspan.torch import AdaptiveSpanAttention, LearnedBlocks, attention  # isort: skip

FORMS = {
    "squares": (4, 16, False),
    "of all heads": (1, 16, False),
    "rectangles": (4, (8, 24), False),
    "flat rectangles": (4, (15, 4), False),
    "tied": (4, 16, True),
    "tied, of all heads": (1, 7, True),
}
forms = pytest.mark.parametrize(("heads", "block_size", "tied"), FORMS.values(), ids=FORMS)
TOKENS = 40


def layer_of(heads=4, block_size=16, tied=False, tokens=TOKENS, closed=0.3):
    layer = LearnedBlocks(heads, block_size, tokens=tokens, tied=tied).double()
    rng = np.random.default_rng(3)
    gates = np.where(rng.random(layer.gates.shape) < closed, 0, rng.uniform(0.1, 0.9, layer.gates.shape))
    gates.flat[-1] = 0  # the farthest is closed in any case
    with torch.no_grad():
        layer.gates.copy_(torch.tensor(gates))
    return layer


@pytest.mark.parametrize("causal", [True, False])
@forms
def test_the_numbers_are_those_of_the_function_for_arrays(heads, block_size, tied, causal):
    layer = layer_of(heads, block_size, tied)
    tensors = qkv(2, 4, TOKENS, 3)
    ours = layer()
    gates = layer.gates.detach().numpy()
    options, gates_vjp = hs.sparse.learned_blocks_vjp(gates, block_size, tokens=TOKENS, tied=tied)
    assert same(ours["block_gates"], options["block_gates"])
    assert (ours["gate_block_size"], ours["pattern"]) == (options["gate_block_size"], options["pattern"])
    out = attention(*tensors, causal=causal, **ours)
    expected, vjp = hs.attention_vjp(*(x.detach().numpy() for x in tensors), causal=causal, **options)
    assert same(out, expected)
    upstream = np.random.default_rng(4).standard_normal(expected.shape)
    (out * torch.tensor(upstream)).sum().backward()
    gradients = vjp(upstream)
    np.testing.assert_allclose(layer.gates.grad, gates_vjp(gradients.block_gates).gates, rtol=1e-12, atol=1e-14)
    assert same(tensors[0].grad, gradients.query)


@forms
def test_gradcheck(heads, block_size, tied):
    """With open gates only: a closed gate has a gradient of 0, and the function has a corner there."""
    layer = layer_of(heads, block_size, tied, closed=0)
    with torch.no_grad():
        layer.gates.clamp_(min=0.1)

    def out(query, key, value, gates):
        options = torch.func.functional_call(layer, {"gates": gates}, ())
        assert "pattern" in options
        return attention(query, key, value, causal=False, **options)

    inputs = [*qkv(1, 4, TOKENS, 3), layer.gates.detach().clone().requires_grad_()]
    assert torch.autograd.gradcheck(out, inputs, fast_mode=True)


@pytest.mark.parametrize("tokens", [1, 16, 33])
@forms
def test_fewer_tokens_have_the_first_blocks(heads, block_size, tied, tokens):
    layer = layer_of(heads, block_size, tied)
    rows, columns = (-(-tokens // side) for side in layer.sides)
    gates = layer.gates.detach().numpy()
    first = gates[:, :rows] if tied else gates[:, :rows, :columns]
    options = hs.sparse.learned_blocks(first, block_size, tokens=tokens, tied=tied)
    ours = layer(tokens)
    assert same(ours["block_gates"], options["block_gates"])
    assert ours["pattern"] == options["pattern"]
    assert attention(*qkv(1, 4, tokens, 3), **ours).shape == (1, 4, tokens, 3)


def test_gates_beyond_the_bounds_are_clamped_and_gradients_lead_both_ways():
    layer = LearnedBlocks(1, 8, tokens=24).double()
    with torch.no_grad():
        layer.gates[0, 2, 0], layer.gates[0, 2, 1] = 1.5, -0.5
    options = layer()
    assert options["block_gates"][0].tolist() == [[1, 1, 1], [1, 1, 1], [1, 0, 1]]
    (options["block_gates"] * torch.tensor([[1.0, 1, 1], [1, 1, 1], [-1, 1, 1]])).sum().backward()
    assert layer.gates.grad[0, 2].tolist() == [-1, 1, 0]  # the last gate, on the diagonal, has none
    assert layer.gates[0, 2].tolist() == [1, 0, 1]  # as a step should have left them


def test_penalty_is_the_mean_gate():
    layer = layer_of()
    assert layer.penalty().item() == pytest.approx(hs.span_penalty(layer.gates.detach().numpy(), 1.0))
    layer.penalty().backward()
    np.testing.assert_allclose(layer.gates.grad, np.full(layer.gates.shape, 1 / layer.gates.numel()), rtol=1e-12)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("tied", [False, True])
def test_a_closed_gate_stays_closed(optimizer, tied):
    """A gate that a penalty closed does not open without the penalty, and its block costs nothing."""
    layer = LearnedBlocks(2, 10, tokens=TOKENS, tied=tied, initial=0.05)
    tensors = [x.detach().float() for x in qkv(2, 2, TOKENS, 3)]
    wanted = attention(*tensors, causal=False)
    optimizer = optimizer(layer.parameters(), lr=0.02)
    closed = []
    for weight in [10.0] * 30 + [0.0] * 30:
        optimizer.zero_grad()
        loss = (attention(*tensors, causal=False, **layer()) - wanted).square().sum()
        (loss + weight * layer.penalty()).backward()
        optimizer.step()
        closed.append((layer.gates <= 0).numpy())
    assert closed[29].any()
    assert all((after >= before).all() for before, after in itertools.pairwise(closed))
    options = layer()
    pairs = hs.cost(
        tokens=TOKENS, num_heads=2, head_dim=3, causal=False, **options | {"block_gates": None, "gate_block_size": None}
    )
    assert list(pairs.head_pairs) == (options["block_gates"] > 0).sum((1, 2)).mul(100).tolist()


def test_a_planted_pattern_is_learned():
    """Learn the diagonal and two blocks of each row from the outputs of attention over only these."""
    rng = np.random.default_rng(0)
    planted = np.eye(6, dtype=bool)
    for row in range(6):
        planted[row, rng.choice(np.flatnonzero(~planted[row]), 2, replace=False)] = True
    torch.manual_seed(0)
    layer = LearnedBlocks(1, 8, tokens=48).double()
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.03, betas=(0.9, 0.99))
    for _ in range(150):
        tensors = torch.randn(3, 4, 1, 48, 16, dtype=torch.float64)
        wanted = attention(*tensors, causal=False, pattern=Blocks(planted, 8))
        optimizer.zero_grad()
        error = (attention(*tensors, causal=False, **layer()) - wanted).square().mean()
        (error + 0.01 * layer.penalty()).backward()
        optimizer.step()
    assert np.array_equal(layer()["block_gates"][0].detach() > 0, planted)


class Gated(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.blocks = layer

    def forward(self, query, key, value):
        return attention(query, key, value, causal=False, **self.blocks())


@pytest.mark.parametrize("tied", [False, True])
def test_compiled_as_one_graph_and_checkpointed(tied):
    """A compiled model has no pattern but the same numbers, also if it gets the options from outside."""
    model, tensors = Gated(layer_of(tied=tied)), qkv(2, 4, TOKENS, 3)
    expected = model(*tensors)
    wanted = torch.autograd.grad(expected.square().sum(), [*tensors, model.blocks.gates])
    with warnings_of_torch():
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        within = torch.compile(attention, fullgraph=True, backend="aot_eager")
        functions = {
            "compiled": compiled,
            "options from outside": lambda *x: within(*x, causal=False, **model.blocks()),
            "checkpointed": lambda *x: checkpoint(model, *x, use_reentrant=False),
        }
        for function in functions.values():
            out = function(*tensors)
            torch.testing.assert_close(out, expected, rtol=1e-11, atol=1e-11)
            gradients = torch.autograd.grad(out.square().sum(), [*tensors, model.blocks.gates])
            for ours, theirs in zip(gradients, wanted, strict=True):
                torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def test_an_ensemble_of_gates_is_mapped():
    layer, tensors = layer_of(), qkv(2, 4, TOKENS, 3, grad=False)
    stacked = torch.stack([layer.gates.detach(), layer.gates.detach() / 2])

    def loss(gates):
        options = torch.func.functional_call(layer, {"gates": gates}, ())
        return attention(*tensors, causal=False, **options).square().sum()

    gradients = torch.func.vmap(torch.func.grad(loss))(stacked)
    for ours, gates in zip(gradients, stacked, strict=True):
        alone = gates.clone().requires_grad_()
        torch.testing.assert_close(ours, torch.autograd.grad(loss(alone), alone)[0], rtol=1e-10, atol=1e-12)


def test_within_a_layer_with_spans():
    torch.manual_seed(0)
    attending, layer = AdaptiveSpanAttention(24, 4, max_span=30, ramp=8).double(), layer_of()
    x = torch.randn(2, TOKENS, 24, dtype=torch.float64)
    with torch.no_grad():
        attending.span.fraction.fill_(0.5)
    out = attending(x, **layer())
    without = {name: option for name, option in layer().items() if name != "pattern"}
    torch.testing.assert_close(out, attending(x, **without), rtol=1e-11, atol=1e-11)
    out.square().sum().backward()
    assert layer.gates.grad.abs().max() > 0
    assert attending.span.fraction.grad.abs().max() > 0
    narrowed = AdaptiveSpanAttention(24, 4, max_span=30, ramp=8, pattern=Window(4))
    with pytest.raises(TypeError, match="pattern"):
        narrowed(x.float(), **layer())


def test_saved_loaded_copied_and_shown(tmp_path):
    layer = layer_of()
    torch.save(layer.state_dict(), tmp_path / "gates.pt")
    other = LearnedBlocks(4, 16, tokens=TOKENS).double()
    assert [*other.state_dict()] == ["gates"]
    other.load_state_dict(torch.load(tmp_path / "gates.pt"))
    for restored in (other, copy.deepcopy(layer)):
        assert torch.equal(restored()["block_gates"], layer()["block_gates"])
        assert restored()["pattern"] == layer()["pattern"]
    assert repr(layer) == "LearnedBlocks(num_heads=4, block_size=(16, 16), tokens=40, tied=False)"


def test_meta_device():
    with torch.device("meta"):
        layer = LearnedBlocks(4, 16, tokens=TOKENS)
        out = attention(*(torch.empty(2, 4, TOKENS, 3) for _ in range(3)), causal=False, **layer())
    assert layer.gates.is_meta
    assert out.shape == (2, 4, TOKENS, 3)


def test_bfloat16():
    layer = layer_of().bfloat16()
    tensors = [x.detach().bfloat16() for x in qkv(2, 4, TOKENS, 3)]
    options = layer()
    assert options["block_gates"].dtype == torch.float32
    attention(*tensors, causal=False, **options).float().sum().backward()
    assert layer.gates.grad.dtype == torch.bfloat16
    assert torch.isfinite(layer.gates.grad).all()


def test_a_pattern_that_exists_is_not_read_from_text(monkeypatch):
    read = []
    original = patterns.Pattern.from_spec
    monkeypatch.setattr(patterns.Pattern, "from_spec", lambda text: read.append(text) or original(text))
    patterns.read_pattern.cache_clear()
    options = layer_of()()
    expected = attention(*qkv(1, 4, TOKENS, 3), **options)
    assert not read
    patterns.read_pattern.cache_clear()
    written = patterns.written_pattern(options.pop("pattern"))
    assert same(attention(*qkv(1, 4, TOKENS, 3), **options, pattern=patterns.read_pattern(written)), expected.detach())
    assert read == [written]


WRONG = {
    "no heads": ({"num_heads": 0}, "num_heads must be at least 1, not 0"),
    "no block": ({"block_size": 0}, "block_size must be at least 1, not 0"),
    "no tokens": ({"tokens": 0}, "tokens must be at least 1, not 0"),
    "half a token": ({"tokens": 2.5}, "tokens must be an integer, not 2.5"),
    "tied rectangles": (
        {"tied": True, "block_size": (2, 4)},
        "block_size must be square if gates are tied",
    ),
    "tied by a number": ({"tied": 1}, "tied must be True or False, not 1"),
    "a start beyond 1": ({"initial": 1.5}, "initial must be between 0 and 1, got 1.5"),
    "a start below 0": ({"initial": [[-0.5, 1, 1]]}, "initial must be between 0 and 1, got -0.5"),
    "starts of other blocks": ({"initial": np.ones(4)}, "initial must broadcast to (2, 3, 3), got of shape (4,)"),
    "no number": ({"initial": np.nan}, "initial must be finite"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments(case):
    wrong, sentence = WRONG[case]
    arguments = {"num_heads": 2, "block_size": 16, "tokens": TOKENS} | wrong
    with pytest.raises((ValueError, TypeError), match=re.escape(sentence)):
        LearnedBlocks(arguments.pop("num_heads"), arguments.pop("block_size"), **arguments)


def test_more_tokens_than_gates():
    with pytest.raises(ValueError, match="tokens must be at most 40, the number of tokens with gates, not 41"):
        layer_of()(41)
