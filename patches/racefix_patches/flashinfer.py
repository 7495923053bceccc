"""flashinfer: processes that start together trip over each other's symbolic links.

``ensure_symlink`` looks at a link, removes it and makes it anew, in three steps. Until 0.6.7.post2 nothing keeps
processes apart; later a flock does, which other hosts of a share do not see. ``_setup_output_directory`` of the
fmha_v2 generators removes and makes its link at every call, with no lock in any release, so it fails even warm.

Reported in https://github.com/flashinfer-ai/flashinfer/issues/2980, locked in pull/2979 (0.6.7.post3); pull/3368 (open)
would forgive one of the errors. No release has a fix.
The patch can be deleted when the oldest flashinfer in use makes both links atomically.
"""

from __future__ import annotations

import os
from pathlib import Path

from racefix.fallback import Call, falls_back
from racefix.fs import symlink
from racefix.patch import Patch, Race, Target, recorded

DISTRIBUTIONS = ("flashinfer-python", "flashinfer")
CODE = recorded(__package__, "flashinfer")
SYMLINK = "flashinfer.symlink"


def ensure_symlink(call: Call, link: str | Path, target: str | Path) -> None:
    """Point ``link`` at ``target``; when it is right already this is one readlink, without a lock."""
    try:
        if os.readlink(link) == os.fspath(target):
            return
    except OSError:
        pass  # absent, or no link: found out below
    link, target = str(Path(link)), str(Path(target))
    symlink.point(link, target, lock=f"{link}.lock", trace=call)


def setup_output_directory(call: Call, src_target: Path, gen_dir: Path) -> None:
    """Make the directory with its ``src`` link and its two sub-directories; a directory named src is an error."""
    gen_dir.mkdir(parents=True, exist_ok=True)
    symlink.point(str(gen_dir / "src"), str(src_target), replace_directory=False, trace=call)
    (gen_dir / "generated").mkdir(exist_ok=True)
    (gen_dir / "bin").mkdir(exist_ok=True)


ABSENT, WRONG, DIRECTORY, COLD, WARM = "link absent", "wrong link", "stale directory", "fmha_v2 cold", "fmha_v2 warm"


def _prepare(directory: Path, start: str) -> None:
    export = directory / "artifact" / "trtllmGen_bmm_export"
    export.mkdir(parents=True)
    headers = [f"Header{number}.h" for number in range(17)]  # as many as the release that left directories behind
    for name in headers:
        (export / name).write_text(f"// {name}\n")
    link = directory / "include" / "trtllmGen_bmm_export"
    if start in (WRONG, DIRECTORY, WARM):
        link.parent.mkdir()
    if start == WRONG:
        link.symlink_to(directory / "artifact" / "of another release")
    elif start == DIRECTORY:
        link.mkdir()
        for name in headers:
            (link / name).write_text("// of an older release\n")
    elif start == WARM:
        _race(directory, start)


def _race(directory: Path, start: str) -> None:
    export = directory / "artifact" / "trtllmGen_bmm_export"
    if start in (COLD, WARM):
        from flashinfer.jit.attention.fmha_v2 import generate_kernels

        generate_kernels._setup_output_directory(export, directory / "include")
    else:
        from flashinfer.jit import cubin_loader

        cubin_loader.ensure_symlink(directory / "include" / "trtllmGen_bmm_export", export)


def _check(directory: Path, start: str) -> None:
    link = directory / "include" / ("src" if start in (COLD, WARM) else "trtllmGen_bmm_export")
    export = directory / "artifact" / "trtllmGen_bmm_export"
    if os.readlink(link) != str(export):
        raise RuntimeError(f"{link} leads to {os.readlink(link)}")
    if len(os.listdir(link)) != 17:
        raise RuntimeError(f"{export} has lost headers")


def caches() -> tuple[Path, ...]:
    """Return flashinfer's cache directory and its directory of downloaded kernels, as its environment sets them."""
    base = Path(os.environ.get("FLASHINFER_WORKSPACE_BASE") or Path.home()) / ".cache" / "flashinfer"
    return base, Path(os.environ.get("FLASHINFER_CUBIN_DIR") or base / "cubins")


PATCHES = (
    Patch(
        name=SYMLINK,
        summary="links to headers are made atomically",
        fault="""\
ensure_symlink looks at a link, removes it and makes it anew. Processes that start together meet in between and die of
FileExistsError, FileNotFoundError or NotADirectoryError; the lock that 0.6.7.post3 added does not reach other hosts.
_setup_output_directory removes and makes its link at every call, without any lock.
racefix reads the link and does nothing if it is right. Otherwise it makes a private link beside it and renames that
into place; a stale directory is moved aside first. Upstream's own lock is taken too, for peers without racefix.""",
        upstream=(
            "https://github.com/flashinfer-ai/flashinfer/issues/2980",
            "https://github.com/flashinfer-ai/flashinfer/pull/2979",
            "https://github.com/flashinfer-ai/flashinfer/pull/3368",
        ),
        distributions=DISTRIBUTIONS,
        targets=(
            Target(
                module="flashinfer.jit.cubin_loader",
                qualname="ensure_symlink",
                affected=">=0.6.7.post1",
                wrapper=falls_back(SYMLINK, ensure_symlink),
                bodies=CODE["flashinfer.jit.cubin_loader:ensure_symlink"],
            ),
            Target(
                module="flashinfer.jit.attention.fmha_v2.generate_kernels",
                qualname="_setup_output_directory",
                affected=">=0.6.0",
                wrapper=falls_back(SYMLINK, setup_output_directory),
                bodies=CODE["flashinfer.jit.attention.fmha_v2.generate_kernels:_setup_output_directory"],
            ),
        ),
        retire="when no supported flashinfer release removes a link before it makes the new one",
        race=Race((ABSENT, WRONG, DIRECTORY, COLD, WARM), _prepare, _race, _check),
        caches=caches,
    ),
)
