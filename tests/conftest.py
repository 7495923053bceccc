"""Fixtures that every test may use."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from racefix import config, events


@pytest.fixture(autouse=True)
def own_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give each test the default configuration, empty counters and a temporary directory of its own."""
    for variable in config.VARIABLES:
        monkeypatch.delenv(f"RACEFIX_{variable}", raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.mktemp("tmp")))
    config.current.cache_clear()
    events.counts.clear()
    yield
    config.current.cache_clear()
    logging.getLogger("racefix").setLevel(logging.NOTSET)
