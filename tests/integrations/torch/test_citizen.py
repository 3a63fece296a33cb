"""What torch does with an operator: compiles, exports and checkpoints it, and counts on its memory and threads."""

import functools

import headspan as hs
import numpy as np
import pytest
from headspan.patterns import Global, Window
from option_cases import ARRAYS, arguments_of
from tensors import as_tensors, qkv, same, torch, warnings_of_torch
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from headspan.torch import attention, operator  # isort: skip


COMPILED = {
    "nothing": {},
    "a number": {"span": 2.5, "ramp": 3},
    "a list": {"span": [0.5, 1.5, 2.5, 3.25], "key_stop": [3, 9]},
    "an array": {"span": np.array([0.5, 1.5, 2.5, 3.25])},
    "a tensor": {"span": torch.tensor([0.5, 1.5, 2.5, 3.25], requires_grad=True), "causal": False},
    "a pattern": {"pattern": Window(4) | Global(0), "dropout": 0.3, "seed": 2**64 - 1},
    "patterns": {"pattern": [Window(4), Window(3), Window(2), Global(0)], "softcap": 2.0, "scale": 0.5},
    "patterns of items": {"pattern": [[Window(4)], [Window(3)]]},
}


class Model(torch.nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, query, key, value):
        return attention(query, key, value, **self.options).sin()


@pytest.mark.parametrize("options", COMPILED.values(), ids=COMPILED)
def test_compile_as_one_graph(options):
    model = Model(**options)
    with warnings_of_torch():
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        results = []
        for function in (model, compiled):
            tensors = qkv()
            out = function(*tensors)
            results.append([out, *torch.autograd.grad(out.square().sum(), tensors)])
    for ours, theirs in zip(*results, strict=True):
        assert torch.equal(ours, theirs)


def test_compile_to_machine_code():
    with warnings_of_torch():
        tensors = qkv()
        span = torch.tensor([0.5, 1.5, 2.5, 3.25], dtype=torch.float64, requires_grad=True)

        def loss(query, key, value, span):
            return attention(query * 2, key, value, span=span.clamp(0, 5), ramp=3).square().sum()

        plain = torch.autograd.grad(loss(*tensors, span), (*tensors, span))
        compiled = torch.autograd.grad(torch.compile(loss, fullgraph=True)(*tensors, span), (*tensors, span))
    for ours, theirs in zip(compiled, plain, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_compiled_function_follows_seeds_and_patterns_and_lengths():
    """Without a new graph for every seed and every length."""
    counter = torch._dynamo.testing.CompileCounter()

    @torch.compile(fullgraph=True, backend=counter)
    def drop(query, key, value, seed, pattern=None):
        return attention(query, key, value, dropout=0.5, seed=seed, pattern=pattern)

    tensors = qkv(grad=False)
    for seed in range(6):
        expected = hs.attention(*(x.numpy() for x in tensors), dropout=0.5, seed=seed)
        assert same(drop(*tensors, seed), expected)
    for tokens in range(10, 16):
        shorter = qkv(2, 4, tokens, 3, grad=False)
        assert same(drop(*shorter, 5), hs.attention(*(x.numpy() for x in shorter), dropout=0.5, seed=5))
    assert counter.frame_count <= 4
    for pattern in (Window(3), Window(4)):
        expected = hs.attention(*(x.numpy() for x in tensors), dropout=0.5, seed=0, pattern=pattern)
        assert same(drop(*tensors, 0, pattern), expected)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("options", [COMPILED["a tensor"], COMPILED["a pattern"]], ids=["a tensor", "a pattern"])
def test_export(options, strict, tmp_path):
    model, tensors = Model(**options), qkv(grad=False)
    with warnings_of_torch():
        tokens = torch.export.Dim("tokens", min=2, max=100)
        exported = torch.export.export(model, tuple(tensors), dynamic_shapes=[{2: tokens}] * 3, strict=strict)
        torch.export.save(exported, tmp_path / "model.pt2")
        loaded = torch.export.load(tmp_path / "model.pt2").module()
    assert torch.equal(loaded(*tensors), model(*tensors))
    longer = qkv(2, 4, 13, 3, grad=False)
    assert torch.equal(loaded(*longer), model(*longer))


def test_without_a_gradient_nothing_is_kept(monkeypatch):
    kept = []
    original = operator.forward
    monkeypatch.setattr(operator, "forward", lambda *a, **k: kept.append(k["with_saved"]) or original(*a, **k))
    tensors = qkv()
    with torch.no_grad():
        assert not attention(*tensors).requires_grad
    with torch.inference_mode():
        attention(*tensors)
    attention(*(x.detach() for x in tensors))
    assert kept == [False] * 3
    assert attention(*tensors).requires_grad
    assert kept[3:] == [True]


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoints(use_reentrant, monkeypatch):
    calls = []
    original = operator.forward
    monkeypatch.setattr(operator, "forward", lambda *a, **k: calls.append(1) or original(*a, **k))
    span = torch.tensor([0.5, 1.5, 2.5, 3.25], dtype=torch.float64, requires_grad=True)

    def block(query, key, value, span):
        return attention(query, key, value, span=span, ramp=3).sin()

    tensors = [*qkv(), span]
    plain = torch.autograd.grad(block(*tensors).sum(), tensors)
    assert len(calls) == 1
    checkpoint(block, *tensors, use_reentrant=use_reentrant).sum().backward()
    assert len(calls) == 3
    for ours, theirs in zip(tensors, plain, strict=True):
        assert torch.equal(ours.grad, theirs)


def test_a_checkpoint_may_keep_attention_and_compute_the_rest_again(monkeypatch):
    calls = []
    original = operator.forward
    monkeypatch.setattr(operator, "forward", lambda *a, **k: calls.append(1) or original(*a, **k))
    tensors = qkv()
    kept = functools.partial(create_selective_checkpoint_contexts, [torch.ops.headspan.attention.default])
    out = checkpoint(lambda *x: attention(*x).sin(), *tensors, use_reentrant=False, context_fn=kept)
    gradients = torch.autograd.grad(out.sum(), tensors)
    assert len(calls) == 1
    for ours, theirs in zip(gradients, torch.autograd.grad(attention(*tensors).sin().sum(), tensors), strict=True):
        assert torch.equal(ours, theirs)


def test_saved_tensors_may_be_moved_elsewhere_meanwhile():
    tensors = qkv()
    plain = torch.autograd.grad(attention(*tensors, span=2.5).sum(), tensors)
    with torch.autograd.graph.saved_tensors_hooks(
        lambda x: (x.numpy(force=True).copy(),), lambda x: torch.tensor(x[0])
    ):
        out = attention(*tensors, span=2.5)
    for ours, theirs in zip(torch.autograd.grad(out.sum(), tensors), plain, strict=True):
        assert torch.equal(ours, theirs)


def test_a_result_that_was_changed_in_place_is_refused():
    tensors = qkv()
    out = attention(*tensors)
    out.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_types_are_computed_in_float32(dtype):
    tensors = [x.detach().to(dtype).requires_grad_() for x in qkv()]
    span = torch.tensor([0.5, 1.5, 2.5, 3.25], dtype=dtype, requires_grad=True)
    out, lse = attention(*tensors, span=span, ramp=3, return_lse=True)
    out.sum().backward()
    wide = [x.detach().float().requires_grad_() for x in (*tensors, span)]
    expected, expected_lse = attention(*wide[:3], span=wide[3], ramp=3, return_lse=True)
    expected.sum().backward()
    assert out.dtype == dtype
    assert torch.equal(out, expected.to(dtype))
    assert torch.equal(lse, expected_lse)
    for ours, theirs in zip((*tensors, span), wide, strict=True):
        assert ours.grad.dtype == dtype
        assert torch.equal(ours.grad, theirs.grad.to(dtype))


def test_autocast_brings_mixed_types_to_the_widest():
    query, key, value = (x.detach().float() for x in qkv())
    narrow = value.bfloat16()
    with pytest.raises(TypeError, match=r"value is torch.bfloat16 but query is torch.float32"):
        attention(query, key, narrow)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(attention(query, key, narrow), attention(query, key, narrow.float()))
        assert torch.equal(attention(narrow, key, value), attention(narrow.float(), key, value))
        layer = torch.nn.Linear(3, 3)
        assert attention(layer(query), layer(key), layer(value)).dtype == torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16, enabled=False), pytest.raises(TypeError, match="value is"):
        attention(query, key, narrow)


def test_only_the_gradients_that_are_needed(monkeypatch):
    asked = []
    original = operator.backward
    monkeypatch.setattr(operator, "backward", lambda *a, **k: asked.append(k["needs"]) or original(*a, **k))
    query, key, value = qkv()
    span = torch.tensor([0.5, 1.5, 2.5, 3.25], dtype=torch.float64, requires_grad=True)
    attention(query.detach(), key.detach(), value.detach(), span=span).sum().backward()
    attention(query.detach(), key, value.detach(), span=span.detach()).sum().backward()
    attention(query, key, value, span=span).sum().backward()
    assert asked == [["span"], ["key"], ["query", "key", "value", "span"]]


def test_as_many_threads_as_torch_has(monkeypatch):
    seen = []
    for name in ("forward", "backward"):
        original = getattr(operator, name)
        monkeypatch.setattr(
            operator, name, lambda *a, original=original, **k: seen.append(k["threads"]) or original(*a, **k)
        )
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            attention(*qkv()).sum().backward()
    finally:
        torch.set_num_threads(before)
    assert seen == [1, 1, 2, 2]


def test_views_as_models_make_them_are_read_and_written_in_place(monkeypatch):
    """Query, key and value from one projection, (batch, tokens, 3, heads, head_dim), by swapping axes."""
    read = []
    original = operator.Request
    monkeypatch.setattr(operator, "Request", lambda *a: read.append(original(*a)) or read[-1])
    projected = torch.randn(2, 9, 3, 4, 8, requires_grad=True)
    views = [x.transpose(1, 2) for x in projected.unbind(2)]
    out = attention(*views)
    for name, view in zip(ARRAYS, views, strict=True):
        assert getattr(read[0], name).__array_interface__["data"][0] == view.data_ptr()
    joined = out.transpose(1, 2).flatten(2)
    assert joined.data_ptr() == out.data_ptr()
    joined.sum().backward()
    assert projected.untyped_storage().resizable()  # unlike after .numpy(): sharded parameters are freed by resizing
    arrays = [x.detach().numpy() for x in views]
    assert same(out, hs.attention(*arrays))


def test_a_tensor_whose_last_axis_is_not_contiguous():
    tensors = [torch.randn(2, 4, 3, 9, requires_grad=True) for _ in range(3)]
    out = attention(*(x.transpose(-1, -2) for x in tensors), span=2.5)
    assert same(out, hs.attention(*(x.detach().numpy().swapaxes(-1, -2) for x in tensors), span=2.5))
    out.sum().backward()
    assert all(torch.isfinite(x.grad).all() for x in tensors)


def test_a_tensor_that_is_negative_by_a_flag():
    query, key, value = qkv(grad=False)
    negative = torch.complex(query, query).conj().imag
    assert negative.is_neg()
    assert torch.equal(attention(negative, key, value), attention(-query, key, value))


def test_shapes_on_meta():
    """On the device "meta", as large models are made before they are loaded."""
    query, key, value = (torch.empty(2, heads, 9, 3, device="meta") for heads in (4, 2, 2))
    out, lse = attention(query, key, value, span=2.5, return_lse=True)
    assert (out.shape, lse.shape) == ((2, 4, 9, 3), (2, 4, 9))
    tensors = [torch.randn(x.shape) for x in (query, key, value)]
    assert attention(*tensors).stride() == out.stride()
    assert out.device.type == "meta"


def test_every_tensor_argument_may_be_a_tensor():
    """The same numbers as from arrays and lists, whatever their type."""
    arguments = arguments_of("positions") | {
        "key_start": np.array([0, 2], np.int32),
        "key_bias": np.zeros(7, np.float32),
    }
    tensors = {name: torch.tensor(x) if isinstance(x, np.ndarray | list) else x for name, x in arguments.items()}
    assert same(attention(**tensors), hs.attention(**arguments))
    odd = {"span": np.longdouble(2.7), "key_bias": np.zeros(7, ">f8"), "key_start": np.array([0, 2])[::-1][::-1]}
    odd["key_start"].flags.writeable = False
    assert same(attention(**as_tensors(arguments, needs=()) | odd), hs.attention(**arguments))
