"""What the tests share: interpreters of their own, real upstream releases, and a made-up library with a fault."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
FULL = os.environ.get("TEST_SCOPE") == "full"
ROUNDS = 1000 if FULL else 200
Environment = Callable[..., Path]
"""Makes a fresh virtual environment with what pip is told to install; returns its python."""
UPSTREAM = Path(os.environ.get("TEST_UPSTREAM") or ROOT / ".tox" / "upstream")


def run(
    *command: str | Path, path: Iterable[Path] = (), env: Mapping[str, str] | None = None, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a command in the test's own directory, without RACEFIX_* of ours, ``path`` on PYTHONPATH.

    Its output is shown if it fails.
    """
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("RACEFIX_", "PYTHON"))}
    environ |= {"PYTHONPATH": os.pathsep.join(map(str, path)), "PYTHONDONTWRITEBYTECODE": "1", **(env or {})}
    command = tuple(map(str, command))
    own = os.environ.get("TMPDIR")
    done = subprocess.run(command, cwd=own, env=environ, capture_output=True, text=True, check=False, timeout=600)
    if check and done.returncode:
        raise AssertionError(f"exit status {done.returncode} of {command}\n{done.stdout}\n{done.stderr}")
    return done


def python(
    code: str,
    *options: str,
    executable: str | Path = sys.executable,
    path: Iterable[Path] = (),
    env: Mapping[str, str] | None = None,
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run a program in an interpreter of its own."""
    return run(executable, *options, "-c", textwrap.dedent(code), path=path, env=env, check=check)


def site_packages(python: Path) -> Path:
    """Return where an environment's packages are."""
    (directory,) = python.parent.parent.glob("lib/python3*/site-packages")
    return directory


def upstream(distribution: str, release: str, compiled: bool = False) -> Path:
    """Return a directory for PYTHONPATH that holds one real release, installed once without its dependencies.

    A ``compiled`` one is installed for each Python by itself.
    """
    python = f"-{sys.implementation.cache_tag}" if compiled else ""
    directory = UPSTREAM / f"{distribution}-{release}{python}"
    if not directory.exists():
        new = directory.with_name(f"{directory.name}.{os.getpid()}")
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--target", str(new))
        subprocess.run([*pip, f"{distribution}=={release}"], check=True)
        try:
            new.rename(directory)
        except OSError:  # another test process was first
            if not directory.exists():
                raise
            shutil.rmtree(new)
    return directory


FAULTY = """
def make(path, content):
    "Write a file if it is not there."
    import os
    if os.path.exists(path):
        return False
    with open(path, "x") as file:
        file.write(content)
    return True
"""
FIXED = FAULTY.replace('"x"', '"a"')
PATCHES = f"""
import functools
from pathlib import Path
from racefix import Patch, Target
from racefix.code import read
from racefix.fallback import falls_back
from racefix.patch import Body, Race

def make(call, path, content):
    call.changing()
    call.tell("averted", path)
    return "safe"

def digest(source):
    return read(source, "make").digest

bodies = {{
    digest({FAULTY!r}): Body("faulty", ("1.0",), "path, content"),
    digest({FIXED!r}): Body("fixed", ("2.0",), "path, content"),
}}
nothing = lambda *arguments: None
patch = Patch(
    name="coldlib.make",
    summary="files are made once",
    fault="It looks before it leaps.",
    upstream=("https://example.org/1",),
    distributions=("coldlib",),
    targets=(Target("coldlib.cache", "make", ">=1.0", falls_back("coldlib.make", make), "3.0", bodies=bodies),),
    retire="when 3.0 is the oldest",
    race=Race(("nothing",), nothing, nothing, nothing),
    caches=lambda: (Path("/nowhere"),),
)
"""


def distribution(site: Path, name: str, version: str, entry_points: str = "") -> None:
    """Write a distribution's metadata."""
    metadata = site / f"{name}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (metadata / "entry_points.txt").write_text(entry_points)


def coldlib(site: Path, version: str = "1.0", source: str = FAULTY) -> Path:
    """Write a made-up library and, as a third party would, a patch for it; return the directory for PYTHONPATH."""
    package = site / "coldlib"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "cache.py").write_text(source)
    (package / "user.py").write_text("from .cache import make\ndefault = lambda f=make: f\n")
    distribution(site, "coldlib", version)
    (site / "coldlib_patches.py").write_text(PATCHES)
    distribution(site, "coldlib_patches", "1", "[racefix.patches]\ncoldlib = coldlib_patches:patch\n")
    return site
