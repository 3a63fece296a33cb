"""NaN and infinity reach all that see them, and nothing else, in every variant of the kernel."""

import os

import nonfinite
import pytest
from cases import DTYPES
from headspan import _core
from helpers import run_python

# Seeds a dtype in the variant that runs, and in each of the others.
SEEDS = int(os.environ.get("HEADSPAN_TEST_CASES", "600")) // 6
OTHERS = """
import sys
import nonfinite

for seed in range(100, 140):
    print(seed, flush=True)
    nonfinite.check(*nonfinite.draw(seed, sys.argv[1]))
"""


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_case(seed, dtype):
    nonfinite.check(*nonfinite.draw(seed, dtype))


@pytest.mark.unsanitized
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variant", [name for name in _core.variants() if name != _core.isa()])
def test_other_variants(variant, dtype):
    assert run_python(OTHERS, dtype, HEADSPAN_ISA=variant).endswith("139\n")
