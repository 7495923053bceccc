"""Third parties' patches: loaded by entry point, checked, and never able to break the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from racefix.patch import Patch
from tests.support import coldlib, distribution, python

LIST = "import racefix.registry; print(*(patch.name for patch in racefix.registry.patches()))"


@pytest.mark.parametrize(
    ("module", "problem"),
    [
        ("raise RuntimeError('no luck')", "RuntimeError: no luck"),
        ("patches = 7", "TypeError"),
        (
            "from coldlib_patches import patch\nimport dataclasses\npatches = [dataclasses.replace(patch)]",
            "there is one",
        ),
    ],
)
def test_a_bad_entry_point_costs_a_warning(module: str, problem: str, tmp_path: Path) -> None:
    site = coldlib(tmp_path)
    (site / "bad_patches.py").write_text(module)
    distribution(site, "zbad", "1", "[racefix.patches]\nzbad = bad_patches:patches\n")
    done = python(LIST, path=[site], env={"TMPDIR": str(tmp_path)})
    assert "coldlib.make" in done.stdout.split()
    assert "flashinfer.symlink" in done.stdout.split()
    assert problem in done.stderr
    assert "bad_patches:patches" in done.stderr


def test_a_sequence_of_patches(tmp_path: Path) -> None:
    site = coldlib(tmp_path)
    (site / "coldlib_patches.py").write_text((site / "coldlib_patches.py").read_text() + "\npatch = [patch]\n")
    done = python(LIST, path=[site])
    assert "coldlib.make" in done.stdout.split()
    assert done.stderr == ""


def test_names_that_no_patch_has_are_warned_of(tmp_path: Path) -> None:
    env = {"RACEFIX_DISABLE": "coldlib.mke", "RACEFIX_LGO": "info", "TMPDIR": str(tmp_path)}
    done = python(LIST, path=[coldlib(tmp_path)], env=env)
    assert "did you mean coldlib.make?" in done.stderr
    assert "did you mean RACEFIX_LOG?" in done.stderr


def test_a_patch_needs_a_name_and_targets() -> None:
    def patch(name: str) -> Patch:
        return Patch(name, "", "", (), ("x",), (), "", None, None)  # type: ignore[arg-type]

    with pytest.raises(ValueError, match=r"library\.fault"):
        patch("Symlink")
    with pytest.raises(ValueError, match="at least one target"):
        patch("lib.fault")
