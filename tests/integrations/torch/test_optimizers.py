"""Learned spans and optimizers: spans that no optimizer has are reported, and can be added to one."""

import copy
import pickle

import pytest
from tensors import torch, warnings_of_torch

from headspan.torch import AdaptiveSpan, convert, parameter_groups  # isort: skip

CALLS = 512  # training calls in a row, after which the warning is raised
WORDS = f"optimizer with a learning rate above 0, but {CALLS} calls in a row neither changed them nor cleared"


def converted_too_late(build=torch.optim.AdamW):
    torch.manual_seed(0)
    model = torch.nn.TransformerEncoderLayer(16, 2, 16, batch_first=True)
    optimizer = build(model.parameters(), lr=1e-3)
    return model, optimizer, convert(model, max_span=20, ramp=4)


def step(optimizer, span, count=1, **clear):
    for _ in range(count):
        optimizer.zero_grad(**clear)
        span.penalty().backward()
        optimizer.step()


def test_an_optimizer_from_before_the_conversion_is_reported_once():
    _, optimizer, (span,) = converted_too_late()
    step(optimizer, span, CALLS)
    with pytest.warns(UserWarning, match=WORDS):
        step(optimizer, span, 3)
    step(optimizer, span, 2 * CALLS)
    assert span().tolist() == [20, 20]


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("build", [torch.optim.AdamW, torch.optim.SGD])
def test_spans_added_to_an_optimizer_from_before_are_learned(build, set_to_none):
    model, optimizer, (span,) = converted_too_late(build)
    optimizer.add_param_group(parameter_groups(model, span_lr=0.01)[1])
    step(optimizer, span, CALLS + 10, set_to_none=set_to_none)
    assert max(span().tolist()) < 19
    with pytest.raises(ValueError, match="some parameters appear in more than one parameter group"):
        optimizer.add_param_group(parameter_groups(model)[1])


def test_training_that_is_in_order_is_not_reported():
    span = AdaptiveSpan(2, 20, initial=10)
    (span.penalty() + 0 * span().sum()).backward()
    for _ in range(CALLS + 10):  # inference in training mode, gradients left over
        with torch.no_grad():
            span()
    for _ in range(3):  # gradients that are accumulated over micro-batches
        span.zero_grad()
        for _ in range(CALLS - 10):
            span.penalty().backward()
    span.zero_grad()
    for _ in range(CALLS + 10):  # a limit beyond the tokens has no gradient
        (0 * span.penalty()).backward()
    span.zero_grad()
    for _ in range(CALLS + 10):  # steps without an optimizer
        span.penalty().backward()
        span.fraction.data.sub_(1e-6 * span.fraction.grad)


def test_the_count_is_no_part_of_the_state():
    _, optimizer, (span,) = converted_too_late()
    step(optimizer, span, 10)
    assert list(span.state_dict()) == ["fraction"]
    for other in (copy.deepcopy(span), pickle.loads(pickle.dumps(span))):
        assert torch.equal(other(), span())


def test_a_compiled_call_is_one_graph_and_not_counted():
    torch.compiler.reset()
    _, optimizer, (span,) = converted_too_late()
    compiled = torch.compile(span, backend="eager", fullgraph=True)
    with warnings_of_torch():
        compiled().mean().backward()
        compiled().mean().backward()
    for _ in range(CALLS + 10):
        optimizer.zero_grad()
        compiled().mean().backward()
    torch.compiler.reset()
