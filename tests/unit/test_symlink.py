"""A link is pointed at its target whatever stands there and whatever a peer or a lossy server does meanwhile."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from racefix.fs import lookup, names, symlink
from racefix.fs.trace import Trace
from tests.faults import REAL, Faults

CALLS = ("symlink", "replace", "rename", "readlink", "lstat", "makedirs")
RACY = (errno.ENOENT, errno.ESTALE, errno.EEXIST, errno.EBUSY, errno.ENOTDIR)


class Record(Trace):
    def __init__(self) -> None:
        self.events: list[str] = []

    def tell(self, event: str, detail: str) -> None:
        self.events.append(event)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    target = tmp_path / "artifact"
    target.mkdir()
    (target / "Header.h").touch()
    return target


@pytest.fixture
def link(tmp_path: Path) -> Path:
    return tmp_path / "include" / "link"


def put(link: Path, start: str, elsewhere: Path) -> None:
    if start == "parent missing":
        return
    link.parent.mkdir()
    if start == "wrong link":
        link.symlink_to(elsewhere / "of another release")
    elif start == "file":
        link.write_text("old")
    elif start == "directory":
        (link / "inside").mkdir(parents=True)
        (link / "inside" / "Header.h").touch()
    elif start == "link to itself":
        link.symlink_to(link)


STARTS = ("parent missing", "absent", "wrong link", "file", "directory", "link to itself")


def leftovers(link: Path) -> list[str]:
    return [name for name in os.listdir(link.parent) if name.startswith(names.PREFIX)]


@pytest.mark.parametrize("lock", [False, True])
@pytest.mark.parametrize("start", STARTS)
def test_every_start_ends_in_the_link(start: str, lock: bool, link: Path, target: Path, tmp_path: Path) -> None:
    put(link, start, tmp_path)
    trace = Record()
    symlink.point(str(link), str(target), lock=f"{link}.lock" if lock else None, trace=trace)
    assert os.readlink(link) == str(target)
    assert sorted(os.listdir(link.parent)) == ["link", "link.lock"][: 1 + lock]
    assert trace.changed == (start == "directory")  # anything else is one step, which happened or did not
    assert not trace.events


def test_a_right_link_is_left_alone_without_a_lock_or_a_write(link: Path, target: Path) -> None:
    put(link, "absent", target)
    link.symlink_to(target)
    before = os.lstat(link)
    trace = Record()
    symlink.point(str(link), str(target), lock=f"{link}.lock", trace=trace)
    assert os.lstat(link) == before
    assert os.listdir(link.parent) == ["link"]
    assert not trace.changed


def test_another_way_of_writing_the_same_target_counts_as_right(link: Path, target: Path) -> None:
    put(link, "absent", target)
    link.symlink_to("../artifact")
    symlink.point(str(link), str(target))
    assert os.readlink(link) == "../artifact"


def test_a_relative_target_is_beside_the_link(
    link: Path, target: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    symlink.point("include/link", "../artifact")
    before = os.lstat(link)
    symlink.point("include/link", "../artifact")
    assert os.lstat(link) == before
    assert (link / "Header.h").exists()


def test_a_link_in_the_current_directory(target: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    symlink.point("link", "artifact", lock="link.lock")
    assert os.readlink(tmp_path / "link") == "artifact"


def test_a_directory_is_an_error_where_the_caller_says_so(link: Path, target: Path) -> None:
    put(link, "directory", target)
    trace = Record()
    with pytest.raises(IsADirectoryError) as raised:
        symlink.point(str(link), str(target), replace_directory=False, trace=trace)
    assert raised.value.filename == str(link)
    assert (trace.changed, trace.events) == (False, [])
    assert (link / "inside" / "Header.h").exists()
    assert leftovers(link) == []


def test_a_file_in_place_of_the_parent_is_an_error(tmp_path: Path, target: Path) -> None:
    (tmp_path / "include").write_text("a file")
    trace = Record()
    with pytest.raises(FileExistsError) as raised:
        symlink.point(str(tmp_path / "include" / "link"), str(target), lock=str(tmp_path / "lock"), trace=trace)
    assert raised.value.filename == str(tmp_path / "include")
    assert (trace.changed, trace.events) == (False, [])
    assert (tmp_path / "include").read_text() == "a file"


def test_the_parent_has_the_mode_that_mkdir_gives(link: Path, target: Path) -> None:
    old = os.umask(0o027)
    try:
        symlink.point(str(link), str(target))
    finally:
        os.umask(old)
    assert stat.S_IMODE(link.parent.stat().st_mode) == 0o750


def test_what_killed_processes_left_is_swept_after_a_day(link: Path, target: Path, tmp_path: Path) -> None:
    put(link, "wrong link", tmp_path)
    for name, age in (("old", 25), ("young", 23)):
        left = names.private(str(link), name)
        os.symlink(target, left)
        then = os.lstat(link).st_mtime - age * 3600
        os.utime(left, (then, then), follow_symlinks=False)
    symlink.point(str(link), str(target))
    assert [name.split("-")[1] for name in leftovers(link)] == ["young"]


def intrude(monkeypatch: pytest.MonkeyPatch, call: str, peer: Callable[[], None]) -> None:
    """Let a peer act once, right before this process's first use of a system call."""
    real = getattr(os, call)
    came: list[bool] = []

    def late(*arguments: Any, **options: Any) -> Any:
        if not came:
            came.append(True)
            peer()
        return real(*arguments, **options)

    monkeypatch.setattr(os, call, late)


def test_a_peer_that_makes_the_link_first_is_no_error(
    link: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(link, "absent", target)
    trace = Record()
    intrude(monkeypatch, "symlink", lambda: link.symlink_to(target))
    symlink.point(str(link), str(target), trace=trace)
    assert trace.events == ["averted"]


def test_a_peer_that_replaces_the_directory_first_keeps_its_link(
    link: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(link, "directory", target)
    made: list[int] = []

    def peer() -> None:
        link.rename(link.with_name("gone"))
        link.symlink_to(target)
        made.append(os.lstat(link).st_ino)

    intrude(monkeypatch, "rename", peer)
    symlink.point(str(link), str(target))
    assert [os.lstat(link).st_ino] == made
    assert leftovers(link) == []


def test_a_peer_that_makes_another_link_is_followed_by_ours(
    link: Path, target: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put(link, "absent", target)
    intrude(monkeypatch, "symlink", lambda: link.symlink_to(tmp_path / "elsewhere"))
    symlink.point(str(link), str(target))
    assert os.readlink(link) == str(target)


def test_a_parent_that_is_removed_meanwhile_is_made_again(
    link: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(link, "absent", target)
    intrude(monkeypatch, "symlink", lambda: link.parent.rmdir())
    symlink.point(str(link), str(target))
    assert os.readlink(link) == str(target)


def test_a_link_that_vanishes_while_it_is_resolved_is_no_error(
    link: Path, target: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """realpath looks at a link twice, and raises if it is gone at the second look."""
    put(link, "wrong link", tmp_path)
    real = os.path.realpath

    def late(path: str) -> str:
        if path == str(link):
            raise FileNotFoundError(errno.ENOENT, "gone meanwhile", path)
        return real(path)

    monkeypatch.setattr(os.path, "realpath", late)
    symlink.point(str(link), str(target))
    assert os.readlink(link) == str(target)


def faults() -> st.SearchStrategy[dict[tuple[str, int], tuple[int, bool]]]:
    """Draw which of the first four uses of each call fail, how, and whether their work is done all the same."""
    call = st.tuples(st.sampled_from(CALLS), st.integers(1, 4))
    kind = st.tuples(st.sampled_from(RACY), st.booleans())
    plans = st.dictionaries(call, kind, max_size=5)
    # makedirs itself knows what to make of EEXIST, and nothing makes it ENOTDIR or EBUSY but a file in the way.
    return plans.filter(lambda plan: all(e in lookup.UNSURE for (c, _), (e, _) in plan.items() if c == "makedirs"))


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(plan=faults(), start=st.sampled_from(STARTS))
def test_racy_errors_before_or_after_the_work_never_surface(
    plan: dict[tuple[str, int], tuple[int, bool]], start: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """ENOENT, ESTALE, EEXIST, EBUSY, ENOTDIR at any of the first four uses of each call, with the work done or not."""
    home = tmp_path_factory.mktemp("faults")
    target, link = home / "artifact", home / "include" / "link"
    target.mkdir()
    put(link, start, home)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(time, "sleep", lambda seconds: None)
        faulty = Faults(monkeypatch, CALLS, plan)
        faulty.active = True
        symlink.point(str(link), str(target))
        faulty.active = False
    assert os.readlink(link) == str(target)
    assert not [name for name in leftovers(link) if "-link-" in name]  # a stale directory may resist; it is swept


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    call=st.sampled_from(("symlink", "replace", "rename", "makedirs")),
    error=st.sampled_from(REAL),
    start=st.sampled_from(STARTS),
)
def test_a_real_error_comes_through_names_the_link_and_leaves_nothing_behind(
    call: str, error: int, start: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("real")
    target, link = home / "artifact", home / "include" / "link"
    target.mkdir()
    put(link, start, home)
    with pytest.MonkeyPatch.context() as monkeypatch:
        faulty = Faults(monkeypatch, CALLS, {(call, number): (error, False) for number in range(1, 50)})
        faulty.active = True
        try:
            symlink.point(str(link), str(target))
        except OSError as raised:
            assert (raised.errno, raised.filename) in ((error, str(link)), (error, str(link.parent)))
        else:  # makedirs fails for a parent that is there only if the parent is gone again
            assert call not in faulty.used or (call == "makedirs" and start != "parent missing")
        faulty.active = False
    assert not link.parent.is_dir() or leftovers(link) == []


def test_an_error_that_never_ends_is_raised_after_a_bounded_number_of_tries(
    link: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    faulty = Faults(monkeypatch, CALLS, {("symlink", number): (errno.ESTALE, False) for number in range(1, 999)})
    faulty.active = True
    with pytest.raises(OSError) as raised:
        symlink.point(str(link), str(target))
    assert (raised.value.errno, faulty.used["symlink"]) == (errno.ESTALE, symlink.TRIES)
