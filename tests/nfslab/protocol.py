"""The part of the FUSE protocol that the laboratory speaks: version 7.31 of the kernel's include/uapi/linux/fuse.h."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct

MAX_WRITE = 128 << 10
BUFFER_SIZE = MAX_WRITE + 8192


class Op(IntEnum):
    """The operations that are answered; any other is ENOSYS, after which the kernel no longer asks."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    READLINK = 5
    SYMLINK = 6
    MKNOD = 8
    MKDIR = 9
    UNLINK = 10
    RMDIR = 11
    RENAME = 12
    LINK = 13
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    FSYNCDIR = 30
    GETLK = 31
    SETLK = 32
    SETLKW = 33
    CREATE = 35
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42
    RENAME2 = 45


# Flags of INIT.
ASYNC_READ = 1 << 0
POSIX_LOCKS = 1 << 1
BIG_WRITES = 1 << 5
FLOCK_LOCKS = 1 << 10
AUTO_INVAL_DATA = 1 << 12
PARALLEL_DIROPS = 1 << 18
MAX_PAGES = 1 << 22

# Bits that say which attributes SETATTR sets.
SET_MODE = 1 << 0
SET_UID = 1 << 1
SET_GID = 1 << 2
SET_SIZE = 1 << 3
SET_ATIME = 1 << 4
SET_MTIME = 1 << 5
SET_ATIME_NOW = 1 << 7
SET_MTIME_NOW = 1 << 8

KEEP_CACHE = 1 << 1  # of an open file: its pages in the kernel's cache are still good
IS_FLOCK = 1 << 0  # of a lock: flock(2), not fcntl(2)

IN_HEADER = Struct("<4xIQQ16x")  # opcode, request, node
OUT_HEADER = Struct("<IiQ")
ATTRIBUTES = Struct("<QQQQQQIIIIIIIIII")
ENTRY = Struct("<QQQQII")
OPENED = Struct("<QII")
DIRENT = Struct("<QQII")
NO_TIMEOUT = bytes(16)  # before attributes: the kernel shall not keep them, but ask each time


@dataclass(slots=True)
class Request:
    """What the kernel asks; ``body`` is overwritten by the next request."""

    unique: int
    node: int
    body: bytes | memoryview


def error(code: int) -> OSError:
    """Return the exception that becomes an error reply."""
    return OSError(code, os.strerror(code))


def reply(unique: int, code: int, payload: bytes) -> tuple[bytes, bytes]:
    """Return the parts of a reply; ``code`` is an errno, or 0."""
    return OUT_HEADER.pack(OUT_HEADER.size + len(payload), -code, unique), payload


def name(body: bytes | memoryview) -> str:
    """Return the name at the start of a request."""
    return os.fsdecode(bytes(body).split(b"\0", 1)[0])


def two_names(body: bytes | memoryview) -> tuple[str, str]:
    """Return the two names at the start of a request."""
    first, second = bytes(body).split(b"\0", 2)[:2]
    return os.fsdecode(first), os.fsdecode(second)


def attributes(status: os.stat_result, size: int, skew_ns: int) -> bytes:
    """Return a file's attributes with the size and the clock that its host sees."""
    atime, atime_ns = divmod(status.st_atime_ns + skew_ns, 10**9)
    mtime, mtime_ns = divmod(status.st_mtime_ns + skew_ns, 10**9)
    ctime, ctime_ns = divmod(status.st_ctime_ns + skew_ns, 10**9)
    return ATTRIBUTES.pack(
        status.st_ino,
        size,
        status.st_blocks,
        atime,
        mtime,
        ctime,
        atime_ns,
        mtime_ns,
        ctime_ns,
        status.st_mode,
        status.st_nlink,
        status.st_uid,
        status.st_gid,
        status.st_rdev & 0xFFFFFFFF,
        4096,
        0,
    )


def entry(node: int) -> bytes:
    """Return what stands before the attributes of a name; no timeouts, so the kernel asks each time."""
    return ENTRY.pack(node, 0, 0, 0, 0, 0)


def opened(handle: int, keep_pages: bool = False) -> bytes:
    """Return what an open file's later requests name it by."""
    return OPENED.pack(handle, KEEP_CACHE if keep_pages else 0, 0)


def directory_entry(inode: int, position: int, kind: int, raw_name: bytes) -> bytes:
    """Return an entry of a directory; ``position`` is that of the entry after it."""
    record = DIRENT.pack(inode, position, len(raw_name), kind) + raw_name
    return record + bytes(-len(record) % 8)


LOST_REPLY = {
    Op.RENAME: errno.ENOENT,
    Op.RENAME2: errno.ENOENT,
    Op.UNLINK: errno.ENOENT,
    Op.RMDIR: errno.ENOENT,
    Op.LINK: errno.EEXIST,
    Op.MKDIR: errno.EEXIST,
    Op.SYMLINK: errno.EEXIST,
}
"""What an operation that was done answers when it is sent again."""
