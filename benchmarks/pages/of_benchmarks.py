"""The figures that pages have from files of the benchmarks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from benchmarks.cases import BACKWARD, BOTH, FORWARD
from benchmarks.measure.results import Row
from benchmarks.output import rivals
from benchmarks.pages.numbers import Unmeasured
from benchmarks.pages.registry import figures

SPEED = "docs/explain/speed.md"


def _ratio(data: Any, case: str, passes: str, contender: str) -> float:
    """Return a contender's time relative to that of headspan."""
    key = (case, passes, contender)
    rows = (row for row in data["rows"] if (row["case"], row["passes"], row["contender"]) == key)
    return next((row["ratio"] for row in rows if row["ratio"] is not None), Unmeasured())


def _best(data: Any, case: str, passes: str, *, with_span_gradient: bool = False) -> tuple[float, str | float]:
    """Return the relative time and the name of the best rival."""
    rows = [Row(**row) for row in data["rows"]]
    row = rivals.best(rows, case, passes, with_span_gradient=with_span_gradient)
    return (Unmeasured(), Unmeasured()) if row is None or row.ratio is None else (row.ratio, row.contender)


@figures("README.md", "benchmarks/results/first_days.json")
def _first_days(data: Any) -> Iterator[tuple[Any, ...]]:
    seconds = data["seconds"]
    build, training = seconds["install with the build"], seconds["headspan demo to its first report, 1900 steps"]
    yield "the first report takes about # minutes, # of them for the build", (build + training) / 60, build / 60
    tests = seconds["the tests of the README, after the build"]
    yield "the tests, which take about # minutes on two cores after the build", tests / 60


@figures("README.md", "benchmarks/results/measured.json")
def _readme_speed(data: Any) -> Iterator[tuple[Any, ...]]:
    full = _ratio(data, "span-full", FORWARD, "torch-sdpa")
    yield "torch takes # times as long as headspan for a full causal forward pass over 2048 tokens", full
    mask, best = _ratio(data, "span-256", FORWARD, rivals.USUAL), _best(data, "span-256", FORWARD)[0]
    yield "takes # times as long with a dense mask, and # times as long in the fastest other form", mask, best
    heads, stride = (_best(data, case, FORWARD)[0] for case in ("span-heads", "strided-128"))
    yield (
        "With spans of 8 to 64 in seven heads and 1000 in one, the fastest form takes # times as long; "
        "for a stride of 128, a reshape takes # times",
        heads,
        stride,
    )


@figures(SPEED, "benchmarks/results/measured.json")
def _speed(data: Any) -> Iterator[tuple[Any, ...]]:
    full = [_ratio(data, "span-full", passes, "torch-sdpa") for passes in (FORWARD, BOTH)]
    yield "`scaled_dot_product_attention` takes # times as long as headspan, and # times as long with gradients", *full
    spans = {
        "span 256": "span-256",
        "span 64": "span-64",
        "one span per token": "span-dynamic",
        "seven heads with 8 to 64 and one with 1000": "span-heads",
    }
    for name, case in spans.items():
        first = f"{name}, 0 to 512" if case == "span-dynamic" else name
        mask = [_ratio(data, case, passes, rivals.USUAL) for passes in (FORWARD, BOTH)]
        yield f"| {first}, forward | # | # (@) | |", mask[0], *_best(data, case, FORWARD)
        with_gradient = _best(data, case, BOTH, with_span_gradient=True)
        yield f"| {name}, forward and backward | # | # (@) | # (@) |", mask[1], *_best(data, case, BOTH), *with_gradient
    patterns = {
        "`Window(65, 64)`": "local",
        "`Window(65, 64) \\| Global(range(4))`": "longformer",
        "`Strided(32)`": "strided-32",
        "`Strided(128)`": "strided-128",
        "`Blockwise(256)`": "blockwise-256",
        "`Window(65, 64) \\| Strided(128) \\| Global(range(4))`": "mixed",
        "`Blocks`, a random quarter of blocks of 64 x 64": "blocks-25",
        "`Neighborhood((64, 64), 7)`": "neighborhood-7",
    }
    for name, case in patterns.items():
        masks = [_ratio(data, case, passes, rivals.USUAL) for passes in (FORWARD, BACKWARD)]
        forward, backward = (_best(data, case, passes) for passes in (FORWARD, BACKWARD))
        yield f"| {name} | # | # (@) | # | # (@) |", masks[0], *forward, masks[1], *backward


@figures(SPEED, "benchmarks/results/decode.json")
def _decode(data: Any) -> Iterator[tuple[Any, ...]]:
    case = data["cases"]["8 heads on 8 key heads, 65536 keys"]
    rows = case["contenders"]
    sums = rows["a plain sum"]["milliseconds"]
    yield "here # ms for # MiB, and the sum takes # ms", rows["arrays"]["milliseconds"], case["mebibytes"], sums
    yield "ms; torch's `scaled_dot_product_attention` takes # times as long", rows["torch sdpa, float32"]["of arrays"]
    caches = [rows[f"cache, {dtype}"]["of arrays"] for dtype in ("bfloat16", "float16", "int8")]
    yield "the query takes # of the time with float32 arrays, with float16 # and with int8 #", *caches
    yield "torch takes # of this time with bfloat16", rows["torch sdpa, bfloat16"]["of arrays"]
    rows = data["cases"]["32 heads on 4 key heads, 16384 keys"]["contenders"]
    times = rows["arrays"]["milliseconds"], rows["torch sdpa, float32"]["of arrays"]
    yield "and 16 thousand keys take # ms, and torch takes # times as long", *times
    yield "reads them at # % of the speed of the plain sum", 100 * rows["arrays"]["share of the pace of memory"]


@figures(SPEED, "benchmarks/results/calls.json")
def _calls(data: Any) -> Iterator[tuple[Any, ...]]:
    small = data["microseconds"]["1x4x16x16"]
    yield "takes # us on NumPy arrays and # us on tensors", small["headspan.attention"], small["headspan.torch"]
    yield "`scaled_dot_product_attention` takes # us;", small["torch"]
    gradients = small["headspan.torch, gradients"], small["torch, gradients"]
    yield "with gradients it takes # us on tensors and # us with torch", *gradients
    tokens = data["tokens_milliseconds"]
    slower = [int(length) for length, row in tokens.items() if row["spans, head_cache"] >= row["sdpa"]]
    faster = [int(length) for length in tokens if int(length) > max(slower)]
    yield 'faster than "sdpa" from a context between # and # tokens', max(slower), min(faster)
    longest = max(map(int, tokens))
    row = tokens[str(longest)]
    yield "are clearly faster only at # tokens (# and # ms a token)", longest, row["spans, DynamicCache"], row["sdpa"]


@figures(SPEED, "benchmarks/results/threads.json")
def _threads(data: Any) -> Iterator[tuple[Any, ...]]:
    for name, case in data["cases"].items():
        times = case["measured_ms"]
        values = [milliseconds for number in ("1", "2", "4", "8", "16") for milliseconds in times[number]]
        yield f"| {name} |{' # / # |' * 5} # |", *values, case["backward_speedup_simulated"]["64"]
    both = [{n: sum(times) for n, times in case["measured_ms"].items()} for case in data["cases"].values()]
    for text, number in (("are # to # times as fast on 16 threads", "16"), ("and # to # times on eight", "8")):
        ratios = [times["1"] / times[number] for times in both]
        yield text, min(ratios), max(ratios)


@figures("docs/explain/hybrid.md", "benchmarks/results/hybrid.json")
def _hybrid(data: Any) -> Iterator[tuple[Any, ...]]:
    short, long = (
        [100 * _ratio(data, f"hybrid-{tokens}", passes, "local-branch") for passes in (FORWARD, BOTH)]
        for tokens in (512, 8192)
    )
    yield "takes # to # % of the layer's time at 512 tokens and at most # % at 8192", min(short), max(short), max(long)
    memory = {(row["case"], row["passes"], row["contender"]): row["memory"] for row in data["rows"]}
    layers = [memory[key] / memory[*key[:2], "full-layer"] for key in memory if key[2] == "headspan"]
    layers = layers or [math.nan]
    yield "and # to # times that of a layer with only the full branch", min(layers), max(layers)


@figures("docs/howto/transformers.md", "benchmarks/results/heads.json")
def _heads(data: Any) -> Iterator[tuple[Any, ...]]:
    for context, text in (
        ("32768", "a token at 32k tokens took # ms instead of # ms with `sdpa`"),
        ("8192", "at 8k tokens, a token took # ms instead of # ms"),
    ):
        times = data["contexts"][context]["milliseconds a token"]
        yield text, times["head_cache"], times["sdpa, static"]
    context = data["contexts"]["32768"]
    yield "as long as without any context (# ms)", context["milliseconds a token"]["no context"]
    cache = context["cache, mebibytes"]
    yield "the cache took # MiB instead of #;", cache["head_cache"], cache["sdpa, static"]


@figures("docs/howto/masks.md", "benchmarks/results/flex.json")
def _flex(data: Any) -> Iterator[tuple[Any, ...]]:
    for name, case in data["cases"].items():
        forward, backward = case["forward"].values(), case["backward"].values()
        milliseconds = [1e3 * seconds for seconds in (*forward, *backward)]
        yield f"| {name} | # | # % |{' # |' * 5}", case["tokens"], 100 * case["share of pairs"], *milliseconds


@figures("docs/howto/transformers.md", "benchmarks/results/texts.json")
def _texts(data: Any) -> Iterator[tuple[Any, ...]]:
    ratios = {
        name: [
            data["seconds"][name][passes]["sdpa"] / data["seconds"][name][passes]["headspan"]
            for passes in ("forward", "forward and backward")
        ]
        for name in ("packed", "padded")
    }
    yield (
        "packed texts of 4096 tokens are # times as fast as with `sdpa`, and # times with gradients",
        *ratios["packed"],
    )
    yield "and padded texts # and # times", *ratios["padded"]


@figures("docs/howto/jax.md", "benchmarks/results/jax_mask.json")
def _jax(data: Any) -> Iterator[tuple[Any, ...]]:
    for case, text in (
        ("2048 tokens, forward", "headspan is # times (# to #) as fast as the same mask"),
        ("2048 tokens, forward and backward", "# times (# to #) with gradients"),
        ("4096 tokens, forward", "and # times (# to #) for 4096 tokens"),
    ):
        row = data["cases"][case]
        yield text, row["ratio"], row["from"], row["to"]


@figures("docs/howto/long.md", "benchmarks/results/retrieval.json")
def _retrieval(data: Any) -> Iterator[tuple[Any, ...]]:
    times = data["milliseconds"]["64"]
    text = "out of 524,288 keys of dimension 64, takes # ms, and the gradient # ms more"
    yield text, times["forward"], times["backward"]
    yield "takes # and # ms. An inverted file", times["forward, copied"], times["backward, copied"]
    recalls = [100 * data["searches"][kind]["nprobe 16"]["recall"] for kind in ("words", "centres")]
    yield "finds # % of the 32 keys with the largest products if keys are made of a text, and # % if", *recalls


@figures("docs/howto/gpu.md", "benchmarks/results/gpu.json")
def _gpu(data: Any) -> Iterator[tuple[Any, ...]]:
    times = data["attention_ms"]
    rows = {
        "4 x 16 x 4096 x 64": ("| # / # | # / # | # / # | 256: # / #; below 256 by token: # / # |", "256", "by token"),
        "1 x 16 x 8192 x 128": ("| # / # | # / # | # / # | 512: # / # |", "512"),
        "1 x 16 x 32768 x 64": (
            "| # / # | # / # | | 1024: # / #; 8 8 8 16 16 32 64 4096: # / # |", "1024", "skewed",
        ),
    }  # fmt: skip
    for shape, (text, *spans) in rows.items():
        limit = ["headspan, limit"] if "headspan, limit" in times[shape] else []
        names = ["sdpa", "headspan", *limit, *(f"headspan, {span}" for span in spans)]
        values = [times[shape][name][passes] for name in names for passes in ("forward", "both")]
        yield f"| {shape.replace(' x', ',')} {text}", *values
    long = times["1 x 16 x 32768 x 64"]
    share = 100 * long["headspan, 1024"]["both"] / long["sdpa"]["both"]
    yield "spans of 1024 take # % of the time of full attention in torch", share
    speeds = [
        [row["sdpa"][passes] / row["headspan"][passes] for row in times.values()] for passes in ("forward", "both")
    ]
    yield "Full attention runs at # to # of the speed of torch's forward pass", min(speeds[0]), max(speeds[0])
    yield "and at # to # with gradients", min(speeds[1]), max(speeds[1])
    launches = [row[name]["processor_both"] for row in times.values() for name in row if name.startswith("headspan")]
    yield "Python took # to # ms to launch both passes", min(launches), max(launches)
    steps = data["training_step_ms"]
    yield "took # ms with learned spans at their limit, and # ms with SDPA", steps["headspan"], steps["sdpa"]
