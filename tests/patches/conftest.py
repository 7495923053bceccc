"""Real releases of the patched libraries."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import upstream

Release = Callable[[str], Path]


@pytest.fixture(scope="session")
def flashinfer() -> Release:
    """Return the directory for PYTHONPATH of a flashinfer release."""
    if not importlib.util.find_spec("torch"):
        pytest.skip("flashinfer imports torch, which is not installed")
    return lambda release: upstream("flashinfer-python", release)


@pytest.fixture(scope="session")
def tvm_ffi() -> Release:
    """Return the directory for PYTHONPATH of a tvm_ffi release."""
    if not shutil.which("ninja"):
        pytest.skip("tvm_ffi builds with ninja, which is not installed")
    return lambda release: upstream("apache-tvm-ffi", release, compiled=True)


@pytest.fixture
def made_up(tmp_path: Path) -> Callable[[Path, str, str, str], Path]:
    """Make a release that does not exist: another's files under another version, one text in them changed."""

    def make(release: Path, version: str, old: str = "", new: str = "") -> Path:
        copy = tmp_path / f"made-up-{version}"
        shutil.copytree(release, copy, copy_function=os.link)
        (info,) = copy.glob("flashinfer_python-*.dist-info")
        (changed,) = copy.glob("flashinfer/jit/cubin_loader.py")
        for file, pattern, text in (
            (info / "METADATA", r"(?m)^Version: .*$", f"Version: {version}"),
            (changed, old, new),
        ):
            if pattern:
                before = file.read_text()
                after = re.sub(pattern, text, before)
                assert after != before
                file.unlink()  # the link, not the release's own file
                file.write_text(after)
        return copy

    return make
