"""Operations on files: attributes and data."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
import time
from dataclasses import dataclass
from itertools import count

from . import protocol
from .locks import Locks
from .node import Node
from .protocol import Request
from .view import View, version


@dataclass(slots=True)
class Handle:
    """A file that is open on this host."""

    node: Node
    descriptor: int


class Files:
    """Answers the operation that each public method is named after."""

    def __init__(self, view: View, locks: Locks) -> None:
        self._view = view
        self._locks = locks
        self._handles: dict[int, Handle] = {}
        self._numbers = count(1)

    def getattr(self, request: Request) -> bytes:
        view = self._view
        node = view.nodes[request.node]
        view.send(node)
        with view.lock:
            view.refresh(node)
            return protocol.NO_TIMEOUT + view.attributes(node)

    def setattr(self, request: Request) -> bytes:
        wanted, size, atime, mtime, atime_ns, mtime_ns, mode, uid, gid = struct.unpack_from(
            "<I12xQ8xQQ8xII4xI4xII", request.body
        )
        view = self._view
        node = view.nodes[request.node]
        view.send(node)
        with view.lock:
            view.fetch(node)  # ESTALE if another host has removed it
            if wanted & protocol.SET_MODE:
                os.chmod(node.path, stat.S_IMODE(mode))
            if wanted & (protocol.SET_UID | protocol.SET_GID):
                os.chown(node.path, uid if wanted & protocol.SET_UID else -1, gid if wanted & protocol.SET_GID else -1)
            if wanted & protocol.SET_SIZE:
                os.truncate(node.path, size)
            set_atime = wanted & (protocol.SET_ATIME | protocol.SET_ATIME_NOW)
            set_mtime = wanted & (protocol.SET_MTIME | protocol.SET_MTIME_NOW)
            if set_atime or set_mtime:
                # The server takes its own clock for "now"; a time that is named is one of the host's clock.
                now = time.time_ns()
                status = os.stat(node.path)
                new_atime = now if wanted & protocol.SET_ATIME_NOW else atime * 10**9 + atime_ns - view.skew_ns
                new_mtime = now if wanted & protocol.SET_MTIME_NOW else mtime * 10**9 + mtime_ns - view.skew_ns
                times = (new_atime if set_atime else status.st_atime_ns, new_mtime if set_mtime else status.st_mtime_ns)
                os.utime(node.path, ns=times)
            view.fetch(node)
            return protocol.NO_TIMEOUT + view.attributes(node)

    def open(self, request: Request) -> bytes:
        (flags,) = struct.unpack_from("<I", request.body)
        view = self._view
        node = view.nodes[request.node]
        view.send(node)
        with view.lock:
            return self._open(node, flags)

    def create(self, request: Request) -> bytes:
        flags, mode, umask = struct.unpack_from("<III", request.body)
        name = protocol.name(request.body[16:])
        view = self._view
        with view.lock:
            directory = view.nodes[request.node]
            how = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | (flags & (os.O_EXCL | os.O_TRUNC))
            with view.asking(directory, name):
                os.close(os.open(f"{directory.path}/{name}", how, mode & ~umask & 0o7777))
            node = view.made(directory, name)
            return view.entry(node) + self._open(node, flags)

    def _open(self, node: Node, flags: int) -> bytes:
        """Open a file that is there. Close-to-open: only if it is unchanged since the last open, its pages are good."""
        status = self._view.fetch(node)
        read_only = flags & os.O_ACCMODE == os.O_RDONLY
        descriptor = os.open(node.path, os.O_RDONLY if read_only else os.O_RDWR)  # to write a part, it may be read
        pages = version(status)
        unchanged = not node.unsent and node.pages == pages
        node.pages = pages
        node.opens += 1
        number = next(self._numbers)
        self._handles[number] = Handle(node, descriptor)
        return protocol.opened(number, keep_pages=unchanged)

    def read(self, request: Request) -> bytes:
        number, offset, size = struct.unpack_from("<QQI", request.body)
        handle = self._handles[number]
        self._view.send(handle.node)
        data = os.pread(handle.descriptor, size, offset)
        gone = self._view.options.estale and os.fstat(handle.descriptor).st_nlink == 0
        if gone and not self._view.in_grace(handle.node):
            raise protocol.error(errno.ESTALE)
        return data

    def write(self, request: Request) -> bytes:
        number, offset, size = struct.unpack_from("<QQI", request.body)
        data = bytes(request.body[40 : 40 + size])
        view = self._view
        handle = self._handles.get(number)
        node = handle.node if handle else view.nodes[request.node]
        with view.lock:
            node.unsent.append((offset, data))
            node.unsent_bytes += size
        if not view.options.cto or node.unsent_bytes > view.options.buffer_mb * 2**20:
            view.send(node)
        return struct.pack("<II", size, 0)

    def flush(self, request: Request) -> bytes:
        (owner,) = struct.unpack_from("<16xQ", request.body)
        node = self._view.nodes[request.node]
        self._view.send(node)
        self._locks.let_go(node, owner, is_flock=False)
        return b""

    def fsync(self, request: Request) -> bytes:
        self._view.send(self._view.nodes[request.node])
        return b""

    def release(self, request: Request) -> bytes:
        number, owner = struct.unpack_from("<Q8xQ", request.body)
        view = self._view
        node = self._handles[number].node
        with contextlib.suppress(OSError):
            view.send(node)
        self._locks.let_go(node, owner, is_flock=False)
        self._locks.let_go(node, owner, is_flock=True)
        with view.lock:
            os.close(self._handles.pop(number).descriptor)
            node.opens -= 1
            if node.silly and not node.opens:
                self._remove_silly(node, *node.silly)
        return b""

    def _remove_silly(self, node: Node, directory_descriptor: int, name: str) -> None:
        """Remove a file's .nfs file, after it was closed."""
        view = self._view
        node.silly = None
        with contextlib.suppress(OSError):  # another host may have been there first
            os.unlink(name, dir_fd=directory_descriptor)
        os.close(directory_descriptor)
        for parent, known_as in list(node.names):
            if known_as == name and (directory := view.nodes.get(parent)):
                view.changed(directory, name)
