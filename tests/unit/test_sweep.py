"""Leftovers go by age on the server's clock; nothing else is touched, and nothing raises."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from racefix.fs import names, sweep

NOW = 1_000_000_000.0


def leave(directory: Path, name: str, age: float, kind: str = "file") -> Path:
    path = directory / name
    if kind == "file":
        path.write_text("left")
    elif kind == "link":
        path.symlink_to(directory / "victim")
    else:
        (path / "deeper").mkdir(parents=True)
        (path / "deeper" / "file").write_text("left")
    os.utime(path, (NOW - age, NOW - age), follow_symlinks=False)
    return path


@pytest.mark.parametrize("kind", ["file", "link", "directory"])
def test_only_what_is_ours_and_old_goes(kind: str, tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "file").write_text("kept")
    old = leave(tmp_path, f"{names.PREFIX}old", sweep.AGE + 1, kind)
    young = leave(tmp_path, f"{names.PREFIX}young", sweep.AGE - 1, kind)
    theirs = leave(tmp_path, "theirs", 10 * sweep.AGE, kind)
    assert sweep.sweep(str(tmp_path), NOW) == [old.name]
    assert sorted(os.listdir(tmp_path)) == sorted([young.name, theirs.name, "victim"])
    assert (tmp_path / "victim" / "file").read_text() == "kept"


def test_the_age_can_be_chosen(tmp_path: Path) -> None:
    leave(tmp_path, f"{names.PREFIX}x", 61)
    assert sweep.sweep(str(tmp_path), NOW, age=62) == []
    assert sweep.sweep(str(tmp_path), NOW, age=60) == [f"{names.PREFIX}x"]


def test_an_entry_that_another_sweeper_took_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = leave(tmp_path, f"{names.PREFIX}x", sweep.AGE + 1)
    real = os.rename

    def late(source: str, target: str) -> None:
        left.unlink()
        real(source, target)

    monkeypatch.setattr(os, "rename", late)
    assert sweep.sweep(str(tmp_path), NOW) == []


def test_what_resists_stays_for_the_next_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave(tmp_path, f"{names.PREFIX}x", sweep.AGE + 1, "directory")
    monkeypatch.setattr(shutil, "rmtree", lambda path, ignore_errors: None)
    sweep.sweep(str(tmp_path), NOW)
    monkeypatch.undo()
    (dead,) = os.listdir(tmp_path)
    assert dead.startswith(f"{names.PREFIX}dead-")
    assert sweep.sweep(str(tmp_path), NOW) == [dead]
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("where", ["missing", "file"])
def test_a_directory_that_cannot_be_listed_is_no_error(where: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert sweep.sweep(str(tmp_path / where), NOW) == []
