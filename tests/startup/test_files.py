"""The two start-up files are what the README prints, and the wheel puts them where Python reads them."""

from __future__ import annotations

import ast
import re
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from racefix import _startup, registry
from tests.support import ROOT

FILES = ("racefix_startup.pth", "racefix_startup.start")


@pytest.mark.parametrize("name", FILES)
def test_the_readme_prints_the_file_byte_for_byte(name: str) -> None:
    readme = (ROOT / "README.md").read_text()
    printed = re.search(rf"`{re.escape(name)}`[^\n]*\n+```\n(.*?)```", readme, re.DOTALL)
    assert printed
    assert printed[1].encode() == (ROOT / "src" / name).read_bytes()


def test_the_wheel_has_these_two_files_at_its_root_and_no_other(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert sorted(name for name in names if "/" not in name) == sorted(FILES)
        assert {name.split("/")[0] for name in names if "/" in name and ".dist-info" not in name} == {
            "racefix",
            "racefix_patches",
        }
        for name in FILES:
            assert archive.read(name) == (ROOT / "src" / name).read_bytes()
        (record,) = (name for name in names if name.endswith("RECORD"))
        recorded = {line.split(",")[0] for line in archive.read(record).decode().splitlines()}
        assert recorded == set(names)


def test_the_core_depends_on_three_packages_without_caps(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith("METADATA"))
        required = Parser().parsestr(archive.read(metadata).decode()).get_all("Requires-Dist") or []
    core = [line for line in required if "extra ==" not in line]
    assert [re.split(r"[^a-z-]", line)[0] for line in core] == ["importlib-metadata", "packaging", "wrapt"]
    assert not [line for line in core if "<" in line or "==" in line]


def test_the_start_up_module_is_short_and_imports_os_and_sys_only() -> None:
    source = Path(str(_startup.__file__)).read_text()
    before, _, after = source.partition("TARGETS = frozenset([")
    assert len((before + after.partition("])")[2]).splitlines()) < 80, "without the list of modules, which grows"
    imported = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            imported |= {alias.name for alias in node.names}
    assert imported == {"os", "sys"}


def test_it_watches_the_modules_that_the_patches_name() -> None:
    from racefix_patches import PATCHES

    assert set(_startup.TARGETS) == {target.module for patch in PATCHES for target in patch.targets}
    assert {patch.name for patch in PATCHES} <= {patch.name for patch in registry.patches()}
