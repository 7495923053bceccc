"""Look again, past a client's negative cache.

An NFS client that once missed a name goes on missing it until the parent's attributes time out (acdirmin 30 s to
acdirmax 60 s by default), and stat() of the parent does not help. open() of the parent directory does: it makes the
client ask the server for the directory's attributes (close-to-open), and a changed directory drops the missed names
(Linux fs/nfs/dir.c, nfs_neg_need_reval and nfs_lookup_verify_inode; nfs(5), "Directory entry caching").
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

UNSURE = frozenset({errno.ENOENT, errno.ESTALE})
"""Errors that say less than they seem to: the name may be there, or be there again, for who asks the server."""


def refresh(directory: str) -> None:
    """Make this client ask the server about a directory; from the nearest ancestor that it knows, downwards.

    Never raises: where a directory cannot be opened, the look-up that follows tells.
    """
    missing = []
    while not _reopen(directory):
        missing.append(directory)
        parent = os.path.dirname(directory)
        if parent == directory:
            return
        directory = parent
    for known_now in reversed(missing):
        if not _reopen(known_now):
            return


def _reopen(directory: str) -> bool:
    try:
        os.close(os.open(directory or os.curdir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno not in UNSURE
    return True


def again(look: Callable[[str], T], path: str, tries: int = 3) -> T:
    """Return ``look(path)``; a miss or a stale handle is believed only after the parent was asked again.

    Args:
        look: reads only, such as ``os.lstat`` or ``os.readlink``.
        path: what to look at.
        tries: how often to look at most; a miss costs two looks, a stale handle may cost them all.

    Raises:
        OSError: what the last look raised.
    """
    for attempt in range(1, tries + 1):
        try:
            return look(path)
        except OSError as error:
            settled = error.errno == errno.ENOENT and attempt > 1
            if error.errno not in UNSURE or settled or attempt == tries:
                raise
        refresh(os.path.dirname(path))
    raise ValueError("tries must be at least 1")
