"""This user's own directory on this host: nobody else's, whatever somebody put in its place."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from racefix.fs import private


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"racefix-{os.getuid()}"


def test_it_is_private_whatever_the_umask(place: Path) -> None:
    old = os.umask(0)
    try:
        assert private.directory("locks") == str(place / "locks")
    finally:
        os.umask(old)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (place, place / "locks")] == [0o700, 0o700]
    assert private.directory() == str(place)


@pytest.mark.parametrize("below", ["", "locks"])
@pytest.mark.parametrize("kind", ["file", "link", "writable by others", "another user's"])
def test_what_is_not_ours_is_refused(
    kind: str, below: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = place / below if below else place
    if below:
        place.mkdir(0o700)
    if kind == "file":
        path.write_text("")
    elif kind == "link":
        (tmp_path / "elsewhere").mkdir(0o700)
        path.symlink_to(tmp_path / "elsewhere")
    else:
        path.mkdir(0o700)
        path.chmod(0o777 if kind == "writable by others" else 0o700)
    if kind == "another user's":
        if os.getuid() != 0:
            pytest.skip("only root can give a directory away")
        os.chown(path, 12345, -1)
    with pytest.raises(PermissionError, match="not a private directory"):
        private.directory(below)
