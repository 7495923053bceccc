"""The race's own machinery: node-local locks, mixed fleets, processes that die or hang."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from pathlib import Path

import pytest

from racefix import node_local, race
from racefix.patch import Race


def plan(directory: Path, **changes: object) -> race.Plan:
    return race.Plan(**{"patch": "x.y", "directory": str(directory), "patched": 0, "procs": 3, "rounds": 2} | changes)  # type: ignore[arg-type]


def nothing(directory: Path, start: str) -> None:
    pass


def test_every_process_takes_part_in_every_round(tmp_path: Path) -> None:
    def run(directory: Path, start: str) -> None:
        (directory / f"{start}-{os.getpid()}").touch(exist_ok=False)

    def check(directory: Path, start: str) -> None:
        if len(os.listdir(directory)) not in (1, 3):  # the rehearsal is alone
            raise RuntimeError(os.listdir(directory))

    result = race.run(plan(tmp_path), Race(("a", "b"), nothing, run, check))
    assert (result.without.calls, result.without.failed, result.without.rounds) == (12, 0, 4)
    assert result.with_ == race.Outcome()
    assert os.listdir(tmp_path) == []


def test_a_wrong_result_is_a_failure(tmp_path: Path) -> None:
    def run(directory: Path, start: str) -> None:
        with open(directory / "log", "a") as file:
            file.write(".")

    def check(directory: Path, start: str) -> None:
        if len((directory / "log").read_text()) > 1:
            raise RuntimeError("too long")

    result = race.run(plan(tmp_path), Race(("a",), nothing, run, check))
    assert result.without.errors == {"wrong result: RuntimeError too long": 2}
    assert (result.without.failed, result.without.rounds_failed) == (2, 2)


def test_a_process_that_dies_is_named_and_all_others_are_ended(tmp_path: Path) -> None:
    parent = os.getpid()

    def run(directory: Path, start: str) -> None:
        if os.getpid() != parent:
            os._exit(3)

    with pytest.raises(ChildProcessError, match="a racing process died, after 'a'"):
        race.run(plan(tmp_path), Race(("a",), nothing, run, nothing))
    assert os.listdir(tmp_path) == []
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_processes_that_hang_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race, "SILENCE", 0.1)
    parent = os.getpid()

    def run(directory: Path, start: str) -> None:
        while os.getpid() != parent:
            os.read(os.pipe()[0], 1)

    with pytest.raises(TimeoutError, match="3 processes gave no answer"):
        race.run(plan(tmp_path), Race(("a",), nothing, run, nothing))


def test_locks_exclude_as_here_and_not_between_emulated_hosts(tmp_path: Path) -> None:
    """Each process holds one lock while it looks whether a peer is inside too."""

    def run(directory: Path, start: str) -> None:
        descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            (directory / "inside").touch(exist_ok=False)
            time.sleep(0.01)
            (directory / "inside").unlink()
        finally:
            os.close(descriptor)

    one = Race(("a",), nothing, run, nothing)
    assert race.run(plan(tmp_path, rounds=5), one).without.failed == 0
    assert race.run(plan(tmp_path, rounds=5, node_local=True), one).without.failed > 0


def test_the_emulated_lock_goes_with_its_file(tmp_path: Path) -> None:
    """filelock 4 tries a lock and lets go of it by closing alone; within one process flock excludes as ever."""
    pid = os.fork()
    if pid:
        assert os.waitpid(pid, 0)[1] == 0
        return
    status = 1
    try:
        node_local.emulate(tempfile.mkdtemp(dir=tmp_path))
        first, second = (os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in range(2))
        fcntl.flock(first, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError):
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(first)
        fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        other = os.open(tmp_path / "other lock", os.O_RDWR | os.O_CREAT)
        fcntl.flock(other, fcntl.LOCK_EX)
        os.dup2(other, second)  # the number gets another file behind the emulation's back
        with pytest.raises(BlockingIOError):
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        status = 0
    finally:
        os._exit(status)
