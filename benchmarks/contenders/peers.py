"""The peers, which take part in a run if they are installed."""

from __future__ import annotations

from functools import partial

from benchmarks.cases import FORWARD
from benchmarks.contenders import jax_peers, torch_peers, torch_rivals
from benchmarks.contenders.contender import Contender

# Numbers of queries in a slice or block. The fastest depends on the case, and a user would try some.
SIZES = (64, 128, 256)

PEERS = (
    Contender(
        "torch-sdpa",
        torch_peers.prepare_sdpa,
        lambda case, passes: case.span is None,
        torch_peers.sdpa_needs,
        package="torch",
        note=(
            "scaled_dot_product_attention with is_causal, or with a mask if there are 16 queries, because is_causal "
            "aligns the first query with the first key"
        ),
    ),
    Contender(
        "torch-sdpa-mask",
        torch_peers.prepare_sdpa_mask,
        lambda case, passes: case.span is not None or case.pattern is not None,
        torch_peers.sdpa_mask_needs,
        package="torch",
        kinds=("attention", "pattern"),
        note=(
            "scaled_dot_product_attention with the logarithm of the soft mask, or of the pattern's mask, as a dense "
            "mask; no gradient of the span"
        ),
    ),
    Contender(
        "torch-window",
        torch_peers.prepare_window,
        lambda case, passes: case.span is not None and case.causal and case.queries == case.keys,
        torch_peers.window_needs,
        package="torch",
        note=(
            "blocks as long as the widest span and its ramp, each against itself and the one before; no gradient of "
            "the span"
        ),
    ),
    *(
        Contender(
            f"torch-slices-{size}",
            partial(torch_rivals.prepare_slices, size=size),
            torch_rivals.takes_slices,
            torch_rivals.slices_need,
            package="torch",
            kinds=("attention", "pattern"),
            note=(
                f"a loop of scaled_dot_product_attention over slices of {size} queries, each with only the keys that "
                "one of them sees; no gradient of the span"
            ),
        )
        for size in SIZES
    ),
    *(
        Contender(
            f"torch-unfold-{size}",
            partial(torch_rivals.prepare_unfold, size=size),
            torch_rivals.takes_windows,
            partial(torch_rivals.unfold_needs, size=size),
            package="torch",
            kinds=("attention", "pattern"),
            note=(
                f"scaled_dot_product_attention over blocks of {size} queries, with the keys of their windows as an "
                "unfolded view; no gradient of the span"
            ),
        )
        for size in SIZES
    ),
    Contender(
        "torch-reshape",
        torch_rivals.prepare_reshape,
        torch_rivals.takes_reshape,
        package="torch",
        kinds=("pattern",),
        note="scaled_dot_product_attention after a reshape, for strides and blocks: each is a problem of its own",
    ),
    Contender(
        "local-attention",
        torch_rivals.prepare_local_attention,
        torch_rivals.takes_local_attention,
        torch_rivals.local_attention_needs,
        package="local_attention",
        kinds=("attention", "pattern"),
        note="the package local-attention with exact_windowsize, a soft mask as its bias; no gradient of the span",
    ),
    Contender(
        "torch-flex",
        torch_peers.prepare_flex,
        lambda case, passes: passes == FORWARD,
        torch_peers.flex_needs,
        package="torch",
        kinds=("attention", "pattern"),
        compiled=True,
        note="flex_attention, compiled before the timing, with a block mask; it has no gradient on a CPU",
    ),
    Contender(
        "torch-eager",
        torch_peers.prepare_eager,
        lambda case, passes: case.span is not None,
        torch_peers.eager_needs,
        package="torch",
        has_span_gradient=True,
        note="the definition in dense operations; with the gradient of the span",
    ),
    *(
        Contender(
            f"eager-slices-{size}",
            partial(torch_rivals.prepare_eager_slices, size=size),
            torch_rivals.takes_eager_slices,
            package="torch",
            has_span_gradient=True,
            note=(
                f"the definition in dense operations over slices of {size} queries, each with only the keys within the "
                "widest span; with the gradient of the span"
            ),
        )
        for size in SIZES
    ),
    Contender(
        "jax",
        jax_peers.prepare,
        needs=jax_peers.needs,
        package="jax",
        compiled=True,
        note=(
            "jax.nn.dot_product_attention under jit, with spans as a bias; no gradient of the span; its softmax is "
            "always in float32, and --threads does not set its number of threads"
        ),
    ),
)
