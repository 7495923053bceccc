"""A directory that several hosts share."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from .host import Host
from .options import Options


class SharedFilesystem:
    """Some hosts over one directory, from its making, or ``with``, to its ``close``.

    Args:
        hosts: how many hosts there are.
        backing: the server's directory, which is left as it is at the end; a temporary one if it is None.
        per_host: options of single hosts, by their index.
        options: options of all hosts, see ``Options``.

    ``hosts`` has the hosts, each with its mount at ``path``. For the commands that run on a host it is at ``shared``
    too, a path that is the same on all of them. ``backing`` is the directory as the server has it, without any cache.

    Raises:
        TypeError: there is no such option.
        RuntimeError: the hosts cannot be mounted.
    """

    def __init__(
        self,
        hosts: int = 2,
        backing: str | os.PathLike[str] | None = None,
        per_host: Mapping[int, Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        common = Options(**options)
        each = [
            replace(common, **{"seed": common.seed * 1000 + index, **(per_host or {}).get(index, {})})
            for index in range(hosts)
        ]
        self.hosts: list[Host] = []
        with contextlib.ExitStack() as stack:
            directory = Path(tempfile.mkdtemp(prefix="nfslab."))
            stack.callback(directory.rmdir)  # nothing is removed recursively here: there could be a mount left
            self.shared = directory / "shared"
            self.shared.mkdir()
            stack.callback(self.shared.rmdir)
            if backing is None:
                self.backing = directory / "backing"
                stack.callback(shutil.rmtree, self.backing, ignore_errors=True)
            else:
                self.backing = Path(backing).absolute()
            self.backing.mkdir(parents=True, exist_ok=True)
            for index, its_options in enumerate(each):
                self.hosts.append(self._start(directory / f"host{index}", its_options))
                stack.callback(self.hosts[-1].close)
            for host in self.hosts:
                host.await_mount()
            self._stack = stack.pop_all()

    def _start(self, path: Path, options: Options) -> Host:
        path.mkdir()
        trace = os.path.abspath(options.trace) if options.trace else ""
        return Host(path.name, path, self.shared, self.backing, replace(options, trace=trace))

    @staticmethod
    def available() -> bool:
        """Tell whether hosts can be mounted here."""
        rights = sys.platform == "linux" and os.geteuid() == 0 and os.access("/dev/fuse", os.R_OK | os.W_OK)
        return rights and shutil.which("unshare") is not None

    @property
    def stats(self) -> list[dict[str, int]]:
        """What each host counted, once they are closed."""
        return [host.stats for host in self.hosts]

    def close(self) -> None:
        """Take the mounts and the temporary directory away."""
        self._stack.close()

    def __enter__(self) -> SharedFilesystem:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
