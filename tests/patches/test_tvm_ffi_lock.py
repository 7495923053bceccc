"""tvm_ffi.lock on the real releases: what cannot be locked is not waited for; what can be is held by one at a time."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from racefix.race import Plan, measure
from tests.patches.conftest import Release
from tests.support import FULL, python, run

BEFORE_THE_CHECK, NEWEST = "0.1.1", "0.1.15.post2"  # whether it is held already: since 0.1.2
RELEASES = (BEFORE_THE_CHECK, "0.1.9", NEWEST) if FULL else (BEFORE_THE_CHECK, NEWEST)
PRELUDE = """
import errno, fcntl, os, signal, stat, sys, time
from tvm_ffi.utils.lockfile import FileLock
path = os.environ["LOCK"]
real_flock, real_open = fcntl.flock, os.open
def fail(number):
    def failing(*arguments, **options):
        raise OSError(number, os.strerror(number))
    return failing
def spinning(*_):
    print("still spinning")
    sys.stdout.flush()
    os._exit(0)
signal.signal(signal.SIGALRM, spinning)
signal.alarm(int(os.environ.get("LIMIT", "30")))
"""


@pytest.fixture(params=RELEASES)
def lock(request: pytest.FixtureRequest, tvm_ffi: Release, tmp_path: Path) -> Callable[..., list[str]]:
    """Run a program with one of the releases and return the lines it printed."""
    release = tvm_ffi(request.param)

    def program(text: str, **env: str) -> list[str]:
        environ = {"LOCK": str(tmp_path / "lock"), "RACEFIX_LOG": "off", **env}
        return python(PRELUDE + textwrap.dedent(text), path=[release], env=environ).stdout.splitlines()

    return program


def started(release: Path, text: str, env: Mapping[str, str], **options: int) -> subprocess.Popen[str]:
    environ = {**os.environ, "PYTHONPATH": str(release), **env}
    command = [sys.executable, "-c", PRELUDE + textwrap.dedent(text)]
    return subprocess.Popen(command, env=environ, text=True, stdout=-1, stderr=-1, **options)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("error", ["ENOLCK", "ENOSYS", "EOPNOTSUPP", "EIO"])
def test_where_locks_do_not_work_it_goes_on_and_upstream_never_does(error: str, lock: Callable[..., list[str]]) -> None:
    program = f"""
        fcntl.flock = fail(errno.{error})
        with FileLock(path) as held:
            print("went on", held._file_descriptor)
        print(os.path.exists(path))
    """
    assert lock(program) == ["went on None", "True"]
    assert lock(program, RACEFIX_DISABLE="tvm_ffi.lock", LIMIT="1") == ["still spinning"]


@pytest.mark.parametrize("error", ["EROFS", "EACCES", "EPERM", "ENOSPC", "ENOENT"])
def test_where_the_lock_file_cannot_be_made(error: str, lock: Callable[..., list[str]]) -> None:
    program = f"""
        os.open = lambda name, *arguments: fail(errno.{error})() if name == path else real_open(name, *arguments)
        with FileLock(path) as held:
            print("went on", held._file_descriptor)
    """
    assert lock(program) == ["went on None"]
    assert lock(program, RACEFIX_DISABLE="tvm_ffi.lock", LIMIT="1") == ["still spinning"]


AS_ANOTHER_USER = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")
ON_A_READ_ONLY_MOUNT = ("unshare", "--mount", "sh", "-c", 'mount --bind -o ro "$0" "$0" && exec "$@"')
IS_LOCKED = """
    with FileLock(path), open(path) as again:
        try:
            fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
            print("free")
        except BlockingIOError:
            print("locked")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away and mounts: needs root")
@pytest.mark.parametrize("how", [AS_ANOTHER_USER, ON_A_READ_ONLY_MOUNT], ids=["another user's", "read-only mount"])
def test_what_may_only_be_read_is_locked_all_the_same(how: tuple[str, ...], tvm_ffi: Release, tmp_path: Path) -> None:
    """Those who share such a cache on one host still exclude one another."""
    lock = tmp_path / "cache" / "lock"
    lock.parent.mkdir()
    lock.touch()
    for path in (lock, lock.parent):
        os.chown(path, 65534, 65534)
    where = [lock.parent] if how is ON_A_READ_ONLY_MOUNT else []
    command: tuple[str | Path, ...] = (*how, *where, sys.executable, "-c", PRELUDE + textwrap.dedent(IS_LOCKED))
    env = {"LOCK": str(lock), "RACEFIX_LOG": "off"}
    assert run(*command, path=[tvm_ffi(NEWEST)], env=env).stdout == "locked\n"
    env |= {"RACEFIX_DISABLE": "tvm_ffi.lock", "LIMIT": "1"}
    assert run(*command, path=[tvm_ffi(NEWEST)], env=env).stdout == "still spinning\n"


COUNT = """
    for _ in range(100):
        with FileLock(path):
            with open(path + ".count") as file:
                number = int(file.read() or "0")
            with open(path + ".count", "w") as file:
                file.write(str(number + 1))
"""


@pytest.mark.parametrize("off", [("",) * 6, ("", "all") * 3], ids=["with", "mixed"])
def test_one_at_a_time(off: tuple[str, ...], tvm_ffi: Release, tmp_path: Path) -> None:
    (tmp_path / "lock.count").touch()
    env = {"LOCK": str(tmp_path / "lock"), "LIMIT": "120"}
    processes = [started(tvm_ffi(NEWEST), COUNT, {**env, "RACEFIX_DISABLE": name}) for name in off]
    for process in processes:
        assert process.communicate() == ("", "")
    assert (tmp_path / "lock.count").read_text() == str(100 * len(off))


def test_a_holder_is_waited_for_however_long_and_with_a_word(tvm_ffi: Release, tmp_path: Path) -> None:
    env = {"LOCK": str(tmp_path / "lock")}
    hold = """
        with FileLock(path):
            print("holding", flush=True)
            sys.stdin.read()
    """
    wait = """
        import racefix_patches.tvm_ffi as patches
        patches.LONG_WAIT = 0.2
        print("waiting", flush=True)
        with FileLock(path) as held:
            print("mine", held._file_descriptor is not None)
    """
    holder = started(tvm_ffi(NEWEST), hold, env, stdin=-1)
    assert holder.stdout
    assert holder.stdout.readline() == "holding\n"
    waiter = started(tvm_ffi(NEWEST), wait, env)
    assert waiter.stderr
    assert "still waiting for who holds" in waiter.stderr.readline()
    assert waiter.poll() is None
    holder.communicate("")
    assert waiter.communicate()[0] == "waiting\nmine True\n"


def test_a_timeout_and_a_lock_that_is_held_already_are_upstreams(lock: Callable[..., list[str]]) -> None:
    program = """
        with FileLock(path) as held:
            for arguments in ((0.2,), (0.2, 0.01), (0,)):
                try:
                    FileLock(path).blocking_acquire(*arguments)
                except Exception as error:
                    print(type(error).__name__, error)
            if os.environ["CHECKED"]:
                try:
                    held.blocking_acquire()
                except Exception as error:
                    print(type(error).__name__, error)
            held.release()
            held.release()
            print(held.blocking_acquire(), held.acquire(), held._file_descriptor is not None)
    """
    checked = lock("import tvm_ffi; print(tvm_ffi.__version__)")[0] != BEFORE_THE_CHECK
    env = {"CHECKED": "1" if checked else ""}
    ours = lock(program, **env)
    assert ours == lock(program, RACEFIX_DISABLE="all", **env)
    assert len(ours) == 4 + checked


@pytest.mark.parametrize("umask", ["0o022", "0o077", "0o002"])
def test_the_lock_file_has_the_mode_that_upstream_gives_it(
    umask: str, tmp_path: Path, lock: Callable[..., list[str]]
) -> None:
    program = f"""
        os.umask({umask})
        with FileLock(path):
            print(oct(os.stat(path).st_mode))
    """
    ours = lock(program)
    (tmp_path / "lock").unlink()
    assert ours == lock(program, RACEFIX_DISABLE="all")


@pytest.mark.parametrize("patched", [0, 8])
def test_the_race(patched: int, tvm_ffi: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the two starts one shows a lock that somebody has, which upstream can do too, the other one that none can."""
    monkeypatch.setenv("PYTHONPATH", str(tvm_ffi(NEWEST)))
    result = measure(Plan("tvm_ffi.lock", str(tmp_path), patched, rounds=2))
    assert (result.with_.failed, result.with_.calls) == (0, 2 * 2 * patched)
    assert (result.without.failed, result.without.calls) == (2 * (8 - patched), 2 * 2 * (8 - patched))
