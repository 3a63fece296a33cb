"""The peers, which take part in a run if they are installed."""

from __future__ import annotations

from benchmarks.cases import FORWARD
from benchmarks.contenders import jax_peers, torch_peers
from benchmarks.contenders.contender import Contender

PEERS = (
    Contender(
        "torch-sdpa",
        torch_peers.prepare_sdpa,
        lambda case, passes: case.span is None,
        torch_peers.sdpa_needs,
        package="torch",
        note="scaled_dot_product_attention, is_causal (a mask for 16 queries, whose causal corner is another)",
    ),
    Contender(
        "torch-sdpa-mask",
        torch_peers.prepare_sdpa_mask,
        lambda case, passes: case.span is not None or case.pattern is not None,
        torch_peers.sdpa_mask_needs,
        package="torch",
        kinds=("attention", "pattern"),
        note=(
            "scaled_dot_product_attention with the logarithm of the soft mask, or of the pattern's, added; no gradient "
            "of the span"
        ),
    ),
    Contender(
        "torch-window",
        torch_peers.prepare_window,
        lambda case, passes: case.span is not None and case.causal and case.queries == case.keys,
        torch_peers.window_needs,
        package="torch",
        note="blocks of the widest span and ramp, each against itself and the one before; no gradient of the span",
    ),
    Contender(
        "torch-flex",
        torch_peers.prepare_flex,
        lambda case, passes: passes == FORWARD,
        package="torch",
        kinds=("attention", "pattern"),
        compiled=True,
        note="flex_attention, compiled before the timing, with a block mask; has no gradient on a CPU",
    ),
    Contender(
        "torch-eager",
        torch_peers.prepare_eager,
        lambda case, passes: case.span is not None,
        torch_peers.eager_needs,
        package="torch",
        note="the definition in dense operations; with the gradient of the span",
    ),
    Contender(
        "jax",
        jax_peers.prepare,
        needs=jax_peers.needs,
        package="jax",
        compiled=True,
        note=(
            "jax.nn.dot_product_attention under jit, spans as a bias without gradient; its softmax is always in "
            "float32; its number of threads is its own affair, --threads does not reach it"
        ),
    ),
)
