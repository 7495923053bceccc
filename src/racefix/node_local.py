"""An emulation: flock as on a share whose locks end at the host, each process being a host of its own."""

from __future__ import annotations

import fcntl
import os
from typing import Any


def emulate(directory: str) -> None:
    """From now on, let this process's flock exclude nobody outside of it. Cannot be undone; for a forked worker.

    Each locked file gets a twin in ``directory``, which must be this process's own, and the twin is locked in its
    place. The twin is closed with its file: some lock libraries try a lock and let go of it by closing alone.

    Args:
        directory: an empty private directory.
    """
    twins: dict[int, tuple[tuple[int, int], int]] = {}
    real_flock, real_close = fcntl.flock, os.close

    def flock(file: Any, operation: int) -> None:
        number = file if isinstance(file, int) else file.fileno()
        status = os.fstat(number)
        identity = (status.st_dev, status.st_ino)
        if number in twins and twins[number][0] != identity:  # the number was closed behind our back and used again
            real_close(twins.pop(number)[1])
        if number not in twins:
            path = os.path.join(directory, f"{status.st_dev}-{status.st_ino}")
            twins[number] = (identity, os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        real_flock(twins[number][1], operation)

    def close(fd: int) -> None:
        if fd in twins:
            real_close(twins.pop(fd)[1])
        real_close(fd)

    fcntl.flock = flock
    os.close = close
