"""headspan in JAX: attention with learned spans on the CPU, for `jit`, `grad`, `vmap` and `shard_map`."""

from headspan import _extra

try:
    import jax as _jax
except ModuleNotFoundError as error:
    raise _extra.missing("headspan.jax", "JAX", "jax", error.name) from error

if not hasattr(_jax.lax, "pcast"):
    raise _extra.missing("headspan.jax", f"JAX 0.9 or newer, not {_jax.__version__}", "jax", "jax")

from headspan.jax.attend import attention

__all__ = ["attention"]
