"""Operations on open directories."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, field
from itertools import count

from . import protocol
from .node import Node
from .protocol import Request
from .view import View

DIRECTORY, FILE, SYMLINK = 4, 8, 10  # DT_ of readdir(3)


@dataclass(slots=True)
class Listing:
    """A directory that is open on this host, with its entries as replies when it is read."""

    directory: Node
    entries: list[bytes] = field(default_factory=list)


class Directories:
    """Answers the operation that each public method is named after."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._listings: dict[int, Listing] = {}
        self._numbers = count(1)

    def opendir(self, request: Request) -> bytes:
        with self._view.lock:
            directory = self._view.nodes[request.node]
            self._view.fetch(directory)
            number = next(self._numbers)
            self._listings[number] = Listing(directory)
        return protocol.opened(number)

    def readdir(self, request: Request) -> bytes:
        number, position, size = struct.unpack_from("<QQI", request.body)
        listing = self._listings[number]
        if position == 0 or not listing.entries:
            with self._view.lock:
                self._view.fetch(listing.directory)
            listing.entries = _entries(listing.directory.path)
        answer = bytearray()
        for entry in listing.entries[position:]:
            if len(answer) + len(entry) > size:
                break
            answer += entry
        return bytes(answer)

    def releasedir(self, request: Request) -> bytes:
        (number,) = struct.unpack_from("<Q", request.body)
        self._listings.pop(number, None)
        return b""

    def fsyncdir(self, request: Request) -> bytes:
        return b""


def _entries(path: str) -> list[bytes]:
    entries = [(".", DIRECTORY, 1), ("..", DIRECTORY, 1)]
    with os.scandir(path) as scan:
        entries += [(entry.name, _kind(entry), entry.inode()) for entry in scan]
    return [
        protocol.directory_entry(inode, position, kind, os.fsencode(name))
        for position, (name, kind, inode) in enumerate(entries, 1)
    ]


def _kind(entry: os.DirEntry[str]) -> int:
    if entry.is_dir(follow_symlinks=False):
        return DIRECTORY
    return SYMLINK if entry.is_symlink() else FILE
