"""Attention over ranks against one process, each with one thread: ``python -m benchmarks.studies.ranks --ranks 4``.

Each round computes forward and backward: all tokens in one process while the others wait, then the slices in all ranks.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence

import headspan as hs
import torch
import torch.distributed as dist
import torch.multiprocessing
from headspan.torch import attention, halo_attention

HEADS, HEAD_DIM, TOKENS, ROUNDS = 8, 64, 16384, 9
CASES = {
    "spans of 32, one of 1000": [32.0] * 7 + [1000.0],
    "spans of 256": [256.0] * 8,
    "spans of 2000": [2000.0] * 8,
}


def _timed(
    call: Callable[..., torch.Tensor], tensors: Sequence[torch.Tensor], spans: list[float], grad: torch.Tensor
) -> float:
    start = time.perf_counter()
    call(*tensors, span=spans).backward(grad)
    return time.perf_counter() - start


def _measure(rank: int, ranks: int, meeting: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    tensors = [torch.randn(1, HEADS, TOKENS, HEAD_DIM) for _ in range(4)]
    slices = [x.tensor_split(ranks, 2)[rank].contiguous() for x in tensors]
    for name, spans in CASES.items():
        complete, local = ([x.detach().requires_grad_() for x in arrays[:3]] for arrays in (tensors, slices))
        alone, together = [], []
        for _ in range(ROUNDS + 1):
            dist.barrier()
            if rank == 0:
                alone.append(_timed(attention, complete, spans, tensors[3]))
            dist.barrier()
            slowest = torch.tensor(_timed(halo_attention, local, spans, slices[3]))
            dist.all_reduce(slowest, dist.ReduceOp.MAX)
            together.append(slowest.item())
        if rank == 0:
            times = [statistics.median(seconds[1:]) for seconds in (alone, together)]  # the first round warms up
            sent = hs.cost(tokens=TOKENS, num_heads=HEADS, head_dim=HEAD_DIM, span=spans, ranks=ranks).sent_bytes or 0
            one, many = (f"{1e3 * seconds:.1f} ms" for seconds in times)
            ratio = times[0] / times[1]
            print(f"{name}: one process {one}, {ranks} ranks {many}, {ratio:.2f}x; {sent / 2**20:.2f} MiB each way")
    dist.destroy_process_group()


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    ranks = parser.parse_args().ranks
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_measure, (ranks, f"{folder}/meeting"), nprocs=ranks)


if __name__ == "__main__":
    main()
