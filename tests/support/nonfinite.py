"""NaN and infinity inside the reach: what they must reach, and what they must not.

A number that is not finite spoils the rows that see it, and through them the gradients of all that these rows see;
every other result stays what it was. As a program, it looks for counterexamples for some seconds, with the kernels that
run: ``HEADSPAN_ISA=scalar python tests/support/nonfinite.py --seconds 60``.
"""

import argparse
import time
from collections import namedtuple
from dataclasses import replace

import headspan as hs
import numpy as np
import oracle
from cases import DTYPES, make_case
from pattern_cases import PatternCase, draw_case, make_composed_case
from pattern_oracle import Leaf, Pair
from tolerances import TOLERANCES

FAR_AND_NEAR = Pair("|", Leaf("Window", (40, 3), {}), Leaf("Global", ((2040, 2050, 7),), {}))
Spoilt = namedtuple("Spoilt", "must may")  # of a result: where it must not be finite, and where it need not be


def draw(seed, dtype):
    """A random case, and the arrays with some numbers that are not finite."""
    rng = np.random.default_rng([77, seed, DTYPES.index(dtype)])
    kind = rng.random()
    if kind < 0.45:
        plain = make_case(int(rng.integers(10**6)), dtype)
        case = PatternCase(plain.arrays, plain.options, None, plain.grad_out, plain.grad_lse)
    elif kind < 0.9:
        case = make_composed_case(int(rng.integers(10**6)), dtype)
    else:  # parts of the keys, to be merged
        queries, keys, tree = ((3, 4500, None), (70, 2100, FAR_AND_NEAR))[rng.integers(2)]
        case = draw_case(rng, dtype, tree, (1, 2, 1, queries, keys), 4, 8)
    if rng.random() < 0.4:
        case = replace(case, options=remove_pairs(rng, case))
    name = str(rng.choice(["query", "key", "value"]))
    array = np.array(case.arrays[name], order="C")
    rows = array.reshape(-1, array.shape[-1])
    for row in rng.choice(len(rows), min(len(rows), int(rng.choice([1, 1, 2, 5]))), replace=False):
        poison = rng.choice([np.nan, np.nan, np.inf, -np.inf])
        rows[row, slice(None) if rng.random() < 0.5 else rng.integers(rows.shape[1])] = poison
    return case, name, array


def remove_pairs(rng, case):
    """The options of a case with pairs that a bias of -inf or a gate of 0 removes, some of them as whole rows."""
    options, share = dict(case.options), rng.choice([0.02, 0.5, 0.98])
    if "block_gates" in options:
        options["block_gates"] = np.where(rng.random(options["block_gates"].shape) < share, 0, options["block_gates"])
    if "block_gates" not in options or rng.random() < 0.5:
        queries, keys = (case.arrays[name].shape[-2] for name in ("query", "key"))
        removed = rng.random((queries, keys)) < share
        removed[rng.random(queries) < 0.1], removed[:, rng.random(keys) < 0.1] = True, True
        options["pair_bias"] = np.where(removed, -np.inf, rng.standard_normal(removed.shape))
        options["pair_bias"] = options["pair_bias"].astype(case.arrays["query"].dtype)
    return options


def expected(case, name, poisoned):
    """Where every result of a poisoned case must, and may, be other than finite, on four axes."""
    clean = oracle.with_persistent_columns(**case.dense)
    seen = np.broadcast_to(clean.mask > 0, clean.weights.shape)
    heads, dims = seen.shape[1], clean.out.shape[-1]
    tokens = np.shape(case.arrays["key"])[-2]
    memory = {n: case.options.get(f"persistent_{n}") for n in ("key", "value")}
    if name == "value":
        bad = oracle.with_persistent(~np.isfinite(poisoned), None if memory["value"] is None else 0 * memory["value"])
        bad = oracle.repeat_heads(bad > 0, heads)
        # A weight that rounding may have lost need not count.
        surely = np.einsum("bhij,bhjd->bhid", (clean.weights > 1e-30).astype(float), bad.astype(float)) > 0
        out = Spoilt(surely, np.einsum("bhij,bhjd->bhid", seen.astype(float), bad.astype(float)) > 0)
        lse = Spoilt(np.zeros(seen.shape[:3], bool), np.zeros(seen.shape[:3], bool))
        rows = Spoilt(*(part.any(-1) for part in out))
    else:
        with np.errstate(invalid="ignore"):
            pair = {n: (poisoned if n == name else case.arrays[n]) for n in ("query", "key")}
            pair = {n: oracle.repeat_heads(oracle.with_persistent(pair[n], memory.get(n)), heads) for n in pair}
            product = clean.factor * (pair["query"] @ pair["key"].swapaxes(-1, -2))
        # -inf is a score of weight 0; its product with an infinite key in the gradient is whatever it is.
        may = (seen & ~np.isfinite(product)).any(-1)
        too_large = (product == np.inf) & ("softcap" not in case.options)
        lse = rows = Spoilt((seen & (np.isnan(product) | too_large)).any(-1), may)
        out = Spoilt(*(np.repeat(part[..., None], dims, -1) for part in rows))
    seen = seen[..., :tokens]
    keys = Spoilt(*((seen & part[..., None]).any(-2) for part in rows))
    key_heads = oracle.lift(case.arrays["key"]).shape[1]
    keys = Spoilt(*(oracle.gather_heads(part[..., None], key_heads)[..., 0] > 0 for part in keys))
    values = Spoilt(np.zeros_like(keys.must), np.zeros_like(keys.may)) if name == "value" else keys
    pairs = lse if name == "value" else rows
    weights = Spoilt(*(seen & part[..., None] for part in pairs))
    return {"out": out, "lse": lse, "weights": weights, "query": rows, "key": keys, "value": values}


def check(case, name, poisoned):
    """Raise AssertionError if a result of the package is not as expected."""

    def results(arrays):
        arguments = {**case.arguments, **arrays}
        (out, lse), vjp = hs.attention_vjp(**arguments, return_lse=True)
        gradients = vjp(case.grad_out, case.grad_lse)
        # The forward call alone takes the same path and gives the same bits, but for the bits of a NaN.
        for one, two in zip(hs.attention(**arguments, return_lse=True), (out, lse), strict=True):
            np.testing.assert_array_equal(one, two)
        del arguments["value"]
        weights = hs.attention_weights(**arguments)
        return {
            "out": out, "lse": lse, "weights": weights, **{n: getattr(gradients, n) for n in ("query", "key", "value")},
        }  # fmt: skip

    dtype = str(case.arrays["query"].dtype)
    with np.errstate(invalid="ignore"):  # sums of gradients over those who share a parameter
        clean, spoilt = results({}), results({name: poisoned})
    for result, (must, may) in expected(case, name, poisoned).items():
        ours, before = spoilt[result], clean[result]
        shape = (*ours.shape[:-1], 1) if result in ("query", "key", "value") else ours.shape
        must, may = must.reshape(shape), may.reshape(shape)
        finite = np.isfinite(ours)
        assert not (finite & must).any(), f"{result}: {int((finite & must).sum())} numbers hide a NaN"
        same = finite & ~may & np.isfinite(before)
        changed = (np.isfinite(before) & ~may) & ~finite
        assert not changed.any(), f"{result}: {int(changed.sum())} numbers are spoilt that see nothing bad"
        error = np.abs(np.where(same, ours, 0) - np.where(same, before, 0)).max(initial=0)
        scale = max(1, np.abs(np.where(same, before, 0)).max(initial=0))
        assert error <= TOLERANCES["out", dtype] * scale, f"{result}: off by {error:.3g}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    options = parser.parse_args()
    end, seed, failures = time.monotonic() + options.seconds, options.seed, 0
    while time.monotonic() < end:
        for dtype in DTYPES:
            try:
                check(*draw(seed, dtype))
            except AssertionError as error:
                failures += 1
                print(f"seed {seed}, {dtype}: {error}")
        seed += 1
    print(f"{seed - options.seed} seeds, {failures} failures")
    return failures > 0


if __name__ == "__main__":
    raise SystemExit(main())
