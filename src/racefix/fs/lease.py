"""A lease: who works on an entry of a share, and that they are still alive, without any lock of the file system.

A lease is a file with unique content that its holder keeps touching. Observers judge a holder by whether the file has
changed within a time on their own monotonic clock, so clocks may differ, and they open the file to look at it, since
an NFS client asks the server then (close-to-open) and trusts cached attributes for up to 60 s (acregmax) otherwise.
ccache's lock files work like this. Two holders remain possible, when one was suspended for long: a lease saves
duplicate work and nothing may rest on it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from dataclasses import dataclass

from . import lookup, names, publish, sweep

HEARTBEAT = 20.0
"""Seconds between two signs of life."""
SILENCE = 90.0
"""Seconds without one after which a holder is taken for dead: longer than any client caches attributes."""


@dataclass
class Lease:
    """A lease that is held. ``release`` gives it up."""

    path: str
    content: bytes
    descriptor: int
    stop: threading.Event
    thread: threading.Thread

    def release(self) -> None:
        """Stop the heartbeat and remove the file, unless somebody has broken the lease. Never raises."""
        self.stop.set()
        self.thread.join(1)
        with contextlib.suppress(OSError):
            if not self.thread.is_alive():  # else its server hangs, and the number must not get another meaning
                os.close(self.descriptor)
            if lookup.again(publish.read, self.path) == self.content:
                os.unlink(self.path)


def take(path: str, holder: str = "", heartbeat: float = HEARTBEAT) -> Lease | None:
    """Take a lease, or return None if somebody has it.

    Args:
        path: the lease's file, in a directory that exists.
        holder: a line of text for observers: who has it.
        heartbeat: seconds between two signs of life, which a thread gives.

    Raises:
        OSError: no file can be made there (EACCES, EROFS, ENOSPC, …).
    """
    private = names.private(path, "lease")
    content = f"{os.path.basename(private)}\n{holder}\n".encode()
    publish.write(private, content)
    try:
        descriptor = os.open(private, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            first = _is_first(private, path, content)
        except BaseException:
            os.close(descriptor)
            raise
    finally:
        sweep.remove(private)
    if not first:
        os.close(descriptor)
        return None
    stop = threading.Event()
    thread = threading.Thread(target=_beat, args=(descriptor, heartbeat, stop), name="racefix lease", daemon=True)
    thread.start()
    return Lease(path, content, descriptor, stop, thread)


def _is_first(private: str, path: str, content: bytes) -> bool:
    try:
        os.link(private, path, follow_symlinks=False)
    except OSError as error:
        if error.errno in publish.NO_LINKS and not os.path.lexists(path):
            os.rename(private, path)
        elif error.errno in publish.NO_LINKS:
            return False
        elif error.errno in publish.TAKEN | lookup.UNSURE:
            with contextlib.suppress(OSError):
                return lookup.again(publish.read, path) == content  # it is ours if only the reply was lost
            return False
        else:
            raise
    return True


def _beat(descriptor: int, heartbeat: float, stop: threading.Event) -> None:
    while not stop.wait(heartbeat):
        try:
            os.utime(descriptor)  # not by name: whoever has broken the lease has another file there
        except OSError:
            return


class Watch:
    """Watches somebody else's lease, on this host's monotonic clock."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.seen: tuple[bytes, int, int] | None = None
        self.since = time.monotonic()

    @property
    def holder(self) -> str:
        """Who had the lease at the last look, as they said, or nothing."""
        lines = self.seen[0].decode(errors="replace").split("\n") if self.seen else []
        return lines[1] if len(lines) > 1 else ""

    def silence(self) -> float:
        """Look at the lease; return the seconds for which it has shown no sign of life, 0 if nobody has it."""
        now = time.monotonic()
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                status = os.fstat(descriptor)
                seen = (os.read(descriptor, 4096), status.st_ino, status.st_mtime_ns)
            finally:
                os.close(descriptor)
        except OSError as error:
            if error.errno == errno.ENOENT:
                self.seen, self.since = None, now
            return now - self.since
        if seen != self.seen:
            self.seen, self.since = seen, now
        return now - self.since

    def clear(self) -> None:
        """Remove the lease that was silent; one that was taken since is put back. Never raises."""
        dead = names.private(self.path, "dead")
        with contextlib.suppress(OSError):
            os.rename(self.path, dead)
            if self.seen and publish.read(dead) != self.seen[0]:
                os.link(dead, self.path, follow_symlinks=False)
        sweep.remove(dead)
        self.seen, self.since = None, time.monotonic()
