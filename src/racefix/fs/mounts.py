"""Which file system a path is on."""

from __future__ import annotations

import os

MOUNTINFO = "/proc/self/mountinfo"


def filesystem(path: str) -> str:
    """Return the type of the file system that holds an existing path (``ext4``, ``nfs4``), or "unknown".

    A mount is found by its device number in mountinfo (proc(5)), since paths there may be hidden by later mounts.
    """
    try:
        device = os.stat(path).st_dev
        with open(MOUNTINFO, encoding="utf-8", errors="surrogateescape") as mounts:
            for line in mounts:
                before, _, after = line.partition(" - ")
                if before.split()[2] == f"{os.major(device)}:{os.minor(device)}":
                    return after.split()[0]
    except (OSError, IndexError):
        pass
    return "unknown"
