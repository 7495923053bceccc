"""Operations on the mount itself."""

from __future__ import annotations

import os
import struct

from . import protocol
from .protocol import Request
from .view import View


class Session:
    """Answers the operation that each public method is named after, as ``Names``, ``Files`` and the others do."""

    def __init__(self, view: View) -> None:
        self._view = view

    def init(self, request: Request) -> bytes:
        _major, _minor, read_ahead, offered = struct.unpack_from("<IIII", request.body)
        wanted = protocol.ASYNC_READ | protocol.BIG_WRITES | protocol.AUTO_INVAL_DATA
        wanted |= protocol.PARALLEL_DIROPS | protocol.MAX_PAGES
        if self._view.options.locks != "local":  # without these flags the kernel keeps the locks of the mount itself
            wanted |= protocol.POSIX_LOCKS | protocol.FLOCK_LOCKS
        flags = wanted & offered
        pages = protocol.MAX_WRITE >> 12
        return struct.pack("<IIIIHHIIHH32x", 7, 31, read_ahead, flags, 16, 12, protocol.MAX_WRITE, 1, pages, 0)

    def destroy(self, request: Request) -> bytes:
        return b""

    def statfs(self, request: Request) -> bytes:
        status = os.statvfs(self._view.root.path)
        return struct.pack(
            "<QQQQQIII28x",
            status.f_blocks,
            status.f_bfree,
            status.f_bavail,
            status.f_files,
            status.f_ffree,
            status.f_bsize,
            255,
            status.f_frsize,
        )

    def forget(self, request: Request) -> None:
        (count,) = struct.unpack_from("<Q", request.body)
        self._view.forget(request.node, count)

    def batch_forget(self, request: Request) -> None:
        (count,) = struct.unpack_from("<I", request.body)
        for number, lookups in struct.iter_unpack("<QQ", request.body[8 : 8 + 16 * count]):
            self._view.forget(number, lookups)
