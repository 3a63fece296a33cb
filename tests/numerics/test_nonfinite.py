"""NaN and infinity reach all that see them, and nothing else, in every variant of the kernel."""

import nonfinite
import pytest
from cases import DTYPES, SEEDS
from headspan import _core
from helpers import run_python

OTHERS = """
import sys
import nonfinite

for seed in range(100, 140):
    print(seed, flush=True)
    nonfinite.check(*nonfinite.draw(seed, sys.argv[1]))
"""


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", SEEDS[: len(SEEDS) // 6])
def test_random_case(seed, dtype):
    nonfinite.check(*nonfinite.draw(seed, dtype))


@pytest.mark.thorough
@pytest.mark.unsanitized
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variant", [name for name in _core.variants() if name != _core.isa()])
def test_other_variants(variant, dtype):
    assert run_python(OTHERS, dtype, HEADSPAN_ISA=variant).endswith("139\n")
