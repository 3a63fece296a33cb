"""The example that trains over ranks, as torchrun starts it, against the same training in one process."""

import importlib.util
import os
import re
import subprocess
import sys

import pytest
from helpers import ROOT
from tensors import torch

import torch.distributed as dist  # isort: skip

EXAMPLE = ROOT / "examples" / "train_over_ranks.py"


def test_two_ranks_train_as_one_process_does():
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launch, str(EXAMPLE), "--steps", "21", "--tokens", "500"],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shown = [float(bits) for bits in re.findall(r"step \d+0?: (\d+\.\d+) bits per character", done.stdout)]
    spec = importlib.util.spec_from_file_location("train_over_ranks", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    with torch.random.fork_rng():
        alone = example.train(steps=21, tokens=500)
    dist.destroy_process_group()
    assert shown == pytest.approx(alone[::10], abs=2e-3)
    assert alone[20] < 0.7 * alone[0]
