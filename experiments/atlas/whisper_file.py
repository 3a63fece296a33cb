"""Whisper from a file of CTranslate2, as a model of transformers."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import WhisperConfig, WhisperForConditionalGeneration

_TYPES = (np.float32, np.int8, np.int16, np.int32, np.float16)  # in the order of their numbers in the file
_VERSION = 6
# Names here and in transformers: outside the layers, and inside one.
_OUTSIDE = {"embeddings": "embed_tokens", "position_encodings": "embed_positions"}
_INSIDE = {
    "ffn/layer_norm": "final_layer_norm", "ffn/linear_0": "fc1", "ffn/linear_1": "fc2",
    "self_attention/layer_norm": "self_attn_layer_norm", "attention/layer_norm": "encoder_attn_layer_norm",
    "self_attention/": "self_attn/", "attention/": "encoder_attn/",
}  # fmt: skip


def read(path: Path) -> dict[str, NDArray[Any]]:
    """Read the variables of a file, by name.

    After the version, the name of the specification and its revision come the number of variables, and for each its
    name, shape, type, number of bytes and bytes. Strings have their length before them and end with a zero.
    """
    with path.open("rb") as file:
        if _number(file, "I") != _VERSION:
            raise ValueError(f"{path} must be a file of CTranslate2 in version {_VERSION} of its format")
        _text(file)
        _number(file, "I")
        return dict(_variable(file) for _ in range(_number(file, "I")))


def _number(file: BinaryIO, kind: str) -> int:
    number: int = struct.unpack(f"<{kind}", file.read(struct.calcsize(kind)))[0]
    return number


def _text(file: BinaryIO) -> str:
    return file.read(_number(file, "H"))[:-1].decode()


def _variable(file: BinaryIO) -> tuple[str, NDArray[Any]]:
    name = _text(file)
    shape = [_number(file, "I") for _ in range(_number(file, "B"))]
    kind = np.dtype(_TYPES[_number(file, "B")])
    return name, np.frombuffer(file.read(_number(file, "I")), kind).reshape(shape)


def load(path: Path) -> WhisperForConditionalGeneration:
    """Return the model in float32."""
    variables = {name: torch.tensor(array) for name, array in read(path).items()}
    layers = sum(name.startswith("encoder/layer_") and name.endswith("/ffn/linear_0/bias") for name in variables)
    width, channels = variables["encoder/conv1/weight"].shape[:2]
    heads, inner = int(variables["encoder/num_heads"]), len(variables["encoder/layer_0/ffn/linear_0/bias"])
    parts = {f"{part}_{what}": number for part in ("encoder", "decoder")
             for what, number in (("layers", layers), ("attention_heads", heads), ("ffn_dim", inner))}  # fmt: skip
    config = WhisperConfig(
        vocab_size=len(variables["decoder/embeddings/weight"]),
        d_model=width,
        num_mel_bins=channels,
        **parts,
        **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), 50256),
        decoder_start_token_id=50257,
    )
    config._attn_implementation = "sdpa"
    model = WhisperForConditionalGeneration(config).eval()
    weights = dict(_renamed(variables))
    for name, parameter in model.model.named_parameters():
        parameter.data.copy_(weights.pop(name))
    assert not weights, f"variables that the model does not have: {sorted(weights)}"
    return model


def _renamed(variables: dict[str, torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the weights by the names of transformers; what is joined in one product is split."""
    for name, value in variables.items():
        if not value.ndim or name.startswith("decoder/alignment"):  # settings
            continue
        stack, part, *path = name.split("/")
        ending = {"gamma": "weight", "beta": "bias", "encodings": "weight"}.get(path[-1], path[-1])
        if part.removeprefix("layer_").isdigit():
            prefix = f"{stack}.layers.{part.removeprefix('layer_')}"
            for inner, piece in _of_layer("/".join(path[:-1]), value):
                if not (inner.endswith("k_proj") and ending == "bias"):  # zeros, as keys have no bias
                    yield f"{prefix}.{inner}.{ending}", piece
        else:
            yield f"{stack}.{_OUTSIDE.get(part, part)}.{ending}", value


def _of_layer(path: str, value: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    for name, renamed in _INSIDE.items():
        if path.startswith(name):
            path = path.replace(name, renamed)
    attention, _, place = path.partition("/linear_")
    if not place:
        yield path, value
        return
    products = ("q k v", "out") if attention == "self_attn" else ("q", "k v", "out")
    names = products[int(place)].split()
    for name, piece in zip(names, value.chunk(len(names)), strict=True):
        yield f"{attention}.{name}_proj", piece
