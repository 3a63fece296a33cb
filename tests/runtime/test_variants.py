"""Every compiled instruction set that runs here passes the numerical tests, forced by name."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest
from cases import DTYPES
from headspan import _core
from helpers import ROOT, run_python

VARIANTS = _core.variants()
# Cases a dtype for each variant; the plain run of the suite takes many more.
CASES = os.environ.get("HEADSPAN_VARIANT_CASES", "150")
PATTERNS = os.environ.get("HEADSPAN_VARIANT_PATTERNS", "15")
# The files that have numerical tests: to collect all others, too, would take as long as many of the tests.
FILES = sorted(p for p in (ROOT / "tests").rglob("test_*.py") if re.search(r"pytest\.mark\.numerical", p.read_text()))

RESULTS = """
import sys
import headspan as hs
import numpy as np
import oracle
from cases import make_case
from headspan import _core

assert _core.isa() == hs.build_info()["isa"] == sys.argv[1], _core.isa()
arrays = {}
for seed in range(5000, 5040):
    case = make_case(seed, sys.argv[2])
    (out, lse), vjp = hs.attention_vjp(**case.arguments, return_lse=True)
    gradients = vjp(case.grad_out, case.grad_lse)._asdict()
    for name, array in {"out": out, "lse": lse, **gradients}.items():
        if array is not None:
            arrays[f"{seed} {name}"] = array
    if sys.argv[1] == "scalar":
        sums = oracle.gradients(**case.arguments, grad_out=case.grad_out, grad_lse=case.grad_lse)
        for name, gradient in sums.items():
            arrays[f"{seed} {name} mass"] = np.asarray(gradient.mass)
np.savez(sys.argv[3], **arrays)
"""
# Two orders of the same sum: far closer to each other than either is promised to be to the oracle.
APART = {"float64": 1e-12, "float32": 2e-5}


@pytest.mark.unsanitized  # the sanitizers have plain loops and one other
def test_there_is_more_than_one_variant():
    assert {"scalar", "portable"} <= set(VARIANTS)
    assert len(set(VARIANTS)) == len(VARIANTS)
    assert _core.isa() in VARIANTS


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_forced_variant_runs(variant):
    code = "import headspan as hs; print(hs._core.isa(), hs.build_info()['isa'])"
    assert run_python(code, HEADSPAN_ISA=variant).split() == [variant, variant]


@pytest.mark.thorough
@pytest.mark.unsanitized
@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != _core.isa()])
def test_numerical_tests_pass(variant):
    """All but the one that the plain run of the suite tests.

    conftest.py ends the run when the forced variant is not the one that runs."""
    chosen = ["-m", "numerical and not unsanitized", *FILES]
    if variant == "scalar":  # plain loops take longest, and which thread takes what is decided for all of them alike
        chosen += ["-k", "not threads"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", *chosen],
        env={**os.environ, "HEADSPAN_ISA": variant, "HEADSPAN_TEST_CASES": CASES, "HEADSPAN_TEST_PATTERNS": PATTERNS},
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """results[variant, dtype]: every array of the same forty cases."""
    folder = tmp_path_factory.mktemp("variants")
    loaded = {}
    for variant in VARIANTS:
        for dtype in DTYPES:
            path = folder / f"{variant}-{dtype}.npz"
            run_python(RESULTS, variant, dtype, path, HEADSPAN_ISA=variant)
            with np.load(path) as arrays:
                loaded[variant, dtype] = dict(arrays)
    return loaded


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variant", [v for v in VARIANTS if v != "scalar"])
def test_variants_agree_with_the_scalar_one(results, variant, dtype):
    ours, scalar = results[variant, dtype], results["scalar", dtype]
    plain = {name: array for name, array in scalar.items() if not name.endswith(" mass")}
    assert ours.keys() == plain.keys()
    for name, expected in plain.items():
        finite = np.isfinite(expected)
        np.testing.assert_array_equal(np.isfinite(ours[name]), finite, err_msg=name)
        theirs = np.where(finite, expected, 0)
        error = np.abs(np.where(finite, ours[name], 0) - theirs).max(initial=0)
        # What cancels leaves the rounding of what it was summed from.
        mass = np.max(scalar.get(f"{name} mass", 0), initial=0)
        scale = max(np.abs(theirs).max(initial=1), 1e-4 * mass if np.isfinite(mass) else 0)
        assert error <= APART[dtype] * scale, f"{name}: {error / scale:.3g}"


@pytest.mark.parametrize("name", ["avx1024", "AVX2", " scalar", "scalar,avx2"])
def test_unknown_variant_is_an_error(name):
    """It names what was asked for and what there is; it never runs something else instead."""
    code = "import headspan"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "HEADSPAN_ISA": name},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert name in last
    assert all(variant in last for variant in VARIANTS)
