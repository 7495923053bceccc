"""Fixtures that every test may use: a clean configuration, a wheel of this tree, fresh environments."""

from __future__ import annotations

import logging
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from racefix import config, events
from tests.nfslab.fixtures import laboratory  # noqa: F401
from tests.support import ROOT, Environment, run


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


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", directory, ROOT)
    (built,) = directory.iterdir()
    return built


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Make a fresh virtual environment with what pip is told to install; return its python."""

    def make(*install: object) -> Path:
        directory = tmp_path_factory.mktemp("environment")
        venv.create(directory, with_pip=True, symlinks=True)
        python = directory / "bin" / "python"
        if install:
            run(python, "-m", "pip", "install", "--quiet", *map(str, install))
        return python

    return make


@pytest.fixture(scope="session")
def installed(environment: Environment, wheel: Path) -> Path:
    """The python of an environment in which ``pip install racefix`` was all that happened. Not to be changed."""
    return environment(wheel)
