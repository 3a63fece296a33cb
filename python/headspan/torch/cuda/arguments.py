"""The arguments of a call, checked by their shapes and converted for the kernels.

Numbers in tensors are not checked, since the device would have to be waited for: a query with a negative span sees no
key, and NaN gives NaN.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from headspan import _check
from headspan.ops.adapters.patterns import read_pattern
from headspan.ops.arguments import dropout, visibility
from headspan.ops.arguments.options import ARRAY_OPTIONS, DEFAULTS, options_in
from headspan.ops.arguments.rows import In
from headspan.ops.arguments.sizes import Sizes, check_alike
from headspan.ops.arguments.sizes import per_token as of_tokens
from headspan.patterns.causality import resolve_causal
from headspan.patterns.per_head import per_head
from headspan.torch.arrays import HALF
from headspan.torch.cuda.ranges import key_ranges
from headspan.torch.cuda.tiles import ABSENT, Inputs, Settings, View
from headspan.torch.schema import TENSORS

TAKEN = options_in(In.CUDA)
_PARAMETERS = tuple(name for name in TAKEN if name in ARRAY_OPTIONS and ARRAY_OPTIONS[name].per_head)
_LARGEST_DIM = 256
_FLOATS = (torch.float32, torch.float64, *HALF)


@dataclass
class Call:
    """A call of the operator.

    Attributes
    ----------
    query, key, value : Tensor
        With all four axes.
    ndim : int
        Number of axes of the arguments.
    parameters : dict of Tensor
        The options for heads and queries, of shape (batch or 1, heads or 1, queries or 1).
    arguments : dict of Tensor
        These options as passed.
    """

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    ndim: int
    parameters: dict[str, torch.Tensor]
    arguments: dict[str, torch.Tensor]
    inputs: Inputs
    settings: Settings

    def gradient(self, name: str, rows: torch.Tensor) -> torch.Tensor:
        """Sum a gradient for each query over the axes along which the option is shared."""
        axes = tuple(axis for axis, size in enumerate(self.parameters[name].shape) if size == 1)
        argument = self.arguments[name]
        total = rows.sum(axes, keepdim=True) if axes else rows
        return total.reshape(argument.shape).to(argument.dtype)

    def as_passed(self, tensor: torch.Tensor) -> torch.Tensor:
        """Remove the leading axes that the arguments did not have."""
        return tensor[(0,) * (4 - self.ndim)] if self.ndim < 4 else tensor

    def to_4d(self, tensor: torch.Tensor) -> torch.Tensor:
        """Add the leading axes that the arguments did not have."""
        return tensor[(None,) * (4 - self.ndim)] if self.ndim < 4 else tensor


def exact_type(query: torch.Tensor) -> torch.dtype:
    """Return the type of sums and of the log-sum-exp."""
    return torch.float64 if query.dtype is torch.float64 else torch.float32


def read_call(tensors: Sequence[torch.Tensor | None], plain: Mapping[str, Any]) -> Call:
    """Check the arguments of the operator and convert them."""
    passed = {name: x for name, x in zip(TENSORS, tensors, strict=False) if x is not None}
    query, key, value = passed["query"], passed["key"], passed["value"]
    refused = [name for name in (*passed, *plain) if name not in TAKEN and name not in ("query", "key", "value")]
    refused = [name for name in refused if name in passed or plain[name] is not None]
    if refused:
        raise NotImplementedError(f"{refused[0]} is not supported on {query.device.type}; move the tensors to the CPU")
    if query.dtype not in _FLOATS:
        raise TypeError(f"query must be float32, float64, bfloat16 or float16, not {query.dtype}")
    check_alike({"query": query, "key": key, "value": value})
    ndim = query.ndim
    if ndim < 4:
        query, key, value = (x[(None,) * (4 - ndim)] for x in (query, key, value))
    for name, size in (("head_dim", query.shape[-1]), ("head_dim of value", value.shape[-1])):
        if size > _LARGEST_DIM:
            raise NotImplementedError(f"{name} must be at most {_LARGEST_DIM} on {query.device.type}, not {size}")
    query, key, value = (x if x.stride(-1) == 1 else x.contiguous() for x in (query, key, value))
    batch, heads, queries, _ = query.shape
    keys = key.shape[2]
    sizes = Sizes(
        batch, heads, key.shape[1], queries, keys, ndim, query.dtype, query.shape[3], value.shape[3], math.inf
    )
    pattern = plain.get("pattern")
    patterns = per_head(read_pattern(pattern), batch, heads, queries, keys) if pattern is not None else []
    placed = "query_positions" in passed
    causal = resolve_causal(plain.get("causal"), patterns, queries, keys, placed=placed)
    visibility.check_prefix(passed, causal)
    ranges = key_ranges(passed, patterns, sizes)
    parameters = {}
    for name in _PARAMETERS:
        if name in passed:
            per_token = ARRAY_OPTIONS[name].per_token
            rows: Any = _check.per_query(name, passed[name], sizes.axes, with_tokens=per_token)
            parameters[name] = rows if per_token else rows[..., None]
    inputs = Inputs(
        span=_view(parameters.get("span")),
        temperature=_view(parameters.get("temperature")),
        slopes=_view(parameters.get("alibi_slopes")),
        sinks=_view(parameters.get("sinks")),
        ranges=_view(ranges),
        positions=_positions(passed, sizes, plain),
        segments=_of_tokens("segment_ids", passed, keys, sizes),
        seed=_seed(passed, plain, query.device),
    )
    settings = _settings(query, value, heads // key.shape[1], causal and "prefix_lengths" not in passed, plain)
    return Call(query, key, value, ndim, parameters, passed, inputs, settings)


def _settings(query: torch.Tensor, value: torch.Tensor, group: int, causal: bool, plain: Mapping[str, Any]) -> Settings:
    options = {name: option for name, option in plain.items() if option is not None}
    dim, value_dim, rate = query.shape[-1], value.shape[-1], options.get("dropout", 0.0)
    return Settings(
        dim,
        value_dim,
        max(16, 1 << (dim - 1).bit_length()),
        max(16, 1 << (value_dim - 1).bit_length()),
        group,
        causal,
        int(options.get("include_self", DEFAULTS["include_self"])),
        float(options.get("ramp", DEFAULTS["ramp"])),
        options.get("scale", dim**-0.5),
        options.get("softcap", 0.0),
        min(round(rate * 2**32), 2**32 - 1),
        1 / (1 - rate),
        torch.finfo(exact_type(query)).eps / 2,
        "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "tf32x3",
    )


def _view(tensor: torch.Tensor | None) -> View:
    """Return a tensor whose first axes are batch, heads and tokens, each shared if it has length 1."""
    if tensor is None:
        return ABSENT
    strides = (0 if size == 1 else stride for size, stride in zip(tensor.shape[:3], tensor.stride()[:3], strict=True))
    return View(tensor, *strides)


def _of_tokens(name: str, options: Mapping[str, Any], tokens: int, sizes: Sizes) -> View:
    return _view(of_tokens(name, options[name], tokens, sizes)[:, None]) if name in options else ABSENT


def _positions(options: Mapping[str, torch.Tensor], sizes: Sizes, plain: Mapping[str, Any]) -> View:
    if "query_positions" not in options:
        return ABSENT
    device = options["query_positions"].device.type
    if options["query_positions"].is_floating_point():
        raise NotImplementedError(f"query_positions must be integers on {device}")
    if plain.get("include_self") is False or "segment_ids" in options:
        raise NotImplementedError(
            f"query_positions cannot be combined with include_self=False or segment_ids on {device}; "
            "move the tensors to the CPU"
        )
    return _of_tokens("query_positions", options, sizes.queries, sizes)


def _seed(options: Mapping[str, torch.Tensor], plain: Mapping[str, Any], device: torch.device) -> View:
    dropout.check_seed(options, plain.get("dropout"))
    if not plain.get("dropout"):
        return ABSENT
    seed = options["seed"]
    if seed.device == device:
        return View(seed.to(torch.int64), 0, 0, 0)
    return View(torch.full((), int(seed), dtype=torch.int64, device=device), 0, 0, 0)
