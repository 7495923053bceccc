"""tvm_ffi: processes that start together build one module into one directory, in place.

``build_ninja`` runs ninja in the shared directory, ``_maybe_write`` and the cubins rewrite files there, and the result
is loaded after the lock was let go. Where the lock does not reach (another host of a share, a parent that was killed
before its ninja) a build reads and writes under another: ``file too short``, ``Module has no function``, ``ld: final
link failed: Stale file handle``. The lock itself takes every error for "busy" and tries for ever. The addon for torch
is copied to its final name, where its readers test for it without any lock.

Reported in https://github.com/apache/tvm-ffi/issues/667 and https://github.com/sgl-project/sglang/issues/31347. No
release has a fix. The patches can be deleted when the oldest apache-tvm-ffi in use builds privately and renames.
"""

from __future__ import annotations

import atexit
import functools
import glob
import inspect
import locale
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from racefix import elf, events, ninja
from racefix.build import obtain
from racefix.fallback import Call, falls_back
from racefix.fs import locks, names, publish, sweep
from racefix.patch import Function, Patch, Race, Target, recorded

DISTRIBUTIONS = ("apache-tvm-ffi",)
CODE = recorded(__package__, "tvm_ffi")
BUILD, LOCK, TORCH_ADDON = "tvm_ffi.build", "tvm_ffi.lock", "tvm_ffi.torch_addon"
LONG_WAIT = 60.0  # seconds after which a wait for somebody else's lock is worth a word
UPSTREAM = ("https://github.com/apache/tvm-ffi/issues/667", "https://github.com/sgl-project/sglang/issues/31347")


class _Said(threading.local):
    """What the call of tvm_ffi that this thread is in has said so far.

    Attributes:
        written: by directory, what it wrote there: never read back, since other hosts write to the same names.
        cubins: what it embeds, by name; None outside of such a call.
        built: where the library is that it was built into.
    """

    def __init__(self) -> None:
        self.written: dict[str, dict[str, bytes]] = {}
        self.cubins: Mapping[str, bytes] | None = None
        self.built = ""


_said = _Said()


def maybe_write(call: Call, path: str, content: str) -> None:
    """Write a file if it does not hold that content; whole, and remembered for the build that follows."""
    real, data = os.path.realpath(path), content.encode(locale.getpreferredencoding(False))
    _said.written.setdefault(os.path.dirname(real), {})[real] = data
    publish.update(real, data)


def build_ninja(call: Call, build_dir: str) -> None:
    """Build in private, or find what is built already; the file that ninja would make leads there."""
    directory = os.path.realpath(build_dir)
    written = dict(_said.written.pop(directory, {}))
    text = written.pop(os.path.join(directory, ninja.BUILD_FILE), None)
    if text is None:  # somebody else's build file in a directory of their own
        call.original(build_dir)
        return
    cubins = {f"{name}.cubin": data for name, data in (_said.cubins or {}).items()}
    if b".cubin\n" in text and not cubins:
        raise ValueError("the build embeds cubins that were not seen")
    _said.built = obtain(ninja.recipe(directory, text, written, cubins, call.original), call)


def builder(original: Function) -> Function:
    """Return the path at which this caller's own build is: at the shared one may be that of other tools."""
    parameters = inspect.signature(original)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        outer, _said.cubins, _said.built = _said.cubins, None, ""
        try:
            _said.cubins = parameters.bind_partial(*args, **kwargs).arguments.get("embed_cubin")
            path = original(*args, **kwargs)
        finally:
            _said.cubins = outer
        own = _said.built
        return own if os.path.basename(own) == os.path.basename(path) else path

    return wrapper


def blocking_acquire(call: Call, self: Any, timeout: float | None = None, poll_interval: float = 0.1) -> bool:
    """Wait for the lock as long as somebody holds it; go on without it where locks do not work.

    With a timeout, and for a lock that is held already, upstream's own answer is the right one.
    """
    path = os.path.realpath(self.lock_file_path)
    if timeout is not None or self._file_descriptor is not None:
        return bool(call.original(self, timeout, poll_interval))
    mode = 0o777  # as upstream's own call creates it
    lock = locks.acquire(path, LONG_WAIT, mode=mode, poll=poll_interval)
    if lock.descriptor is None and lock.error is not None and lock.error.errno in locks.BUSY:
        events.warn(f"{LOCK}: still waiting for who holds {path}, after {lock.waited:.0f} s")
        lock = locks.acquire(path, float("inf"), mode=mode, poll=poll_interval)
    if lock.descriptor is None:
        call.tell("averted", f"an endless wait: {path} cannot be locked: {lock.error}")
    self._file_descriptor = lock.descriptor
    return True


ADDON_BUILDER = "_build_optional_torch_c_dlpack.py"
ADDONS = "libtorch_c_dlpack_addon_*.so"
UNCHANGED = 5.0  # seconds without change after which nobody is still copying to a file


def torch_addon(module: ModuleType) -> None:
    """Make ready for what the module's body does: it loads the addon, and has a child script build one if need be."""
    if os.path.basename(sys.argv[0] if sys.argv else "") == ADDON_BUILDER:
        _build_in_cache()
    else:
        for path in glob.glob(os.path.join(glob.escape(_cache()), ADDONS)):
            _remove_half(path)


def _cache() -> str:
    return os.path.expanduser(os.environ.get("TVM_FFI_CACHE_DIR", "~/.cache/tvm-ffi"))


def _build_in_cache() -> None:
    """In the child script: let its temporary directory be in the cache, so that its last step is a rename."""
    arguments = sys.argv[1:]
    given = arguments.index("--output-dir") if "--output-dir" in arguments else -1
    output = os.path.expanduser(arguments[given + 1]) if given >= 0 else _cache()
    os.makedirs(output, exist_ok=True)
    tempfile.tempdir = publish.private_directory(os.path.join(output, "addon"), "addon")
    atexit.register(sweep.remove, tempfile.tempdir)
    sweep.sweep(output, os.stat(tempfile.tempdir).st_mtime)


def _remove_half(path: str) -> None:
    """Remove an addon that was cut short, by a kill or a full disk, so that the module's body has it built again."""
    if _is_usable(path):
        return
    with locks.flock(f"{path}.lock", LONG_WAIT, until=lambda: _is_usable(path)):  # its builder may be copying
        if not _becomes_usable(path):
            dead = names.private(path, "dead")
            os.rename(path, dead)
            sweep.remove(dead)
            events.record("averted", TORCH_ADDON, f"{path} was cut short; removed")


def _is_usable(path: str) -> bool:
    try:
        return elf.is_whole(path)
    except FileNotFoundError:  # it will be built
        return True


def _becomes_usable(path: str) -> bool:
    """Wait for who may still be copying to a file, another host perhaps, as long as it grows."""
    seen, since = -1, time.monotonic()
    while time.monotonic() - since < UNCHANGED:
        if _is_usable(path):
            return True
        size = len(publish.read(path))
        if size != seen:
            seen, since = size, time.monotonic()
        time.sleep(0.05)
    return False


COLD, WARM, BUSY, UNLOCKABLE, ABSENT, CUT_SHORT = "cold", "warm", "busy", "unlockable", "absent", "cut short"
SOURCE = """
struct Any { int type; unsigned zero; long long value; };
static const char blob[] = {
%s};
extern "C" int __tvm_ffi_add_one(void*, const Any* given, int, Any* result) {
    result->type = 1;
    result->zero = 0;
    result->value = given->value + 1 + 0 * blob[given->value %% sizeof blob];
    return 0;
}
"""  # the calling convention of tvm_ffi, without its headers: quick to compile


def _prepare_build(directory: Path, start: str) -> None:
    (directory / "race.cc").write_text(SOURCE % ("1, 2, 3, 4, 5, 6, 7, 8,\n" * 4000))
    if start == WARM:
        _build(directory, start)


def _build(directory: Path, start: str) -> None:
    from tvm_ffi import cpp

    source, build = str(directory / "race.cc"), str(directory / "build")
    load = getattr(cpp, "load", None)
    if load:
        module = load("race", cpp_files=[source], build_directory=build)
    else:  # before 0.1.2
        module = cpp.load_inline("race", cpp_sources=Path(source).read_text(), build_directory=build)
    if module.get_function("add_one")(41) != 42:
        raise RuntimeError("the module adds wrongly")


def _check_build(directory: Path, start: str) -> None:
    if not elf.is_whole(str(directory / "build" / "race.so")):
        raise RuntimeError("race.so is not whole")


def _prepare_lock(directory: Path, start: str) -> None:
    if start == UNLOCKABLE:
        (directory / "lock").mkdir()


def _lock(directory: Path, start: str) -> None:
    from tvm_ffi.utils.lockfile import FileLock

    def give_up(*_: object) -> None:
        raise TimeoutError("still trying to lock what cannot be locked")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, 1.0 if start == UNLOCKABLE else 60.0)
    try:
        with FileLock(str(directory / "lock")):
            time.sleep(0.001)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _check_lock(directory: Path, start: str) -> None:
    if not (directory / "lock").exists():
        raise RuntimeError("the lock file is gone")


STANDIN = {  # what the addon's builder and its loader ask torch for
    "torch/__init__.py": """
from .torch_version import TorchVersion
from . import version
__version__ = TorchVersion("2.0.0")
compiled_with_cxx11_abi = lambda: True
class Tensor: pass
class cuda:
    is_available = staticmethod(lambda: False)
def __getattr__(name):  # data types and the like
    if name.startswith("__"):
        raise AttributeError(name)
    return name
""",
    "torch/version.py": "cuda = hip = None\n",
    "torch/torch_version.py": "class TorchVersion(str): pass\n",
    "torch/utils/__init__.py": "",
    "torch/utils/cpp_extension.py": """
COMMON_HIP_FLAGS = []
include_paths = lambda *arguments, **options: []
library_paths = lambda *arguments: []
""",
    "addon.c": """
static char blob[4000000] = {1};
unsigned long long TorchDLPackExchangeAPIPtr(void) { return (unsigned long long)blob; }
""",
    "c++": """#!/bin/sh
for last; do :; done
case "$*" in *" -c "*) : > "$last" ;; *) cp "${0%/*}/addon.so" "$last" ;; esac
""",
}


def _prepare_addon(directory: Path, start: str) -> None:
    for name, text in STANDIN.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    (directory / "c++").chmod(0o755)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", "addon.so", "addon.c"], cwd=directory, check=True)
    (directory / "cache").mkdir()
    if start == CUT_SHORT:
        _load_addon(directory, start, {"RACEFIX_DISABLE": "all"})
        (built,) = (directory / "cache").glob(ADDONS)
        os.truncate(built, 1_000_000)


def _load_addon(directory: Path, start: str, environ: Mapping[str, str] | None = None) -> None:
    """Import tvm_ffi in an interpreter of its own: a library that was cut short kills it."""
    program = "import tvm_ffi._optional_torch_c_dlpack as module; assert module._LIB"
    path = os.pathsep.join([str(directory), *filter(None, sys.path)])
    own = {"TVM_FFI_CACHE_DIR": str(directory / "cache"), "CXX": str(directory / "c++"), "PYTHONPATH": path}
    elsewhere = {"TMPDIR": "/dev/shm"} if os.path.isdir("/dev/shm") else {}  # a move from there is a copy
    command = [sys.executable, "-W", "error::UserWarning", "-c", program]
    environ = {**os.environ, **own, **elsewhere, **(environ or {})}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode < 0:
        raise RuntimeError(f"killed by {signal.Signals(-done.returncode).name}")
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])


def _check_addon(directory: Path, start: str) -> None:
    (built,) = (directory / "cache").glob(ADDONS)
    if not elf.is_whole(str(built)):
        raise RuntimeError("the addon is not whole")


def caches() -> tuple[Path, ...]:
    """Return tvm_ffi's cache directory, as its environment sets it."""
    return (Path(_cache()),)


def _target(
    module: str, qualname: str, affected: str, wrapper: Callable[[Any], Any], *signature: str, **options: Any
) -> Target:
    bodies = CODE[f"{module}:{qualname}"]
    return Target(module, qualname, affected, wrapper, bodies=bodies, signature=frozenset(signature), **options)


EXTENSION, LOAD_INLINE = "tvm_ffi.cpp.extension", "tvm_ffi.cpp.load_inline"  # since 0.1.2, and before
LOCKFILE, ADDON = "tvm_ffi.utils.lockfile", "tvm_ffi._optional_torch_c_dlpack"
RETIRE = "when the oldest supported apache-tvm-ffi "

PATCHES = (
    Patch(
        name=BUILD,
        summary="modules are built privately and published whole",
        fault="""\
build_ninja builds in the directory that all processes share, and the result is loaded after the lock was let go. On
another host of a share, or beside the ninja of a parent that was killed, one build writes what another reads: "file
too short", "Module has no function", "final link failed: Stale file handle", or the library of other tools is loaded.
racefix builds in a private directory and publishes that under a name made from all that went in; nothing published is
ever replaced. The build's own name leads to the latest, atomically. What is there already is found without ninja.""",
        upstream=UPSTREAM,
        distributions=DISTRIBUTIONS,
        targets=(
            _target(EXTENSION, "build_ninja", ">=0.1.2", falls_back(BUILD, build_ninja), "build_dir"),
            _target(EXTENSION, "_maybe_write", ">=0.1.2", falls_back(BUILD, maybe_write), "path, content"),
            _target(EXTENSION, "_build_impl", ">=0.1.2", builder),
            _target(LOAD_INLINE, "build_ninja", "==0.1.1", falls_back(BUILD, build_ninja)),
            _target(LOAD_INLINE, "_maybe_write", "==0.1.1", falls_back(BUILD, maybe_write)),
            _target(LOAD_INLINE, "build_inline", "==0.1.1", builder),
        ),
        retire=RETIRE + "builds in private and renames",
        race=Race((COLD, WARM), _prepare_build, _build, _check_build, rounds=10),
        caches=caches,
    ),
    Patch(
        name=LOCK,
        summary="a lock that cannot work is not waited for",
        fault="""\
FileLock takes every error for "somebody has the lock": where locks are not supported, or the cache is read-only, it
tries for ever and says nothing.
racefix waits only as long as somebody holds the lock, with a word after a minute, and goes on without it where it
cannot be had; tvm_ffi.build makes that safe. A call with a timeout is upstream's own.""",
        upstream=UPSTREAM[:1],
        distributions=DISTRIBUTIONS,
        targets=(
            _target(
                LOCKFILE,
                "FileLock.blocking_acquire",
                ">=0.1.0",
                falls_back(LOCK, blocking_acquire),
                "self, timeout, poll_interval",
            ),
        ),
        retire=RETIRE + "tells a lock that is held from one that cannot be had",
        race=Race((BUSY, UNLOCKABLE), _prepare_lock, _lock, _check_lock, rounds=10),
        caches=caches,
    ),
    Patch(
        name=TORCH_ADDON,
        summary="the addon for torch is renamed into place, and half a one removed",
        fault="""\
While tvm_ffi is imported it has a script build an addon for torch. The script copies the result to its final name from
$TMPDIR; importers test for that name without a lock, load what is half copied and die of SIGBUS. What a kill or a full
disk has cut short stays for ever.
racefix lets the script work in the cache directory, so that its last step is a rename, and removes half an addon
before it is looked for.""",
        upstream=UPSTREAM[:1],
        distributions=DISTRIBUTIONS,
        targets=(_target(ADDON, "load_torch_c_dlpack_extension", ">=0.1.1", torch_addon, "", when="before"),),
        retire=RETIRE + "builds the addon beside its final name",
        race=Race((ABSENT, CUT_SHORT), _prepare_addon, _load_addon, _check_addon, rounds=4),
        caches=caches,
    ),
)
