"""tvm_ffi.torch_addon: the real builder script and the real loader, with a stand-in for torch that links quickly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from racefix import elf
from racefix.fs import names
from racefix.race import Plan, measure
from racefix_patches import tvm_ffi as patches
from tests.patches.conftest import Release
from tests.support import FULL, python

NEWEST = "0.1.15.post2"
RELEASES = ("0.1.1", "0.1.3", "0.1.6", "0.1.9", "0.1.11", NEWEST) if FULL else ("0.1.1", "0.1.9", NEWEST)
RACE = next(patch for patch in patches.PATCHES if patch.name == "tvm_ffi.torch_addon").race
LOAD = """
import warnings
warnings.simplefilter("error", UserWarning)
import tvm_ffi._optional_torch_c_dlpack as module
print(module._LIB is not None)
"""
SLOW_COPY = """
# Imported by every interpreter: a copy that stops halfway until it is told to go on.
import os, shutil, time
copyfile = shutil.copyfile
def slow(source, target, **options):
    if os.environ.get("STOP"):
        with open(source, "rb") as whole, open(target, "wb") as half:
            half.write(whole.read()[:1_000_000])
        open(os.environ["STOP"] + ".stopped", "w").close()
        while os.path.exists(os.environ["STOP"]):
            time.sleep(0.01)
    return copyfile(source, target, **options)
shutil.copyfile = slow
"""


class Addon:
    """A cache directory, the stand-in torch, and programs that import tvm_ffi with them."""

    def __init__(self, directory: Path, release: Path) -> None:
        self.directory, self.release, self.cache = directory, release, directory / "cache"
        RACE.prepare(directory, patches.ABSENT)

    @property
    def env(self) -> dict[str, str]:
        own = {"TVM_FFI_CACHE_DIR": str(self.cache), "CXX": str(self.directory / "c++"), "TMPDIR": "/dev/shm"}
        return {**own, "PYTHONPATH": os.pathsep.join([str(self.directory), str(self.release)])}

    def load(self, check: bool = True, **env: str) -> subprocess.CompletedProcess[str]:
        return python(LOAD, path=(), env={**self.env, **env}, check=check)

    def start(self, **env: str) -> subprocess.Popen[str]:
        environ = {**os.environ, **self.env, **env}
        return subprocess.Popen([sys.executable, "-c", LOAD], env=environ, stdout=-1, text=True, start_new_session=True)

    def built(self) -> Path:
        (found,) = self.cache.glob(patches.ADDONS)
        return found

    def left_over(self) -> list[str]:
        return [path.name for path in self.cache.iterdir() if path.name.startswith(names.PREFIX)]


@pytest.fixture
def addon(tmp_path: Path, tvm_ffi: Release) -> Callable[[str], Addon]:
    if not os.path.isdir("/dev/shm") or os.stat("/dev/shm").st_dev == os.stat(tmp_path).st_dev:
        pytest.skip("a move within one file system is no copy, and there is no other one")
    return lambda release: Addon(tmp_path, tvm_ffi(release))


def wait_for(path: Path, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < until, f"{path} does not come"
        time.sleep(0.01)


@pytest.mark.parametrize("release", RELEASES)
def test_it_is_built_and_found_again(release: str, addon: Callable[[str], Addon]) -> None:
    made = addon(release)
    done = made.load()
    assert (done.stdout, done.stderr) == ("True\n", "")
    assert elf.is_whole(str(made.built()))
    before = made.built().stat()
    assert not made.left_over()
    assert made.load(CXX="/nowhere").stdout == "True\n"
    assert made.built().stat().st_ino == before.st_ino
    made.built().unlink()
    made.load(RACEFIX_DISABLE="all")
    theirs = made.built().stat()
    assert (theirs.st_mode, theirs.st_uid, theirs.st_gid) == (before.st_mode, before.st_uid, before.st_gid)


@pytest.mark.parametrize("release", RELEASES)
def test_what_was_cut_short_is_built_again(release: str, addon: Callable[[str], Addon]) -> None:
    made = addon(release)
    made.load()
    for size in (0, 10, 5000, 1_000_000) if FULL else (1_000_000,):
        os.truncate(made.built(), size)
        assert made.load(check=False, RACEFIX_DISABLE="all").returncode != 0
        assert made.built().stat().st_size == size, "upstream keeps it for ever"
        done = made.load(RACEFIX_LOG="info")
        assert done.stdout == "True\n"
        assert f"{made.built()} was cut short; removed" in done.stderr
        assert elf.is_whole(str(made.built()))
        assert not made.left_over()


def test_a_reader_meets_half_a_copy(addon: Callable[[str], Addon]) -> None:
    """A builder stops in the middle of its copy. With racefix it does not copy, and who has it waits for a copier."""
    made = addon(NEWEST)
    (made.directory / "sitecustomize.py").write_text(SLOW_COPY)
    stop = made.directory / "stop"

    def meet(builder_off: str, reader_off: str) -> tuple[bool, bool]:
        for path in made.cache.iterdir():
            path.unlink()
        stop.touch()
        builder = made.start(STOP=str(stop), RACEFIX_DISABLE=builder_off)
        wait_for(stop.with_name("stop.stopped"))
        reader = made.start(RACEFIX_DISABLE=reader_off)
        time.sleep(1.5)
        stop.unlink()
        stop.with_name("stop.stopped").unlink()
        return builder.communicate()[0] == "True\n", reader.communicate()[0] == "True\n"

    assert meet("all", "all") == (True, False)
    assert meet("all", "") == (True, True)
    stop.touch()
    made.built().unlink()
    assert made.load(STOP=str(stop)).stdout == "True\n", "it has copied, or would wait for ever"


def test_a_killed_builder(addon: Callable[[str], Addon]) -> None:
    """The next start builds; what is left goes when it is old."""
    made = addon(NEWEST)
    compiler = made.directory / "c++"
    text = compiler.read_text()
    compiler.write_text('#!/bin/sh\ntouch "$0.stopped"\nexec sleep 60\n')
    process = made.start()
    wait_for(made.directory / "c++.stopped")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    compiler.write_text(text)
    assert made.load().stdout == "True\n"
    (left,) = made.left_over()
    os.utime(made.cache / left, (1, 1))
    made.built().unlink()
    assert made.load().stdout == "True\n"
    assert not made.left_over()


def test_an_error_of_the_compiler_comes_as_upstream_tells_it(addon: Callable[[str], Addon]) -> None:
    made = addon(NEWEST)
    (made.directory / "c++").write_text("#!/bin/sh\necho no good >&2\nexit 3\n")
    ours, theirs = (made.load(check=False, RACEFIX_DISABLE=off) for off in ("", "all"))
    told = theirs.stderr.partition("UserWarning: ")[2]
    assert told.startswith("Failed to JIT torch c dlpack extension")
    assert ours.stderr.endswith(told)
    assert ours.returncode == theirs.returncode == 1
    assert not made.left_over()


def test_a_cache_that_cannot_be_written(addon: Callable[[str], Addon]) -> None:
    """Nothing is built there, half an addon cannot be removed, and both are told as before; nothing hangs."""
    made = addon(NEWEST)
    made.load()
    program = f"""
        import subprocess, sys
        subprocess.run(["mount", "--bind", "-o", "ro", {str(made.cache)!r}, {str(made.cache)!r}], check=True)
        {textwrap.indent(LOAD, " " * 8).strip()}
    """
    command = ["unshare", "--mount", sys.executable, "-c", textwrap.dedent(program)]
    for off in ("all", ""):
        environ = {**os.environ, **made.env, "RACEFIX_DISABLE": off}
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
        if "unshare failed" in done.stderr:
            pytest.skip("mounts: needs root")
        assert done.stdout == "True\n"


@pytest.mark.parametrize("patched", [0, 8])
def test_the_race(patched: int, tvm_ffi: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tvm_ffi(NEWEST)))
    rounds = 20 if FULL else 1
    result = measure(Plan("tvm_ffi.torch_addon", str(tmp_path), patched, rounds=rounds))
    assert (result.with_.failed, result.with_.calls) == (0, 2 * rounds * patched)
    assert (result.without.failed > 0) == (not patched)
