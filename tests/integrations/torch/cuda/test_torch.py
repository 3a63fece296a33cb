"""What torch does with the operator on a device: compilation, graphs, checkpoints, autocast, layers, models."""

import numpy as np
import pytest
import torch
from headspan.torch import AdaptiveSpanAttention, HybridAttention, TransformerBlock, attention


def leaves(device, dtype=torch.float32, tokens=130):
    torch.manual_seed(0)
    tensors = [torch.randn(2, 4, tokens, 32, device=device, dtype=dtype).requires_grad_() for _ in range(3)]
    return [*tensors, torch.tensor([3.0, 20.0, 60.0, 200.0], device=device, requires_grad=True)]


def gradients(function, tensors):
    out = function(*tensors)
    return [out.detach(), *torch.autograd.grad(out.square().sum(), tensors)]


def call(query, key, value, span):
    return attention(query, key, value, span=span)


def assert_equal(a, b):
    for x, y in zip(a, b, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-5)


def test_opcheck(device):
    query, key, value, span = leaves(device, tokens=20)
    arguments = (query, key, value, span)
    torch.library.opcheck(torch.ops.headspan.attention.default, arguments, {"return_lse": True})


def test_compile(gpu):
    tensors = leaves(gpu)
    assert_equal(gradients(torch.compile(call, fullgraph=True), tensors), gradients(call, tensors))


def test_checkpoint(device):
    tensors = leaves(device)
    checkpointed = lambda *x: torch.utils.checkpoint.checkpoint(call, *x, use_reentrant=False)  # noqa: E731
    assert_equal(gradients(checkpointed, tensors), gradients(call, tensors))


def test_vmap(device):
    query, key, value, span = (x.detach() for x in leaves(device, tokens=20))
    mapped = torch.func.vmap(lambda q, k, v: attention(q, k, v, span=span))(query, key, value)
    assert_equal([mapped], [attention(query, key, value, span=span)])


def test_cuda_graph(gpu):
    tensors = leaves(gpu)
    expected = gradients(call, tensors)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        gradients(call, tensors)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = gradients(call, tensors)
    graph.replay()
    assert_equal(results, expected)


def test_nothing_waits_for_the_device(gpu):
    tensors = leaves(gpu)
    gradients(call, tensors)
    torch.cuda.set_sync_debug_mode("error")
    try:
        gradients(call, tensors)
        attention(*tensors[:3], segment_ids=torch.arange(130, device=gpu) // 50, dropout=0.1, seed=2)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_autocast(gpu):
    layer = AdaptiveSpanAttention(64, 4, max_span=100, ramp=8).to(gpu)
    x = torch.randn(2, 50, 64, device=gpu)
    with torch.autocast("cuda", torch.bfloat16):
        out = layer(x)
    assert out.dtype is torch.bfloat16
    torch.testing.assert_close(out.float(), layer(x), rtol=0.1, atol=0.03)


LAYERS = {
    "adaptive": lambda: AdaptiveSpanAttention(64, 4, max_span=100, ramp=8, rotary=True, sinks=True, num_key_heads=2),
    "dynamic": lambda: AdaptiveSpanAttention(64, 4, max_span=100, ramp=8, dynamic=True),
    "block": lambda: TransformerBlock(64, 4, max_span=100, ramp=8),
    "hybrid": lambda: HybridAttention(64, 4, max_span=100, ramp=8, per="token"),
    "hybrid, both ways": lambda: HybridAttention(64, 4, max_span=100, ramp=8, per="head", causal=False),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_train_as_on_the_cpu(name, gpu):
    torch.manual_seed(0)
    layer = LAYERS[name]()
    x = torch.randn(2, 150, 64)
    losses = []
    for device in (torch.device("cpu"), gpu):
        layer.to(device).zero_grad()
        loss = layer(x.to(device)).square().mean()
        loss.backward()
        losses.append([loss.cpu(), *(p.grad.cpu().clone() for p in layer.parameters())])
    for a, b in zip(*losses, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


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


@pytest.mark.parametrize("mask", ["none", "left", "right"])
def test_model_of_transformers(mask, gpu):
    transformers = pytest.importorskip("transformers")
    import headspan.torch

    headspan.torch.register()
    config = transformers.LlamaConfig(
        vocab_size=50, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).to(gpu)
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
