"""Operations on locks. They are asked for only if locks do not end at the host, where the kernel has them alone."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time

from . import protocol
from .node import Key, Node
from .protocol import Request
from .view import View

FLOCK = {fcntl.F_RDLCK: fcntl.LOCK_SH, fcntl.F_WRLCK: fcntl.LOCK_EX, fcntl.F_UNLCK: fcntl.LOCK_UN}
TO_THE_END = (1 << 63) - 1
POLL = 0.02  # seconds


class Locks:
    """Answers the operation that each public method is named after, and lets go of locks.

    Each owner of this host has a descriptor of its own in the backing file system, where its lock meets the others'.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._descriptors: dict[tuple[Key, int, bool], int] = {}
        self._interrupted: set[int] = set()

    def getlk(self, request: Request) -> bytes:
        """Answer that nobody holds a lock: it is never looked for."""
        start, end = struct.unpack_from("<16xQQ", request.body)
        return struct.pack("<QQII", start, end, fcntl.F_UNLCK, 0)

    def setlk(self, request: Request) -> bytes:
        self._take(request)
        return b""

    def setlkw(self, request: Request) -> bytes:
        """Wait for a lock. It may take long, so a thread of its own is needed."""
        while True:
            try:
                self._take(request)
                return b""
            except BlockingIOError:
                if request.unique in self._interrupted:
                    self._interrupted.discard(request.unique)
                    raise protocol.error(errno.EINTR) from None
            time.sleep(POLL)

    def interrupt(self, request: Request) -> None:
        (unique,) = struct.unpack_from("<Q", request.body)
        self._interrupted.add(unique)

    def let_go(self, node: Node, owner: int, is_flock: bool) -> None:
        """Let go of an owner's locks of a file: its descriptor, or the last copy of it, is closed."""
        with self._view.lock:
            descriptor = self._descriptors.pop((node.key, owner, is_flock), None)
        if descriptor is not None:
            os.close(descriptor)

    def _take(self, request: Request) -> None:
        """Take or let go of a lock.

        Raises:
            BlockingIOError: another owner, here or on another host, has it.
            OSError: there are no locks.
        """
        owner, start, end, kind, _pid, flags = struct.unpack_from("<8xQQQIII", request.body)
        mode = self._view.options.locks
        if mode != "shared":
            raise protocol.error(errno.ENOLCK if mode == "enolck" else errno.ENOSYS)
        is_flock = bool(flags & protocol.IS_FLOCK)
        descriptor = self._descriptor(self._view.nodes[request.node], owner, is_flock)
        if is_flock:
            fcntl.flock(descriptor, FLOCK[kind] | fcntl.LOCK_NB)
            return
        length = 0 if end >= TO_THE_END else end - start + 1
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, 0))
        except PermissionError:  # EACCES: the other errno that fcntl(2) may have for a lock that is taken
            raise protocol.error(errno.EAGAIN) from None

    def _descriptor(self, node: Node, owner: int, is_flock: bool) -> int:
        key = node.key, owner, is_flock
        with self._view.lock:
            if key not in self._descriptors:
                self._descriptors[key] = os.open(node.path, os.O_RDONLY if node.is_directory else os.O_RDWR)
            return self._descriptors[key]
