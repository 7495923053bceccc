"""A thing is said once per host and job; in doubt it is said."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from racefix import once


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    return tmp_path / f"racefix-{os.getuid()}"


def test_the_first_of_a_job_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert once.first("a")
    assert not once.first("a")
    assert once.first("b")
    monkeypatch.setenv("SLURM_JOB_ID", "8")
    assert once.first("a")


def test_without_a_batch_system_a_process_group_is_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID")
    assert once.first("a")
    assert not once.first("a")
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        os._exit(0 if once.first("a") and not once.first("a") else 1)
    assert os.waitpid(pid, 0)[1] == 0


def test_the_directory_is_private(directory: Path) -> None:
    once.first("a")
    assert directory.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("kind", ["file", "link", "writable by others"])
def test_a_directory_that_is_not_ours_is_not_used(kind: str, directory: Path, tmp_path: Path) -> None:
    if kind == "file":
        directory.write_text("")
    elif kind == "link":
        (tmp_path / "elsewhere").mkdir()
        directory.symlink_to(tmp_path / "elsewhere")
    else:
        directory.mkdir()
        directory.chmod(0o777)
    assert once.first("a")
    assert once.first("a")
    assert not (tmp_path / "elsewhere").exists() or os.listdir(tmp_path / "elsewhere") == []
