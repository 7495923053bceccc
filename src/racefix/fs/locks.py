"""A lock that saves duplicate work and peers' nerves; nothing here or elsewhere is correct because of it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator

FIRST_POLL = 0.001
LONGEST_POLL = 0.05
BUSY = frozenset({errno.EAGAIN, errno.ENOENT, errno.ESTALE})


@contextlib.contextmanager
def flock(path: str, seconds: float, until: Callable[[], bool] = lambda: False) -> Iterator[float]:
    """Hold an exclusive flock on a lock file, as far as that is possible, and yield the seconds waited for it.

    Best effort: goes on without the lock where it cannot be had (no flock there, a read-only directory, another
    user's file, time over), and when ``until`` says that there is nothing left to do. The file is created with the
    mode that the filelock package gives it, and never removed: a lock file that is unlinked while peers wait lets
    two of them in.

    Args:
        path: the lock file.
        seconds: how long to wait for a holder.
        until: asked before each try; True ends the wait.
    """
    began = time.monotonic()
    poll = FIRST_POLL
    descriptor = None
    while descriptor is None and not until():
        try:
            descriptor = _lock(path)
        except OSError as error:
            if error.errno not in BUSY or time.monotonic() - began > seconds:
                break
            time.sleep(poll)
            poll = min(2 * poll, LONGEST_POLL)
    try:
        yield time.monotonic() - began
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _lock(path: str) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # filelock 3.21 to 3.29 unlinks the file that it releases: what we locked may no longer be what peers open.
        if os.path.samestat(os.fstat(descriptor), os.stat(path)):
            return descriptor
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), path)
    except BaseException:
        os.close(descriptor)
        raise
