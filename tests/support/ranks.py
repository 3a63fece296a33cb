"""Processes that work together, as torchrun starts them, on a function of the tests."""

import datetime
import tempfile

from tensors import torch

import torch.distributed as dist  # isort: skip
import torch.multiprocessing  # isort: skip


def run(function, count, *arguments):
    """Calls function(*arguments) on the given number of ranks, and raises the exception of any of them."""
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_start, (count, f"{folder}/meeting", function, arguments), nprocs=count)


def _start(rank, count, meeting, function, arguments):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{meeting}",
        rank=rank,
        world_size=count,
        timeout=datetime.timedelta(seconds=60),
    )
    function(*arguments)
    dist.destroy_process_group()
