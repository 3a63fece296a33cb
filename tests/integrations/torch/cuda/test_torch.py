"""What torch does with the operator on a device: compilation, graphs, checkpoints, autocast."""

import torch
from headspan.torch import AdaptiveSpanAttention, attention


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
