"""One builds and the others wait: as long as it lives, no longer, and never for a lock that does not work."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from racefix.fs import lease, locks, private, publish

FORK = multiprocessing.get_context("fork")
SHORT = 1.5  # seconds of silence; a heartbeat comes every 0.33


def build(directory: Path, seconds: float, silence: float, host: str | None = None) -> None:
    """Build if it is ours to do: put a line in the log, take some time, and complete the entry."""
    if host:
        tempfile.tempdir = str(directory / host)  # another host's own disk
        os.makedirs(tempfile.tempdir, exist_ok=True)

    def done() -> bool:
        return (directory / "done").exists()

    with locks.one_builder(str(directory / "lease"), done, silence=silence) as builds:
        if builds:
            descriptor = os.open(directory / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(descriptor, b"built\n")
            os.close(descriptor)
            time.sleep(seconds)
            (directory / "done").touch()
        assert done()


def start(directory: Path, seconds: float = 0.3, silence: float = 90, host: str | None = None) -> BaseProcess:
    process = FORK.Process(target=build, args=(directory, seconds, silence, host))
    process.start()
    return process


def join(*processes: BaseProcess) -> None:
    for process in processes:
        process.join(60)
        assert process.exitcode == 0


def builds(directory: Path) -> int:
    return (directory / "log").read_text().count("built")


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it never came")


@pytest.mark.parametrize("hosts", [1, 3])
def test_one_of_many_builds(hosts: int, tmp_path: Path) -> None:
    join(*(start(tmp_path, host=f"host{number % hosts}") for number in range(9)))
    assert builds(tmp_path) == 1
    assert not (tmp_path / "lease").exists()


def test_the_wait_has_no_limit_while_the_builder_lives(tmp_path: Path) -> None:
    """A build of four times the silence: on its own host a held lock proves life, elsewhere the heartbeat."""
    builder = start(tmp_path, seconds=4 * SHORT, silence=SHORT, host="host0")
    wait_for((tmp_path / "log").exists)
    join(builder, *(start(tmp_path, silence=SHORT, host=f"host{number % 2}") for number in range(4)))
    assert builds(tmp_path) == 1


def test_a_killed_builder_is_followed_at_once_on_its_own_host(tmp_path: Path) -> None:
    """Its lease is fresh, but the lock of this host, which it had, is ours."""
    builder = start(tmp_path, seconds=60, host="host0")
    wait_for((tmp_path / "log").exists)
    assert builder.pid
    os.kill(builder.pid, signal.SIGKILL)
    builder.join()
    began = time.monotonic()
    join(start(tmp_path, host="host0"))
    assert time.monotonic() - began < lease.SILENCE / 2
    assert builds(tmp_path) == 2


def test_a_killed_builder_is_followed_elsewhere_after_its_silence(tmp_path: Path) -> None:
    builder = start(tmp_path, seconds=60, silence=SHORT, host="host0")
    wait_for((tmp_path / "log").exists)
    assert builder.pid
    os.kill(builder.pid, signal.SIGKILL)
    builder.join()
    join(*(start(tmp_path, silence=SHORT, host=f"host{number}") for number in (1, 2)))
    assert builds(tmp_path) == 2


def test_a_stopped_builder_elsewhere_is_not_waited_for(tmp_path: Path) -> None:
    """SIGSTOP stands for a host that hangs; when it goes on it finds the work done."""
    builder = start(tmp_path, silence=SHORT, host="host0")
    wait_for((tmp_path / "log").exists)
    assert builder.pid
    os.kill(builder.pid, signal.SIGSTOP)
    join(start(tmp_path, silence=SHORT, host="host1"))
    os.kill(builder.pid, signal.SIGCONT)
    join(builder)
    assert builds(tmp_path) == 2


def test_what_is_done_already_costs_no_lease(tmp_path: Path) -> None:
    (tmp_path / "done").touch()
    build(tmp_path, 0, 90)
    assert not (tmp_path / "log").exists()
    assert os.listdir(tmp_path) == ["done"]


@pytest.mark.parametrize("error", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_without_flock_the_lease_alone_decides(error: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(descriptor: int, operation: int) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(fcntl, "flock", flock)
    join(*(start(tmp_path) for _ in range(4)))
    assert builds(tmp_path) == 1


@pytest.mark.parametrize("error", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_where_no_lease_can_be_written_everybody_may_build(
    error: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(path: str, data: bytes, mode: int = 0) -> None:
        raise OSError(error, os.strerror(error), path)

    monkeypatch.setattr(publish, "write", write)
    join(*(start(tmp_path, host=f"host{number}") for number in range(3)))
    assert builds(tmp_path) >= 1


def test_without_a_place_of_our_own_the_lease_alone_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def directory(name: str = "") -> str:
        raise PermissionError("not ours")

    monkeypatch.setattr(private, "directory", directory)
    join(*(start(tmp_path) for _ in range(4)))
    assert builds(tmp_path) == 1


def test_the_lease_goes_when_the_build_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), locks.one_builder(str(tmp_path / "lease"), lambda: False):
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == []
