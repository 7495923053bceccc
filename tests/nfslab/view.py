"""What one host knows: the names, attributes and unsent data in its caches, and the questions it asks the server.

The server is the backing directory; to ask it is a system call there.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator

from . import protocol
from .node import NEVER, Key, Node, Version, key_of
from .options import Options


class View:
    """The caches of a host. Every method that reads or changes them is called with ``lock`` held, or takes it.

    Args:
        backing: the server's directory.
        options: how the host behaves.
    """

    def __init__(self, backing: str, options: Options) -> None:
        self.options = options
        self.stats: Counter[str] = Counter()
        self.lock = threading.RLock()
        self.skew_ns = int(options.clock_skew * 1e9)
        descriptor = os.open(backing, os.O_PATH | os.O_DIRECTORY)
        self.root = Node(1, descriptor, os.fstat(descriptor), lookups=1)
        self.nodes = {1: self.root}
        self._by_key: dict[Key, Node] = {self.root.key: self.root}
        self._last_number = 1

    # Attributes.

    def fetch(self, node: Node) -> os.stat_result:
        """Ask the server for a node's attributes."""
        status = os.fstat(node.descriptor)
        if self.options.estale and status.st_nlink == 0:
            raise protocol.error(errno.ESTALE)
        node.status = status
        node.fetched = time.monotonic()
        if node.is_directory:
            node.validated = node.fetched
            node.change = (status.st_ctime_ns, status.st_mtime_ns, status.st_nlink)
        return status

    def refresh(self, node: Node) -> None:
        """Ask for a node's attributes if they are too old to be trusted."""
        if time.monotonic() - node.fetched < (self.options.ac if node.is_directory else self.options.ac_reg):
            return
        try:
            self.fetch(node)
        except OSError:
            if not node.opens or not self.in_grace(node):
                raise
            node.status = os.fstat(node.descriptor)

    def in_grace(self, node: Node) -> bool:
        """Tell whether the server's cache of open files still serves a node that another host has removed."""
        now = time.monotonic()
        node.gone = node.gone or now
        return now - node.gone < self.options.estale_grace

    def attributes(self, node: Node) -> bytes:
        """Return a node's attributes for a reply."""
        return protocol.attributes(node.status, node.size() if node.unsent else node.status.st_size, self.skew_ns)

    def entry(self, node: Node) -> bytes:
        """Return the reply that tells the kernel of a node."""
        node.lookups += 1
        return protocol.entry(node.number) + self.attributes(node)

    # Names.

    def revalidate(self, directory: Node) -> None:
        """Ask for a directory's version, on which the trust in its names rests, if it is too old to be trusted."""
        if time.monotonic() - directory.validated >= self.options.ac:
            self.fetch(directory)

    def cached(self, directory: Node, name: str) -> Node | None:
        """Return the node that a name leads to by the cache, trusted or not."""
        number, _ = directory.entries.get(name, (0, ()))
        return self.nodes.get(number)

    def ask(self, directory: Node, name: str) -> Node:
        """Ask the server for a name, and remember the answer.

        Raises:
            FileNotFoundError: there is no such name.
        """
        self.fetch(directory)
        try:
            descriptor = os.open(f"{directory.path}/{name}", os.O_PATH | os.O_NOFOLLOW)
        except FileNotFoundError:
            self.remember(directory, name, None)
            raise
        status = os.fstat(descriptor)
        node = self._by_key.get(key_of(status))
        if node is None:
            self._last_number += 1
            node = Node(self._last_number, descriptor, status)
            self.nodes[node.number] = self._by_key[node.key] = node
        else:
            os.close(descriptor)
            node.status = status
        node.fetched = time.monotonic()
        self.remember(directory, name, node)
        return node

    def remember(self, directory: Node, name: str, node: Node | None) -> None:
        """Note what a name leads to, None if it is missed, in the directory's version of now."""
        old = self.cached(directory, name)
        if old:
            old.names.discard((directory.number, name))
        directory.entries[name] = (node.number if node else 0, directory.change)
        if node:
            node.names.add((directory.number, name))

    def changed(self, directory: Node, *names: str) -> None:
        """Take in that this host has changed these names of a directory: its new attributes came with the reply.

        They are a new version, so that all its other names are asked for anew too.
        """
        with contextlib.suppress(OSError):
            self.fetch(directory)
        for name in names:
            directory.entries.pop(name, None)

    def made(self, directory: Node, name: str) -> Node:
        """Take in that this host has made a name; return its node."""
        self.changed(directory, name)
        return self.ask(directory, name)

    def removed(self, directory: Node, name: str) -> None:
        """Take in that this host has removed a name."""
        self.changed(directory, name)
        self.remember(directory, name, None)

    def refused(self, directory: Node, name: str) -> None:
        """Take in that the server has answered with an error: the name and the directory are asked for anew.

        Raises:
            OSError: ESTALE, if the cause is that the directory is gone.
        """
        self.changed(directory, name)
        if self.options.estale and os.fstat(directory.descriptor).st_nlink == 0:
            raise protocol.error(errno.ESTALE)

    @contextlib.contextmanager
    def asking(self, directory: Node, name: str) -> Iterator[None]:
        """Stand around a system call that changes a name at the server."""
        try:
            yield
        except OSError:
            self.refused(directory, name)
            raise

    # Data.

    def send(self, node: Node) -> None:
        """Send what was written here to the server, WRITE and COMMIT. Not to be called with ``lock`` held."""
        if not node.unsent:
            return
        with node.sending:
            with self.lock:
                unsent, node.unsent, node.unsent_bytes = node.unsent, [], 0
            if not unsent:
                return
            if self.options.estale and os.fstat(node.descriptor).st_nlink == 0:
                raise protocol.error(errno.ESTALE)
            descriptor = os.open(node.path, os.O_WRONLY)
            try:
                for offset, data in unsent:
                    os.pwrite(descriptor, data, offset)
            finally:
                os.close(descriptor)
            with self.lock:
                node.pages = version(self.fetch(node))

    # Forgetting.

    def forget(self, number: int, count: int) -> None:
        """Take in that the kernel has dropped so many of its references to a node."""
        with self.lock:
            node = self.nodes.get(number)
            if node is None:
                return
            node.lookups -= count
            if node.lookups > 0 or node is self.root or node.opens or node.unsent:
                return
            for parent, name in node.names:
                if directory := self.nodes.get(parent):
                    directory.entries.pop(name, None)
            for name, (child_number, _) in node.entries.items():
                if child := self.nodes.get(child_number):
                    child.names.discard((number, name))
            del self.nodes[number]
            del self._by_key[node.key]
            os.close(node.descriptor)

    def distrust(self, number: int) -> None:
        """After ESTALE: forget a node's names and attributes, so that the kernel's second attempt asks anew."""
        with self.lock:
            node = self.nodes.get(number)
            if node is None:
                return
            node.fetched = node.validated = NEVER
            for parent, name in node.names:
                if directory := self.nodes.get(parent):
                    directory.entries.pop(name, None)
                    directory.validated = NEVER
            node.names.clear()

    def drop(self) -> None:
        """Forget all names and attributes, as if their time were over."""
        with self.lock:
            for node in self.nodes.values():
                node.fetched = node.validated = NEVER
                node.entries.clear()


def version(status: os.stat_result) -> Version:
    """Return by what a client tells that a file's content has changed."""
    return status.st_mtime_ns, status.st_size, status.st_ctime_ns
