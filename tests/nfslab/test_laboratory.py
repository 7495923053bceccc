"""A host sees late, and loses, what an NFS client sees late and loses; each option changes what it says."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.nfslab import Host, SharedFilesystem
from tests.nfslab.daemon import THREADS
from tests.nfslab.fixtures import Laboratory
from tests.nfslab.mount import unmount
from tests.support import ROOT

LONG = 1000.0  # seconds: what is trusted so long is trusted to the end of a test
PATIENCE = 60.0  # seconds, for what comes at last

LOCK = """
import fcntl, os, sys
file = os.open(sys.argv[1], os.O_RDWR)
take = getattr(fcntl, sys.argv[2])
print("asks", flush=True)
try:
    take(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if sys.argv[3] == "at once" else 0))
    print("has it", flush=True)
    sys.stdin.read()
except OSError as error:
    print(os.strerror(error.errno), flush=True)
"""


@contextlib.contextmanager
def locker(path: Path, function: str = "flock", when: str = "at once") -> Iterator[subprocess.Popen[bytes]]:
    """A process that takes a lock, holds it until its standard input ends, and tells of it."""
    command = [sys.executable, "-S", "-c", LOCK, str(path), function, when]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        assert line(process) == "asks"
        try:
            yield process
        finally:
            process.kill()


def speaks(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Tell whether a process writes something, or ends, within a time."""
    assert process.stdout
    return bool(select.select([process.stdout], [], [], seconds)[0])


def line(process: subprocess.Popen[bytes]) -> str:
    """Return the next line of a process whose output is not buffered."""
    assert speaks(process, PATIENCE)
    assert process.stdout
    return process.stdout.readline().decode().strip()


def paths(filesystem: SharedFilesystem) -> tuple[Path, Path]:
    first, second = (host.path for host in filesystem.hosts)
    return first, second


def miss(path: Path) -> None:
    """Make a host cache that there is no such name, in a directory that it has just asked about."""
    os.listdir(path.parent)
    assert not path.exists()


def eventually(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def failure(function: Callable[..., object], *arguments: object) -> str:
    """Return the name of the error that a call fails with."""
    with pytest.raises(OSError) as raised:
        function(*arguments)
    return errno.errorcode[raised.value.errno or 0]


# Locks.


def test_a_lock_excludes_the_processes_of_its_host(laboratory: Laboratory) -> None:
    first, _ = paths(laboratory())
    (first / "lock").touch()
    with locker(first / "lock") as holder, locker(first / "lock") as other:
        assert [line(holder), line(other)] == ["has it", os.strerror(errno.EAGAIN)]


@pytest.mark.parametrize("function", ["flock", "lockf"])
def test_a_lock_ends_at_its_host(laboratory: Laboratory, function: str) -> None:
    first, second = paths(laboratory())
    (first / "lock").touch()
    with locker(first / "lock", function) as holder, locker(second / "lock", function) as other:
        assert [line(holder), line(other)] == ["has it", "has it"]


@pytest.mark.parametrize("function", ["flock", "lockf"])
@pytest.mark.parametrize("host", [0, 1])
def test_a_shared_lock_excludes_every_host(laboratory: Laboratory, function: str, host: int) -> None:
    hosts = paths(laboratory(locks="shared"))
    (hosts[0] / "lock").touch()
    with locker(hosts[0] / "lock", function) as holder:
        assert line(holder) == "has it"
        with locker(hosts[host] / "lock", function) as other:
            assert line(other) == os.strerror(errno.EAGAIN)


@pytest.mark.parametrize("function", ["flock", "lockf"])
def test_who_waits_for_a_shared_lock_has_it_when_its_holder_ends(laboratory: Laboratory, function: str) -> None:
    first, second = paths(laboratory(locks="shared"))
    (first / "lock").touch()
    with locker(first / "lock", function) as holder:
        assert line(holder) == "has it"
        with locker(second / "lock", function, "when it is free") as waiter:
            assert not speaks(waiter, 0.3)
            holder.kill()
            assert line(waiter) == "has it"


def test_who_waits_for_a_shared_lock_can_be_killed(laboratory: Laboratory) -> None:
    first, second = paths(laboratory(locks="shared"))
    (first / "lock").touch()
    with locker(first / "lock") as holder:
        assert line(holder) == "has it"
        with locker(second / "lock", when="when it is free") as waiter:
            assert not speaks(waiter, 0.3)
            waiter.kill()
            try:
                assert waiter.wait(PATIENCE) == -signal.SIGKILL
            finally:
                holder.kill()  # or a waiter that cannot be killed would be waited for without end


def test_any_number_may_wait_for_a_shared_lock_while_their_host_goes_on(laboratory: Laboratory) -> None:
    first, second = paths(laboratory(locks="shared"))
    (first / "lock").touch()
    with locker(first / "lock") as holder, contextlib.ExitStack() as stack:
        assert line(holder) == "has it"
        for _ in range(2 * THREADS):
            stack.enter_context(locker(second / "lock", when="when it is free"))
        time.sleep(0.3)
        try:
            subprocess.run(["ls", second], timeout=PATIENCE, check=True)
        finally:
            holder.kill()


@pytest.mark.parametrize("error", ["ENOLCK", "ENOSYS"])
def test_locks_can_fail(laboratory: Laboratory, error: str) -> None:
    first, _ = paths(laboratory(locks=error.lower()))
    (first / "lock").touch()
    with locker(first / "lock") as process:
        assert line(process) == os.strerror(getattr(errno, error))


# Names.


def test_a_missed_name_stays_missed(laboratory: Laboratory) -> None:
    first, second = paths(laboratory(ac=LONG))
    miss(second / "name")
    (first / "name").mkdir()
    assert not (second / "name").exists()
    assert failure(open, second / "name") == "ENOENT"


def test_a_missed_name_is_seen_when_its_time_is_over(laboratory: Laboratory) -> None:
    first, second = paths(laboratory(ac=1))
    began = time.monotonic()
    miss(second / "name")
    (first / "name").mkdir()
    eventually((second / "name").exists)
    assert time.monotonic() - began >= 1


def test_without_a_time_nothing_is_seen_late(laboratory: Laboratory) -> None:
    first, second = paths(laboratory(ac=0))
    miss(second / "name")
    (first / "name").mkdir()
    assert (second / "name").exists()


@pytest.mark.parametrize(
    "ask",
    [
        lambda directory: os.close(os.open(directory, os.O_RDONLY | os.O_DIRECTORY)),
        os.listdir,
        os.utime,
        lambda directory: directory.chmod(0o755),
        lambda directory: (directory / "another").mkdir(),
        lambda directory: (directory / "another").touch(),
    ],
    ids=["open", "list", "utime", "chmod", "mkdir inside", "create inside"],
)
def test_what_asks_the_server_about_the_directory_shows_a_missed_name(
    laboratory: Laboratory, ask: Callable[[Path], object]
) -> None:
    first, second = paths(laboratory(ac=LONG))
    miss(second / "name")
    (first / "name").mkdir()
    ask(second)
    assert (second / "name").exists()


def test_stat_of_the_directory_does_not_show_a_missed_name(laboratory: Laboratory) -> None:
    first, second = paths(laboratory(ac=LONG))
    miss(second / "name")
    (first / "name").mkdir()
    os.stat(second)
    assert not (second / "name").exists()


@pytest.mark.parametrize(
    "make",
    [
        os.mkdir,
        lambda path: os.symlink("target", path),
        lambda path: os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY),
        lambda path: os.link(path.parent / "file", path),
    ],
    ids=["mkdir", "symlink", "O_EXCL", "link"],
)
def test_who_makes_a_missed_name_is_told_that_it_exists_and_sees_it(
    laboratory: Laboratory, make: Callable[[Path], object]
) -> None:
    first, second = paths(laboratory(ac=LONG))
    (first / "file").touch()
    miss(second / "name")
    (first / "name").touch()
    assert failure(make, second / "name") == "EEXIST"
    assert (second / "name").exists()


def test_a_missed_name_cannot_be_removed(laboratory: Laboratory) -> None:
    filesystem = laboratory(ac=LONG)
    first, second = paths(filesystem)
    miss(second / "name")
    (first / "name").touch()
    assert failure(os.unlink, second / "name") == "ENOENT"
    assert (filesystem.backing / "name").exists()


def test_a_found_name_stays_found_but_cannot_be_opened(laboratory: Laboratory) -> None:
    first, second = paths(laboratory(ac=LONG, ac_reg=LONG))
    (first / "name").touch()
    assert (second / "name").exists()
    (first / "name").unlink()
    assert (second / "name").exists()
    assert failure(open, second / "name") == "ENOENT"


def test_dropped_caches_show_what_is_there(laboratory: Laboratory) -> None:
    filesystem = laboratory(ac=LONG)
    first, second = paths(filesystem)
    miss(second / "name")
    (first / "name").mkdir()
    filesystem.hosts[1].drop_caches()
    eventually((second / "name").exists)


@pytest.mark.parametrize("failed_rename", ["seen", "hidden"])
def test_a_rename_onto_a_missed_name_fails_and_may_leave_it_missed(laboratory: Laboratory, failed_rename: str) -> None:
    first, second = paths(laboratory(ac=LONG, failed_rename=failed_rename))
    (first / "cache").mkdir()
    (second / "private").mkdir()
    miss(second / "cache" / "entry")
    (first / "cache" / "entry").mkdir()
    (first / "cache" / "entry" / "file").touch()
    assert failure(os.rename, second / "private", second / "cache" / "entry") == "ENOTEMPTY"
    assert (second / "cache" / "entry" / "file").exists() == (failed_rename == "seen")
    os.listdir(second / "cache")
    assert (second / "cache" / "entry" / "file").exists()


def test_rename_knows_no_flags(laboratory: Laboratory) -> None:
    first, _ = paths(laboratory())
    (first / "old").touch()
    at_fdcwd, rename_noreplace = -100, 1
    old, new = os.fsencode(first / "old"), os.fsencode(first / "new")
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.renameat2(at_fdcwd, old, at_fdcwd, new, rename_noreplace) == -1
    assert ctypes.get_errno() == errno.EINVAL


def link_to(path: Path) -> None:
    private = path.with_name(f"{path.name}.{path.parent.name}")
    private.touch()
    os.link(private, path)


def rename_to(path: Path) -> None:
    private = path.with_name(f"{path.name}.{path.parent.name}")
    private.mkdir()
    (private / "file").touch()
    private.rename(path)


@pytest.mark.parametrize("make", [os.mkdir, lambda path: open(path, "x").close(), link_to, rename_to])
def test_of_two_hosts_one_makes_a_name(laboratory: Laboratory, make: Callable[[Path], object]) -> None:
    hosts = paths(laboratory())
    barrier = threading.Barrier(2)

    def wins(path: Path) -> bool:
        barrier.wait(PATIENCE)
        try:
            make(path)
        except OSError as error:
            assert error.errno in (errno.EEXIST, errno.ENOTEMPTY)
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        for number in range(50):
            assert sum(pool.map(wins, [host / str(number) for host in hosts])) == 1


# Files.


def replaced_while_open(first: Path, second: Path) -> int:
    """Return a descriptor on the second host for a file that the first one has replaced."""
    (first / "file").write_bytes(b"1" * 1_000_000)
    descriptor = os.open(second / "file", os.O_RDONLY)
    os.pread(descriptor, 10, 0)
    (first / "new").write_bytes(b"2" * 1_000_000)
    os.replace(first / "new", first / "file")
    return descriptor


def test_a_file_that_another_host_replaced_is_stale(laboratory: Laboratory) -> None:
    descriptor = replaced_while_open(*paths(laboratory()))
    try:
        assert failure(os.pread, descriptor, 10, 900_000) == "ESTALE"
    finally:
        os.close(descriptor)


def test_a_file_that_another_host_replaced_can_be_opened_anew(laboratory: Laboratory) -> None:
    first, second = paths(laboratory(ac=LONG))
    os.close(replaced_while_open(first, second))
    os.listdir(second)
    assert (second / "file").read_bytes() == b"2" * 1_000_000


@pytest.mark.parametrize("options", [{"estale": False}, {"estale_grace": LONG}], ids=str)
def test_a_replaced_file_may_stay_readable(laboratory: Laboratory, options: dict[str, Any]) -> None:
    descriptor = replaced_while_open(*paths(laboratory(**options)))
    try:
        assert os.pread(descriptor, 10, 900_000) == b"1" * 10
    finally:
        os.close(descriptor)


def test_a_replaced_file_that_is_mapped_is_a_bus_error(laboratory: Laboratory) -> None:
    program = """
import mmap, os, sys
first, second = sys.argv[1:]
with open(first + "/file", "wb") as file:
    file.write(bytes(3000000))
with open(second + "/file", "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
mapped[0]
open(first + "/new", "x").close()
os.replace(first + "/new", first + "/file")
mapped[2900000]
"""
    done = subprocess.run([sys.executable, "-S", "-c", program, *map(str, paths(laboratory()))], check=False)
    assert done.returncode == -signal.SIGBUS


@pytest.mark.parametrize("cto", [True, False])
def test_what_is_written_is_seen_after_close(laboratory: Laboratory, cto: bool) -> None:
    first, second = paths(laboratory(cto=cto))
    with open(first / "file", "wb", buffering=0) as file:
        file.write(b"z" * 9000)
        assert (second / "file").read_bytes() == (b"" if cto else b"z" * 9000)
    assert (second / "file").read_bytes() == b"z" * 9000


def test_an_open_shows_what_another_host_wrote_over(laboratory: Laboratory) -> None:
    first, second = paths(laboratory(ac_reg=LONG))
    (first / "file").write_bytes(b"1" * 9000)
    assert (second / "file").read_bytes() == b"1" * 9000
    (first / "file").write_bytes(b"2" * 9000)
    assert (second / "file").read_bytes() == b"2" * 9000


def test_fsync_sends_what_is_written(laboratory: Laboratory) -> None:
    first, second = paths(laboratory())
    with open(first / "file", "wb", buffering=0) as file:
        file.write(b"z" * 9000)
        os.fsync(file.fileno())
        assert (second / "file").read_bytes() == b"z" * 9000


def test_more_than_the_buffer_holds_is_sent_before_close(laboratory: Laboratory) -> None:
    first, second = paths(laboratory(buffer_mb=1))
    with open(first / "file", "wb", buffering=0) as file:
        file.write(bytes(2 << 20))
        assert len((second / "file").read_bytes()) > 1 << 20


def test_a_write_to_a_replaced_file_fails_at_close(laboratory: Laboratory) -> None:
    first, second = paths(laboratory())
    descriptor = os.open(second / "file", os.O_CREAT | os.O_WRONLY)
    (first / "new").touch()
    os.replace(first / "new", first / "file")
    assert os.write(descriptor, b"data") == 4
    assert failure(os.close, descriptor) == "ESTALE"


def test_a_size_is_trusted_until_the_file_is_opened(laboratory: Laboratory) -> None:
    first, second = paths(laboratory(ac_reg=LONG))
    (first / "file").write_bytes(b"1")
    assert (second / "file").stat().st_size == 1
    (first / "file").write_bytes(b"22")
    assert (second / "file").stat().st_size == 1
    assert (second / "file").read_bytes() == b"22"
    assert (second / "file").stat().st_size == 2


def test_a_size_is_asked_for_anew_when_its_time_is_over(laboratory: Laboratory) -> None:
    first, second = paths(laboratory(ac=LONG, ac_reg=0))
    (first / "file").write_bytes(b"1")
    assert (second / "file").stat().st_size == 1
    (first / "file").write_bytes(b"22")
    assert (second / "file").stat().st_size == 2


def test_reads_and_writes_at_any_place_come_out_right(laboratory: Laboratory) -> None:
    first, second = paths(laboratory())
    (first / "file").write_bytes(bytes(range(256)) * 4000)
    with open(second / "file", "r+b") as file:
        file.seek(300_000)
        file.write(b"changed")
        file.truncate(900_000)
    expected = bytearray(bytes(range(256)) * 4000)[:900_000]
    expected[300_000:300_007] = b"changed"
    assert (first / "file").read_bytes() == expected


# .nfs files.


def test_to_remove_an_open_file_leaves_a_nfs_file_until_it_is_closed(laboratory: Laboratory) -> None:
    directory = laboratory(hosts=1).hosts[0].path
    (directory / "file").write_text("text")
    with open(directory / "file") as file:
        (directory / "file").unlink()
        (silly,) = os.listdir(directory)
        assert silly.startswith(".nfs")
        assert file.read() == "text"
    eventually(lambda: os.listdir(directory) == [])


def test_a_nfs_file_cannot_be_removed_nor_can_its_directory(laboratory: Laboratory) -> None:
    directory = laboratory(hosts=1).hosts[0].path / "directory"
    directory.mkdir()
    (directory / "file").touch()
    with open(directory / "file"):
        (directory / "file").unlink()
        assert failure(os.rmdir, directory) == "ENOTEMPTY"
        assert failure(shutil.rmtree, directory) == "EBUSY"


def test_a_file_replaced_on_its_own_host_stays_readable(laboratory: Laboratory) -> None:
    directory = laboratory(hosts=1).hosts[0].path
    (directory / "file").write_text("old")
    (directory / "new").write_text("new")
    with open(directory / "file") as file:
        os.replace(directory / "new", directory / "file")
        assert file.read() == "old"
        assert any(name.startswith(".nfs") for name in os.listdir(directory))
    assert (directory / "file").read_text() == "new"


def test_a_file_may_be_removed_without_a_nfs_file(laboratory: Laboratory) -> None:
    directory = laboratory(hosts=1, silly=False).hosts[0].path
    (directory / "file").touch()
    with open(directory / "file"):
        (directory / "file").unlink()
        assert os.listdir(directory) == []


def test_another_host_finds_no_name_while_an_open_file_is_replaced(laboratory: Laboratory) -> None:
    filesystem = laboratory(ac=0, delay={"sillywindow": 2000})
    directory = filesystem.hosts[0].path
    (directory / "file").touch()
    (directory / "new").touch()
    with open(directory / "file"), ThreadPoolExecutor(1) as pool:
        replacing = pool.submit(os.replace, directory / "new", directory / "file")
        eventually(lambda: not (filesystem.hosts[1].path / "file").exists())
        replacing.result()
    assert (filesystem.hosts[1].path / "file").exists()


# Lost replies, clocks, delays.

REPORTED = {
    "rename": "ENOENT",
    "unlink": "ENOENT",
    "rmdir": "ENOENT",
    "link": "EEXIST",
    "mkdir": "EEXIST",
    "symlink": "EEXIST",
}


def do(operation: str, directory: Path) -> None:
    """Do an operation; ``done`` tells whether it was done."""
    arguments: dict[str, tuple[object, ...]] = {
        "rename": (directory / "file", directory / "new"),
        "unlink": (directory / "file",),
        "rmdir": (directory / "directory",),
        "link": (directory / "file", directory / "new"),
        "mkdir": (directory / "new",),
        "symlink": ("target", directory / "new"),
    }
    getattr(os, operation)(*arguments[operation])


def done(operation: str, directory: Path) -> bool:
    names = os.listdir(directory)
    gone = {"unlink": "file", "rmdir": "directory"}.get(operation)
    return gone not in names if gone else "new" in names


def prepare(filesystem: SharedFilesystem) -> Path:
    (filesystem.backing / "file").touch()
    (filesystem.backing / "directory").mkdir()
    return filesystem.hosts[0].path


@pytest.mark.parametrize("operation", REPORTED)
def test_an_operation_can_be_done_and_reported_failed(laboratory: Laboratory, operation: str) -> None:
    filesystem = laboratory(hosts=1, replay=1.0)
    directory = prepare(filesystem)
    assert failure(do, operation, directory) == REPORTED[operation]
    assert done(operation, filesystem.backing)


@pytest.mark.parametrize("operation", REPORTED)
def test_other_operations_than_those_named_keep_their_replies(laboratory: Laboratory, operation: str) -> None:
    others = ",".join(set(REPORTED) - {operation})
    filesystem = laboratory(hosts=1, replay=1.0, replay_ops=others)
    do(operation, prepare(filesystem))
    assert done(operation, filesystem.backing)


def test_only_what_matches_loses_its_reply(laboratory: Laboratory) -> None:
    directory = laboratory(hosts=1, replay=1.0, replay_match=r"lost\d").hosts[0].path
    (directory / "lost").mkdir()
    assert failure(os.mkdir, directory / "lost1") == "EEXIST"


def lost(filesystem: SharedFilesystem) -> list[list[bool]]:
    """Return which of 40 replies each host loses."""
    losses: list[list[bool]] = []
    for host in filesystem.hosts:
        losses.append([])
        for number in range(40):
            try:
                (host.path / f"{host.name}-{number}").mkdir()
                losses[-1].append(False)
            except FileExistsError:
                losses[-1].append(True)
    return losses


def test_the_seed_decides_which_replies_are_lost(laboratory: Laboratory) -> None:
    once, again = (lost(laboratory(replay=0.5, seed=7)) for _ in range(2))
    other = lost(laboratory(replay=0.5, seed=8))
    assert once == again
    assert once != other
    assert once[0] != once[1]


def test_the_servers_clock_shows_in_time_stamps(laboratory: Laboratory) -> None:
    directory = laboratory(hosts=1, clock_skew=3600).hosts[0].path
    (directory / "file").touch()
    assert abs((directory / "file").stat().st_mtime - time.time() - 3600) < PATIENCE


def test_a_time_stamp_that_is_set_is_shown_as_it_was_set(laboratory: Laboratory) -> None:
    directory = laboratory(hosts=1, clock_skew=3600).hosts[0].path
    (directory / "file").touch()
    os.utime(directory / "file", (1_000_000_000, 1_100_000_000))
    status = (directory / "file").stat()
    assert (status.st_atime, status.st_mtime) == (1_000_000_000, 1_100_000_000)


def test_an_operation_can_be_delayed(laboratory: Laboratory) -> None:
    directory = laboratory(hosts=1, delay={"mkdir": 400}).hosts[0].path
    began = time.monotonic()
    (directory / "directory").mkdir()
    assert time.monotonic() - began >= 0.2


# The hosts, and what is left of them.


def test_a_host_can_have_options_of_its_own(laboratory: Laboratory) -> None:
    first, second = paths(laboratory(replay=1.0, per_host={1: {"replay": 0.0}}))
    (second / "new").mkdir()
    assert failure(os.mkdir, first / "other") == "EEXIST"


def test_an_unknown_option_is_an_error() -> None:
    with pytest.raises(TypeError, match="acdirmin"):
        SharedFilesystem(acdirmin=3)
    with pytest.raises(TypeError, match="acdirmin"):
        SharedFilesystem(per_host={0: {"acdirmin": 3}})


def identity(host: Host) -> list[Any]:
    program = "import json, os, socket; print(json.dumps([socket.gethostname(), os.getpid()]))"
    return list(json.loads(host.run([sys.executable, "-S", "-c", program], stdout=subprocess.PIPE, check=True).stdout))


def test_a_command_has_its_hosts_name_and_pids_that_repeat(laboratory: Laboratory) -> None:
    (first_name, first_pid), (second_name, second_pid) = map(identity, laboratory().hosts)
    assert (first_name, second_name) == ("host0", "host1")
    assert first_pid == second_pid


def test_a_command_finds_the_share_at_the_same_path_on_each_host(laboratory: Laboratory) -> None:
    filesystem = laboratory(ac=LONG)
    for host in filesystem.hosts:
        host.run(["mkdir", filesystem.shared / host.name], check=True)
    host.run(["sh", "-c", 'mkdir "$NFSLAB_SHARED/of-$NFSLAB_HOST-$OWN"'], env={"OWN": "1"}, check=True)
    assert sorted(os.listdir(filesystem.backing)) == ["host0", "host1", "of-host1-1"]


def test_commands_of_two_hosts_do_not_share_caches(laboratory: Laboratory) -> None:
    filesystem = laboratory(ac=LONG)
    name = filesystem.shared / "name"
    missing = ["test", "!", "-e", str(name)]
    for host in filesystem.hosts:
        host.run(missing, check=True)
    filesystem.hosts[0].run(["mkdir", name], check=True)
    assert [host.run(missing).returncode for host in filesystem.hosts] == [1, 0]


def test_a_killed_command_takes_its_children_along(laboratory: Laboratory) -> None:
    filesystem = laboratory(hosts=1)
    host = filesystem.hosts[0]
    program = 'while true; do echo >> "$NFSLAB_SHARED/beat"; sleep 0.05; done & wait'
    beat = filesystem.backing / "beat"
    with host.popen(["sh", "-c", program]) as process:
        eventually(lambda: beat.exists() and beat.stat().st_size > 2)
        process.kill()
    time.sleep(0.5)
    size = beat.stat().st_size
    time.sleep(0.5)
    assert beat.stat().st_size == size


def test_nothing_is_left_at_the_end(laboratory: Laboratory) -> None:
    filesystem = laboratory()
    (filesystem.hosts[0].path / "file").touch()
    filesystem.close()
    assert not filesystem.shared.parent.exists()
    assert str(filesystem.shared.parent) not in Path("/proc/mounts").read_text()


def test_nothing_is_left_of_a_host_whose_daemon_was_killed(laboratory: Laboratory) -> None:
    filesystem = laboratory()
    filesystem.hosts[0]._daemon.kill()
    filesystem.close()
    assert not filesystem.shared.parent.exists()
    assert filesystem.stats[0] == {}


def test_a_directory_of_the_callers_is_left(laboratory: Laboratory, tmp_path: Path) -> None:
    filesystem = laboratory(backing=tmp_path)
    (filesystem.hosts[0].path / "file").write_text("text")
    filesystem.close()
    assert (tmp_path / "file").read_text() == "text"


def test_the_mounts_end_with_the_process_that_made_them(laboratory: Laboratory, tmp_path: Path) -> None:
    program = """
import os, sys
from tests.nfslab import SharedFilesystem
print(SharedFilesystem(hosts=1, backing=sys.argv[1]).hosts[0].path, flush=True)
os.kill(os.getpid(), 9)
"""
    environ = os.environ | {"TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", program, str(tmp_path / "backing")]
    mounted = subprocess.run(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True, check=False).stdout
    assert mounted.startswith("/")
    try:
        eventually(lambda: mounted.strip() not in Path("/proc/mounts").read_text())
    finally:
        unmount(mounted.strip())  # or nobody could remove the temporary directory


def test_each_host_counts_its_operations(laboratory: Laboratory) -> None:
    filesystem = laboratory(ac=LONG)
    miss(filesystem.hosts[1].path / "name")
    assert not (filesystem.hosts[1].path / "name").exists()
    (filesystem.hosts[0].path / "name").mkdir()
    filesystem.close()
    first, second = filesystem.stats
    assert first["mkdir"] == 1
    assert "mkdir" not in second
    assert second["negative_hit"] >= 1


def test_a_trace_has_a_line_for_each_operation(laboratory: Laboratory, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    directory = laboratory(hosts=1, trace=str(trace)).hosts[0].path
    (directory / "name").mkdir()
    assert failure(os.mkdir, directory / "name") == "EEXIST"
    lines = trace.read_text().splitlines()
    assert any(" mkdir " in text and "name" in text and text.endswith("-> ok") for text in lines)


# The command line.


def nfslab(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.nfslab", *arguments]
    return subprocess.run(command, cwd=ROOT, input="", capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.usefixtures("laboratory")
def test_a_command_is_run_in_each_process_of_each_host(tmp_path: Path) -> None:
    script = 'echo "$NFSLAB_HOST $NFSLAB_PROC" && test "$NFSLAB_HOST-$NFSLAB_PROC" != host1-1'
    done = nfslab("run", "--procs", "2", "--ac", "0.5", "--logs", str(tmp_path), "--", "sh", "-c", script)
    assert done.returncode == 1, done.stderr
    result = json.loads(done.stdout)
    assert result["rc"] == {"host0-0": 0, "host0-1": 0, "host1-0": 0, "host1-1": 1}
    assert result["failed"] == 1
    assert (tmp_path / "host1-0.log").read_text() == "host1 0\n"


@pytest.mark.usefixtures("laboratory")
def test_a_command_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    done = nfslab("run", "--hosts", "1", "--timeout", "0.5", "--logs", str(tmp_path), "--", "sleep", "1000")
    assert (done.returncode, json.loads(done.stdout)["rc"]) == (1, {"host0-0": None}), done.stderr


@pytest.mark.usefixtures("laboratory")
def test_every_option_can_be_set_on_the_command_line(tmp_path: Path) -> None:
    options = ("--no-cto", "--locks", "enolck", "--delay", "mkdir=1", "--replay", "1", "--replay-ops", "mkdir")
    script = 'mkdir "$NFSLAB_SHARED/directory"; touch "$NFSLAB_SHARED/l"; flock -n "$NFSLAB_SHARED/l" true'
    nfslab("run", "--hosts", "1", *options, "--logs", str(tmp_path), "--", "sh", "-c", script)
    log = (tmp_path / "host0-0.log").read_text()
    assert "File exists" in log
    assert os.strerror(errno.ENOLCK) in log


@pytest.mark.usefixtures("laboratory")
def test_mounts_are_printed_and_last_until_standard_input_ends() -> None:
    command = [sys.executable, "-m", "tests.nfslab", "mount"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        first, second = Path(line(process)), Path(line(process))
        (first / "name").mkdir()
        assert os.listdir(second) == ["name"]
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert not first.exists()
