"""A folder to call the command in."""

import pytest
from lm_helpers import small_text


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_bytes(small_text(2000).data.tobytes())
    return tmp_path
