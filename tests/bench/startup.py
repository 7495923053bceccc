"""What racefix costs at interpreter start: instructions (exact, by callgrind) and CPU time (interleaved runs).

    python -m tests.bench.startup

Both interpreters are fresh virtual environments without pip, one of them with racefix's files; ``-c pass``.
"""

from __future__ import annotations

import os
import random
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from tests.support import ROOT, site_packages

RUNS = 60
INSTRUCTIONS_ALLOWED = 2_500_000


def environment(directory: Path, racefix: bool) -> Path:
    """Make an environment; racefix's two packages and start-up files are all that its start can touch."""
    venv.create(directory, symlinks=True)
    python = directory / "bin" / "python"
    if racefix:
        packages = site_packages(python)
        for source in ("src/racefix", "patches/racefix_patches"):
            shutil.copytree(ROOT / source, packages / Path(source).name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("racefix_startup.pth", "racefix_startup.start"):
            shutil.copy(ROOT / "src" / name, packages)
    return python


def environ(pyc: bool) -> dict[str, str]:
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "RACEFIX"))}
    return keep if pyc else keep | {"PYTHONDONTWRITEBYTECODE": "1"}


def forget_pyc(python: Path) -> None:
    for cache in site_packages(python).rglob("__pycache__"):
        shutil.rmtree(cache)


def instructions(python: Path, pyc: bool) -> int | None:
    """Count the instructions of one start, or return None without valgrind."""
    valgrind = shutil.which("valgrind")
    if not valgrind:
        return None
    command = [valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null", str(python), "-c", "pass"]
    done = subprocess.run(
        command, env=environ(pyc) | {"PYTHONHASHSEED": "0"}, capture_output=True, text=True, check=True
    )
    counted = re.search(r"Collected : (\d+)", done.stderr)
    return int(counted[1]) if counted else None


def cpu_seconds(python: Path, pyc: bool) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([python, "-c", "pass"], env=environ(pyc), check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Print the figures; 1 if the instructions are over what is allowed with .pyc files."""
    over = False
    with tempfile.TemporaryDirectory() as directory:
        bare = environment(Path(directory) / "bare", racefix=False)
        ours = environment(Path(directory) / "ours", racefix=True)
        for pyc in (True, False):
            forget_pyc(ours)
            cpu_seconds(ours, pyc), cpu_seconds(bare, pyc)
            label = "with .pyc" if pyc else "without .pyc"
            counts = instructions(bare, pyc), instructions(ours, pyc)
            if counts[0] and counts[1]:
                more = counts[1] - counts[0]
                over |= pyc and more > INSTRUCTIONS_ALLOWED
                share = f"{100 * more / counts[0]:.1f} % of {counts[0] / 1e6:.1f} M"
                print(f"{label}: {more / 1e6:+.2f} M instructions ({share}; allowed with .pyc: 2.50 M)")
            else:
                print(f"{label}: instructions not counted (valgrind is not installed)")
            times: dict[Path, list[float]] = {bare: [], ours: []}
            for python in random.sample([bare, ours] * RUNS, 2 * RUNS):
                times[python].append(cpu_seconds(python, pyc))
            a, b = (statistics.median(times[python]) * 1000 for python in (bare, ours))
            low = [min(times[python]) * 1000 for python in (bare, ours)]
            print(f"{label}: CPU median {a:.2f} ms bare, {b:.2f} ms with racefix: {b / a:.3f} times, {RUNS} runs each")
            print(f"{label}: CPU minimum {low[0]:.2f} ms bare, {low[1]:.2f} ms with racefix")
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
