"""The lock is best effort: it excludes where it can, gives way where it cannot, and never hangs or raises."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from pathlib import Path

import pytest

from racefix.fs import locks


def is_locked(path: Path) -> bool:
    with open(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_it_excludes_and_lets_go(tmp_path: Path) -> None:
    lock = tmp_path / "x.lock"
    with locks.flock(str(lock), 1):
        assert is_locked(lock)
    assert not is_locked(lock)
    assert lock.exists()


def test_it_lets_go_when_the_work_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), locks.flock(str(tmp_path / "x.lock"), 1):
        raise ZeroDivisionError
    assert not is_locked(tmp_path / "x.lock")


def test_it_leaves_what_is_in_the_file(tmp_path: Path) -> None:
    """filelock writes its holder into the file where flock does not exist."""
    (tmp_path / "x.lock").write_text("a holder")
    with locks.flock(str(tmp_path / "x.lock"), 1):
        pass
    assert (tmp_path / "x.lock").read_text() == "a holder"


def test_it_waits_for_a_holder(tmp_path: Path) -> None:
    order = []

    def hold() -> None:
        with locks.flock(str(tmp_path / "x.lock"), 5):
            holding.set()
            time.sleep(0.2)
            order.append("holder")

    holding = threading.Event()
    thread = threading.Thread(target=hold)
    thread.start()
    holding.wait()
    with locks.flock(str(tmp_path / "x.lock"), 5) as lock:
        order.append("waiter")
    thread.join()
    assert order == ["holder", "waiter"]
    assert lock.waited > 0


def test_it_goes_on_without_when_the_time_is_over(tmp_path: Path) -> None:
    with locks.flock(str(tmp_path / "x.lock"), 5), locks.flock(str(tmp_path / "x.lock"), 0.1) as lock:
        assert (lock.descriptor, lock.waited >= 0.1) == (None, True)


def test_it_stops_waiting_when_there_is_nothing_left_to_do(tmp_path: Path) -> None:
    began = time.monotonic()
    with locks.flock(str(tmp_path / "x.lock"), 60):
        done = iter([False, True])
        with locks.flock(str(tmp_path / "x.lock"), 60, until=lambda: next(done)):
            pass
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("error", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EIO])
def test_it_goes_on_without_where_flock_does_not_work(
    tmp_path: Path, error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(descriptor: int, operation: int) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(fcntl, "flock", flock)
    before = len(os.listdir("/proc/self/fd"))
    with locks.flock(str(tmp_path / "x.lock"), 60):
        pass
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("where", ["missing/x.lock", "link.lock", "directory.lock"])
def test_it_goes_on_without_where_the_file_cannot_be_opened(tmp_path: Path, where: str) -> None:
    (tmp_path / "directory.lock").mkdir()
    (tmp_path / "link.lock").symlink_to(tmp_path / "victim")
    with locks.flock(str(tmp_path / where), float("inf")) as lock:
        assert lock.descriptor is None
    assert not (tmp_path / "victim").exists()


def test_a_lock_file_that_its_holder_unlinked_is_opened_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "x.lock"
    real = fcntl.flock
    came: list[bool] = []

    def flock(descriptor: int, operation: int) -> None:
        if not came:
            came.append(True)
            lock.unlink()  # as filelock 3.21 to 3.29 does when it releases
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    with locks.flock(str(lock), 5):
        monkeypatch.undo()
        assert is_locked(lock)
