"""Time attention on a GPU beside what torch has: ``python -m benchmarks.studies.gpu``.

All contenders of a case take turns. Shown are medians in milliseconds of ten calls in a row by CUDA events, forward and
forward with backward, and the time that the processor takes to launch a call. A training step of a small model follows,
with spans at their limit: launched by Python, and as a CUDA graph, which the processor launches at once.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from headspan.torch import attention
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from benchmarks.output.saved import add_json_option, write_study

RAMP = 32.0
SKEWED = [8.0, 8, 8, 16, 16, 32, 64, 4096]
# Batch, heads, tokens, head_dim, and spans by name; a list is repeated over the heads.
CASES: list[tuple[tuple[int, int, int, int], dict[str, Any]]] = [
    ((4, 16, 4096, 64), {"limit": [4096.0], "256": [256.0], "by token": "tokens"}),
    ((1, 16, 32768, 64), {"1024": [1024.0], "skewed": SKEWED}),
    ((1, 16, 8192, 128), {"limit": [8192.0], "512": [512.0]}),
]
_flex = torch.compile(flex_attention, dynamic=False)


IN_A_ROW = 10


def milliseconds(calls: Mapping[str, Callable[..., Any]], rounds: int) -> dict[str, tuple[float, float]]:
    """Return the median time of each call on the GPU, and on the processor; contenders take turns."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(3):
            call()
    for _ in range(rounds):
        for name, call in calls.items():
            torch.cuda.synchronize()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start = time.perf_counter()
            begin.record()
            for _ in range(IN_A_ROW):
                call()
            end.record()
            launched = 1e3 * (time.perf_counter() - start)
            torch.cuda.synchronize()
            times[name].append((begin.elapsed_time(end) / IN_A_ROW, launched / IN_A_ROW))
    return {name: tuple(map(statistics.median, zip(*each, strict=True))) for name, each in times.items()}


def headspan_call(query: Any, key: Any, value: Any, span: torch.Tensor) -> Callable[[], Any]:
    """Return a call with learned spans."""
    return lambda: attention(query, key, value, span=span, ramp=RAMP)


def flex_call(query: Any, key: Any, value: Any, span: torch.Tensor) -> Callable[[], Any]:
    """Return the same with `flex_attention`, which computes no gradient of the spans."""
    heads, tokens = query.shape[1:3]

    def soft(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
        return score + torch.log(torch.clamp((RAMP + span[h] - (q - k)) / RAMP, 0, 1))

    def seen(b: Any, h: Any, q: Any, k: Any) -> Any:
        return (q >= k) & (q - k < span[h] + RAMP)

    mask = create_block_mask(seen, None, heads, tokens, tokens, device="cuda", _compile=True)
    return lambda: _flex(query, key, value, soft, mask)


def contenders(shape: tuple[int, int, int, int], spans: dict[str, Any], flex: bool) -> dict[str, Callable[[], Any]]:
    """Return the forward passes of a case by name."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    calls: dict[str, Callable[[], Any]] = {
        "sdpa": lambda: F.scaled_dot_product_attention(query, key, value, is_causal=True),
        "headspan": lambda: attention(query, key, value),
    }
    for name, span in spans.items():
        numbers = torch.rand(shape[:3]) * 256 if span == "tokens" else torch.tensor((span * shape[1])[: shape[1]])
        calls[f"headspan, {name}"] = headspan_call(query, key, value, numbers.cuda().requires_grad_())
        if flex and span != "tokens":
            calls[f"flex, {name}, no gradient"] = flex_call(query, key, value, numbers.cuda())
    return calls


def with_backward(call: Callable[[], Any], gradient: torch.Tensor) -> Callable[[], None]:
    """Return a call followed by its backward pass."""
    return lambda: call().backward(gradient)


def attention_times(rounds: int, flex: bool) -> dict[str, Any]:
    """Return the times of all cases."""
    results = {}
    for shape, spans in CASES:
        calls = contenders(shape, spans, flex)
        gradient = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        with torch.no_grad():
            forward = milliseconds(calls, rounds)
        total = milliseconds({name: with_backward(call, gradient) for name, call in calls.items()}, rounds)
        rows: dict[str, dict[str, float]] = {}
        for name in calls:
            (of_forward, launch), (of_both, launch_both) = forward[name], total[name]
            rows[name] = {
                "forward": of_forward,
                "both": of_both,
                "processor_forward": launch,
                "processor_both": launch_both,
            }
        results[" x ".join(map(str, shape))] = rows
        print(f"\n{shape}: forward / forward + backward, ms (on the processor)")
        for name, row in rows.items():
            print(f"  {name:24s} {row['forward']:7.3f} {row['both']:7.3f} ({row['processor_both']:.3f})", end="")
            print(f"   {rows['sdpa']['both'] / row['both']:5.2f} of sdpa's speed", flush=True)
    return results


class Block(torch.nn.Module):
    """A transformer block whose attention is torch's or ours with learned spans."""

    def __init__(self, width: int, heads: int, limit: float, learned: bool) -> None:
        super().__init__()
        self.heads, self.limit = heads, limit
        self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(width) for _ in range(2)])
        self.qkv = torch.nn.Linear(width, 3 * width, bias=False)
        self.project = torch.nn.Linear(width, width, bias=False)
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)
        )
        self.span = torch.nn.Parameter(torch.full((heads,), limit)) if learned else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the output of the block."""
        parts = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind()
        if self.span is None:
            out = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            out = attention(query, key, value, span=self.span.clamp(0, self.limit), ramp=RAMP)
        x = x + self.project(out.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


def captured(step: Callable[[], None]) -> Callable[[], None]:
    """Return a training step that replays a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    def replay() -> None:
        graph.replay()

    return replay


def training_times(rounds: int) -> dict[str, Any]:
    """Return the times of a training step with either attention, and how far the spans moved."""
    batch, tokens, width, heads, layers = 8, 2048, 512, 8, 6
    ids = torch.randint(256, (batch, tokens + 1), device="cuda")
    steps, spans = {}, []
    for name, learned in (("sdpa", False), ("headspan", True)):
        torch.manual_seed(0)
        blocks = torch.nn.Sequential(*(Block(width, heads, float(tokens), learned) for _ in range(layers)))
        model = torch.nn.Sequential(torch.nn.Embedding(256, width), blocks, torch.nn.Linear(width, 256)).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True, capturable=True)
        spans = [block.span for block in blocks if block.span is not None]

        def step(model: Any = model, optimizer: Any = optimizer, spans: Any = tuple(spans)) -> None:
            with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
                logits = model(ids[:, :-1])
                loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
                loss = loss + 1e-5 * sum(span.sum() for span in spans)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        steps[name] = step
    times: dict[str, Any] = {name: each[0] for name, each in milliseconds(steps, rounds).items()}
    moved = torch.stack([span.detach() for span in spans]).sub(tokens).abs()
    graphs = {f"{name}, graph": captured(step) for name, step in steps.items()}
    times |= {name: each[0] for name, each in milliseconds(graphs, rounds).items()}
    print("\ntraining step:", ", ".join(f"{name} {each:.2f} ms" for name, each in times.items()))
    print(f"spans moved by {moved.min():.3f} to {moved.max():.3f}")
    return times | {"spans_moved": [float(moved.min()), float(moved.max())]}


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--no-flex", action="store_true", help="leave out flex_attention, which takes long to compile")
    add_json_option(parser)
    options = parser.parse_args()
    device = torch.cuda.get_device_name()
    print(device)
    results = {
        "device": device,
        "attention_ms": attention_times(options.rounds, not options.no_flex),
        "training_step_ms": training_times(options.rounds),
    }
    write_study(options.json, results)


if __name__ == "__main__":
    main()
