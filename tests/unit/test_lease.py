"""A lease shows who works on an entry, and whether they still live, on the observer's own clock."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from racefix.fs import lease, names
from tests.faults import Faults


class Clock:
    """This host's monotonic clock, moved by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


@pytest.fixture
def path(tmp_path: Path) -> Iterator[str]:
    yield str(tmp_path / "lease")
    for thread in threading.enumerate():
        assert thread.name != "racefix lease", "a heartbeat goes on"


def beat(path: str) -> None:
    """A sign of life, as the holder's heartbeat gives it; a clock that is an hour off makes no difference."""
    moment = os.stat(path).st_mtime_ns - 3_600_000_000_000
    os.utime(path, ns=(moment, moment))


def test_one_has_it_until_they_give_it_up(path: str, tmp_path: Path) -> None:
    held = lease.take(path)
    assert held
    assert lease.take(path) is None
    assert os.listdir(tmp_path) == ["lease"]
    held.release()
    assert os.listdir(tmp_path) == []
    again = lease.take(path)
    assert again
    again.release()


def test_the_holder_gives_signs_of_life(path: str) -> None:
    held = lease.take(path, heartbeat=0.01)
    assert held
    first = os.stat(path).st_mtime_ns
    for _ in range(500):
        if os.stat(path).st_mtime_ns != first:
            break
        time.sleep(0.01)
    held.release()
    assert not held.thread.is_alive()


def test_silence_is_counted_from_the_last_sign_of_life(path: str, clock: Clock) -> None:
    held = lease.take(path)
    assert held
    watch = lease.Watch(path)
    silences = []
    for moment, alive in ((10, False), (60, False), (70, True), (80, False), (160, False)):
        clock.now = moment
        if alive:
            beat(path)
        silences.append(watch.silence())
    assert silences == [0, 50, 0, 10, 90]
    held.release()
    clock.now = 500
    assert watch.silence() == 0


def test_a_new_holder_is_a_sign_of_life(path: str, clock: Clock) -> None:
    watch = lease.Watch(path)
    for moment in (0, 50, 100):
        clock.now = moment
        held = lease.take(path, f"holder {moment}")
        assert held
        assert (watch.silence(), watch.holder) == (0, f"holder {moment}")
        held.release()


def test_a_lease_that_cannot_be_read_counts_as_silent(path: str, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = lease.Watch(path)

    def unreadable(path: str, flags: int, mode: int = 0) -> int:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), path)

    monkeypatch.setattr(os, "open", unreadable)
    clock.now = 100
    assert watch.silence() == 100


def test_a_silent_lease_is_cleared_and_its_holder_takes_nothing_away(path: str, tmp_path: Path) -> None:
    dead = lease.take(path, "dead")
    assert dead
    watch = lease.Watch(path)
    watch.silence()
    watch.clear()
    assert os.listdir(tmp_path) == []
    alive = lease.take(path, "alive")
    assert alive
    before = os.stat(path).st_mtime_ns
    os.utime(dead.descriptor)  # what the dead holder's heartbeat would do, were it only asleep
    assert os.stat(path).st_mtime_ns == before
    dead.release()
    assert (tmp_path / "lease").read_bytes() == alive.content
    alive.release()


def test_a_lease_that_was_taken_since_is_put_back(path: str, tmp_path: Path) -> None:
    dead = lease.take(path, "dead")
    assert dead
    watch = lease.Watch(path)
    watch.silence()
    dead.release()
    alive = lease.take(path, "alive")
    assert alive
    watch.clear()
    assert (tmp_path / "lease").read_bytes() == alive.content
    assert os.listdir(tmp_path) == ["lease"]
    alive.release()


def test_a_lease_that_looks_stale_when_it_is_given_up_goes_all_the_same(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = lease.take(path)
    assert held
    Faults(monkeypatch, ("open",), {("open", 1): (errno.ESTALE, False)}).active = True
    held.release()
    assert os.listdir(tmp_path) == []


def test_no_lease_is_taken_without_a_holder(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fails when it is taken, no file is left for which nobody gives signs of life."""
    for number in range(1, 6):
        with monkeypatch.context() as context:
            Faults(context, ("open",), {("open", number): (errno.ESTALE, False)}).active = True
            try:
                held = lease.take(path)
            except OSError:
                held = None
        assert os.listdir(tmp_path) == (["lease"] if held else [])
        if held:
            held.release()


@pytest.mark.parametrize("error", [errno.EEXIST, errno.ESTALE])
def test_a_lost_reply_is_recognised(error: int, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Faults(monkeypatch, ("link",), {("link", 1): (error, True)}).active = True
    held = lease.take(path)
    assert held
    held.release()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("taken", [False, True])
def test_without_hard_links(taken: bool, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = lease.take(path) if taken else None
    Faults(monkeypatch, ("link",), {("link", n): (errno.EOPNOTSUPP, False) for n in range(9)}).active = True
    second = lease.take(path)
    assert bool(second) != taken
    for held in (first, second):
        if held:
            held.release()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("error", [errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EIO])
def test_a_real_error_surfaces_and_leaves_nothing(
    error: int, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Faults(monkeypatch, ("link",), {("link", 1): (error, False)}).active = True
    with pytest.raises(OSError) as raised:
        lease.take(path)
    assert raised.value.errno == error
    assert [name for name in os.listdir(tmp_path) if name.startswith(names.PREFIX)] == []
