"""Locks that save duplicate work and peers' nerves; nothing here or elsewhere is correct because of them."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from . import lease, lookup, private
from .trace import Trace

FIRST_POLL = 0.001
LONGEST_POLL = 0.05
LONGEST_WAIT = 1.0  # between two looks at another host's lease
BUSY = frozenset({errno.EAGAIN, errno.ESTALE})
READ_ONLY = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
STALE_TRIES = 100  # in a row, for a lock file that stays stale
BOOT_ID = "/proc/sys/kernel/random/boot_id"


@dataclass(frozen=True)
class Lock:
    """What came of taking a lock.

    Attributes:
        descriptor: holds the lock until it is closed; None if the lock could not be had.
        waited: the seconds waited for it.
        error: why it could not be had, if the file system said so.
    """

    descriptor: int | None
    waited: float
    error: OSError | None = None


def acquire(
    path: str,
    seconds: float,
    until: Callable[[], bool] = lambda: False,
    mode: int = 0o666,
    poll: float = LONGEST_POLL,
) -> Lock:
    """Take an exclusive flock on a lock file, as far as that is possible. Never raises.

    Best effort: returns without the lock where it cannot be had (ENOLCK, ENOSYS and the like; a read-only file system,
    another user's directory; time over), and when ``until`` says that there is nothing left to do. What can be read
    only is locked all the same, which excludes others of this host. The file is never removed: a lock file that is
    unlinked while peers wait lets two of them in.

    Args:
        path: the lock file.
        seconds: how long to wait for a holder.
        until: asked before each try; True ends the wait.
        mode: what the file is created with if it is missing, subject to the umask; filelock's by default.
        poll: the longest time between two tries, in seconds.
    """
    began = time.monotonic()
    pause = FIRST_POLL
    stale = 0
    while not until():
        try:
            return Lock(_lock(path, mode), time.monotonic() - began)
        except OSError as error:
            waited = time.monotonic() - began
            stale = stale + 1 if error.errno == errno.ESTALE else 0
            if error.errno not in BUSY or stale > STALE_TRIES or waited > seconds:
                return Lock(None, waited, error)
            if stale:
                lookup.refresh(os.path.dirname(path))
            time.sleep(pause)
            pause = min(2 * pause, poll)
    return Lock(None, time.monotonic() - began)


@contextlib.contextmanager
def flock(path: str, seconds: float, until: Callable[[], bool] = lambda: False) -> Iterator[Lock]:
    """Hold what ``acquire`` gets for these arguments."""
    lock = acquire(path, seconds, until)
    try:
        yield lock
    finally:
        if lock.descriptor is not None:
            os.close(lock.descriptor)


def _lock(path: str, mode: int) -> int:
    descriptor = _open(path, mode)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # filelock 3.21 to 3.29 unlinks the file that it releases: what we locked may no longer be what peers open.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), path)
    except BaseException:
        os.close(descriptor)
        raise


def _open(path: str, mode: int) -> int:
    flags = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(path, flags | os.O_RDWR | os.O_CREAT, mode)
    except OSError as error:
        if error.errno not in READ_ONLY:
            raise
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, flags | os.O_RDONLY)
        raise


@contextlib.contextmanager
def one_builder(
    path: str, done: Callable[[], bool], trace: Trace | None = None, silence: float = lease.SILENCE
) -> Iterator[bool]:
    """Let one process build what many need, and the others wait for it; yield whether this one is to build.

    Within a host a flock on a node-local file decides: while it is held its holder lives, since the kernel lets go of
    it when the process ends, so the wait has no limit. Between hosts a lease decides: the wait has no limit while it
    shows signs of life. Silence, and any error that keeps a lock or a lease from working (ENOLCK, ENOSYS, EOPNOTSUPP,
    EROFS, EACCES), lets another build start; what they build must be published, not written in place.

    Args:
        path: the lease's file, beside what is built; its directory exists.
        done: asked at each look; True ends the wait.
        trace: told of waits.
        silence: seconds after which a holder on another host is taken for dead.

    Yields:
        True if this process is to build; False if it is done.
    """
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        builds = _take_share(path, done, silence, _take_host(path, done, stack), stack)
        waited = time.monotonic() - began
        if trace and waited > LONGEST_POLL:
            trace.tell("waited", f"{waited:.3f} s for the builder of {path}")
        yield builds


def _take_host(path: str, done: Callable[[], bool], stack: contextlib.ExitStack) -> str:
    """Take this host's lock for a lease; return what names it across hosts, or nothing if it could not be had."""
    try:
        name = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()
        host_lock = os.path.join(private.directory("locks"), name)
        lock = stack.enter_context(flock(host_lock, float("inf"), until=done))
        if lock.descriptor is None:
            return ""
        status = os.fstat(lock.descriptor)
        with open(BOOT_ID, encoding="ascii") as file:
            return f"{file.read().strip()} {status.st_dev} {status.st_ino}"
    except OSError:  # no place of our own on this host: the lease alone decides
        return ""


def _take_share(path: str, done: Callable[[], bool], silence: float, holder: str, stack: contextlib.ExitStack) -> bool:
    watch = lease.Watch(path)
    poll = FIRST_POLL
    while not done():
        try:
            taken = lease.take(path, holder, heartbeat=silence * lease.HEARTBEAT / lease.SILENCE)
        except OSError:  # nothing can be written there: others cannot see us build
            return True
        if taken:
            stack.callback(taken.release)
            return not done()
        silent = watch.silence()
        # Who had this host's lock, which is ours now, is dead, however fresh the lease.
        if silent > silence or (holder and watch.holder == holder):
            watch.clear()
            continue
        time.sleep(poll)
        poll = min(2 * poll, LONGEST_WAIT)
    return False
