"""Remove what killed processes left behind, by age on the file server's clock and never by pid."""

from __future__ import annotations

import contextlib
import os
import shutil

from . import names

AGE = 24 * 3600.0
"""Seconds after which nobody can still be at work on a private entry: longer than the longest build."""


def sweep(directory: str, now: float, age: float = AGE) -> list[str]:
    """Remove the leftovers in a directory that are older than ``age``; return their names. Never raises.

    Published builds are no leftovers: a process may have them mapped.
    Each is renamed first, so that two sweepers do not meet in it. What resists (open files on an NFS client) stays
    for the next sweep.

    Args:
        directory: where to look; not below it.
        now: seconds since the epoch by the clock of the server that holds the directory, such as the modification
            time of something just made there. A host's own clock may be hours off.
        age: in seconds.
    """
    swept = []
    with contextlib.suppress(OSError):
        for name in os.listdir(directory):
            path = os.path.join(directory, name)
            left = name.startswith(names.PREFIX) and not name.startswith(names.GENERATION)
            if left and _older(path, now - age):
                dead = names.private(path, "dead")
                with contextlib.suppress(OSError):
                    os.rename(path, dead)
                    remove(dead)
                    swept.append(name)
    return swept


def _older(path: str, moment: float) -> bool:
    try:
        return os.lstat(path).st_mtime < moment
    except OSError:
        return False


def remove(path: str) -> None:
    """Remove a file, link or tree that only we know of, as far as it can be removed. Never raises."""
    shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        os.unlink(path)
