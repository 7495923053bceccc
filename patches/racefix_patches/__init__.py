"""The patches that come with racefix: one module per upstream library, its recorded code digests beside it."""

from __future__ import annotations

from racefix.patch import Patch

from . import flashinfer, tvm_ffi

PATCHES: tuple[Patch, ...] = (*flashinfer.PATCHES, *tvm_ffi.PATCHES)
