"""tvm_ffi.torch_addon with the real torch: its builder's script compiles against it for half a minute."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from racefix import elf
from racefix_patches import tvm_ffi as patches
from tests.patches.conftest import Release
from tests.support import FULL, python

LOAD = """
import warnings
warnings.simplefilter("error", UserWarning)
import torch
del torch.Tensor.__dlpack_c_exchange_api__  # as torch was before 2.10
import tvm_ffi._optional_torch_c_dlpack as module
assert module._LIB
import tvm_ffi
print(tvm_ffi.from_dlpack(torch.arange(3)).shape)
"""


@pytest.mark.skipif(not FULL, reason="compiles for half a minute: tox -e full")
@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="torch is not installed")
def test_the_addon_for_the_real_torch(tvm_ffi: Release, tmp_path: Path) -> None:
    env = {"TVM_FFI_CACHE_DIR": str(tmp_path / "cache"), "TMPDIR": "/dev/shm"}
    for _ in range(2):
        done = python(LOAD, path=[tvm_ffi("0.1.15.post2")], env=env)
        assert done.stdout.strip() == "(3,)"
        (built,) = (tmp_path / "cache").glob(patches.ADDONS)
        inode = built.stat().st_ino
    assert elf.is_whole(str(built))
    assert inode == built.stat().st_ino
    assert not list((tmp_path / "cache").glob(".racefix-*"))
    with built.open("r+b") as file:
        file.truncate(100_000)
    assert python(LOAD, path=[tvm_ffi("0.1.15.post2")], env=env).stdout.strip() == "(3,)"
