"""A miss or a stale handle is asked again, after the parent was opened; anything else is believed."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from racefix.fs import lookup


class View:
    """A client's look at a path: each look takes the next error, 0 for success, and notes what was opened before."""

    def __init__(self, *errors: int) -> None:
        self.errors = list(errors)
        self.looks = 0

    def __call__(self, path: str) -> str:
        self.looks += 1
        if error := self.errors.pop(0):
            raise OSError(error, os.strerror(error), path)
        return path


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    real = os.open

    def spy(path: str, flags: int, mode: int = 0o777) -> int:
        names.append(path)
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", spy)
    return names


def test_what_is_there_costs_one_look(tmp_path: Path, opened: list[str]) -> None:
    view = View(0)
    assert lookup.again(view, str(tmp_path / "x")) == str(tmp_path / "x")
    assert (view.looks, opened) == (1, [])


def test_a_negative_entry_is_asked_again_after_opening_the_parent(tmp_path: Path, opened: list[str]) -> None:
    view = View(errno.ENOENT, 0)
    lookup.again(view, str(tmp_path / "x"))
    assert opened == [str(tmp_path)]


def test_a_miss_is_believed_after_two_looks(tmp_path: Path) -> None:
    view = View(errno.ENOENT, errno.ENOENT, 0)
    with pytest.raises(FileNotFoundError):
        lookup.again(view, str(tmp_path / "x"))
    assert view.looks == 2


def test_a_stale_handle_is_asked_again_until_the_tries_are_over(tmp_path: Path) -> None:
    lookup.again(View(errno.ESTALE, errno.ESTALE, 0), str(tmp_path / "x"))
    with pytest.raises(OSError, match="Stale") as raised:
        lookup.again(View(*[errno.ESTALE] * 3), str(tmp_path / "x"))
    assert raised.value.errno == errno.ESTALE


@pytest.mark.parametrize("error", [errno.EACCES, errno.EIO, errno.ENOTDIR, errno.EINVAL])
def test_a_real_error_is_believed_at_once(tmp_path: Path, error: int) -> None:
    view = View(error, 0)
    with pytest.raises(OSError) as raised:
        lookup.again(view, str(tmp_path / "x"))
    assert (raised.value.errno, view.looks) == (error, 1)


def test_missed_parents_are_refreshed_from_the_top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that missed a/b and a/b/c sees a/b only after it opened a, and a/b/c only after it opened a/b."""
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    hidden = {tmp_path / "a" / "b" / "c": tmp_path / "a" / "b", tmp_path / "a" / "b": tmp_path / "a"}
    real = os.open

    def client(path: str, flags: int, mode: int = 0o777) -> int:
        if Path(path) in hidden:
            raise FileNotFoundError(errno.ENOENT, "negative entry", path)
        for child in [child for child, parent in hidden.items() if parent == Path(path)]:
            del hidden[child]
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", client)
    lookup.refresh(str(tmp_path / "a" / "b" / "c"))
    assert not hidden


def test_refresh_never_raises(tmp_path: Path) -> None:
    lookup.refresh(str(tmp_path / "not" / "there"))
    (tmp_path / "file").touch()
    lookup.refresh(str(tmp_path / "file"))
    lookup.refresh("")
    lookup.refresh("not/there")
