"""The building blocks of racefix.fs on several hosts: each fault of a share on its own, and all together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from racefix.fs import names
from tests.support import FULL

from .filesystem import SharedFilesystem
from .fixtures import Laboratory

FAULTS: dict[str, dict[str, Any]] = {
    "names seen late": {"ac": 30, "ac_reg": 30, "estale": False},
    "stale handles": {"ac": 0, "ac_reg": 0},
    "lost replies": {"ac": 0, "ac_reg": 0, "estale": False, "replay": 0.3},
    "all together": {"ac": 30, "ac_reg": 30, "replay": 0.3, "failed_rename": "hidden", "clock_skew": 3600},
}
HOSTS, PROCESSES = 2, 4
ROUNDS = 100 if FULL else 24
PACE = 0.12  # seconds between two rounds: all processes of all hosts begin each at the same time
BEGIN = """
import json, os, sys, time
from pathlib import Path
shared = os.environ["NFSLAB_SHARED"]
rounds, begin, pace = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
def at(number):
    time.sleep(max(0, begin + number * pace - time.time()))
"""


def on_all_hosts(share: SharedFilesystem, program: str, tmp_path: Path, rounds: int = ROUNDS) -> list[Any]:
    """Run a program in several processes on each host, each host with a disk of its own; return what they print."""
    begin = time.time() + 3
    processes = []
    for host in share.hosts:
        local = tmp_path / host.name
        local.mkdir()
        command = [sys.executable, "-c", BEGIN + textwrap.dedent(program), str(rounds), str(begin), str(PACE)]
        for _ in range(PROCESSES):
            processes.append(host.popen(command, env={"TMPDIR": str(local)}, stdout=subprocess.PIPE))
    printed = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    return [json.loads(output) for output in printed]


def faults(*chosen: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("fault", chosen or FAULTS, ids=lambda fault: fault)


STARTS = ("parent missing", "absent", "wrong link", "directory")


def prepare(share: SharedFilesystem) -> None:
    (share.backing / "artifact").mkdir()
    (share.backing / "artifact" / "Header.h").touch()
    for number in range(ROUNDS):
        link = share.backing / f"round{number}" / "include" / "link"
        start = STARTS[number % len(STARTS)]
        link.parent.parent.mkdir()
        if start != "parent missing":
            link.parent.mkdir()
        if start == "wrong link":
            link.symlink_to("elsewhere")
        elif start == "directory":
            (link / "inside").mkdir(parents=True)
            for header in range(17):
                (link / f"Header{header}.h").touch()


@faults()
def test_a_link_is_right_for_every_process_of_every_host(fault: str, laboratory: Laboratory, tmp_path: Path) -> None:
    """Each host misses the names first, so that it has the negative entries that it must look past."""
    share = laboratory(hosts=HOSTS, seed=7, **FAULTS[fault])
    prepare(share)
    program = """
        from racefix.fs import symlink
        target, failed = f"{shared}/artifact", []
        for number in range(rounds):
            link = f"{shared}/round{number}/include/link"
            os.path.lexists(link)
            at(number)
            try:
                symlink.point(link, target, lock=f"{link}.lock")
                if os.listdir(link) != ["Header.h"]:
                    failed.append(f"{number}: {os.readlink(link)}")
            except OSError as error:
                failed.append(f"{number}: {error!r}")
        print(json.dumps(failed))
    """
    assert on_all_hosts(share, program, tmp_path) == [[]] * HOSTS * PROCESSES
    for number in range(ROUNDS):
        link = share.backing / f"round{number}" / "include" / "link"
        assert os.readlink(link) == f"{share.shared}/artifact"
        assert not [name for name in os.listdir(link.parent) if name.startswith(f"{names.PREFIX}link-")]


@faults("all together")
def test_the_laboratory_spoils_a_link_that_is_made_as_upstream_makes_it(
    fault: str, laboratory: Laboratory, tmp_path: Path
) -> None:
    """Look, remove, make: the test above can fail."""
    share = laboratory(hosts=HOSTS, seed=7, **FAULTS[fault])
    prepare(share)
    program = """
        import shutil
        target, failed = f"{shared}/artifact", 0
        for number in range(rounds):
            link = Path(f"{shared}/round{number}/include/link")
            at(number)
            try:
                if link.is_symlink() or link.exists():
                    if link.is_symlink() and os.readlink(link) == target:
                        continue
                    shutil.rmtree(link) if link.is_dir() and not link.is_symlink() else link.unlink()
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(target)
            except OSError as error:
                failed += 1
        print(failed)
    """
    assert sum(on_all_hosts(share, program, tmp_path)) > ROUNDS


@pytest.mark.parametrize("kind", ["file", "directory"])
@faults()
def test_one_publishes_and_everybody_has_something_whole(
    fault: str, kind: str, laboratory: Laboratory, tmp_path: Path
) -> None:
    share = laboratory(hosts=HOSTS, seed=7, **FAULTS[fault])
    program = f"""
        from racefix.fs import names, publish
        kind = {kind!r}
        seen = []
        for number in range(rounds):
            final = f"{{shared}}/entry{{number}}"
            good = b"%d" % number * 50000
            os.path.lexists(final)
            at(number)
            if kind == "file":
                private = names.private(final, "new")
                publish.write(private, good)
                path = publish.file(private, final, lambda path: Path(path).read_bytes() == good)
            else:
                private = publish.private_directory(final, "new")
                publish.write(f"{{private}}/x.so", good)
                publish.seal(private)
                path = publish.directory(private, final)
            content = Path(path) if kind == "file" else Path(path) / "x.so"
            seen.append((path == final, content.read_bytes() == good))
        print(json.dumps(seen))
    """
    results = on_all_hosts(share, program, tmp_path)
    assert [result.count([True, True]) for result in results] == [ROUNDS] * HOSTS * PROCESSES
    left = [name for name in os.listdir(share.backing) if not name.startswith("entry")]
    assert not left or FAULTS[fault].get("replay")


@faults("names seen late", "stale handles")
def test_one_builder_of_all_hosts(fault: str, laboratory: Laboratory, tmp_path: Path) -> None:
    """Locks end at the host; the lease does not."""
    rounds = 4
    share = laboratory(hosts=HOSTS, seed=7, locks="local", **FAULTS[fault])
    program = """
        from racefix.fs import locks, lookup, names, publish
        built = 0
        for number in range(rounds):
            final = f"{shared}/entry{number}"
            def done():
                try:
                    lookup.again(os.lstat, final)
                except FileNotFoundError:
                    return False
                return True
            at(number * 10)
            with locks.one_builder(f"{final}.lease", done) as builds:
                if builds:
                    built += 1
                    time.sleep(0.2)
                    private = names.private(final, "new")
                    publish.write(private, b"built")
                    publish.file(private, final, lambda path: True)
            assert Path(final).read_bytes() == b"built"
        print(built)
    """
    assert sum(on_all_hosts(share, program, tmp_path, rounds)) == rounds
    assert sorted(os.listdir(share.backing)) == [f"entry{number}" for number in range(rounds)]
