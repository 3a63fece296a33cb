"""What a transformers model is: its decoder, its attentions, the kinds of its layers, and whether it is causal."""

from __future__ import annotations

from typing import Any

from torch import nn

from headspan.torch.transformers.private import implementation_of


def decoder_config(model: nn.Module) -> Any:
    """Return the configuration of a decoder, or raise an error for other models."""
    config = getattr(model, "config", None)
    if config is None or not hasattr(config, "get_text_config"):
        raise TypeError(f"model must be one of transformers, not {type(model).__name__}")
    config = config.get_text_config(decoder=True)
    if getattr(config, "is_encoder_decoder", False):
        raise ValueError("model must be a decoder only, because spans of encoders and decoders cannot be told apart")
    return config


def check_implementation(config: Any, need: str) -> None:
    """Raise an error if a model does not use headspan; `need` says what needs it, such as "fitting needs"."""
    used = implementation_of(config)
    if used != "headspan":
        raise ValueError(
            f"{need} a model with attn_implementation='headspan', not {used!r}: "
            "headspan.torch.register(), then model.set_attn_implementation('headspan')"
        )


def is_of_transformers(module: nn.Module) -> bool:
    """Whether a module is an attention of transformers; only attentions and full models have these attributes."""
    return hasattr(module, "config") and hasattr(module, "is_causal") and not hasattr(module, "set_attn_implementation")


def is_bidirectional(model: nn.Module, config: Any) -> bool:
    """Whether no attention with a configuration is causal, as in encoders and masked language models."""
    attentions: list[Any] = [m for m in model.modules() if is_of_transformers(m) and m.config is config]
    is_causal = getattr(config, "is_causal", True) and any(module.is_causal for module in attentions)
    return bool(attentions) and not is_causal


def decoder_layers(model: nn.Module, config: Any) -> list[nn.Module]:
    """Return the layers of a decoder in order, or no layers if the model has no list with one attention in each."""
    for layers in model.modules():
        if not isinstance(layers, nn.ModuleList) or len(layers) != config.num_hidden_layers:
            continue
        numbers = [
            [m.layer_idx for m in layer.modules() if is_of_transformers(m) and hasattr(m, "layer_idx")]
            for layer in layers
        ]
        if numbers == [[place] for place in range(len(layers))]:
            return list(layers)
    return []


def reads_other_layers(config: Any) -> bool:
    """Whether layers use the keys and values of earlier layers."""
    return bool(getattr(config, "num_kv_shared_layers", 0))


def number_attentions(model: nn.Module, config: Any) -> None:
    """Give each attention a number, `layer_idx`, in order, if the model gives none, as many encoders do."""
    attentions: list[Any] = [m for m in model.modules() if is_of_transformers(m) and m.config is config]
    if not attentions or any(getattr(module, "layer_idx", None) is not None for module in attentions):
        return
    layers = config.num_hidden_layers
    if len(attentions) != layers:
        groups = "; set num_hidden_groups in its configuration" if hasattr(config, "num_hidden_groups") else ""
        raise ValueError(
            f"each of the {layers} layers must have its own attention, but {type(model).__name__} has "
            f"{len(attentions)}{groups}"
        )
    for number, module in enumerate(attentions):
        module.layer_idx = number


def layers_of(config: Any) -> tuple[list[str], list[int | None]]:
    """Return the kind of each layer, and the size of its sliding window or None."""
    try:
        from transformers.cache_utils import get_layer_types_and_kwargs
    except ImportError:
        # In older versions of transformers all layers of a model have the same window.
        window = getattr(config, "sliding_window", None)
        chunked = getattr(config, "attention_chunk_size", None) is not None
        plain = "chunked_attention" if chunked else "full_attention" if window is None else "sliding_attention"
        kinds = list(getattr(config, "layer_types", None) or [plain] * config.num_hidden_layers)
        shared = getattr(config, "num_kv_shared_layers", 0)
        # `get_layer_types_and_kwargs` of newer versions uses the same name.
        kinds[len(kinds) - shared :] = ["dummy"] * shared
        return kinds, [window if kind == "sliding_attention" else None for kind in kinds]
    kinds, arguments = get_layer_types_and_kwargs(config)
    if isinstance(arguments, dict):  # for all layers in one, and without layers that use the keys of others, up to 5.17
        kinds = [*kinds, *["dummy"] * (config.num_hidden_layers - len(kinds))]
        return kinds, [arguments.get("sliding_window") if kind == "sliding_attention" else None for kind in kinds]
    return kinds, [layer.get("sliding_window") for layer in arguments]
