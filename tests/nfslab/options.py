"""What can be set for each host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Options:
    """How a host behaves.

    Args:
        ac: seconds that a directory's attributes, and so the names found or missed in it, are trusted.
        ac_reg: seconds that a file's attributes are trusted.
        locks: whether flock and fcntl locks end at the host, reach the other hosts, or fail with ENOLCK or ENOSYS.
        estale: whether a file that was removed or replaced elsewhere is stale.
        estale_grace: seconds that such a file can still be read where it is open. The file cache of Linux's nfsd gives
            about 1, other servers none.
        cto: whether written data stays at its host until close, fsync or stat.
        silly: whether a file open on this host survives its removal as a .nfs file.
        failed_rename: what a host knows of a target after a rename failed because it exists. "seen": the reply brings
            the directory's attributes (NFSv3). "hidden": a miss in the cache stays (NFSv4), so that the target can be
            missing although the rename failed because of it.
        replay: probability that an operation that worked is reported failed: rename, unlink and rmdir with ENOENT,
            link, mkdir and symlink with EEXIST.
        replay_ops: which operations, separated by commas; all six if empty.
        replay_match: a regular expression that the request must contain, such as a file's name.
        clock_skew: seconds that the server's clock is ahead of the host's; it shows in all time stamps.
        delay: milliseconds by operation, each varied by half. "sillywindow" is the time between the two steps in which
            a host replaces a file that it has open.
        buffer_mb: MiB of a file that are written before they are sent without waiting for its close.
        seed: seed of the replays and the delays; each host draws its own from it.
        trace: a file to which a line is added for each operation.
    """

    ac: float = 3.0
    ac_reg: float = 3.0
    locks: Literal["local", "shared", "enolck", "enosys"] = "local"
    estale: bool = True
    estale_grace: float = 0.0
    cto: bool = True
    silly: bool = True
    failed_rename: Literal["seen", "hidden"] = "seen"
    replay: float = 0.0
    replay_ops: str = ""
    replay_match: str = ""
    clock_skew: float = 0.0
    delay: Mapping[str, float] = field(default_factory=dict)
    buffer_mb: float = 32
    seed: int = 0
    trace: str = ""
