"""The mesh axes along which arrays vary, which `shard_map` tracks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

# JAX 0.10 renamed the attribute that holds these axes.
_KIND = getattr(jax.sharding, "ManualAxisType", None)


def varying(arrays: Sequence[jax.Array]) -> tuple[list[jax.Array], frozenset[Any]]:
    """Cast arrays so that all vary along the same axes; return the arrays and the axes."""
    current = [_axes(x) for x in arrays]
    axes = frozenset[Any]().union(*current)
    return [
        jax.lax.pcast(x, tuple(axes - varied), to="varying") if axes != varied else x
        for x, varied in zip(arrays, current, strict=True)
    ], axes


def _axes(array: jax.Array) -> frozenset[Any]:
    kind = jax.typeof(array)
    axes: frozenset[Any] = kind.vma if _KIND is None else kind.manual_axis_type.varying
    return axes


def along(axes: frozenset[Any]) -> dict[str, Any]:
    """Return the keyword arguments of `jax.ShapeDtypeStruct` for arrays that vary along these axes."""
    if not axes:
        return {}
    options = {"vma": axes} if _KIND is None else {"manual_axis_type": _KIND(varying=axes)}
    return options | {"sharding": jax.NamedSharding(jax.sharding.get_abstract_mesh(), jax.P())}
