"""The diffs of docs/howto/drop-ins.md, applied to models of these forms: the same numbers and gradients."""

import re

import pytest
from tensors import torch

from benchmarks.drop_ins import chat, gpt, patched, windows  # isort: skip

TOKENS = 21
IDS = torch.randint(0, 30, (2, TOKENS), generator=torch.Generator().manual_seed(1))
MODELS = {
    "gpt": (gpt, {"vocabulary": 30, "width": 16, "heads": 4, "layers": 2, "block_size": TOKENS}),
    "chat": (chat, {"vocabulary": 30, "width": 16, "heads": 4, "key_heads": 2, "windows": (5, 0, None)}),
    "windows": (windows, {"vocabulary": 30, "width": 16, "heads": 4, "windows": (5, 1, None), "length": TOKENS}),
}
models = pytest.mark.parametrize("name", MODELS)


def before_and_after(name, **more):
    """The models without and with the diff, with the same weights."""
    module, sizes = MODELS[name]
    torch.manual_seed(0)
    before = module.Model(**sizes, **more).double()
    after = patched.patched(name).Model(**sizes, **more).double()
    missing, unexpected = after.load_state_dict(before.state_dict(), strict=False)
    assert unexpected == []
    assert all(name.endswith("span.fraction") for name in missing)
    return before, after


def gradients(model):
    loss = torch.nn.functional.cross_entropy(model(IDS)[:, :-1].flatten(0, 1), IDS[:, 1:].flatten())
    learned = [parameter for name, parameter in model.named_parameters() if "span" not in name]
    return torch.autograd.grad(loss, learned)


@models
def test_logits_and_gradients_stay_the_same(name):
    before, after = before_and_after(name)
    torch.testing.assert_close(after(IDS), before(IDS), rtol=1e-9, atol=1e-10)
    for ours, theirs in zip(gradients(after), gradients(before), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10)


@models
def test_the_diff_replaces_the_attention_of_torch(name, monkeypatch):
    """The attention of torch and the softmax are not called any more."""
    before, after = before_and_after(name)

    def refuse(*args, **kwargs):
        raise AssertionError("not by torch")

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", refuse)
    monkeypatch.setattr(torch.Tensor, "softmax", refuse)
    after(IDS)
    with pytest.raises(AssertionError, match="not by torch"):
        before(IDS)


@pytest.mark.parametrize("sizes", [(TOKENS,), (1,) * TOKENS, (9, 1, 1, 8, 2)], ids=["prompt", "tokens", "pieces"])
@pytest.mark.parametrize("name", ["chat", "windows"])
@torch.no_grad()
def test_pieces_with_a_cache_give_the_logits_of_the_full_text(name, sizes):
    before, after = before_and_after(name)
    expected = before(IDS)
    for model in (before, after):
        cache = {"cache": {}} if name == "chat" else {"use_cache": True}
        logits = torch.cat([model(part, **cache) for part in IDS.split(sizes, 1)], 1)
        torch.testing.assert_close(logits, expected, rtol=1e-9, atol=1e-10)


def test_spans_are_learned_with_a_penalty():
    _, model = before_and_after("gpt")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(10):
        loss = torch.nn.functional.cross_entropy(model(IDS)[:, :-1].flatten(0, 1), IDS[:, 1:].flatten())
        optimizer.zero_grad()
        (loss + 0.1 * sum(block.attention.span.penalty() for block in model.blocks)).backward()
        optimizer.step()
    assert all((block.attention.span() < TOKENS).all() for block in model.blocks)


@torch.no_grad()
def test_dropout_applies_in_training_only():
    for name in ("gpt", "windows"):
        before, after = before_and_after(name, **({"dropout": 0.5} if name == "windows" else {}))
        for block in after.blocks if name == "gpt" else ():
            block.attention.dropout = 0.5
        assert (after(IDS) - before.eval()(IDS)).abs().max() > 1e-3
        torch.testing.assert_close(after.eval()(IDS), before(IDS), rtol=1e-9, atol=1e-10)


def test_a_diff_of_other_lines_is_refused():
    diff = patched.diff_of("chat")
    source = patched.applied("one\ntwo\nthree\n", "--- x\n+++ x\n@@\n one\n-two\n+four\n@@\n three\n+five\n")
    assert source == "one\nfour\nthree\nfive\n"
    with pytest.raises(ValueError, match="must begin with lines that are there once"):
        patched.applied("one\ntwo\n", diff)
    assert [*re.findall(r"^--- (\w+)\.py$", patched.PAGE.read_text(), re.MULTILINE)] == [*MODELS]
