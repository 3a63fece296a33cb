"""Models under `torch.compile` and `torch.export`: one graph, and the numbers of the model itself."""

import pytest
from families import logits, model_of, tokens
from peers import torch, transformers

import headspan.torch  # isort: skip

FAMILIES = ("llama", "gpt2", "gemma3")
PADDING = {
    "none": lambda keep: None,
    "all ones": lambda keep: keep,
    "left": lambda keep: keep.index_put((torch.tensor(0), torch.arange(9)), torch.tensor(0)),
    "right": lambda keep: keep.index_put((torch.tensor(1), torch.arange(20, 30)), torch.tensor(0)),
    "within": lambda keep: keep.index_put((torch.tensor(1), torch.arange(10, 15)), torch.tensor(0)),
}


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def compiled(model, backend="eager"):
    model.set_attn_implementation("headspan")
    return torch.compile(model, backend=backend, fullgraph=True)


@torch.no_grad()
@pytest.mark.parametrize("use_cache", [False, True])
@pytest.mark.parametrize("padding", PADDING)
@pytest.mark.parametrize("family", FAMILIES)
def test_one_graph(family, padding, use_cache):
    model, ids = model_of(family), tokens()
    mask = PADDING[padding](torch.ones_like(ids))
    options = {"use_cache": use_cache} if mask is None else {"use_cache": use_cache, "attention_mask": mask}
    expected = logits(model, "eager", ids, **options)
    result = compiled(model)(input_ids=ids, **options).logits
    kept = slice(None) if mask is None else mask.bool()
    torch.testing.assert_close(result[kept], expected[kept], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_spans_and_windows_of_a_compiled_model():
    for family in ("llama", "mistral"):
        model, ids = model_of(family), tokens()
        model.set_attn_implementation("headspan")
        headspan.torch.set_spans(model, [[2, 5, 9, 20], None], ramp=3)
        mask = PADDING["left"](torch.ones_like(ids))
        expected = model(input_ids=ids, attention_mask=mask).logits[mask.bool()]
        result = compiled(model)(input_ids=ids, attention_mask=mask).logits[mask.bool()]
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_packed_texts_of_a_compiled_model():
    model, ids = model_of("llama"), tokens(1)
    places = torch.cat([torch.arange(12), torch.arange(18)])[None]
    options = {"position_ids": places, "use_cache": False}
    expected = logits(model, "headspan", ids, **options)
    torch.testing.assert_close(compiled(model)(input_ids=ids, **options).logits, expected, rtol=1e-4, atol=1e-5)


# torch warns of its handling of a compiled function of autograd.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_a_training_step_of_a_compiled_model_with_dropout():
    """One graph, and another seed in every step without another graph."""
    model, ids = model_of("llama", attention_dropout=0.5).train(), tokens()
    spans = headspan.torch.convert(model, max_span=20, ramp=4)
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    step = compiled(model, counter)
    losses = []
    for _ in range(3):
        loss = step(input_ids=ids, labels=ids).loss
        loss.backward()
        losses.append(loss.item())
    assert counter.frame_count == 1
    assert len(set(losses)) == 3
    assert all(span.fraction.grad.any() for span in spans)


@torch.no_grad()
def test_a_recording_of_a_compiled_model():
    model, ids = model_of("llama"), tokens()
    model.set_attn_implementation("headspan")
    step = torch.compile(model, backend="eager")
    step(ids)
    with headspan.torch.record(model) as layers:
        step(ids)
    with headspan.torch.record(model) as expected:
        model(ids)
    torch.testing.assert_close(torch.tensor(layers[1].weights()), torch.tensor(expected[1].weights()))


@torch.no_grad()
def test_an_exported_model():
    model, ids = model_of("llama"), tokens()
    expected = logits(model, "headspan", ids, use_cache=False)
    program = torch.export.export(model, (ids,), {"use_cache": False})
    torch.testing.assert_close(program.module()(ids, use_cache=False).logits, expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_rule_with_holes_is_refused():
    """Compiled code cannot inspect rules, and checks while it runs whether they are ranges."""
    function = transformers.AttentionMaskInterface._global_mapping["headspan"]

    def holes(batch, head, query, key):
        return (key <= query) & (key % 3 != 1)

    make = torch.compile(lambda ids: function(*ids.shape, ids.shape[1], mask_function=holes), backend="eager")
    with pytest.raises(RuntimeError, match="must see a range of keys"):
        make(tokens())
