"""Generations: built once, found again by content, never replaced; the shared name leads to what was asked for last."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from racefix import build, elf
from racefix.build import Previous, Recipe, obtain
from racefix.fs import names, publish
from racefix.fs.trace import Trace
from tests.faults import REAL, Faults, Plan

HEAD = elf.JUDGED.ljust(64, b"\0")  # the shortest library that is whole
OLD, NEW = HEAD + b"old", HEAD + b"new"


class Project:
    """A source, a tool and a shared directory. What is made holds the source; how often is counted in a file."""

    def __init__(self, directory: Path, output: str = "x.so") -> None:
        self.directory, self.source, self.tool = directory / "build", directory / "x.cc", directory / "compiler"
        self.log, self.output = directory / "log", output
        self.adopts = False
        self.meanwhile: Callable[[], None] = lambda: None
        self.previous: list[Previous | None] = []
        self.directory.mkdir()
        self.source.write_bytes(b"old")
        self.tool.write_bytes(b"#!/bin/sh\n")
        self.long_ago(self.source)
        self.long_ago(self.tool)

    @staticmethod
    def long_ago(path: Path) -> None:
        """Set a time at which a change during the build can be told from one before it."""
        os.utime(path, (1_600_000_000, 1_600_000_000))

    def make(self, private: str, previous: Previous | None) -> Iterable[str]:
        with open(self.log, "a") as log:
            log.write(".")
        self.previous.append(previous)
        publish.write(os.path.join(private, self.output), HEAD + self.source.read_bytes())
        self.meanwhile()
        return [str(self.source)]

    def obtain(self, inputs: str = "0" * 16, **written: bytes) -> Path:
        sources = {str(self.directory / name): data for name, data in written.items()}

        def make(private: str, previous: Previous | None) -> Iterable[str]:
            return [*self.make(private, previous), *sources]

        def current() -> Iterable[str] | None:
            return [str(self.source)] if self.adopts else None

        recipe = Recipe(str(self.directory), self.output, inputs, (str(self.tool),), sources, make, current)
        return Path(obtain(recipe, Trace()))

    @property
    def builds(self) -> int:
        return len(self.log.read_text()) if self.log.exists() else 0

    @property
    def shared(self) -> Path:
        return self.directory / self.output

    def leftovers(self) -> list[str]:
        """Name what a process that was not killed should not have left."""
        allowed = (names.GENERATION, f"{names.PREFIX}lease-", self.output)
        return [name for name in os.listdir(self.directory) if not name.startswith(allowed)]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_it_is_built_once_and_found_again(project: Project) -> None:
    built = project.obtain()
    assert built.read_bytes() == OLD
    assert project.obtain() == built
    assert project.builds == 1
    assert built.parent.name.startswith(f"{names.GENERATION}{'0' * 16}-")
    assert project.shared.samefile(built)
    assert project.leftovers() == []


def test_many_processes_build_once(project: Project) -> None:
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(8)

    def work() -> None:
        barrier.wait()
        assert project.obtain().read_bytes() == OLD

    processes = [context.Process(target=work) for _ in range(8)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 8
    assert project.builds == 1


@pytest.mark.parametrize("which", ["source", "tool"])
def test_the_same_bytes_with_another_time_are_no_reason_to_build(which: str, project: Project) -> None:
    built = project.obtain()
    os.utime(getattr(project, which))
    assert project.obtain() == built
    assert project.builds == 1


@pytest.mark.parametrize("which", ["source", "tool"])
def test_other_bytes_are_another_generation_and_the_old_one_lives_on(which: str, project: Project) -> None:
    built = project.obtain()
    path: Path = getattr(project, which)
    before = path.read_bytes()
    path.write_bytes(b"new")
    other = project.obtain()
    assert other != built
    assert built.read_bytes() == OLD
    assert project.shared.samefile(other)
    path.write_bytes(before)
    assert project.obtain() == built, "going back starts no build"
    assert project.builds == 2
    assert project.shared.samefile(built)
    assert other.exists()


def test_a_change_of_the_same_length_and_time_is_told_by_the_content_on_record(project: Project) -> None:
    """A file that changes right after a build may keep a time of whole seconds: its time is not put on record."""
    os.utime(project.source)
    status = project.source.stat()
    built = project.obtain()
    project.source.write_bytes(b"new")
    os.utime(project.source, ns=(status.st_mtime_ns, status.st_mtime_ns))
    assert project.obtain() != built


@pytest.mark.parametrize("which", ["source", "tool"])
def test_what_was_read_and_is_gone_is_a_reason_to_build(which: str, project: Project) -> None:
    project.obtain()
    data = getattr(project, which).read_bytes()
    getattr(project, which).unlink()
    project.meanwhile = lambda: getattr(project, which).write_bytes(data)
    if which == "source":
        with pytest.raises(FileNotFoundError):
            project.obtain()
    else:
        project.obtain()
    assert project.builds == 2
    assert project.leftovers() == []


def test_other_inputs_are_another_build_under_the_same_name(project: Project) -> None:
    one, other = project.obtain("1" * 16), project.obtain("2" * 16)
    assert one != other
    assert project.shared.samefile(other)
    assert project.obtain("1" * 16) == one
    assert project.shared.samefile(one)
    assert project.builds == 2


def test_an_earlier_build_is_offered_with_what_is_unchanged(project: Project) -> None:
    built = project.obtain()
    other = project.source.with_name("other.h")
    project.source.write_bytes(b"new")
    project.obtain()
    assert project.previous[0] is None
    previous = project.previous[1]
    assert previous
    assert Path(previous.directory) == built.parent
    assert not previous.unchanged(str(project.source))
    assert not previous.unchanged(str(other)), "was not read then"
    project.source.write_bytes(b"old")
    assert previous.unchanged(str(project.source))


def test_an_earlier_build_by_other_tools_is_not_offered(project: Project) -> None:
    project.obtain()
    project.tool.write_bytes(b"another")
    project.obtain()
    assert project.previous == [None, None]


def test_a_source_that_changes_during_the_build_has_it_built_again(project: Project) -> None:
    def edit() -> None:
        project.meanwhile = lambda: None
        project.source.write_bytes(b"new")

    project.meanwhile = edit
    assert project.obtain().read_bytes() == NEW
    assert project.builds >= 2  # 3 where the second begins in the same tick of the file system's clock
    assert project.leftovers() == []


def test_a_source_that_always_changes_ends_in_a_build_for_this_caller_alone(project: Project) -> None:
    def edit() -> None:
        project.source.write_bytes(project.source.read_bytes() + b"!")

    project.meanwhile = edit
    built = project.obtain()
    assert project.builds == build.TRIES
    project.meanwhile = lambda: None
    assert built.read_bytes() == HEAD + b"old!!"
    assert project.obtain() != built, "nobody else takes it for current"
    assert project.obtain().read_bytes() == HEAD + b"old!!!"


def test_what_this_caller_has_written_counts_and_not_what_peers_made_of_it(project: Project) -> None:
    ours = project.obtain(inline=b"ours")
    (project.directory / "inline").write_bytes(b"a peer's")
    assert project.obtain(inline=b"ours") == ours
    assert project.builds == 1
    project.obtain(inline=b"ours, edited")
    assert (project.directory / "inline").read_bytes() == b"ours, edited", "written before it is read"


def test_a_peer_that_writes_our_source_during_the_build_has_it_built_again(project: Project) -> None:
    def meddle() -> None:
        project.meanwhile = lambda: None
        (project.directory / "inline").write_bytes(b"a peer's")

    project.meanwhile = meddle
    project.obtain(inline=b"ours")
    assert project.builds == 2
    assert (project.directory / "inline").read_bytes() == b"ours"


@pytest.mark.parametrize("error", [ValueError("a compile error"), KeyboardInterrupt()])
def test_an_error_of_the_build_passes_and_leaves_nothing(error: BaseException, project: Project) -> None:
    def fail() -> None:
        raise error

    project.meanwhile = fail
    with pytest.raises(type(error)) as raised:
        project.obtain()
    assert raised.value is error
    assert project.leftovers() == []
    assert not project.shared.exists()
    project.meanwhile = lambda: None
    assert project.obtain().read_bytes() == OLD, "nobody waits for who has failed"


@pytest.mark.parametrize("damage", ["no record", "torn record", "other record", "half a library", "no library"])
def test_a_damaged_generation_serves_nobody(damage: str, project: Project) -> None:
    built = project.obtain()
    record = built.parent / build.RECORD
    if damage == "no record":
        record.unlink()
    elif damage == "torn record":
        record.write_bytes(record.read_bytes()[:-9])
    elif damage == "other record":
        record.write_text("[1, 2]")
    elif damage == "half a library":
        os.truncate(built, 40)
    else:
        built.unlink()
    assert project.obtain().read_bytes() == OLD
    assert project.builds == 2
    assert project.obtain().read_bytes() == OLD
    assert project.builds == 2


values = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(("output", "tools", "files", "x")), inner),
    max_leaves=9,
)


@settings(max_examples=40, deadline=None)
@given(record=values)
def test_a_record_of_any_form_is_read_without_an_error(
    record: object, tmp_path_factory: pytest.TempPathFactory
) -> None:
    project = Project(tmp_path_factory.mktemp("record"))
    built = project.obtain()
    (built.parent / build.RECORD).write_text(json.dumps(record))
    assert project.obtain().read_bytes() == OLD


def test_a_cache_that_was_warm_before_is_adopted(project: Project) -> None:
    project.shared.write_bytes(OLD)
    inode = project.shared.stat().st_ino
    project.adopts = True
    built = project.obtain()
    assert project.builds == 0
    assert built.stat().st_ino == project.shared.stat().st_ino == inode
    assert built.parent != project.directory
    project.adopts = False
    assert project.obtain() == built, "the next start finds it as its own"


def test_half_a_library_is_not_adopted(project: Project) -> None:
    project.shared.write_bytes(OLD[:40])
    project.adopts = True
    assert project.obtain().read_bytes() == OLD
    assert project.builds == 1


def test_what_cannot_be_linked_or_written_serves_as_it_is(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(path: str, mode: int = 0o777) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    project.shared.write_bytes(OLD)
    project.adopts = True
    monkeypatch.setattr(os, "mkdir", read_only)
    assert project.obtain() == project.shared
    assert project.builds == 0


def test_what_somebody_may_have_mapped_gets_a_name_to_live_on(project: Project) -> None:
    project.shared.write_bytes(b"a library of before")
    with open(project.shared, "rb") as mapped:
        inode = os.fstat(mapped.fileno()).st_ino
        built = project.obtain()
        assert project.shared.samefile(built)
        assert os.fstat(mapped.fileno()).st_nlink == 1
    (kept,) = project.directory.glob(f"{names.GENERATION}kept-*/x.so")
    assert kept.stat().st_ino == inode


@pytest.mark.parametrize("there", [False, True])
def test_without_hard_links_the_shared_name_is_never_replaced(
    there: bool, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: object, **__: object) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "link", link)
    if there:
        project.shared.write_bytes(b"before")
    assert project.obtain().read_bytes() == OLD
    assert project.shared.read_bytes() == (b"before" if there else OLD)
    assert project.leftovers() == []


def test_an_object_is_a_copy_since_a_peer_would_write_through_a_link(tmp_path: Path) -> None:
    project = Project(tmp_path, output="x.o")
    built = project.obtain()
    assert project.shared.read_bytes() == OLD
    assert not project.shared.samefile(built)
    project.source.write_bytes(b"new")
    project.obtain()
    assert project.shared.read_bytes() == NEW
    assert not list(project.directory.glob(f"{names.GENERATION}kept-*"))


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_modes_are_those_that_the_umask_leaves(umask: int, project: Project) -> None:
    before = os.umask(umask)
    try:
        built = project.obtain()
    finally:
        os.umask(before)
    assert stat.S_IMODE(project.shared.stat().st_mode) == 0o666 & ~umask
    assert stat.S_IMODE(built.parent.stat().st_mode) == 0o777 & ~umask


CALLS = ("link", "rename", "replace", "mkdir", "listdir", "stat", "lstat")
RACY = (errno.ENOENT, errno.ESTALE, errno.EEXIST, errno.ENOTEMPTY)
plans = st.dictionaries(
    st.tuples(st.sampled_from(CALLS), st.integers(1, 6)),
    st.tuples(st.sampled_from(RACY + REAL), st.booleans()),
    max_size=3,
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plan=plans, start=st.sampled_from(("cold", "warm", "stale", "before")))
def test_errors_before_or_after_the_work_never_give_a_wrong_library(
    plan: Plan, start: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    project = Project(tmp_path_factory.mktemp("faults"))
    if start == "before":
        project.shared.write_bytes(OLD)
        project.adopts = True
    elif start != "cold":
        project.obtain()
    if start == "stale":
        project.source.write_bytes(b"new")
    with pytest.MonkeyPatch.context() as monkeypatch:
        faults = Faults(monkeypatch, CALLS, plan)
        faults.active = True
        try:
            built = project.obtain()
        except OSError as error:
            assert error.errno in {number for number, _ in plan.values()}
        else:
            faults.active = False
            assert built.read_bytes() == (NEW if start == "stale" else OLD)
        faults.active = False
    assert project.obtain().read_bytes() == (NEW if start == "stale" else OLD), "and the next start is well"
