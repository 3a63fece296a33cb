"""headspan in JAX: attention with learned spans on the CPU, for `jit`, `grad`, `vmap` and `shard_map`."""

try:
    import jax as _jax
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "headspan.jax needs JAX: pip install 'headspan[jax]'",
        name=error.name,
    ) from error

if not hasattr(_jax.lax, "pcast"):
    raise ImportError(f"headspan.jax needs JAX 0.9 or newer, not {_jax.__version__}: pip install 'headspan[jax]'")

from headspan.jax.attend import attention

__all__ = ["attention"]
