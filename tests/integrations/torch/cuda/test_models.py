"""Layers and models on a device: trained alone and on ranks, converted, and from transformers."""

import copy

import numpy as np
import pytest
import torch
import torch.distributed as dist
from headspan.torch import AdaptiveSpanAttention, HybridAttention, TransformerBlock, convert
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

LAYERS = {
    "adaptive": lambda: AdaptiveSpanAttention(64, 4, max_span=100, ramp=8, rotary=True, sinks=True, num_key_heads=2),
    "dynamic": lambda: AdaptiveSpanAttention(64, 4, max_span=100, ramp=8, dynamic=True),
    "block": lambda: TransformerBlock(64, 4, max_span=100, ramp=8),
    "hybrid": lambda: HybridAttention(64, 4, max_span=100, ramp=8, per="token"),
    "hybrid, both ways": lambda: HybridAttention(64, 4, max_span=100, ramp=8, per="head", causal=False),
}


def loss_and_gradients(layer, x):
    loss = layer(x).square().mean()
    loss.backward()
    return [loss.cpu(), *(p.grad.cpu() for p in layer.parameters())]


@pytest.mark.parametrize("name", LAYERS)
def test_layers_train_as_on_the_cpu(name, request):
    torch.manual_seed(0)
    layer = LAYERS[name]()
    x = torch.randn(2, 150 if torch.cuda.is_available() else 70, 64)  # the interpreter is slow
    expected = loss_and_gradients(copy.deepcopy(layer), x)
    device = request.getfixturevalue("device")  # from here on, the interpreter computes with tensors on the CPU
    for ours, theirs in zip(loss_and_gradients(layer.to(device), x.to(device)), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


def test_spans_are_learned(gpu):
    torch.manual_seed(0)
    layer = AdaptiveSpanAttention(64, 4, max_span=200, ramp=8).to(gpu)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.01)
    before = layer.span().detach().clone()
    x = torch.randn(2, 150, 64, device=gpu)
    for _ in range(5):
        optimizer.zero_grad()
        (layer(x).square().mean() - 1e-3 * layer.span().sum()).backward()
        optimizer.step()
    assert (layer.span() > before).all()


@pytest.fixture
def one_rank(device, tmp_path):
    """Start a process group of this process alone, and return the device."""
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    yield device
    dist.destroy_process_group()


def shard(model):
    """Distribute the parameters of a model over the ranks."""
    for block in model:
        fully_shard(block)
    return fully_shard(model)


@pytest.mark.parametrize("wrap", [DistributedDataParallel, shard])
def test_training_on_ranks(wrap, one_rank):
    torch.manual_seed(0)
    blocks = (TransformerBlock(32, 2, max_span=12, ramp=3, dynamic=True, sinks=True) for _ in range(2))
    model = torch.nn.Sequential(*blocks).to(one_rank)
    wrapped = wrap(copy.deepcopy(model))
    x = torch.randn(2, 20, 32, device=one_rank)
    for each in (model, wrapped):
        optimizer = torch.optim.SGD(each.parameters(), lr=0.5)
        for _ in range(2):
            optimizer.zero_grad()
            (each(x) - x.roll(1, 1)).square().mean().backward()
            optimizer.step()
    for expected, parameter in zip(model.parameters(), wrapped.parameters(), strict=True):
        parameter = parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter
        torch.testing.assert_close(parameter, expected, rtol=1e-5, atol=1e-6)


def test_converted_module(device):
    torch.manual_seed(0)
    module = torch.nn.MultiheadAttention(32, 4, batch_first=True).to(device)
    x = torch.randn(2, 40, 32, device=device)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(40, device=device)
    expected = module(x, x, x, attn_mask=mask, is_causal=True, need_weights=False)[0]
    convert(module, max_span=100, ramp=3)
    out = module(x, x, x, attn_mask=mask, is_causal=True, need_weights=False)[0]
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
    out.square().mean().backward()
    assert module.span.fraction.grad.device.type == device.type


def llama(device):
    """Return a small model of transformers with random weights."""
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=50, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256,
    )  # fmt: skip
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(config).to(device)


def test_converted_model_of_transformers(device):
    model = llama(device)
    ids = torch.randint(50, (2, 40), device=device)
    expected = model(ids).logits
    spans = convert(model, max_span=100, ramp=8)
    torch.testing.assert_close(model(ids).logits, expected, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        for span in spans:
            span.fraction.fill_(0.1)
    model(ids, labels=ids).loss.backward()
    assert all((span.fraction.grad != 0).any() for span in spans)


@pytest.mark.parametrize("mask", ["none", "left", "right"])
def test_model_of_transformers(mask, gpu):
    pytest.importorskip("transformers")
    import headspan.torch

    headspan.torch.register()
    model = llama(gpu)
    ids = torch.randint(50, (2, 40), device=gpu)
    attention_mask = torch.ones_like(ids)
    if mask != "none":
        attention_mask[0, slice(0, 7) if mask == "left" else slice(33, None)] = 0
    results = []
    for name in ("sdpa", "headspan"):
        model.set_attn_implementation(name)
        model.zero_grad()
        logits = model(ids, attention_mask=attention_mask).logits[attention_mask.bool()]
        logits.square().mean().backward()
        results.append([logits, *(p.grad.clone() for p in model.parameters())])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
    model.eval()
    prompt = ids[:, :10]
    generated = model.generate(prompt, max_new_tokens=5, do_sample=False, pad_token_id=0)
    model.set_attn_implementation("sdpa")
    assert torch.equal(generated, model.generate(prompt, max_new_tokens=5, do_sample=False, pad_token_id=0))
    model.set_attn_implementation("headspan")
    spans = [[4.0, 8, 16, 40]] * 2
    headspan.torch.set_spans(model, spans, ramp=8)
    on_gpu = model(ids).logits
    torch.testing.assert_close(on_gpu.cpu(), model.cpu()(ids.cpu()).logits, rtol=1e-3, atol=1e-4)


def test_record_and_fit_spans(gpu):
    transformers = pytest.importorskip("transformers")
    import headspan.torch

    headspan.torch.register()
    config = transformers.GPT2Config(vocab_size=50, n_embd=32, n_layer=2, n_head=4, n_positions=64)
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(config).to(gpu).eval()
    model.set_attn_implementation("headspan")
    ids = torch.randint(50, (8, 48), device=gpu)
    with torch.no_grad(), headspan.torch.record(model) as layers:
        model(ids)
    np.testing.assert_allclose(layers[0].weights().sum(-1), 1, rtol=1e-4)
    fit = headspan.torch.fit_spans(model, ids, budget=0.3, ramp=4)
    assert fit.spans.shape == (2, 4)


def test_caches_of_heads_are_refused(gpu):
    transformers = pytest.importorskip("transformers")
    import headspan.torch

    headspan.torch.register()
    config = transformers.LlamaConfig(
        vocab_size=50, hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4
    )
    model = transformers.LlamaForCausalLM(config).to(gpu).eval()
    model.set_attn_implementation("headspan")
    headspan.torch.set_spans(model, [[4.0, 8, 16, 40]], ramp=8)
    with torch.no_grad(), pytest.raises(ValueError, match="must be on the CPU"):
        model(torch.arange(10, device=gpu)[None], past_key_values=headspan.torch.head_cache(model))
