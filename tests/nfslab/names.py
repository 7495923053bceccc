"""Operations on names: look up, make, remove, rename."""

from __future__ import annotations

import errno
import os
import struct
import time

from . import protocol
from .node import Node, key_of
from .protocol import Request
from .view import View


class Names:
    """Answers the operation that each public method is named after."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._silly_renames = 0

    def lookup(self, request: Request) -> bytes:
        name = protocol.name(request.body)
        view = self._view
        with view.lock:
            directory = view.nodes[request.node]
            view.revalidate(directory)
            number, seen = directory.entries.get(name, (0, None))
            if seen == directory.change:
                if number == 0:
                    view.stats["negative_hit"] += 1
                    raise protocol.error(errno.ENOENT)
                if node := view.nodes.get(number):
                    view.stats["positive_hit"] += 1
                    view.refresh(node)
                    return view.entry(node)
            return view.entry(view.ask(directory, name))

    def readlink(self, request: Request) -> bytes:
        return os.fsencode(os.readlink("", dir_fd=self._view.nodes[request.node].descriptor))

    def mkdir(self, request: Request) -> bytes:
        mode, umask = struct.unpack_from("<II", request.body)
        name = protocol.name(request.body[8:])
        view = self._view
        with view.lock:
            directory = view.nodes[request.node]
            path = f"{directory.path}/{name}"
            with view.asking(directory, name):
                os.mkdir(path, 0o700)
            os.chmod(path, mode & ~umask & 0o7777)  # whatever the umask of this process
            return view.entry(view.made(directory, name))

    def mknod(self, request: Request) -> bytes:
        mode, device, umask, _ = struct.unpack_from("<IIII", request.body)
        name = protocol.name(request.body[16:])
        view = self._view
        with view.lock:
            directory = view.nodes[request.node]
            with view.asking(directory, name):
                os.mknod(f"{directory.path}/{name}", mode & ~(umask & 0o777), device)
            return view.entry(view.made(directory, name))

    def symlink(self, request: Request) -> bytes:
        name, target = protocol.two_names(request.body)
        view = self._view
        with view.lock:
            directory = view.nodes[request.node]
            with view.asking(directory, name):
                os.symlink(target, f"{directory.path}/{name}")
            return view.entry(view.made(directory, name))

    def link(self, request: Request) -> bytes:
        (number,) = struct.unpack_from("<Q", request.body)
        name = protocol.name(request.body[8:])
        view = self._view
        with view.lock:
            directory, node = view.nodes[request.node], view.nodes[number]
        view.send(node)
        with view.lock:
            view.fetch(node)
            with view.asking(directory, name):
                # A directory's descriptor, unused with an absolute path, makes it linkat(AT_SYMLINK_FOLLOW).
                os.link(node.path, f"{directory.path}/{name}", src_dir_fd=directory.descriptor, follow_symlinks=True)
            view.changed(directory, name)
            view.remember(directory, name, node)
            view.fetch(node)
            return view.entry(node)

    def unlink(self, request: Request) -> bytes:
        name = protocol.name(request.body)
        view = self._view
        with view.lock:
            directory = view.nodes[request.node]
            node = self._open_here(directory, name)
            if node and node.silly:
                raise protocol.error(errno.EBUSY)
            if node and _leads(directory, name, node):
                self._silly_rename(directory, name, node)
                return b""
            with view.asking(directory, name):
                os.unlink(f"{directory.path}/{name}")
            view.removed(directory, name)
            return b""

    def rmdir(self, request: Request) -> bytes:
        name = protocol.name(request.body)
        view = self._view
        with view.lock:
            directory = view.nodes[request.node]
            with view.asking(directory, name):
                os.rmdir(f"{directory.path}/{name}")
            view.removed(directory, name)
            return b""

    def rename(self, request: Request) -> bytes:
        return self._rename(request, 8)

    def rename2(self, request: Request) -> bytes:
        _, flags = struct.unpack_from("<QI", request.body)
        if flags:  # RENAME_NOREPLACE and the like: unknown to NFS
            raise protocol.error(errno.EINVAL)
        return self._rename(request, 16)

    def _rename(self, request: Request, names_at: int) -> bytes:
        (number,) = struct.unpack_from("<Q", request.body)
        old, new = protocol.two_names(request.body[names_at:])
        view = self._view
        with view.lock:
            source, target = view.nodes[request.node], view.nodes[number]
            node = view.cached(source, old)
        if node:
            view.send(node)
        self._make_way(target, new, node)
        with view.lock:
            try:
                os.rename(f"{source.path}/{old}", f"{target.path}/{new}")
            except OSError:
                if view.options.failed_rename == "seen":
                    view.refused(source, old)
                    view.refused(target, new)
                raise
            view.changed(target, new)
            view.removed(source, old)
            if node:
                node.names.discard((source.number, old))
                view.remember(target, new, node)
            return b""

    def _make_way(self, directory: Node, name: str, renamed: Node | None) -> None:
        """Move a target that is open on this host out of the way first, as nfs_rename() does.

        Until the rename itself, other hosts find no such name.
        """
        with self._view.lock:
            node = self._open_here(directory, name)
            if node is None or node is renamed or not _leads(directory, name, node):
                return
            self._silly_rename(directory, name, node)
        time.sleep(self._view.options.delay.get("sillywindow", 0) / 1000)

    def _open_here(self, directory: Node, name: str) -> Node | None:
        """Return the file that this host has open under a name, if its removal has to leave a .nfs file."""
        node = self._view.cached(directory, name)
        return node if node and node.opens and self._view.options.silly and not node.is_directory else None

    def _silly_rename(self, directory: Node, name: str, node: Node) -> None:
        self._silly_renames += 1
        unique = (os.getpid() << 12 | self._silly_renames) & 0xFFFFFFFF
        silly = f".nfs{node.key[1]:016x}{unique:08x}"
        os.rename(f"{directory.path}/{name}", f"{directory.path}/{silly}")
        node.silly = os.open(directory.path, os.O_PATH), silly
        self._view.stats["silly"] += 1
        self._view.changed(directory, name, silly)


def _leads(directory: Node, name: str, node: Node) -> bool:
    """Tell whether a name leads to the node at the server too."""
    try:
        status = os.stat(f"{directory.path}/{name}", follow_symlinks=False)
    except OSError:
        return False
    return key_of(status) == node.key
