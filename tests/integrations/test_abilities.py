"""The page on the abilities of other libraries has the table that is computed now."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.filterwarnings("default")  # other libraries may warn
def test_the_page_has_the_table_of_abilities():
    for name in ("torch", "jax"):
        pytest.importorskip(name)
    from headspan.lab.machine import describe_machine

    from benchmarks.abilities.__main__ import all_cells, table

    markdown = table(all_cells(), describe_machine(1))
    assert markdown in (ROOT / "docs/explain/peers.md").read_text(), markdown
