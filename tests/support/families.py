"""Small random models of transformers, with what is special to them: windows, caps, sinks and biases."""

import pytest
from peers import DECODER, make_loud, torch, transformers

import headspan.torch  # isort: skip

headspan.torch.register()
SIZES = {**DECODER, "max_position_embeddings": 256, "bos_token_id": 1, "eos_token_id": 2}
ENCODER = {"vocab_size": 50, "hidden_size": 24, "intermediate_size": 16, "num_attention_heads": 4, "pad_token_id": 0}
WINDOW = {"sliding_window": 7}
IDS = {"cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2}

DECODERS = {
    "llama": ("Llama", SIZES),
    "qwen3": ("Qwen3", SIZES),
    "mistral": ("Mistral", {**SIZES, **WINDOW}),
    "phi3": ("Phi3", {**SIZES, **WINDOW, "eos_token_id": 2}),
    "gemma2": ("Gemma2", {**SIZES, **WINDOW, "attn_logit_softcapping": 2.0}),
    "gemma3": ("Gemma3", {**SIZES, **WINDOW}),
    "gpt_oss": ("GptOss", {**SIZES, **WINDOW, "num_local_experts": 2, "num_experts_per_tok": 1}),
    "gpt2": ("GPT2", {"vocab_size": 50, "n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 256, **{
        name: SIZES[name] for name in ("pad_token_id", "bos_token_id", "eos_token_id")}}),
}  # fmt: skip
OTHERS = {
    "t5": ("T5", {"vocab_size": 50, "d_model": 24, "d_kv": 6, "d_ff": 16, "num_layers": 2, "num_heads": 4,
                  "decoder_start_token_id": 0}),
    "bert": ("Bert", {**ENCODER, "num_hidden_layers": 2}),
    "modernbert": ("ModernBert", {**ENCODER, **IDS, "num_hidden_layers": 4, "local_attention": 8}),
}  # fmt: skip
WITHOUT_SDPA = ("gemma2", "gpt_oss")


def model_of(family, **changes):
    """A model whose attention is far from uniform and computed by plain operations of torch."""
    name, sizes = (DECODERS | OTHERS)[family]
    text = "Text" if name == "Gemma3" else ""
    config = getattr(transformers, f"{name}{text}Config")(**sizes | changes)
    ending = dict.fromkeys(("bert", "modernbert"), "ForMaskedLM")
    ending |= {"t5": "ForConditionalGeneration", "gpt2": "LMHeadModel"}
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = getattr(transformers, name + ending.get(family, "ForCausalLM"))(config).eval()
    make_loud(model)
    return model


def tokens(batch=2, count=30):
    return torch.randint(3, 50, (batch, count), generator=torch.Generator().manual_seed(1))


def logits(model, implementation, ids, **inputs):
    """The logits of a call with the named attention."""
    model.set_attn_implementation(implementation)
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = ids[:, :20]
    return model(input_ids=ids, **inputs).logits


@pytest.fixture
def no_pairs(monkeypatch):
    """Let the functions of transformers that make a mask of pairs fail."""

    def refuse(*_, **__):
        raise AssertionError("a mask of pairs was made")

    for name in ("sdpa_mask", "eager_mask", "_non_vmap_expansion_sdpa", "_vmap_expansion_sdpa"):
        monkeypatch.setattr(transformers.masking_utils, name, refuse)
