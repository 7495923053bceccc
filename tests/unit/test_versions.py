"""Pre-, post-, development and local versions compare as their users expect."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.version import Version

from racefix import versions
from tests.support import distribution


@pytest.mark.parametrize(
    ("version", "affected", "expected"),
    [
        ("0.6.7", ">=0.6.7.post1", False),
        ("0.6.7.post1", ">=0.6.7.post1", True),
        ("0.6.7.post1+cu130", ">=0.6.7.post1", True),
        ("0.6.8rc1", ">=0.6.7.post1", True),
        ("0.6.8.dev20260405", ">=0.6.7.post1", True),
        ("0.6.0rc1", ">=0.6.0", False),
        ("2.13.0+cpu", "<2.14", True),
        ("2.14.1", "<2.14", False),
    ],
)
def test_affected(version: str, affected: str, expected: bool) -> None:
    assert versions.is_affected(Version(version), affected) is expected


@pytest.mark.parametrize(
    ("version", "expected"),
    [("1.2", True), ("1.2+cu130", True), ("1.2.post1", True), ("1.2rc1", False), ("1.2.dev3", False), ("1.1", False)],
)
def test_fixed(version: str, expected: bool) -> None:
    assert versions.is_fixed(Version(version), "1.2") is expected
    assert not versions.is_fixed(Version(version), None)


def test_the_first_installed_distribution_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution(tmp_path, "second", "2.0")
    distribution(tmp_path, "third", "3.0")
    monkeypatch.syspath_prepend(tmp_path)
    assert versions.installed(("no-such-thing", "second", "third")) == versions.Installed("second", "2.0")
    assert versions.installed(("no-such-thing",)) is None


def test_a_vendors_own_numbering_is_no_version() -> None:
    assert versions.Installed("x", "0.6.8-acme-build").version is None
    assert versions.Installed("x", "0.6.8+acme").version == Version("0.6.8+acme")
