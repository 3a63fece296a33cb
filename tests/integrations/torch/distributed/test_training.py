"""Layers with learned spans trained on several ranks with torch: the steps of one process on the whole batch."""

import copy

import ranks
from tensors import torch

import torch.distributed as dist  # isort: skip
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # isort: skip
from torch.distributed.device_mesh import init_device_mesh  # isort: skip
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module  # isort: skip
from torch.nn.parallel import DistributedDataParallel  # isort: skip
from headspan.torch import AdaptiveSpan, TransformerBlock  # isort: skip

WIDTH = 24


INSIDE = [0.1, 0.9, 0.4, 0.7]
AT_BOUNDS = [0.0, 1.0, -0.3, 1.3]  # a step has moved the last ones out of bounds


def model_of(spans=INSIDE, **options):
    """Two blocks."""
    torch.manual_seed(0)
    blocks = (TransformerBlock(WIDTH, 4, max_span=12, ramp=3, sinks=True, **options) for _ in range(2))
    model = torch.nn.Sequential(*blocks).double()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, AdaptiveSpan):
                module.fraction.copy_(torch.tensor(spans))
    return model


def train(model, x, steps=3, price=0.0):
    """Run training steps and return the losses. With a price, a penalty shortens spans as in the documentation."""
    spans = [module for module in model.modules() if isinstance(module, AdaptiveSpan)]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (model(x) - x.roll(1, 1)).square().mean()
        if price:
            loss = loss + price * sum(span.penalty() for span in spans)
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    return losses


def check(spans, price=0.0, **options):
    """Train on the half of the batch of this rank, in two ways, and alone on the whole batch."""
    batch = torch.randn(4, 15, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    halves = batch.chunk(2)
    model = model_of(spans, **options)
    before = copy.deepcopy(model.state_dict())
    replicated, sharded = DistributedDataParallel(copy.deepcopy(model)), copy.deepcopy(model)
    for block in sharded:
        fully_shard(block)
    fully_shard(sharded)
    train(model, batch, price=price)
    for wrapped in (replicated, sharded):
        train(wrapped, halves[dist.get_rank()], price=price)
    for name, expected in model.state_dict().items():
        assert not torch.equal(expected, before[name]), name
        for value in (replicated.module.state_dict()[name], sharded.state_dict()[name].full_tensor()):
            torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-12, msg=lambda m, name=name: f"{name}: {m}")


def check_mixed_precision():
    """Computations take parameters in bfloat16; gradients are summed in float32."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = model_of().float()
    for block in model:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    x = torch.randn(2, 15, WIDTH, generator=torch.Generator().manual_seed(dist.get_rank()))
    losses = train(model, x, steps=8)
    assert losses[-1] < 0.9 * losses[0]
    assert model[0].attention.span.fraction.dtype == torch.float32


def check_heads_over_ranks():
    """Ranks share the heads of each layer: the results and gradients of one process."""
    model = model_of(num_key_heads=2)
    shared = copy.deepcopy(model)
    into = {f"attention.{name}": ColwiseParallel(use_local_output=False) for name in ("q_proj", "k_proj", "v_proj")}
    for block in shared:
        parallelize_module(block, init_device_mesh("cpu", (2,)), into | {"attention.out_proj": RowwiseParallel()})
    x = torch.randn(2, 15, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for each in (model, shared):
        each(x).square().mean().backward()
    for (name, expected), parameter in zip(model.named_parameters(), shared.parameters(), strict=True):
        grad = parameter.grad.full_tensor() if hasattr(parameter.grad, "full_tensor") else parameter.grad
        torch.testing.assert_close(grad, expected.grad, msg=lambda m, name=name: f"{name}: {m}")


def check_all():
    check(INSIDE)
    check(INSIDE, dynamic=True, num_key_heads=2)
    check(AT_BOUNDS)
    check(INSIDE, price=0.03)
    check_mixed_precision()
    check_heads_over_ranks()


def test_steps_on_two_ranks_are_those_of_one_process():
    ranks.run(check_all, 2)
