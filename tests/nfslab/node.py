"""A file or directory as one host knows it."""

from __future__ import annotations

import math
import os
import stat
import threading
from dataclasses import dataclass, field

NEVER = -math.inf
Key = tuple[int, int]
"""Device and inode."""
Version = tuple[int, ...]


@dataclass(eq=False, slots=True)
class Node:
    """What a host holds in its caches about one inode.

    Args:
        number: by which the kernel names it; 1 is the root.
        descriptor: opened with O_PATH, so that the inode's number cannot be used anew meanwhile.
        status: its attributes when they were last asked for.
        fetched: when that was, by the monotonic clock.
        validated: for a directory, when its ``change`` was last asked for.
        change: for a directory, the version of its content; a name cached under another one is not trusted.
        entries: for a directory, node number (0: missed) and ``change`` by name.
        names: directory and name of the entries that lead here.
        lookups: how often the kernel was told of it, less how often it forgot.
        opens: how many handles there are.
        unsent: offset and bytes that were written here and not sent yet.
        unsent_bytes: how many these are.
        pages: the version of the file that the kernel's cached pages are of.
        silly: descriptor of the directory, and name, of its .nfs file.
        gone: when it was first seen that another host had removed it; 0 if it was not.
        sending: held while ``unsent`` is sent, so that data reach the server in order.
    """

    number: int
    descriptor: int
    status: os.stat_result
    fetched: float = NEVER
    validated: float = NEVER
    change: Version = ()
    entries: dict[str, tuple[int, Version]] = field(default_factory=dict)
    names: set[tuple[int, str]] = field(default_factory=set)
    lookups: int = 0
    opens: int = 0
    unsent: list[tuple[int, bytes]] = field(default_factory=list)
    unsent_bytes: int = 0
    pages: Version = ()
    silly: tuple[int, str] | None = None
    gone: float = 0.0
    sending: threading.Lock = field(default_factory=threading.Lock)
    key: Key = field(init=False)
    path: str = field(init=False)
    is_directory: bool = field(init=False)

    def __post_init__(self) -> None:
        self.key = key_of(self.status)
        self.path = f"/proc/self/fd/{self.descriptor}"
        self.is_directory = stat.S_ISDIR(self.status.st_mode)

    def size(self) -> int:
        """Return the size as this host sees it, with what it has not sent."""
        return max([self.status.st_size, *(offset + len(data) for offset, data in self.unsent)])


def key_of(status: os.stat_result) -> Key:
    return status.st_dev, status.st_ino
