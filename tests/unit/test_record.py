"""The maintainer's command that records code digests, and the data that it has recorded."""

from __future__ import annotations

import importlib.util
import json
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.version import Version

from racefix.code import read
from racefix.patch import Target, recorded
from tests.support import FAULTY, FIXED, ROOT

DATA = sorted((ROOT / "patches" / "racefix_patches").glob("*.json"))


@pytest.fixture
def record() -> ModuleType:
    spec = importlib.util.spec_from_file_location("record", ROOT / "patches" / "record.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def released(record: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **files: str) -> Any:
    """Read a made-up release, its wheel delivered in pip's place."""

    def pip(*arguments: str) -> str:
        directory = arguments[arguments.index("--dest") + 1]
        with zipfile.ZipFile(Path(directory) / "lib-1.0-py3-none-any.whl", "w") as wheel:
            for name, text in files.items():
                wheel.writestr(name.replace("__", "/") + ".py", text)
        return ""

    monkeypatch.setattr(record, "pip", pip)
    targets = [Target(module, "make", "", lambda original: original) for module in ("lib.a", "lib.b", "lib.c")]
    return record.read_release("lib", "1.0", targets)


def test_a_release_is_read_from_its_wheel(record: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = released(record, tmp_path, monkeypatch, lib__a=FAULTY, lib__b="x = 1")
    assert found == {"lib.a:make": read(FAULTY, "make"), "lib.b:make": None, "lib.c:make": None}


def test_two_definitions_are_not_guessed_at(
    record: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="several definitions"):
        released(record, tmp_path, monkeypatch, lib__a=FAULTY + FIXED)


def test_a_new_body_is_unread_and_a_known_one_gets_another_release(record: ModuleType) -> None:
    data: dict[str, Any] = {"releases": [], "without a wheel": [], "functions": {}}
    faulty, fixed = read(FAULTY, "make"), read(FIXED, "make")
    assert faulty
    assert fixed
    for release, found in (("1.10", faulty), ("1.9", faulty), ("2.0", fixed), ("0.1", None)):
        record.record(data, release, {"lib:make": found})
    record.record(data, "0.0.1", None)
    bodies = data["functions"]["lib:make"]
    assert data["releases"] == ["0.1", "1.9", "1.10", "2.0"]
    assert data["without a wheel"] == ["0.0.1"]
    assert bodies[faulty.digest]["releases"] == ["1.9", "1.10"]
    assert {body["verdict"] for body in bodies.values()} == {"unread"}


@pytest.mark.parametrize("file", DATA, ids=lambda file: file.stem)
def test_everything_that_was_recorded_has_been_read(file: Path) -> None:
    data = json.loads(file.read_text())
    for releases in [data["releases"], *(b["releases"] for f in data["functions"].values() for b in f.values())]:
        assert releases == sorted(set(releases), key=Version)
    for bodies in recorded("racefix_patches", file.stem).values():
        for digest, body in bodies.items():
            assert len(digest) == 64
            assert body.verdict in ("faulty", "fixed")
            assert body.remark
