"""Keys retrieved from a memory: ``python -m benchmarks.studies.retrieval --keys 524288 --queries 4096``.

The study measures the search time per query, and the recall of the 32 keys with the largest products, for exact search
by headspan and faiss and for an inverted file. Then it times attention to 32 retrieved keys per query, forward and
backward: in the core, and in NumPy, which copies the keys of each query.

The search has two kinds of keys. Keys of "centres" are drawn around centres whose frequencies fall like those of words.
Keys of "words" are made from a text: each word of the standard library's source has a vector from its counts of
neighbouring words, and a key is a decaying sum over the last four words.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import faiss
import headspan as hs
import numpy as np
import numpy.typing as npt
from headspan.lab.text import standard_library

from benchmarks.measure.turns import medians
from benchmarks.output.saved import add_json_option, write_study

K = 32
LISTS, PROBES = 1024, (1, 4, 16, 64)
ALONE = 16  # number of queries that are searched for one at a time
Array = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int64]
Search = Callable[[Array], Indices]


def drawn(keys: int, queries: int, dim: int) -> tuple[Array, Array]:
    """Return keys and queries that are drawn around common centres."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((4 * LISTS, dim))
    shares = 1 / np.arange(10, 10 + len(centres))
    indices = rng.choice(len(centres), keys + queries, p=shares / shares.sum())
    rows = (centres[indices] + 0.5 * rng.standard_normal((keys + queries, dim))).astype(np.float32)
    return rows[:keys], rows[keys:]


def of_words(keys: int, queries: int, dim: int) -> tuple[Array, Array]:
    """Return keys made from a text, and queries made from the text that follows it."""
    text = standard_library(limit=12 * (keys + queries)).data.tobytes().decode("utf-8", "replace")
    words, numbers = np.unique(text.split(), return_inverse=True)
    count = np.bincount(numbers)
    rank = np.empty(len(words), np.int64)
    rank[np.argsort(-count, kind="stable")] = np.arange(len(words))
    place = rank[numbers]
    known, neighbours = 8192, 1024
    together = np.zeros((known + 1, neighbours + 1))
    for distance in (1, 2):
        for one, other in ((place[distance:], place[:-distance]), (place[:-distance], place[distance:])):
            np.add.at(together, (np.minimum(one, known), np.minimum(other, neighbours)), 1)
    expected = np.outer(together.sum(1), together.sum(0)) / together.sum()
    left, values, _ = np.linalg.svd(np.log1p(together) - np.log1p(expected), full_matrices=False)
    vectors = left[:, :dim] * np.sqrt(values[:dim])
    vectors *= np.sqrt(dim) / np.linalg.norm(vectors, axis=1).mean()
    text_vectors = vectors[np.minimum(place, known)]
    rows = sum(0.7**back * np.roll(text_vectors, back, axis=0) for back in range(4))
    if len(rows) < keys + queries:
        raise SystemExit(f"the standard library has {len(rows)} words, fewer than {keys} keys and {queries} queries")
    rows = (rows[: keys + queries] - rows.mean(axis=0)).astype(np.float32)
    return rows[:keys], rows[keys:]


def searching(key: Array, query: Array, rounds: int) -> dict[str, dict[str, float]]:
    """Print and return the search time per query, in a batch and one at a time, and the recall."""
    dim = key.shape[1]
    exact, learned, flat = hs.memory.KeyIndex(1, dim), hs.memory.KeyIndex(1, dim, nlist=LISTS), faiss.IndexFlatIP(dim)
    exact.add(key[None])
    flat.add(key)
    begin = time.perf_counter()
    learned.add(key[None])
    print(f"an inverted file of {LISTS} lists is made in {time.perf_counter() - begin:.1f} s")
    searches: dict[str, Search] = {"exact": partial(probed, exact, 1), "faiss, flat": partial(flatly, flat)}
    searches |= {f"nprobe {probes}": partial(probed, learned, probes) for probes in PROBES}
    together = medians({name: partial(search, query) for name, search in searches.items()}, rounds)
    alone = medians({name: partial(one_by_one, search, query[:ALONE]) for name, search in searches.items()}, rounds)
    least = products(query, key, searches["exact"](query)).min(axis=1, keepdims=True)
    heads = ("search", "us a query", "of flat", "us alone", "of flat", f"recall@{K}")
    print("".join(f"{head:>12}" for head in heads))
    rows = {}
    for name, search in searches.items():
        scores = products(query, key, search(query))
        recall = np.mean(scores >= least - 1e-6 * np.abs(least))  # among keys with equal products, any is correct
        line = f"{name:>12}"
        for times, count in ((together, len(query)), (alone, ALONE)):
            line += f"{times[name] / count * 1e6:12.1f}{times['faiss, flat'] / times[name]:11.1f}x"
        print(f"{line}{recall:12.4f}")
        microseconds = 1e6 * together[name] / len(query), 1e6 * alone[name] / ALONE
        rows[name] = {"us a query": microseconds[0], "us alone": microseconds[1], "recall": float(recall)}
    return rows


def products(query: Array, key: Array, indices: Indices) -> npt.NDArray[np.float64]:
    """Return the products of each query with its retrieved keys."""
    scores = np.einsum("qd,qkd->qk", query, key[np.maximum(indices, 0)], dtype=np.float64)
    return np.where(indices < 0, -np.inf, scores)


def flatly(index: Any, query: Array) -> Indices:
    """Search all keys with faiss."""
    indices: Indices = index.search(query, K)[1]
    return indices


def one_by_one(search: Search, query: Array) -> None:
    """Search for one query at a time, as in text generation."""
    for number in range(len(query)):
        search(query[number : number + 1])


def probed(index: hs.memory.KeyIndex, probes: int, query: Array) -> Indices:
    """Search `probes` lists of an index."""
    index.nprobe = probes
    indices: Indices = index.retrieve(query[None], K)[0]
    return indices


def attending(rows: int, queries: int, dim: int, rounds: int) -> dict[str, float]:
    """Print and return the milliseconds of attention to retrieved keys and of its gradient."""
    rng = np.random.default_rng(0)
    query, grad = rng.standard_normal((2, 1, queries, dim), np.float32)
    key, value = rng.standard_normal((2, 1, rows, dim), np.float32)
    begins = rng.integers(0, rows, (queries, 1))
    indices = (begins + np.cumsum(rng.integers(1, rows // K, (queries, K)), axis=1)) % rows  # no row occurs twice
    nothing = np.zeros((1, queries, dim), np.float32)
    # The local part sees no keys, so that both contenders compute the same.
    options: dict[str, Any] = {"key_ranges": np.zeros((queries, 2), int)}
    result, vjp = hs.memory.retrieval_attention_vjp(query, nothing, nothing, key, value, indices[None], **options)
    arrays = copied(query[0], key[0], value[0], indices)
    assert np.allclose(result[0], arrays[0], atol=1e-5)
    calls: dict[str, Callable[[], object]] = {
        "forward": lambda: hs.memory.retrieval_attention(query, nothing, nothing, key, value, indices[None], **options),
        "forward, copied": lambda: copied(query[0], key[0], value[0], indices),
        "backward": lambda: vjp(grad),
        "backward, copied": lambda: copied_back(query[0], key[0], indices, grad[0], *arrays),
    }
    milliseconds = {name: 1e3 * seconds for name, seconds in medians(calls, rounds).items()}
    for name, time_of_call in milliseconds.items():
        print(f"{dim:>5} dims {name:>18}{time_of_call:10.1f} ms")
    return milliseconds


def copied(query: Array, key: Array, value: Array, indices: npt.NDArray[np.int64]) -> tuple[Array, ...]:
    """Compute attention in NumPy, and return the result and the arrays that its gradient needs."""
    keys, values = key[indices], value[indices]
    scores = np.matmul(keys, query[:, :, None])[..., 0] * np.float32(query.shape[1] ** -0.5)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return np.matmul(weights[:, None], values)[:, 0], weights, keys, values


def copied_back(
    query: Array, key: Array, indices: npt.NDArray[np.int64], grad: Array, *arrays: Array
) -> tuple[Array, Array, Array]:
    """Return the gradients of query, key and value."""
    out, weights, keys, values = arrays
    of_weights = np.matmul(values, grad[:, :, None])[..., 0]
    delta = (grad * out).sum(axis=1, keepdims=True)
    of_scores = weights * (of_weights - delta) * np.float32(query.shape[1] ** -0.5)
    grad_key, grad_value = np.zeros_like(key), np.zeros_like(key)
    np.add.at(grad_key, indices, of_scores[..., None] * query[:, None])
    np.add.at(grad_value, indices, weights[..., None] * grad[:, None])
    return np.matmul(of_scores[:, None], keys)[:, 0], grad_key, grad_value


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.retrieval", description=__doc__)
    parser.add_argument("--keys", type=int, default=1 << 19)
    parser.add_argument("--queries", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=5)
    add_json_option(parser)
    options = parser.parse_args()
    faiss.omp_set_num_threads(hs.get_num_threads())
    sizes = options.keys, options.queries
    searches = {}
    for kind, make in (("centres", drawn), ("words", of_words)):
        print(f"{sizes[0]} keys of 32, of {kind}; {sizes[1]} queries, {hs.get_num_threads()} threads")
        searches[kind] = searching(*make(*sizes, 32), options.rounds)
    times = {dim: attending(*sizes, dim, options.rounds) for dim in (32, 64)}
    write_study(options.json, {"keys": sizes[0], "queries": sizes[1], "searches": searches, "milliseconds": times})


if __name__ == "__main__":
    main()
