"""One host: the process that serves its mount, and commands run on it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from . import mount
from .options import Options

ROOT = Path(__file__).parent.parent.parent
Command = Sequence[str | os.PathLike[str]]
ENTER = 'mount --bind "$1" "$2" && hostname "$3" && shift 3 && exec "$@"'


class Host:
    """A host of a shared file system.

    Args:
        name: its host name.
        path: an existing directory, for its mount.
        shared: an existing directory, where the commands that run on it find the mount.
        backing: the server's directory.
        options: how it behaves.

    ``path`` can be used from this process as it is; ``run`` and ``popen`` give a process the host's name and pids of
    its own too. ``stats`` counts the host's operations and is empty until it is closed.
    """

    def __init__(self, name: str, path: Path, shared: Path, backing: Path, options: Options) -> None:
        self.name = name
        self.path = path
        self.shared = shared
        self.stats: dict[str, int] = {}
        order = json.dumps({"mount": str(path), "backing": str(backing), "options": asdict(options)})
        # -S: a laboratory is not to depend on what is installed, racefix for one.
        command = [sys.executable, "-S", "-m", f"{__package__}.daemon", order]
        self._daemon = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )

    def await_mount(self) -> None:
        """Wait until the mount is there.

        Raises:
            RuntimeError: it cannot be mounted.
        """
        assert self._daemon.stdout
        if self._daemon.stdout.readline() != b"ready\n":
            raise RuntimeError(f"{self.name} cannot be mounted; that needs root and /dev/fuse")

    def run(
        self, command: Command, env: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.CompletedProcess[Any]:
        """Run a command on this host, as ``subprocess.run`` does; ``env`` is added to the environment."""
        return subprocess.run(self._argv(command), env=self._environment(env), **options)

    def popen(self, command: Command, env: Mapping[str, str] | None = None, **options: Any) -> subprocess.Popen[Any]:
        """Start a command on this host, as ``subprocess.Popen`` does; ``env`` is added to the environment."""
        return subprocess.Popen(self._argv(command), env=self._environment(env), **options)

    def drop_caches(self) -> None:
        """Make this host forget all names and attributes, as if their time were over."""
        self._daemon.send_signal(signal.SIGUSR1)
        time.sleep(0.05)

    def close(self) -> None:
        """Take the mount away. What still runs on the host gets ENOTCONN for it."""
        try:
            output, _ = self._daemon.communicate(timeout=10)  # closes its standard input, at which it ends
            self.stats = json.loads(output or "{}")
        except subprocess.TimeoutExpired:
            self._daemon.kill()
            self._daemon.communicate()
        mount.unmount(str(self.path))
        self.path.rmdir()

    def _argv(self, command: Command) -> list[str]:
        """Return a command with pids and a host name of its own, and this host's mount at the path of all hosts."""
        unshare = ("unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc")
        enter = ("sh", "-c", ENTER, "sh", str(self.path), str(self.shared), self.name)
        return [*unshare, *enter, *(os.fspath(word) for word in command)]

    def _environment(self, env: Mapping[str, str] | None) -> dict[str, str]:
        return {**os.environ, "NFSLAB_HOST": self.name, "NFSLAB_SHARED": str(self.shared), **(env or {})}
