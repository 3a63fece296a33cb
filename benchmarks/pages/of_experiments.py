"""The figures that pages have from files of the experiments on small models."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mean, median
from typing import Any

from benchmarks.pages.registry import figures

RESULTS, REACH = "experiments/results", "experiments/reach/results"
SPANS, EXPERIMENTS = "docs/teach/spans.md", "experiments/README.md"
_BITS, _PAIRS = "test bits per character", "pairs a character"


@figures(EXPERIMENTS, f"{RESULTS}/selection_steps4000_seed*.json")
def _selection(seeds: Any) -> Iterator[tuple[Any, ...]]:
    rows = {
        "random blocks of 4 keys, shared by 16 queries": ("random", 16, 4),
        "blocks of 4 keys chosen by the first of 16 queries": ("first query", 16, 4),
        "a window with as many pairs": ("window", 16, 4),
        "blocks of 4 keys, chosen by each query": ("first query", 1, 4),
        "blocks of 2 keys, chosen by each query": ("first query", 1, 2),
        "blocks of 4 keys with the most received weight, which requires all pairs": ("received weight", 1, 4),
    }
    for name, choice in rows.items():
        yield f"| {name} | # # # |", *_excesses(seeds, *choice)
    for text, size in (
        ("# to # % of the window's loss with blocks of 2 keys", 2),
        ("and # to # % with blocks of 4", 4),
    ):
        chosen, window = (_excesses(seeds, choice, 1, size) for choice in ("first query", "window"))
        shares = [100 * one / other for one, other in zip(chosen, window, strict=True)]
        yield text, min(shares), max(shares)


def _excesses(seeds: Any, choice: str, query_block: int, key_block: int) -> list[float]:
    """Return the bits above full attention of each seed, at 67 to 71 pairs per query."""
    key = (choice, query_block, key_block)
    rows = [row for seed in seeds for row in seed["rows"] if 67 <= row["pairs"] <= 71 and "shortlist" not in row]
    return [row["excess"] for row in rows if (row["choice"], row["query_block"], row["key_block"]) == key]


@figures(SPANS, f"{REACH}/echo.json")
def _echo(sweep: Any) -> Iterator[tuple[Any, ...]]:
    for name, kind in (
        ("full attention, 384", "full"),
        ("learned spans, price 1e-5", "adaptive, price 1e-5"),
        ("a window with as many pairs", "window of equal cost"),
        ("learned spans, price 1e-4", "adaptive, price 1e-4"),
        ("dynamic spans, price 1e-5", "dynamic, price 1e-5"),
    ):
        runs = [run for run in sweep["runs"] if run["kind"] == kind]
        bits, pairs = ([round(run[what], 3) for run in runs] for what in (_BITS, _PAIRS))
        yield f"| {name} | {_ranged(bits)} | {_ranged(pairs)} |", *_range(bits), *_range(pairs)
    windows = [run["mean span"] for run in sweep["runs"] if run["kind"] == "window of equal cost"]
    yield "the window has # to # letters", min(windows), max(windows)
    learned = [run for run in sweep["runs"] if run["kind"] == "adaptive, price 1e-5"]
    seeds = [[span for layer in run["spans"] for span in layer if span > 100] for run in learned]
    (still_shrinking,) = seeds[2]
    stopped = seeds[0] + seeds[1]
    ramp = learned[0]["model"]["ramp"]
    numbers = min(stopped), max(stopped), min(stopped) + ramp, max(stopped) + ramp
    yield "stop at # to # letters, where the ramp ends at # to #", *numbers
    needed = sorted(run[_BITS] for run in sweep["runs"] if run["kind"] == "dynamic, price 1e-5")
    yield "one seed needs # bits and another #", needed[2], needed[1]
    yield "is still at # in the last step", still_shrinking


@figures(EXPERIMENTS, f"{REACH}/voices.json")
def _voices(sweep: Any) -> Iterator[tuple[Any, ...]]:
    successes = {run["kind"]: run for run in sweep["runs"] if run["grid"]["seed"] == 1 and run[_BITS] < 2}
    learned = [successes[kind] for kind in ("adaptive, price 1e-5", "adaptive, price 1e-4", "dynamic, price 1e-5")]
    full = next(run[_PAIRS] for run in sweep["runs"] if run["kind"] == "full")
    pairs = [run[_PAIRS] for run in learned]
    yield "# bits at #, # and # of # pairs", mean(run[_BITS] for run in learned), *pairs, full
    yield "The others stop at # or above", min(run[_BITS] for run in sweep["runs"] if run[_BITS] > 2)
    yield "at # to # % of the pairs", 100 * min(pairs) / full, 100 * max(pairs) / full


def _range(values: list[float]) -> list[float]:
    """Return the mean, and the lowest and highest value if they differ."""
    return [mean(values), min(values), max(values)][: 1 if min(values) == max(values) else 3]


def _ranged(values: list[float]) -> str:
    return "# (# to #)" if len(_range(values)) > 1 else "#"


def _limits(sweep: Any, kind: str) -> dict[tuple[int, int], Any]:
    """Return the runs of a kind by limit and seed."""
    return {(run["grid"]["span_limit"], run["grid"]["seed"]): run for run in sweep["runs"] if run["kind"] == kind}


def _gains(sweep: Any, other: str) -> dict[tuple[int, int], float]:
    """Return the bits that learned spans gain over another kind, by limit and seed."""
    learned, others = _limits(sweep, "adaptive"), _limits(sweep, other)
    return {key: others[key][_BITS] - learned[key][_BITS] for key in learned if key in others}


def _shares(sweep: Any) -> dict[tuple[int, int], float]:
    """Return the pairs of learned spans in percent of those of full attention, by limit and seed."""
    learned, full = _limits(sweep, "adaptive"), _limits(sweep, "full")
    return {key: 100 * learned[key][_PAIRS] / full[key][_PAIRS] for key in learned if key in full}


def _against_full(sweep: Any) -> tuple[tuple[float, float], ...]:
    """Return the ranges of gains over full attention and of shares at a limit of 256, and both at 1024 and 4096."""
    gains, shares = _gains(sweep, "full"), _shares(sweep)
    near, near_shares = ([values[256, seed] for seed in range(3)] for values in (gains, shares))
    far, far_shares = ((values[1024, 0], values[4096, 0]) for values in (gains, shares))
    return (min(near), max(near)), (min(near_shares), max(near_shares)), far, far_shares


@figures(SPANS, f"{REACH}/limits.json")
def _limits_of_handout(sweep: Any) -> Iterator[tuple[Any, ...]]:
    near, near_shares, far, far_shares = _against_full(sweep)
    windows = _gains(sweep, "window of equal cost")
    yield "At a limit of 256 they gain # to # bits", *near
    yield "with # to # % of the pairs. At 1024", *near_shares
    yield "they gain # and # bits (seed 0)", *far
    yield "with # and # % of the pairs. But", *far_shares
    yield "only # and # bits over the window with as many pairs in two seeds", windows[256, 0], windows[256, 1]
    yield "and lose # in the third", -windows[256, 2]


@figures(SPANS, f"{REACH}/limits.json")
def _work(sweep: Any) -> Iterator[tuple[Any, ...]]:
    runs = [_limits(sweep, kind)[4096, 0] for kind in ("adaptive", "full")]
    attention = [run["attention FLOPs a character"] for run in runs]
    all_flops = [flops + 2 * _multiplied_weights(run) for flops, run in zip(attention, runs, strict=True)]
    seconds = [run["seconds a step"] for run in runs]
    for name, (learned, full) in (
        ("pairs, and so FLOPs of attention", attention),
        ("FLOPs of the whole model, forward", all_flops),
        ("seconds of a training step", seconds),
    ):
        yield f"| {name} | # % |", 100 * learned / full


def _multiplied_weights(run: Any) -> int:
    """Return how many weights each character is multiplied with: all but the table of embeddings."""
    table: int = run["model"]["vocabulary"] * run["model"]["width"]
    return int(run["parameters"]) - table


@figures(EXPERIMENTS, f"{REACH}/limits.json")
def _limits_of_experiments(sweep: Any) -> Iterator[tuple[Any, ...]]:
    near, near_shares, far, far_shares = _against_full(sweep)
    windows = _gains(sweep, "window of equal cost")
    yield "Full attention is # to # bits worse at 256", *near
    yield "spans have # to # % of its pairs", *near_shares
    yield "and # and # bits worse at 1024 and 4096", *far
    yield "where they have # and # %.", *far_shares
    yield "it is # and # bits worse than spans in seeds 0 and", windows[256, 0], windows[256, 1]
    yield "and # better in seed 2; at the larger limits it is # worse", -windows[256, 2], windows[4096, 0]


@figures(EXPERIMENTS, f"{REACH}/openings.json")
def _openings(written: Any) -> Iterator[tuple[Any, ...]]:
    runs = written["runs"] if isinstance(written, dict) else written  # a list in files without a machine
    means = [{name: place["mean span"] for name, place in run["places"].items()} for run in runs]
    for text, name in (
        ("at ends of lines (# to # characters)", "end of a line"),
        ("quotes (# to #)", "quote"),
        ("brackets (# to #)", "bracket"),
    ):
        yield text, min(run[name] for run in means), max(run[name] for run in means)
    every = [run["mean span"] for run in runs]
    yield "the mean of all characters is # to #.", min(every), max(every)
    lowest = [min((span, name) for name, span in run.items()) for run in means]
    blank = [span for span, name in lowest if name == "indentation"]
    words = [span for span, name in lowest if "letter" in name]
    yield "in three runs (# to #) and within words in two (# and #;", min(blank), max(blank), min(words), max(words)


@figures("experiments/start/README.md", f"{RESULTS}/start/[ehr]*.json")
def _starts(files: Any) -> Iterator[tuple[Any, ...]]:
    runs = [file["runs"] for file in files]  # of echo, heading and recall
    for arm in dict.fromkeys(key.partition(";")[0] for key in runs[0]):
        if arm != "full attention":
            values = [value for task in runs for value in _learned(task, arm)]
            yield f"| {arm} |{' # of 5, # % |' * len(runs)}", *values
    closed = [[run["closed"] for run in _seeds(task, "limit, slow, price after a delay")] for task in runs]
    yield (
        "# to # of 8 heads close in *echo*, # to # in *heading* and # to # in *recall*",
        *(number for counts in closed for number in (min(counts), max(counts))),
    )


def _seeds(runs: Any, arm: str) -> list[Any]:
    return [run for key, run in runs.items() if key.partition(";")[0] == arm]


def _learned(runs: Any, arm: str) -> tuple[int, float]:
    """Return in how many seeds the loss is at most .05 nats above that of full attention, and the mean pairs."""
    pairs_of_seeds = zip(_seeds(runs, arm), _seeds(runs, "full attention"), strict=True)
    successes = sum(run["loss"] - full["loss"] <= 0.05 for run, full in pairs_of_seeds)
    return successes, mean(run["pairs"] for run in _seeds(runs, arm))


@figures(SPANS, f"{RESULTS}/start/forces.json")
def _forces(result: Any) -> Iterator[tuple[Any, ...]]:
    runs = result["runs"]
    demo = runs["price 2e-06"]
    ratios = [abs(force) / demo["price_of_a_head"] for row in demo["rows"] for layer in row["loss"] for force in layer]
    yield "the median over heads and steps is # times the price", median(ratios)
    ends = {name: mean(span for layer in run["rows"][-1]["spans"] for span in layer) for name, run in runs.items()}
    prices = ends["price 0"], ends["price 2e-06"], ends["price 0.002"]
    yield "is # characters without any price, # with that of the demo, and # with a thousand times as much", *prices
    limit = runs["start at the limit"]
    yield (
        "is then still # characters, and the model needs # bits where the demo needs #",
        ends["start at the limit"],
        limit["bits"],
        demo["bits"],
    )
