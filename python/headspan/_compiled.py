"""The names of the compiled module, from which all other modules take them.

Loading OpenMP here keeps its threads from occupying the cores between two calls.
"""

import os

# GNU OpenMP reads this variable once, when it is loaded. With its default, idle threads spin for milliseconds after a
# call and take the cores away from NumPy's threads. The variable is restored after the import.
_NAME = "OMP_WAIT_POLICY"
_previous = os.environ.get(_NAME)
os.environ.setdefault(_NAME, "PASSIVE")
try:
    from headspan._core import (
        KeyCache,
        Pages,
        Pattern,
        Request,
        __version__,
        array_over,
        block_means,
        compiler,
        default_threads,
        empty,
        end_jax_calls,
        group_queries,
        isa,
        jax_handler,
        narrowed,
        openmp,
        page_rows,
        select_blocks,
        variants,
        widened,
    )
finally:
    if _previous is None:
        del os.environ[_NAME]

__all__ = [
    "KeyCache",
    "Pages",
    "Pattern",
    "Request",
    "__version__",
    "array_over",
    "block_means",
    "compiler",
    "default_threads",
    "empty",
    "end_jax_calls",
    "group_queries",
    "isa",
    "jax_handler",
    "narrowed",
    "openmp",
    "page_rows",
    "select_blocks",
    "variants",
    "widened",
]
