"""The definition as dense float64 matrices: what the tests compare the package with.

Written from the formulas alone and shares no line with the package. Everything is float64,
which is wider than the float32 kernels; for the float64 kernels it is an independent order of
sums, and the tolerances leave room for that. Parameters are first rounded to the dtype of the
query, because that is the number the package is asked to compute with.
"""

from collections import namedtuple

import numpy as np
from limits_oracle import in_reach, placed
from term_oracle import by_offset, dropout_factors, fold_blocks, fold_offsets, of_blocks

OPTIONS = (
    "span",
    "ramp",
    "causal",
    "include_self",
    "scale",
    "temperature",
    "alibi_slopes",
    "softcap",
    "sinks",
)
PARAMETERS = ("span", "temperature", "alibi_slopes", "sinks")
ARRAYS = ("query", "key", "value")

Dense = namedtuple(
    "Dense",
    "out lse weights mask exponential product distance ramp_side factor temperature cap_slope sink_weight dropout",
)
# `mass` is the sum of the absolute values of the terms that were added: the natural unit of
# the rounding error of a sum whose terms may cancel.
Gradient = namedtuple("Gradient", "value mass")


def lift(array):
    """As a (batch, heads, tokens, dim) float64 array."""
    array = np.asarray(array)
    return array.astype(np.float64).reshape((1,) * (4 - array.ndim) + array.shape)


def spread(parameter, ndim, dtype):
    """A parameter as a (batch or 1, heads or 1, tokens or 1) float64 array.

    `ndim` is that of the query: it decides what the axes of the parameter are.
    """
    limit = np.finfo(dtype).max
    parameter = np.clip(np.asarray(parameter, dtype=np.float64), -limit, limit)
    parameter = parameter.astype(dtype).astype(np.float64)
    if parameter.ndim == 0:
        return parameter.reshape(1, 1, 1)
    if ndim == 2:
        return parameter[None, None, :]
    if parameter.ndim == 1:
        return parameter[None, :, None]
    if ndim == 3:
        return parameter[None]
    return parameter.reshape(parameter.shape + (1,) * (3 - parameter.ndim))


def lift_bias(key_bias, dtype):
    """A bias of the keys as a (batch or 1, heads or 1, 1, keys) float64 array."""
    key_bias = np.asarray(key_bias, dtype=np.float64).astype(dtype).astype(np.float64)
    return key_bias.reshape((1,) * (3 - key_bias.ndim) + key_bias.shape)[:, :, None, :]


def repeat_heads(array, heads):
    """Key heads repeated so that query head h meets key head h // (heads / key_heads)."""
    return np.repeat(array, heads // array.shape[1], axis=1)


def gather_heads(array, key_heads):
    """The adjoint of `repeat_heads`."""
    batch, heads, *rest = array.shape
    return array.reshape(batch, key_heads, heads // key_heads, *rest).sum(axis=2)


def with_persistent(array, memory):
    """Keys or values on four axes, with those that every query sees after the others."""
    array = lift(array)
    if memory is None:
        return array
    more = np.broadcast_to(lift(memory), (*array.shape[:2], *np.shape(memory)[-2:]))
    return np.concatenate([array, more], axis=2)


def widen(array, columns, fill):
    """Columns for further keys at the end of a (..., keys) array."""
    return np.concatenate([array, np.full((*array.shape[:-1], columns), fill)], axis=-1)


def signed_distance(queries, keys):
    return (np.arange(queries) + keys - queries)[:, None] - np.arange(keys)[None, :]


def soft_mask(distance, span, ramp):
    if ramp == 0:
        return np.where(distance <= span, 1.0, 0.0)
    return np.clip(1 + (span - distance) / ramp, 0.0, 1.0)


def at_positions(queries, keys, query_positions=None, key_positions=None):
    """How far each query stands behind each key, as (queries, keys) or (batch, 1, queries, keys)."""
    if query_positions is None and key_positions is None:
        return signed_distance(queries, keys)
    key_positions = np.asarray(np.arange(keys) if key_positions is None else key_positions, dtype=np.float64)
    query_positions = key_positions[..., keys - queries :] if query_positions is None else query_positions
    query_positions = np.asarray(query_positions, dtype=np.float64)
    difference = query_positions[..., :, None] - key_positions[..., None, :]
    return difference if difference.ndim == 2 else difference[:, None]


def reach(
    queries,
    keys,
    ndim,
    dtype,
    span=None,
    ramp=32,
    causal=True,
    include_self=True,
    pattern_mask=None,
    free=None,
    distance=None,
    query_positions=None,
    key_positions=None,
    prefix_lengths=None,
    **validity,
):
    """The mask m, the distance |x|, and where the mask slopes down (0 < m and |x| >= z).

    `pattern_mask` says which pairs a pattern leaves, `free` which of them no span limits, and
    `distance` replaces |x| (but not the sign of x, by which causality goes).
    """
    behind = at_positions(queries, keys, query_positions, key_positions)
    allowed = in_reach(queries, keys, **validity)
    if causal:
        in_prefix = np.zeros((1, 1, 1, keys), dtype=bool)
        if prefix_lengths is not None:
            begin = 0 if validity.get("key_start") is None else np.reshape(validity["key_start"], (-1, 1, 1, 1))
            in_prefix = np.arange(keys) < begin + np.reshape(prefix_lengths, (-1, 1, 1, 1))
        allowed = allowed & ((behind >= 0) | in_prefix)
    if not include_self:
        allowed = allowed & (behind != 0)
    if pattern_mask is not None:
        allowed = allowed & pattern_mask
    distance = np.asarray(np.abs(behind) if distance is None else distance, dtype=np.float64)
    if span is None:
        mask = np.where(allowed, 1.0, 0.0)
        return mask, distance, np.zeros(mask.shape, dtype=bool)
    width = spread(span, ndim, dtype)[..., None]
    free = np.zeros((1, 1, 1, 1), dtype=bool) if free is None else free
    mask = np.where(allowed, np.where(free, 1.0, soft_mask(distance, width, ramp)), 0.0)
    return mask, distance, (mask > 0) & (distance >= width) & (ramp > 0) & ~free


def row_maximum(scores):
    """The largest score of each row, 0 for a row of -inf."""
    top = scores.max(axis=-1, keepdims=True)
    return np.where(np.isneginf(top), 0.0, top)


def weighted(weights, seen, rows):
    """weights @ rows over the pairs that are seen, whatever the rows of others hold."""
    finite = np.isfinite(rows).all(axis=-1, keepdims=True)
    total = np.where(seen, weights, 0) @ np.where(finite, rows, 0)
    for j in np.flatnonzero(~finite.all(axis=(0, 1))[:, 0]):
        poison = np.where(finite, 0, rows)[:, :, None, j]
        total = total + np.where(seen[..., j, None], weights[..., j, None] * poison, 0)
    return total


def dense(query, key, value=None, **options):
    """Every matrix of the forward pass, on four axes, but for the columns of persistent keys."""
    matrices, keys = with_persistent_columns(query, key, value, **options), np.shape(key)[-2]
    return matrices._replace(**{name: getattr(matrices, name)[..., :keys] for name in ("weights", "mask", "distance")})


def with_persistent_columns(
    query,
    key,
    value=None,
    *,
    span=None,
    ramp=32,
    causal=True,
    include_self=True,
    scale=None,
    temperature=None,
    alibi_slopes=None,
    softcap=None,
    sinks=None,
    persistent_key=None,
    persistent_value=None,
    key_bias=None,
    distance_bias=None,
    distance_buckets=None,
    pair_bias=None,
    block_gates=None,
    gate_block_size=None,
    dropout=0,
    seed=None,
    offsets=None,
    **limits,
):
    """As `dense`, with columns for persistent keys behind the others; `limits` are further arguments of `reach`."""
    ndim, dtype = np.ndim(query), np.asarray(query).dtype
    query, keys = lift(query), np.shape(key)[-2]
    limits = placed(limits, keys)
    heads, key = query.shape[1], with_persistent(key, persistent_key)
    heat = spread(1.0 if temperature is None else temperature, ndim, dtype)[..., None]
    factor = (query.shape[-1] ** -0.5 if scale is None else scale) / heat
    sizes = (query.shape[2], keys, ndim, dtype)
    mask, distance, ramp_side = reach(*sizes, span, ramp, causal, include_self, **limits)
    product = query @ repeat_heads(key, heads).swapaxes(-1, -2)
    score, cap_slope = factor * product, 1.0
    if softcap is not None:
        cap_slope = 1 - np.tanh(score / softcap) ** 2
        score = softcap * np.tanh(score / softcap)
    score, of_memory = score[..., :keys], score[..., keys:]
    if alibi_slopes is not None:
        score = score - spread(alibi_slopes, ndim, dtype)[..., None] * distance
    if key_bias is not None:
        bias = lift_bias(key_bias, dtype)
        score = score + bias
        mask = np.where(np.isneginf(bias), 0.0, mask)  # a removed key
        ramp_side = ramp_side & (mask > 0)
    if distance_bias is not None:
        if offsets is None:
            places = (limits.get("query_positions"), limits.get("key_positions"))
            offsets = (-at_positions(*sizes[:2], *places),)
        score = score + by_offset(distance_bias, offsets, distance_buckets, dtype)
    if pair_bias is not None:
        score = score + lift(pair_bias)
        mask = np.where(np.isneginf(lift(pair_bias)), 0.0, mask)
        ramp_side = ramp_side & (mask > 0)
    if block_gates is not None:
        gate = of_blocks(block_gates, gate_block_size, *sizes[:2], dtype)
        mask, ramp_side = mask * (gate > 0), ramp_side & (gate > 0)
        score = score + np.log(np.where(gate > 0, gate, 1))
    memory = of_memory.shape[-1]
    score = np.concatenate([np.broadcast_to(score, (*of_memory.shape[:-1], keys)), of_memory], axis=-1)
    mask, distance, ramp_side = widen(mask, memory, 1), widen(distance, memory, 0), widen(ramp_side, memory, False)
    score = np.where(mask > 0, score, -np.inf)
    sink = -np.inf if sinks is None else spread(sinks, ndim, dtype)[..., None]
    top = row_maximum(np.maximum(score, sink))
    raw = np.exp(score - top)
    total = (mask * raw).sum(axis=-1, keepdims=True) + np.exp(sink - top)
    empty = total == 0
    safe = np.where(empty, 1.0, total)
    exponential = raw / safe
    factors = dropout_factors(dropout, seed, score.shape, keys) if dropout else 1.0
    seen = np.broadcast_to(mask > 0, score.shape)
    weights = np.where(seen, factors * mask * exponential, 0)
    out = (
        None
        if value is None
        else weighted(weights, seen, repeat_heads(with_persistent(value, persistent_value), heads))
    )
    lse = np.where(empty, -np.inf, top + np.log(safe))[..., 0]
    sink_weight = np.exp(sink - top) / safe
    return Dense(
        out,
        lse,
        weights,
        mask,
        exponential,
        product,
        distance,
        ramp_side,
        factor,
        heat,
        cap_slope,
        sink_weight,
        factors,
    )


def attention(query, key, value, **options):
    """(out, lse) shaped like the package's."""
    d = dense(query, key, value, **options)
    shape = np.shape(query)[:-1]
    return d.out.reshape(*shape, np.shape(value)[-1]), d.lse.reshape(shape)


def attention_weights(query, key, **options):
    d = dense(query, key, **options)
    return d.weights.reshape(*np.shape(query)[:-1], np.shape(key)[-2])


def fold(terms, parameter, ndim):
    """Sums a term per pair into the shape of the parameter it belongs to."""
    rows = terms.sum(axis=-1)
    like = spread(parameter, ndim, np.float64)
    axes = tuple(axis for axis in range(3) if like.shape[axis] == 1)
    return rows.sum(axis=axes, keepdims=True).reshape(np.shape(parameter))


def fold_persistent(rows, memory):
    """Sums (batch, key heads, m, dim) into the shape of the memory."""
    rows = rows.sum(axis=0)
    shared = np.ndim(memory) == 2 or len(memory) == 1
    return (rows.sum(axis=0) if shared else rows).reshape(np.shape(memory))


def fold_bias(terms, key_bias):
    """Sums a term per pair into the shape of the bias of its key."""
    like = lift_bias(key_bias, np.float64)
    axes = tuple(axis for axis in range(3) if like.shape[axis] == 1)
    return terms.sum(axis=axes, keepdims=True).reshape(np.shape(key_bias))


def gradients(query, key, value, grad_out, grad_lse=None, *, matrices=None, **options):
    """A dict from argument name to `Gradient`, for every argument that was given.

    `matrices` is the result of `with_persistent_columns` for the same arguments, if it is known already.
    """
    options = placed(options, np.shape(key)[-2])
    d = with_persistent_columns(query, key, value, **options) if matrices is None else matrices
    ndim, heads, key_heads = np.ndim(query), d.out.shape[1], lift(key).shape[1]
    q, d_out = lift(query), lift(grad_out)
    keys, memory = np.shape(key)[-2], {name: options.get(f"persistent_{name}") for name in ("key", "value")}
    k = repeat_heads(with_persistent(key, memory["key"]), heads)
    v = repeat_heads(with_persistent(value, memory["value"]), heads)
    d_lse = 0.0 if grad_lse is None else np.reshape(grad_lse, d.lse.shape)[..., None]
    # lse enters every score of its row with weight w, as -delta does.
    delta = (d_out * d.out).sum(axis=-1, keepdims=True) - d_lse
    d_weights = d.dropout * (d_out @ v.swapaxes(-1, -2))
    seen = np.broadcast_to(d.mask > 0, d.weights.shape)  # other pairs do not count, even if they hold NaN
    d_mask = np.where(seen, d.exponential * (d_weights - delta), 0)
    d_mask_mass = np.where(seen, d.exponential * (np.abs(d_weights) + np.abs(delta)), 0)
    d_score, d_score_mass = d.mask * d_mask, d.mask * d_mask_mass
    cap_slope, product = np.where(seen, d.cap_slope, 0), np.where(seen, d.product, 0)
    d_product, d_product_mass = cap_slope * d_score, cap_slope * d_score_mass
    through, through_mass = d.factor * d_product, np.abs(d.factor) * d_product_mass

    def of_keys(terms, rows):
        return weighted(terms.swapaxes(-1, -2), seen.swapaxes(-1, -2), rows)

    result = {
        "query": Gradient(weighted(through, seen, k), weighted(through_mass, seen, np.abs(k))),
        "key": Gradient(of_keys(through, q), of_keys(through_mass, np.abs(q))),
        "value": Gradient(of_keys(d.weights, d_out), of_keys(d.weights, np.abs(d_out))),
    }
    for name, like in (("query", query), ("key", key), ("value", value)):
        head_count = heads if name == "query" else key_heads
        parts = [gather_heads(part, head_count) for part in result[name]]
        if memory.get(name) is not None:
            result[f"persistent_{name}"] = Gradient(
                *(fold_persistent(part[:, :, keys:], memory[name]) for part in parts)
            )
            parts = [part[:, :, :keys] for part in parts]
        result[name] = Gradient(*(part.reshape(np.shape(like)) for part in parts))
    ramp = options.get("ramp", 32)
    local = {
        "span": lambda t: np.where(d.ramp_side, t[0], 0.0) / (ramp or 1.0),
        "temperature": lambda t: -t[1] * cap_slope * d.factor * product / d.temperature,
        "alibi_slopes": lambda t: -t[1] * d.distance,
    }
    for name, term in local.items():
        if options.get(name) is not None:
            terms, masses = term((d_mask, d_score)), np.abs(term((d_mask_mass, d_score_mass)))
            result[name] = Gradient(fold(terms, options[name], ndim), fold(masses, options[name], ndim))
    if options.get("sinks") is not None:
        mass = (np.abs(d_out) * np.abs(d.out)).sum(axis=-1, keepdims=True) + np.abs(d_lse)
        parts = (-d.sink_weight * delta, d.sink_weight * mass)
        result["sinks"] = Gradient(*(fold(part, options["sinks"], ndim) for part in parts))
    d_score, d_score_mass = d_score[..., :keys], d_score_mass[..., :keys]  # memory has no bias
    if options.get("key_bias") is not None:
        result["key_bias"] = Gradient(*(fold_bias(part, options["key_bias"]) for part in (d_score, d_score_mass)))
    if options.get("distance_bias") is not None:
        offsets = options.get("offsets")
        if offsets is None:
            places = (options.get("query_positions"), options.get("key_positions"))
            offsets = (-at_positions(q.shape[2], keys, *places),)
        table, buckets = options["distance_bias"], options.get("distance_buckets")
        parts = (fold_offsets(part, table, offsets, buckets) for part in (d_score, d_score_mass))
        result["distance_bias"] = Gradient(*parts)
    if options.get("pair_bias") is not None:
        shape = np.shape(options["pair_bias"])
        axes = tuple(axis for axis in range(2) if lift(options["pair_bias"]).shape[axis] == 1)
        parts = (part.sum(axis=axes, keepdims=True).reshape(shape) for part in (d_score, d_score_mass))
        result["pair_bias"] = Gradient(*parts)
    if options.get("block_gates") is not None:
        gates, block = options["block_gates"], options["gate_block_size"]
        gate = of_blocks(gates, block, q.shape[2], keys, np.asarray(query).dtype)
        parts = (np.divide(part, gate, out=np.zeros_like(part), where=gate > 0) for part in (d_score, d_score_mass))
        result["block_gates"] = Gradient(*(fold_blocks(part, gates, block) for part in parts))
    return result


def central_difference(function, array, step=1e-5):
    """The gradient of a scalar function of an array, entry by entry."""
    array = np.array(array, dtype=np.float64)
    gradient = np.zeros(array.shape)
    for index in np.ndindex(array.shape):
        here = array[index]
        array[index] = here + step
        above = function(array)
        array[index] = here - step
        below = function(array)
        array[index] = here
        gradient[index] = (above - below) / (2 * step)
    return gradient


def with_all_axes(arrays, options):
    """Query, key and value with four axes and equally many heads, and float64 options that fit them."""
    ndim, heads = arrays["query"].ndim, lift(arrays["query"]).shape[1]
    options = dict(options)
    for name in PARAMETERS:
        if name in options:
            options[name] = spread(options[name], ndim, np.float64)
    for name in ("alibi_slopes", "sinks"):
        if name in options:
            options[name] = options[name][..., 0]
    if "key_bias" in options:
        options["key_bias"] = lift_bias(options["key_bias"], np.float64)[:, :, 0]
    for name in {"persistent_key", "persistent_value"} & options.keys():
        memory, key_heads = lift(options[name])[0], lift(arrays["key"]).shape[1]
        options[name] = repeat_heads(np.broadcast_to(memory, (key_heads, *memory.shape[1:]))[None], heads)[0]
    return [repeat_heads(lift(arrays[name]), heads) for name in ARRAYS], options
