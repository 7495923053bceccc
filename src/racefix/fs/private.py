"""A directory of this user's own on this host, for what is not shared."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile


def directory(name: str = "") -> str:
    """Return ``racefix-<uid>`` in the temporary directory, or a directory in it, made with mode 0700 if missing.

    Args:
        name: a single name below it.

    Raises:
        OSError: it cannot be made.
        PermissionError: what is there is not a directory, not this user's, or open to others. A link is not followed:
            anybody may write to the temporary directory.
    """
    path = os.path.join(tempfile.gettempdir(), f"racefix-{os.getuid()}")
    for part in ("", name) if name else ("",):
        path = os.path.join(path, part) if part else path
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        status = os.lstat(path)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
            raise PermissionError(f"{path} is not a private directory of uid {os.getuid()}")
    return path
