"""Fixtures that every test may use."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from racefix import config, events


@pytest.fixture(autouse=True)
def own_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Give each test the default configuration, empty counters and a temporary directory of its own."""
    for variable in config.VARIABLES:
        monkeypatch.delenv(f"RACEFIX_{variable}", raising=False)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    config.current.cache_clear()
    events.counts.clear()
    yield
    config.current.cache_clear()
    logging.getLogger("racefix").setLevel(logging.NOTSET)
