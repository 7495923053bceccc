"""Point a symbolic link at a target, atomically and whoever else does the same."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable
from functools import partial

from . import locks, lookup, names, sweep
from .trace import Trace

TRIES = 20
RACY = lookup.UNSURE | {errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY, errno.EBUSY}
"""Errors that a peer who does the same can cause, or a client's late view: looked into before they are believed."""


def leads(link: str, target: str) -> bool:
    """Tell whether ``link`` is a symbolic link that leads to ``target``; a relative target is beside the link."""
    try:
        text = lookup.again(os.readlink, link)
        there = os.path.join(os.path.dirname(link), target)
        return text == target or os.path.realpath(link) == os.path.realpath(there)
    except OSError:  # no link; or realpath, which reads each link twice, met one that a peer was replacing
        return False


def point(
    link: str,
    target: str,
    *,
    replace_directory: bool = True,
    lock: str | None = None,
    lock_seconds: float = 60,
    trace: Trace | None = None,
) -> None:
    """Make ``link`` a symbolic link to ``target``, whatever stands there, and leave it if it leads there already.

    A missing link is made by symlink(2), which only one of many can do. A link or file is replaced by renaming a
    private link over it, so that a reader sees the old or the new. A directory, which rename cannot replace, is
    moved aside first. Parents are made as ``mkdir -p`` makes them. Leftovers of killed processes beside a link that
    is replaced are swept.

    Args:
        link: path of the link.
        target: what it shall say. Relative to the link's directory if it is relative.
        replace_directory: whether a directory in its place is removed; if not, it is an IsADirectoryError.
        lock: a lock file that peers without racefix take for the same work; taken too, best effort.
        lock_seconds: how long to wait for it, in seconds.
        trace: told of retries, and that something was or may have been changed.

    Raises:
        OSError: a real error (EACCES, EROFS, ENOSPC, …), or a racy one that stood after many tries. It names the
            link, or the parent that cannot be made. A private link that could not be used is removed.
    """
    trace = trace or Trace()
    if leads(link, target):
        return
    racy = RACY if replace_directory else RACY - {errno.EISDIR}
    attempt = partial(_point, link, target, replace_directory, trace)
    if lock is None:
        _retrying(attempt, link, target, racy, trace)
        return
    _retrying(partial(_make_parent, link), link, target, racy, trace)
    with locks.flock(lock, lock_seconds, until=lambda: leads(link, target)) as held:
        if held.waited > locks.LONGEST_POLL:
            trace.tell("waited", f"{held.waited:.3f} s for {lock}")
        _retrying(attempt, link, target, racy, trace)


class _RealError(OSError):
    """An error that no peer has caused, whatever its errno."""


def _make_parent(link: str) -> None:
    parent = os.path.dirname(link) or os.curdir
    try:
        os.makedirs(parent, exist_ok=True)
    except OSError as error:
        if error.errno in lookup.UNSURE:
            raise
        lookup.refresh(os.path.dirname(parent))
        if not os.path.isdir(parent):  # if it is one, this client had only not seen it yet
            raise _RealError(error.errno, error.strerror, error.filename) from error


def _point(link: str, target: str, replace_directory: bool, trace: Trace) -> None:
    """One attempt, which a peer may spoil with any of the racy errors."""
    if leads(link, target):
        return
    _make_parent(link)
    try:
        is_directory = stat.S_ISDIR(lookup.again(os.lstat, link).st_mode)
    except FileNotFoundError:
        os.symlink(target, link)
        return
    private = names.private(link, "link")
    stale = names.private(link, "stale") if is_directory and replace_directory else None
    try:
        os.symlink(target, private)
        now = os.lstat(private).st_mtime  # by the server's clock
        if stale:
            os.rename(link + os.sep, stale)  # with the slash it refuses (ENOTDIR) what has become a link meanwhile
            trace.changing()
        os.replace(private, link)
    except OSError:
        sweep.remove(private)
        raise
    finally:
        if stale:
            sweep.remove(stale)
    sweep.sweep(os.path.dirname(link) or os.curdir, now)


def _retrying(attempt: Callable[[], None], link: str, target: str, racy: frozenset[int], trace: Trace) -> None:
    """Run ``attempt`` until it succeeds or its error turns out to be real or the work turns out to be done."""
    for tried in range(TRIES):
        try:
            attempt()
            return
        except OSError as error:
            what = f"{errno.errorcode.get(error.errno or 0, error)} at {link}"
            lookup.refresh(os.path.dirname(link))
            if leads(link, target):
                trace.tell("averted", what)
                return
            real = isinstance(error, _RealError) or error.errno not in racy
            if not real:
                trace.changing()  # perhaps: the error may be that of a lost reply
            if real or tried == TRIES - 1:
                named = error.filename if isinstance(error, _RealError) else link
                raise OSError(error.errno, os.strerror(error.errno or 0), named) from error
            trace.tell("retried", what)
            time.sleep(min(0.1, 0.001 * 2**tried))
