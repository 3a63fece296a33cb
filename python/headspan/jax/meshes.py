"""Axes of meshes along which arrays vary, which `shard_map` keeps an eye on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

# They have changed their name between JAX 0.9 and 0.10.
_KIND = getattr(jax.sharding, "ManualAxisType", None)


def varying(arrays: Sequence[jax.Array]) -> tuple[list[jax.Array], frozenset[Any]]:
    """Let arrays vary along the same axes, and return these."""
    each = [_axes(x) for x in arrays]
    axes = frozenset[Any]().union(*each)
    return [
        jax.lax.pcast(x, tuple(axes - its), to="varying") if axes != its else x
        for x, its in zip(arrays, each, strict=True)
    ], axes


def _axes(array: jax.Array) -> frozenset[Any]:
    its = jax.typeof(array)
    axes: frozenset[Any] = its.vma if _KIND is None else its.manual_axis_type.varying
    return axes


def along(axes: frozenset[Any]) -> dict[str, Any]:
    """Return what says of a shape that arrays of it vary along these axes."""
    if not axes:
        return {}
    its = {"vma": axes} if _KIND is None else {"manual_axis_type": _KIND(varying=axes)}
    return its | {"sharding": jax.NamedSharding(jax.sharding.get_abstract_mesh(), jax.P())}
