"""A small model of characters whose tokens lie over ranks: ``torchrun --nproc-per-node 2 train_over_ranks.py``.

Every rank has a slice of the text, which may be longer than one machine holds; only attention looks beyond it.
"""

import argparse
import inspect

import torch
import torch.distributed as dist
from headspan.torch import AdaptiveSpan, halo_attention
from torch import nn
from torch.nn.functional import cross_entropy

WIDTH, HEADS, LIMIT, RAMP = 64, 4, 256, 16


class Block(nn.Module):
    """Attention that asks other ranks for what its spans reach, and two linear maps."""

    def __init__(self) -> None:
        super().__init__()
        self.span = AdaptiveSpan(HEADS, LIMIT, initial=[0, 8, 32, 128])
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return tokens for the tokens of this rank."""
        query, key, value = self.qkv(self.norms[0](x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        # Distances are known by slopes, which need no positions.
        out = halo_attention(query, key, value, span=self.span(), ramp=RAMP, alibi_slopes=[0.5, 0.1, 0.02, 0.0])
        x = x + self.out(out.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


def train(steps: int, tokens: int) -> list[float]:
    """Train on the ranks there are; return the bits per character of all tokens, step by step."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    text = torch.tensor(list(inspect.getsource(argparse).encode()))
    torch.manual_seed(0)  # the same parameters on all ranks
    model = nn.Sequential(nn.Embedding(256, WIDTH), Block(), Block(), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    history = []
    for step in range(steps):
        start = step * tokens % (len(text) - tokens)
        places = torch.arange(start, start + tokens).tensor_split(ranks)[rank]
        loss = cross_entropy(model(text[places][None])[0], text[places + 1], reduction="sum") / tokens
        optimizer.zero_grad()
        loss.backward()
        total = loss.detach() / torch.tensor(2.0).log()
        for tensor in (total, *(parameter.grad for parameter in model.parameters())):
            dist.all_reduce(tensor)  # each rank has the part of its tokens
        optimizer.step()
        history.append(total.item())
        if rank == 0 and step % 10 == 0:
            spans = [[round(span) for span in block.span().tolist()] for block in model[1:3]]
            print(f"step {step}: {total:.3f} bits per character, spans {spans}")
    return history


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=4096, help="of all ranks together")
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    train(arguments.steps, arguments.tokens)
    dist.destroy_process_group()
