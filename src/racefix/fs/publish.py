"""Publish a file or a directory under a name that many processes of many hosts share, whole and once.

Never build in place, never replace what is published, believe no error before looking, and whoever cannot prove that
an entry is whole uses a copy of its own. No lock is needed: link(2) and rename(2) onto a name let one of many do it,
on local file systems and on NFS (25 of 25 races there had exactly one winner). A server that lost its reply reports
what it has done as failed (RFC 1813: a LINK that worked may answer EEXIST when it is sent again, a RENAME ENOENT), so
each entry can be recognised afterwards: a file by its inode, a directory by the token in its manifest.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
import time
import uuid
from collections.abc import Callable
from typing import Any

from . import lookup, names, sweep
from .trace import Trace

MANIFEST = f"{names.PREFIX}manifest.json"
TRIES = 6
LOOKS = 3  # at what is there, before it is taken for half an entry
TAKEN = frozenset({errno.EEXIST, errno.ENOTEMPTY, errno.EISDIR, errno.ENOTDIR})
NO_LINKS = frozenset({errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV})
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def write(path: str, data: bytes, mode: int = 0o666) -> None:
    """Write a new file and sync it; the umask applies to ``mode``.

    Raises:
        FileExistsError: the path is taken.
        OSError: any other; NFS reports a full disk (ENOSPC, EDQUOT) only when a file is synced or closed. Nothing is
            left behind then.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except BaseException:
        sweep.remove(path)
        raise


def replace(path: str, data: bytes) -> None:
    """Put a file in place, whatever is there: readers see the old content or the new one, whole.

    For small files that are read at once. What others may have mapped is never replaced. An existing file's mode is
    kept and a link followed, as ``open(path, "w")`` does; it may still be open on another host, whose reader then gets
    a stale handle.

    Raises:
        OSError: the file is not there with that content.
    """
    path = os.path.realpath(path)
    for tried in range(1, TRIES + 1):
        private = names.private(path, "new")
        try:
            write(private, data)
            with contextlib.suppress(FileNotFoundError):
                os.chmod(private, stat.S_IMODE(os.stat(path).st_mode))
            os.replace(private, path)
            return
        except OSError as error:
            lookup.refresh(os.path.dirname(path))
            with contextlib.suppress(OSError):
                if lookup.again(read, path) == data:  # only the reply was lost, or a peer did the same
                    return
            if error.errno not in lookup.UNSURE or tried == TRIES:
                raise
            time.sleep(0.02 * tried)
        finally:
            sweep.remove(private)


def update(path: str, data: bytes) -> None:
    """Let a file hold that content: one that does is left alone, with its times; else as ``replace``, errors too."""
    path = os.path.realpath(path)
    try:
        if lookup.again(read, path) == data:
            return
    except FileNotFoundError:
        pass
    replace(path, data)


def read(path: str) -> bytes:
    """Return what a file holds; a link is not followed. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as opened:
        return opened.read()


def private_directory(final: str, purpose: str) -> str:
    """Make an empty private directory beside ``final`` and return its path; the umask applies. Raises OSError."""
    path = names.private(final, purpose)
    try:
        os.mkdir(path)
    except FileExistsError:  # nobody else has this name: the reply was lost
        if not os.path.isdir(path):
            raise
    return path


def seal(directory: str) -> None:
    """Complete a private directory: sync its files, then write the manifest that proves it whole.

    The manifest lists every file's size and sha256, and a token by which its maker recognises it. Directories below
    and links are listed by name only. Raises OSError.
    """
    entries: dict[str, list[object]] = {}
    for above, below, files in os.walk(directory):
        for name in files + below:
            path = os.path.join(above, name)
            entries[os.path.relpath(path, directory)] = _measure(path, sync=True)
    token = uuid.uuid4().hex
    write(os.path.join(directory, MANIFEST), json.dumps({"token": token, "entries": entries}).encode())
    _sync(directory)


def is_whole(directory: str) -> bool:
    """Tell whether a directory holds all that its manifest lists, byte for byte.

    Raises:
        OSError: it cannot be read (EIO, EACCES, a handle that stays stale), which proves nothing.
    """
    try:
        manifest = _manifest(directory)
        return manifest is not None and all(
            lookup.again(_measure, os.path.join(directory, name)) == measured
            for name, measured in manifest["entries"].items()
        )
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return False


def file(private: str, final: str, whole: Callable[[str], bool], trace: Trace | None = None) -> str:
    """Give a finished private file its shared name, unless a whole one has it; return the path to use.

    Args:
        private: a file of ours, synced, beside ``final``. It is gone when ``final`` is returned.
        final: the shared name; whatever is published there is never replaced.
        whole: tells whether the file at a path is a whole entry; raises OSError where that cannot be told.
        trace: told of retries and of peers that were first.

    Returns:
        ``final``, or ``private`` where what is at ``final`` cannot be proved whole nor put aside, or the directory
        does not let us.

    Raises:
        OSError: the disk is full (ENOSPC, EDQUOT), and ``private`` is still there; or it is not there any more.
    """

    def step() -> None:
        try:
            os.link(private, final, follow_symlinks=False)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            # No hard links here: a rename, which may replace an equal entry of a peer that is as fast as we are.
            if _is_there(final):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), final) from error
            os.rename(private, final)

    def is_ours() -> bool:
        return _same_file(private, final)

    return _publish(private, final, step, is_ours, whole, trace or Trace())


def directory(private: str, final: str, trace: Trace | None = None) -> str:
    """Give a sealed private directory its shared name, unless a whole one has it; return the path to use.

    Arguments, result and errors are as for ``file``; ``seal`` must have completed ``private``. A directory that is
    there but not whole is moved aside. Never make ``final`` and fill it: rename takes an empty directory's place.
    """
    manifest = _manifest(private)
    if manifest is None:
        raise ValueError(f"{private} is not sealed")

    def is_ours() -> bool:
        with contextlib.suppress(OSError):
            there = _manifest(final)
            return there is not None and bool(there["token"] == manifest["token"])
        return False

    return _publish(private, final, lambda: os.rename(private, final), is_ours, is_whole, trace or Trace())


def _publish(
    private: str,
    final: str,
    step: Callable[[], None],
    is_ours: Callable[[], bool],
    whole: Callable[[str], bool],
    trace: Trace,
) -> str:
    parent = os.path.dirname(final) or os.curdir
    for tried in range(1, TRIES + 1):
        try:
            trace.changing()
            step()
            break
        except OSError as error:
            lookup.refresh(parent)
            if is_ours():
                trace.tell("retried", f"{_name(error)} for {final}, which is ours all the same")
                break
            try:
                is_half = not whole(final)
            except OSError:
                is_half = False
            else:
                if not is_half:
                    trace.tell("averted", f"{_name(error)} for {final}, which a peer has published")
                    sweep.remove(private)
                    return final
            if error.errno in FULL or not _is_there(private):
                raise
            if error.errno not in TAKEN | lookup.UNSURE:
                return private
            if error.errno in TAKEN and is_half and tried >= LOOKS:
                _put_aside(final, whole)
            trace.tell("retried", f"{_name(error)} for {final}")
            time.sleep(0.02 * tried)
    else:
        return private
    _sync(parent)
    if _is_there(private):
        sweep.remove(private)
    return final


def _put_aside(final: str, whole: Callable[[str], bool]) -> None:
    """Remove half an entry; a whole one, which a peer has published since we looked, is put back."""
    dead = names.private(final, "dead")
    with contextlib.suppress(OSError):
        os.rename(final, dead)
        if whole(dead):
            if os.path.isdir(dead):
                os.rename(dead, final)
            else:
                os.link(dead, final, follow_symlinks=False)
        sweep.remove(dead)


def _is_there(path: str) -> bool:
    try:
        lookup.again(os.lstat, path)
    except OSError:
        return False
    return True


def _same_file(one: str, other: str) -> bool:
    try:
        return os.path.samestat(lookup.again(os.lstat, one), lookup.again(os.lstat, other))
    except OSError:
        return False


def _manifest(directory: str) -> dict[str, Any] | None:
    """Return a directory's manifest, None if it has none or one that is torn; raises OSError if it cannot be read."""
    try:
        found = json.loads(lookup.again(read, os.path.join(directory, MANIFEST)))
        return found if isinstance(found["entries"], dict) and isinstance(found["token"], str) else None
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return None


def _measure(path: str, sync: bool = False) -> list[object]:
    """Return a file's size and sha256, a link's target, or nothing for a directory."""
    if os.path.islink(path):
        return [os.readlink(path)]
    if os.path.isdir(path):
        return []
    with open(path, "rb") as opened:
        data = opened.read()
        if sync:
            os.fsync(opened.fileno())
    return [len(data), hashlib.sha256(data).hexdigest()]


def _sync(directory: str) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _name(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, type(error).__name__)
