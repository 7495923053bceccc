"""A laboratory for shared caches: several NFS-like hosts over one directory, on one Linux machine.

Each host is a FUSE mount, served by a process that behaves like the Linux NFSv3 client mounted with ``nolock`` or
``local_lock=all``. It needs root (CAP_SYS_ADMIN), /dev/fuse and util-linux, and speaks the FUSE protocol itself.

What a host does like an NFS client; ``Options`` has the names and the defaults:

- Locks (flock and fcntl) end at the host. Or they reach the others, or fail.
- A name looked up, found or missed, is trusted until the attributes of its directory are ``ac`` seconds old. To open,
  list, chmod or utime the directory asks anew, as does a change made in it from this host; to stat it does not.
- A file's attributes are trusted for ``ac_reg`` seconds; to open it asks anew.
- What is written reaches the others at close, fsync or stat (close-to-open).
- A file that another host removed or replaced is stale: ESTALE, and SIGBUS where it is mapped.
- To remove or replace a file that is open on this host leaves a .nfs file: ENOTEMPTY for rmdir, EBUSY for unlink.
- A reply may be lost: an operation that worked is reported failed, as after a retransmission.
- The server's clock may be ahead, and each operation may be delayed.

Limits: no write-back under memory pressure, so a file is seen empty until its close, never in part. No delegations.
Permissions are not checked, and what is made belongs to root. A lost reply is that of a system call, not of each RPC.
A host does not crash or lose its network: kill its processes, or delay it, instead. A process of ours that is killed
leaves its temporary directory, but no mount.
"""

from .filesystem import SharedFilesystem
from .host import Host
from .options import Options

__all__ = ["Host", "Options", "SharedFilesystem"]
