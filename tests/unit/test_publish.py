"""One of many publishes, everybody gets something whole, and what is published is never replaced."""

from __future__ import annotations

import errno
import multiprocessing
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from racefix.fs import lookup, names, publish
from racefix.fs.trace import Trace
from tests.faults import REAL, Faults, Plan

GOOD = b"good" * 5000
CALLS = ("link", "rename", "lstat")
RACY = (errno.ENOENT, errno.ESTALE, errno.EEXIST, errno.ENOTEMPTY)


class Record(Trace):
    def __init__(self) -> None:
        self.events: list[str] = []

    def tell(self, event: str, detail: str) -> None:
        self.events.append(event)


def is_good(path: str) -> bool:
    try:
        return Path(path).read_bytes() == GOOD
    except (FileNotFoundError, IsADirectoryError):
        return False


def private_file(final: Path, data: bytes = GOOD) -> str:
    private = names.private(str(final), "new")
    publish.write(private, data)
    return private


def sealed_directory(final: Path, data: bytes = GOOD) -> str:
    private = Path(publish.private_directory(str(final), "new"))
    (private / "deeper").mkdir()
    (private / "deeper" / "x.so").write_bytes(data)
    (private / "link").symlink_to("deeper/x.so")
    publish.seal(str(private))
    return str(private)


def publish_one(kind: str, final: Path, data: bytes = GOOD, trace: Trace | None = None) -> str:
    if kind == "file":
        return publish.file(private_file(final, data), str(final), is_good, trace)
    return publish.directory(sealed_directory(final, data), str(final), trace)


def content(kind: str, path: str) -> bytes:
    return (Path(path) if kind == "file" else Path(path) / "deeper" / "x.so").read_bytes()


def identity(path: Path) -> int:
    return os.lstat(path).st_ino


KINDS = pytest.mark.parametrize("kind", ["file", "directory"])


@KINDS
def test_the_first_one_publishes_and_leaves_nothing_beside_it(kind: str, tmp_path: Path) -> None:
    trace = Record()
    assert publish_one(kind, tmp_path / "final", trace=trace) == str(tmp_path / "final")
    assert content(kind, str(tmp_path / "final")) == GOOD
    assert os.listdir(tmp_path) == ["final"]
    assert (trace.changed, trace.events) == (True, [])


@KINDS
def test_the_second_one_uses_the_firsts_which_is_not_replaced(kind: str, tmp_path: Path) -> None:
    publish_one(kind, tmp_path / "final")
    before = identity(tmp_path / "final")
    trace = Record()
    assert publish_one(kind, tmp_path / "final", trace=trace) == str(tmp_path / "final")
    assert identity(tmp_path / "final") == before
    assert os.listdir(tmp_path) == ["final"]
    assert trace.events == ["averted"]


def contend(kind: str, final: Path, number: int, results: Any) -> None:
    for entry in range(20):
        path = publish_one(kind, final.with_name(f"{final.name}{entry}"))
        results.put((entry, path, content(kind, path) == GOOD, os.lstat(path).st_ino))


@KINDS
def test_many_processes_agree_on_one(kind: str, tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    workers = [context.Process(target=contend, args=(kind, tmp_path / "x", n, results)) for n in range(8)]
    for worker in workers:
        worker.start()
    seen = [results.get(timeout=60) for _ in range(8 * 20)]
    for worker in workers:
        worker.join()
    assert all(path == str(tmp_path / f"x{entry}") and good for entry, path, good, _ in seen)
    assert len({(entry, inode) for entry, _, _, inode in seen}) == 20
    assert len(os.listdir(tmp_path)) == 20


@KINDS
@pytest.mark.parametrize("half", ["empty file", "file", "directory"])
def test_half_an_entry_is_put_aside_and_never_costs_the_good_copy(
    kind: str, half: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    final = tmp_path / "final"
    if half == "directory":
        final.mkdir()
        (final / "x.so").write_bytes(GOOD[:9])
    else:
        final.write_bytes(b"" if half == "empty file" else GOOD[:9])
    assert publish_one(kind, final) == str(final)
    assert content(kind, str(final)) == GOOD
    assert os.listdir(tmp_path) == ["final"]


@KINDS
def test_a_whole_entry_that_took_the_place_of_the_half_one_is_put_back(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer puts the same half entry aside and publishes, right before we do the first."""
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    final = tmp_path / "final"
    final.write_bytes(b"half")
    real = os.rename
    published: list[int] = []

    def late(source: str, target: str) -> None:
        if source == str(final) and not published:
            final.unlink()
            published.append(0)
            publish_one(kind, final)
            published[0] = identity(final)
        real(source, target)

    monkeypatch.setattr(os, "rename", late)
    assert publish_one(kind, final) == str(final)
    assert [identity(final)] == published
    assert os.listdir(tmp_path) == ["final"]


@KINDS
def test_where_half_an_entry_cannot_be_put_aside_the_own_copy_serves(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    monkeypatch.setattr(publish, "_put_aside", lambda final, whole: None)
    (tmp_path / "final").mkdir()
    (tmp_path / "final" / "x.so").write_bytes(GOOD[:9])
    path = publish_one(kind, tmp_path / "final")
    assert path != str(tmp_path / "final")
    assert content(kind, path) == GOOD


@KINDS
def test_what_cannot_be_read_is_not_taken_for_half(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole entry whose server answers EIO stays where it is; this process uses its own copy."""
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    final = tmp_path / "final"
    publish_one(kind, final)
    private = (private_file if kind == "file" else sealed_directory)(final)
    before = identity(final)

    def unreadable(path: str) -> bool:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    monkeypatch.setattr(publish, "is_whole", unreadable)
    path = publish.file(private, str(final), unreadable) if kind == "file" else publish.directory(private, str(final))
    assert path == private
    assert identity(final) == before


@pytest.mark.parametrize("error", [errno.EIO, errno.EACCES, errno.ESTALE])
def test_a_directory_that_cannot_be_read_proves_nothing(
    error: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = publish_one("directory", tmp_path / "final")

    def unreadable(path: str, flags: int, mode: int = 0) -> int:
        raise OSError(error, os.strerror(error), path)

    monkeypatch.setattr(os, "open", unreadable)
    with pytest.raises(OSError) as raised:
        publish.is_whole(entry)
    assert raised.value.errno == error


def damage_missing(entry: Path) -> None:
    (entry / "deeper" / "x.so").unlink()


def damage_short(entry: Path) -> None:
    (entry / "deeper" / "x.so").write_bytes(GOOD[:-1])


def damage_other(entry: Path) -> None:
    (entry / "deeper" / "x.so").write_bytes(b"evil" * 5000)


def damage_link(entry: Path) -> None:
    (entry / "link").unlink()
    (entry / "link").symlink_to("elsewhere")


def damage_manifest(entry: Path) -> None:
    (entry / publish.MANIFEST).write_text('{"token": ')


def damage_manifest_type(entry: Path) -> None:
    (entry / publish.MANIFEST).write_text('[{"token": "x", "entries": []}]')


@pytest.mark.parametrize(
    "damage", [damage_missing, damage_short, damage_other, damage_link, damage_manifest, damage_manifest_type]
)
def test_a_damaged_directory_is_not_whole(damage: Callable[[Path], None], tmp_path: Path) -> None:
    entry = Path(publish_one("directory", tmp_path / "final"))
    assert publish.is_whole(str(entry))
    damage(entry)
    assert not publish.is_whole(str(entry))


def test_a_private_directory_whose_reply_was_lost_is_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Faults(monkeypatch, ("mkdir",), {("mkdir", 1): (errno.EEXIST, True)}).active = True
    assert os.listdir(publish.private_directory(str(tmp_path / "final"), "new")) == []


def test_a_directory_that_is_not_sealed_is_not_published(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    with pytest.raises(ValueError, match="not sealed"):
        publish.directory(str(tmp_path / "new"), str(tmp_path / "final"))


def test_files_have_the_mode_that_the_umask_leaves(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        publish.write(str(tmp_path / "x"), b"")
        publish.write(str(tmp_path / "y"), b"", mode=0o777)
    finally:
        os.umask(old)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in "xy"] == [0o640, 0o750]


def test_a_name_that_is_taken_is_an_error_and_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    with pytest.raises(FileExistsError):
        publish.write(str(tmp_path / "link"), b"x")
    assert not (tmp_path / "victim").exists()
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.ESTALE, errno.EIO])
def test_an_error_at_the_sync_surfaces_and_leaves_nothing(
    error: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(descriptor: int) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError) as raised:
        publish.write(str(tmp_path / "x"), GOOD)
    assert raised.value.errno == error
    assert os.listdir(tmp_path) == []


@KINDS
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_surfaces_as_itself(kind: str, error: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = private_file if kind == "file" else sealed_directory
    private = make(tmp_path / "final")
    Faults(monkeypatch, CALLS, {(call, 1): (error, False) for call in ("link", "rename")}).active = True
    with pytest.raises(OSError) as raised:
        if kind == "file":
            publish.file(private, str(tmp_path / "final"), is_good)
        else:
            publish.directory(private, str(tmp_path / "final"))
    assert raised.value.errno == error
    assert content(kind, private) == GOOD


@KINDS
@pytest.mark.parametrize("error", [e for e in REAL if e not in publish.FULL])
def test_who_may_not_publish_uses_the_own_copy(
    kind: str, error: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Faults(
        monkeypatch, CALLS, {(call, n): (error, False) for call in ("link", "rename") for n in range(9)}
    ).active = True
    path = publish_one(kind, tmp_path / "final")
    assert content(kind, path) == GOOD
    assert not (tmp_path / "final").exists()


@pytest.mark.parametrize("error", sorted(publish.NO_LINKS))
@pytest.mark.parametrize("taken", [False, True])
def test_without_hard_links_a_rename_serves(
    error: int, taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if taken:
        publish_one("file", tmp_path / "final")
        before = identity(tmp_path / "final")
    Faults(monkeypatch, CALLS, {("link", n): (error, False) for n in range(1, 99)}).active = True
    assert publish_one("file", tmp_path / "final") == str(tmp_path / "final")
    assert content("file", str(tmp_path / "final")) == GOOD
    assert os.listdir(tmp_path) == ["final"]
    assert not taken or identity(tmp_path / "final") == before


def test_a_private_copy_that_was_swept_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    with pytest.raises(FileNotFoundError):
        publish.file(str(tmp_path / "gone"), str(tmp_path / "final"), is_good)


plans: st.SearchStrategy[Plan] = st.dictionaries(
    st.tuples(st.sampled_from(CALLS), st.integers(1, 4)), st.tuples(st.sampled_from(RACY), st.booleans()), max_size=4
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plan=plans, kind=st.sampled_from(("file", "directory")), there=st.sampled_from(("nothing", "whole", "half")))
def test_errors_before_or_after_the_work_never_cost_the_entry(
    plan: Plan, kind: str, there: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """ENOENT, ESTALE, EEXIST, ENOTEMPTY at any of the first four uses of each call, with the work done or not."""
    home = tmp_path_factory.mktemp("publish")
    final = home / "final"
    if there == "whole":
        publish_one(kind, final)
        before = identity(final)
    elif there == "half":
        final.mkdir()
        (final / "x.so").write_bytes(b"")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(time, "sleep", lambda seconds: None)
        faulty = Faults(monkeypatch, CALLS, plan)
        private = (private_file if kind == "file" else sealed_directory)(final)
        faulty.active = True
        try:
            if kind == "file":
                path = publish.file(private, str(final), is_good)
            else:
                path = publish.directory(private, str(final))
        except OSError as error:  # only if it looks as if our own copy were gone, which the caller then makes again
            assert error.errno in lookup.UNSURE | publish.TAKEN
            assert any(call == "lstat" for call, _ in plan)
            return
        finally:
            faulty.active = False
    assert content(kind, path) == GOOD
    assert there != "whole" or identity(final) == before
