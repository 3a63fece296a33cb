"""Spans in existing models: the same results if spans are long, and a soft mask if they are not."""

import copy
import pickle
import re

import pytest
from tensors import torch, warnings_of_torch

from headspan.torch import AdaptiveSpan, convert  # isort: skip

WIDTH, HEADS, BATCH, TOKENS = 12, 4, 2, 9
FORMS = {
    "batch first": {"batch_first": True},
    "tokens first": {},
    "without biases": {"batch_first": True, "bias": False},
    "a learned key and a zero": {"add_bias_kv": True, "add_zero_attn": True},
    "other widths": {"kdim": 5, "vdim": 7, "batch_first": True},
}


def attention_of(**form):
    torch.manual_seed(0)
    module = torch.nn.MultiheadAttention(WIDTH, HEADS, **form).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0, 0.5)
    return module


def converted(module, max_span=50.0):
    other = copy.deepcopy(module)
    return other, convert(other, max_span=max_span, ramp=3)


def random(*shape):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


LATER = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
SOME = LATER ^ (torch.arange(TOKENS)[:, None] - 2 == torch.arange(TOKENS))
PADDED = torch.arange(TOKENS) >= torch.tensor([[TOKENS], [6]])
SQUARE = torch.nn.Transformer.generate_square_subsequent_mask(TOKENS, dtype=torch.float64)
MASKS = {
    "nothing": {},
    "later ones": {"attn_mask": LATER},
    "later ones, of floats": {"attn_mask": SQUARE},
    "later ones, with a hint": {"attn_mask": SQUARE, "is_causal": True},
    "some": {"attn_mask": SOME},
    "floats": {"attn_mask": random(TOKENS, TOKENS)},
    "later ones and a bias": {"attn_mask": SQUARE + random(TOKENS, TOKENS)},
    "one for each head": {"attn_mask": random(BATCH * HEADS, TOKENS, TOKENS)},
    "padding": {"key_padding_mask": PADDED},
    "padding and later ones": {"key_padding_mask": PADDED, "attn_mask": LATER},
    "padding of floats": {"key_padding_mask": random(BATCH, TOKENS)},
}


def result(module, inputs, **options):
    """Output, weights on request, and gradients of inputs and parameters."""
    inputs = [x.clone().requires_grad_() for x in inputs]
    out, weights = module(*inputs, **options)
    loss = out.square().sum() + (0 if weights is None else weights.square().sum())
    learned = [p for name, p in module.named_parameters() if name != "span.fraction"]
    return out, weights, *torch.autograd.grad(loss, [*inputs, *learned])


def agree(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        if other is None:
            assert one is None
        else:
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-11)


def inputs_of(form, keys=TOKENS):
    shapes = [(BATCH, TOKENS, WIDTH), (BATCH, keys, form.get("kdim", WIDTH)), (BATCH, keys, form.get("vdim", WIDTH))]
    inputs = [random(*shape) for shape in shapes]
    return inputs if form.get("batch_first") else [x.transpose(0, 1) for x in inputs]


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_long_spans_change_nothing(form, mask):
    module = attention_of(**form)
    other, _ = converted(module)
    # torch also applies the hint to keys that it adds, and hides its learned key from most queries.
    theirs = mask | ({"is_causal": False} if form.get("add_bias_kv") else {})
    agree(result(other, inputs_of(form), **mask), result(module, inputs_of(form), need_weights=False, **theirs))


def test_masks_that_are_learned_have_a_gradient():
    module = attention_of(batch_first=True)
    other, _ = converted(module)
    x = random(BATCH, TOKENS, WIDTH)
    masks = {"attn_mask": SQUARE + random(TOKENS, TOKENS), "key_padding_mask": random(BATCH, TOKENS)}
    gradients = []
    for attention in (other, module):
        learned = {name: mask.clone().requires_grad_() for name, mask in masks.items()}
        out, _ = attention(x, x, x, need_weights=False, **learned)
        gradients.append(torch.autograd.grad(out.square().sum(), [*learned.values()]))
    agree(*gradients)


def test_a_model_on_meta():
    with torch.device("meta"):
        model = torch.nn.TransformerEncoderLayer(WIDTH, HEADS)
    (span,) = convert(model, max_span=5, ramp=1)
    assert span.fraction.is_meta
    assert model(torch.empty(TOKENS, BATCH, WIDTH, device="meta")).shape == (TOKENS, BATCH, WIDTH)


@pytest.mark.parametrize("strict", [False, True])
def test_a_model_on_meta_loads_weights_of_the_original_model(strict):
    """Spans that the weights do not have start at the limit."""
    module = attention_of(batch_first=True)
    expected, _ = converted(module, max_span=5.0)
    with torch.device("meta"):
        model = torch.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
    (span,) = convert(model, max_span=5.0, ramp=3)
    model.load_state_dict(module.state_dict(), assign=True, strict=strict)
    assert span().tolist() == [5.0] * HEADS
    assert span.fraction.requires_grad
    x = random(BATCH, TOKENS, WIDTH)
    torch.testing.assert_close(model(x, x, x)[0], expected(x, x, x)[0])


def test_reset_parameters_gives_spans_their_initial_values():
    with torch.device("meta"):
        span = AdaptiveSpan(2, 10, initial=[4, 9])
    span.to_empty(device="cpu").reset_parameters()
    torch.testing.assert_close(span(), torch.tensor([4.0, 9.0]))


def test_spans_on_meta_are_refused_with_other_tensors():
    model, (span,) = converted(attention_of(batch_first=True))
    span.to("meta")
    x = random(BATCH, TOKENS, WIDTH)
    with pytest.raises(ValueError, match="span must be on the device of query, cpu, not on meta"):
        model(x, x, x)


@pytest.mark.parametrize("average", [False, True])
def test_weights_on_request(average):
    module = attention_of()
    other, _ = converted(module)
    options = {"need_weights": True, "average_attn_weights": average, "key_padding_mask": PADDED}
    agree(result(other, inputs_of({}), **options), result(module, inputs_of({}), **options))
    assert other(*inputs_of({}))[1] is None


ADDED = {
    "a learned key": {"add_bias_kv": True},
    "a zero": {"add_zero_attn": True},
    "both": {"add_bias_kv": True, "add_zero_attn": True, "batch_first": True},
}


@pytest.mark.parametrize("mask", [{}, {"attn_mask": SOME}, {"key_padding_mask": PADDED}], ids=["no", "some", "padding"])
@pytest.mark.parametrize("form", ADDED.values(), ids=ADDED)
def test_weights_of_added_keys(form, mask):
    module = attention_of(**form)
    other, _ = converted(module)
    options = {"need_weights": True, "average_attn_weights": False, **mask}
    ours = result(other, inputs_of(form), **options)
    agree(ours, result(module, inputs_of(form), **options))
    assert ours[1].shape == (BATCH, HEADS, TOKENS, TOKENS + len(form.keys() - {"batch_first"}))


def test_weights_of_added_keys_are_those_of_the_result_with_dropout():
    module, _ = converted(attention_of(**ADDED["both"], dropout=0.3), max_span=4.0)
    x = random(BATCH, TOKENS, WIDTH)
    torch.manual_seed(3)
    out, weights = module(x, x, x, need_weights=True, average_attn_weights=False)
    value = module._by_head(module._projected(x, x, x)[2])
    learned = module.bias_v.view(1, HEADS, 1, -1).expand(BATCH, -1, -1, -1)
    value = torch.cat([value, learned, torch.zeros_like(learned)], 2)
    torch.testing.assert_close(module.out_proj((weights @ value).transpose(1, 2).flatten(2)), out)


def test_self_attention_without_a_batch_and_other_numbers_of_keys():
    module = attention_of()
    other, _ = converted(module)
    x = random(TOKENS, WIDTH)
    for options in ({"need_weights": True}, {"key_padding_mask": PADDED[1]}, {"attn_mask": LATER}):
        expected = module(x, x, x, **{"need_weights": False, **options})
        agree(other(x, x, x, **options), expected)
    for keys in (5, 14):
        inputs, mask = inputs_of({}, keys), random(TOKENS, keys)
        agree(result(other, inputs, attn_mask=mask), result(module, inputs, attn_mask=mask, need_weights=False))


@pytest.mark.parametrize("masks", [{}, {"attn_mask": LATER}, {"key_padding_mask": PADDED}], ids=["no", "later", "pad"])
def test_short_spans_are_a_soft_mask(masks):
    """Torch computes the same, and the same gradient of spans, if the logarithm of that mask is added to scores."""
    module = attention_of(batch_first=True)
    other, (span,) = converted(module, max_span=8.0)
    with torch.no_grad():
        span.fraction.copy_(torch.tensor([0.05, 0.3, 0.55, 0.9]))
    x = random(BATCH, TOKENS, WIDTH)
    distance = (torch.arange(TOKENS)[:, None] - torch.arange(TOKENS)).abs()
    reach = (8.0 * span.fraction.detach().double()).requires_grad_()
    soft = ((3 + reach[:, None, None] - distance) / 3).clamp(0, 1).log()
    hidden = masks.get("attn_mask", torch.zeros(TOKENS, TOKENS, dtype=torch.bool))
    dense = (soft.masked_fill(hidden, -torch.inf)).repeat(BATCH, 1, 1)
    if "key_padding_mask" in masks:
        dense = dense.masked_fill(PADDED.repeat_interleave(HEADS, 0)[:, None], -torch.inf)
    expected = module(x, x, x, attn_mask=dense, need_weights=False)[0]
    out = other(x, x, x, **masks)[0]
    torch.testing.assert_close(out, expected, rtol=1e-7, atol=1e-7)  # spans are float32
    (theirs,) = torch.autograd.grad(expected.square().sum(), reach)
    (ours,) = torch.autograd.grad(out.square().sum(), span.fraction)
    torch.testing.assert_close(ours.double(), 8 * theirs, rtol=1e-5, atol=1e-5)


def layers_of(name):
    torch.manual_seed(0)
    sizes = {"d_model": WIDTH, "nhead": HEADS, "dim_feedforward": 16, "batch_first": True, "dropout": 0.0}
    x = torch.randn(BATCH, TOKENS, WIDTH, generator=torch.Generator().manual_seed(1))
    if name == "encoder layer":
        return torch.nn.TransformerEncoderLayer(**sizes), lambda model: model(x, src_key_padding_mask=PADDED)
    if name == "causal encoder":
        mask = SQUARE.float()
        return torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(**sizes), 2), lambda model: model(x, mask)
    if name == "padded encoder":
        encoder = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(**sizes), 2)
        return encoder, lambda model: model(x, src_key_padding_mask=PADDED).masked_fill(PADDED[..., None], 0)
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 2}
    masks = {"tgt_mask": SQUARE.float(), "tgt_is_causal": True}
    return torch.nn.Transformer(**sizes, **layers), lambda model: model(x[:, :5], x, **masks)


LAYERS = {"encoder layer": 1, "causal encoder": 2, "padded encoder": 2, "transformer": 5}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_torch(name):
    """In training, and in eval mode without gradients, where torch has a fast path that skips the module."""
    model, call = layers_of(name)
    other, spans = converted(model)
    assert len(spans) == LAYERS[name]
    with warnings_of_torch():  # nested tensors are a prototype
        torch.testing.assert_close(call(other), call(model), rtol=1e-4, atol=1e-5)
        model.eval()
        other.eval()
        with torch.no_grad():
            torch.testing.assert_close(call(other), call(model), rtol=1e-4, atol=1e-5)
            for span in spans:
                span.fraction.zero_()
            short = call(other)
            assert (short - call(model)).abs().max() > 0.01
        torch.testing.assert_close(short, call(other))


def test_weights_of_the_original_model_are_loaded_and_spans_are_saved(tmp_path):
    model, call = layers_of("padded encoder")
    before = {name: x + 0.1 for name, x in model.state_dict().items()}
    other, spans = converted(model)
    with torch.no_grad():
        for span in spans:
            span.fraction.fill_(0.02)
    other.load_state_dict(before)
    assert [span.fraction[0].item() for span in spans] == pytest.approx([0.02] * 2)
    model.load_state_dict(before)
    assert set(other.state_dict()) - set(before) == {f"layers.{i}.self_attn.span.fraction" for i in range(2)}
    torch.save(other.state_dict(), tmp_path / "model.pt")
    loaded, _ = converted(model)
    loaded.load_state_dict(torch.load(tmp_path / "model.pt"))
    for restored in (loaded, copy.deepcopy(other), pickle.loads(pickle.dumps(other))):
        assert torch.equal(call(restored), call(other))
    with pytest.raises(RuntimeError, match="Missing key"):
        other.load_state_dict({name: x for name, x in before.items() if "in_proj" not in name})


def test_a_shared_module_is_converted_once():
    shared = torch.nn.MultiheadAttention(WIDTH, HEADS)
    model = torch.nn.ModuleDict({"one": shared, "other": shared})
    spans = convert(model, max_span=5, ramp=1)
    assert len(spans) == 1
    assert model["one"] is model["other"] is shared
    assert shared.span is spans[0]


def test_spans_are_learned_in_a_compiled_model_with_dropout():
    model, _ = layers_of("encoder layer")
    x = torch.randn(4, 30, WIDTH)
    spans = convert(model, max_span=30, ramp=4)
    with warnings_of_torch():
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        expected = model(x, is_causal=True, src_mask=torch.ones(30, 30).triu(1).bool())
        torch.testing.assert_close(compiled(x, is_causal=True, src_mask=torch.ones(30, 30).triu(1).bool()), expected)
    model.self_attn.dropout = 0.2
    optimizer = torch.optim.Adam([span.fraction for span in spans], lr=0.02)
    assert not torch.equal(model(x), model(x))
    for _ in range(20):
        loss = model(x).square().mean() + 0.1 * sum(span.penalty() for span in spans)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert spans[0]().max() < 25
    assert torch.equal(model.eval()(x), model(x))


def test_a_causal_mask_costs_no_bias():
    """The mask is not read pair by pair: later keys may hold anything."""
    module = attention_of(batch_first=True)
    other, _ = converted(module)
    x = random(BATCH, TOKENS, WIDTH)
    poisoned = x.clone()
    poisoned[:, -1] = torch.nan
    for mask in (LATER, SQUARE):
        out = other(x, poisoned, poisoned, attn_mask=mask)[0][:, :-1]
        torch.testing.assert_close(out, other(x, x, x, attn_mask=mask)[0][:, :-1])


def test_bfloat16_and_autocast():
    module = attention_of(batch_first=True).float()
    other, _ = converted(module)
    x = random(BATCH, TOKENS, WIDTH).float()
    expected = module(x, x, x, attn_mask=SOME, need_weights=False)[0]
    with torch.autocast("cpu", torch.bfloat16):
        out = other(x, x, x, attn_mask=SOME)[0]
    assert out.dtype == torch.bfloat16
    assert (out - expected).abs().max() < 0.05 * expected.abs().max()
    narrow = x.bfloat16()
    out = other.bfloat16()(narrow, narrow, narrow, attn_mask=SOME)[0]
    assert (out - expected).abs().max() < 0.05 * expected.abs().max()


class Derived(torch.nn.MultiheadAttention):
    pass


def twice():
    module = attention_of()
    convert(module, max_span=5, ramp=1)
    convert(torch.nn.ModuleList([module]), max_span=5, ramp=1)


def call(**options):
    x = torch.ones(TOKENS, BATCH, WIDTH, dtype=torch.float64)
    converted(attention_of())[0](x, options.pop("key", x), options.pop("value", x), **options)


KEYS = torch.ones(5, BATCH, WIDTH, dtype=torch.float64)
WRONG = {
    "no attention": (lambda: convert(torch.nn.Linear(2, 2), max_span=5, ramp=1),
                     "model must have a torch.nn.MultiheadAttention or an attention of transformers, but has none"),
    "twice": (twice, "model already has learned spans, in 0"),
    "a class of one's own": (lambda: convert(torch.nn.ModuleList([Derived(12, 4)]), max_span=5, ramp=1),
                             "0 is a Derived, not a plain torch.nn.MultiheadAttention"),
    "no limit": (lambda: convert(attention_of(), max_span=0, ramp=1), "max_span must be greater than 0, not 0"),
    "a ramp below 0": (lambda: convert(attention_of(), max_span=5, ramp=-1), "ramp must be at least 0, not -1"),
    "a mask of integers": (lambda: call(attn_mask=LATER.long()), "attn_mask must be of bool or of floats, not"),
    "a mask of another shape": (lambda: call(attn_mask=LATER[:5]),
                                "attn_mask must be of shape (9, 9) or (8, 9, 9), not (5, 9)"),
    "padding of another shape": (lambda: call(key_padding_mask=PADDED.T),
                                 "key_padding_mask must be of shape (2, 9), not (9, 2)"),
    "a hint for other keys": (lambda: call(key=KEYS, value=KEYS, is_causal=True),
                              "is_causal needs as many queries as keys, not 9 and 5; see attn_mask"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments(case):
    call, sentence = WRONG[case]
    with pytest.raises((ValueError, TypeError), match=re.escape(sentence)):
        call()


def test_an_error_leaves_the_model_unchanged():
    model = torch.nn.ModuleList([attention_of(), Derived(12, 4)])
    with pytest.raises(TypeError, match="Derived"):
        convert(model, max_span=5, ramp=1)
    assert type(model[0]) is torch.nn.MultiheadAttention
    assert not any(isinstance(module, AdaptiveSpan) for module in model.modules())
