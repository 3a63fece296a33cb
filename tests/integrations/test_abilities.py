"""The page that says what others can do says what they did just now."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.filterwarnings("default")  # those of the peers are theirs
def test_the_page_says_what_was_tried():
    for name in ("torch", "jax"):
        pytest.importorskip(name)
    from benchmarks.abilities.__main__ import all_cells, table
    from benchmarks.measure.machine import describe_machine

    found = table(all_cells(), describe_machine(1))
    assert found in (ROOT / "docs/explain/peers.md").read_text(), found
