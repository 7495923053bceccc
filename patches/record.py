"""Record what code the patched functions have had in every release of a library.

A maintainer's command, run in the repository:

    python patches/record.py flashinfer

It looks at each release on the package index that the data file beside the patch module does not know yet, and adds
the digest of each target's code. A body that was never seen is recorded as "unread": it counts as unknown until a
maintainer has read it and set its verdict to "faulty" or "fixed". Exit status 1 says that such bodies are left.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from packaging.version import Version

ROOT = Path(__file__).parent
sys.path[:0] = [str(ROOT), str(ROOT.parent / "src")]

from racefix import code, versions  # noqa: E402
from racefix.patch import Patch, Target  # noqa: E402


def pip(*arguments: str) -> str:
    """Return what pip prints; raises CalledProcessError, which holds its messages."""
    return subprocess.run([sys.executable, "-m", "pip", *arguments], check=True, capture_output=True, text=True).stdout


def releases(distribution: str) -> list[str]:
    """Return every release of a distribution on the index, oldest first."""
    printed = pip("index", "versions", "--pre", distribution)
    listed = next(line for line in printed.splitlines() if line.startswith("Available versions:"))
    return sorted((v.strip() for v in listed.partition(":")[2].split(",")), key=Version)


def read_release(distribution: str, release: str, targets: list[Target]) -> dict[str, code.Code | None] | None:
    """Return each target's code in one release, None for a function it does not have; None if there is no wheel."""
    with tempfile.TemporaryDirectory() as directory:
        try:
            pip(
                "download",
                "--quiet",
                "--no-deps",
                "--only-binary=:all:",
                "--dest",
                directory,
                f"{distribution}=={release}",
            )
        except subprocess.CalledProcessError:
            return None
        (archive,) = Path(directory).iterdir()
        with zipfile.ZipFile(archive) as wheel:
            return {str(target): _read(wheel, target) for target in targets if _concerns(target, release)}


def _concerns(target: Target, release: str) -> bool:
    """Tell whether a release is in the target's range; what the code of others was decides nothing."""
    return versions.is_affected(Version(release), target.affected)


def _read(wheel: zipfile.ZipFile, target: Target) -> code.Code | None:
    module = target.module.replace(".", "/")
    for name in {f"{module}.py", f"{module}/__init__.py"} & set(wheel.namelist()):
        source = wheel.read(name).decode()
        read = code.read(source, target.qualname)
        if read is None and code.definitions(source, target.qualname):
            raise ValueError(f"{target}: several definitions in {wheel.filename}")
        return read
    return None


def record(data: dict[str, Any], release: str, found: dict[str, code.Code | None] | None) -> None:
    """Add one release to the data."""
    looked_at = data["releases" if found is not None else "without a wheel"]
    looked_at[:] = sorted({*looked_at, release}, key=Version)
    for function, read in (found or {}).items():
        bodies = data["functions"].setdefault(function, {})
        if read:
            new = {"verdict": "unread", "remark": "", "parameters": read.parameters, "releases": []}
            body = bodies.setdefault(read.digest, new)
            body["releases"] = sorted({*body["releases"], release}, key=Version)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", help="name of the patch module, such as flashinfer")
    parser.add_argument("--again", action="store_true", help="look at the releases that are known already, too")
    options = parser.parse_args()
    file = ROOT / "racefix_patches" / f"{options.library}.json"
    if not file.exists():
        file.write_text('{"releases": [], "without a wheel": [], "functions": {}}\n')
    data = json.loads(file.read_text())
    patches: tuple[Patch, ...] = __import__(f"racefix_patches.{options.library}", fromlist=["PATCHES"]).PATCHES
    targets = [target for patch in patches for target in patch.targets]
    distribution = patches[0].distributions[0]
    known = [] if options.again else data["releases"] + data["without a wheel"]
    wanted = [release for release in releases(distribution) if release not in known]
    with ThreadPoolExecutor(4) as pool:
        for release, found in zip(
            wanted, pool.map(lambda r: read_release(distribution, r, targets), wanted), strict=True
        ):
            seen = found if found is not None else {"": None}
            print(
                release, *(f"{t.rpartition(':')[2]}={c.digest[:8] if c else '-'}" for t, c in seen.items()), flush=True
            )
            record(data, release, found)
            file.write_text(json.dumps(data, indent=1) + "\n")
    unread = [(f, d) for f, bodies in data["functions"].items() for d, b in bodies.items() if b["verdict"] == "unread"]
    for function, digest in unread:
        print(f"read it and set its verdict: {function} {digest[:16]}")
    return 1 if unread else 0


if __name__ == "__main__":
    sys.exit(main())
