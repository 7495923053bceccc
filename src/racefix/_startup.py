"""What runs at interpreter start: one finder that notices when an affected module is about to be imported.

Imports nothing but sys and os, takes no lock, never raises. The engine is loaded when a target module's body is really
executed; a look-up alone (``importlib.util.find_spec``, a common probe) loads nothing.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The modules that the patches name; tests/startup/test_files.py keeps the two equal.
TARGETS = frozenset([
    "flashinfer.jit.attention.fmha_v2.generate_kernels", "flashinfer.jit.cubin_loader",
    "tvm_ffi._optional_torch_c_dlpack", "tvm_ffi.cpp.extension", "tvm_ffi.cpp.load_inline", "tvm_ffi.utils.lockfile",
])  # fmt: skip
activation = "none"  # what switched racefix on: "pth", "start", "apply" or "none"
failure = ""  # why the engine does not work, if so
_watched = set(TARGETS)
_finding: "set[str]" = set()  # names being looked up; importlib holds its global lock around each finder


class Finder:
    """Asks the other finders for a watched module and sees to it that the engine learns of its execution."""

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        if name not in _watched or name in _finding:
            return None
        _finding.add(name)
        try:
            for finder in [f for f in sys.meta_path if not isinstance(f, Finder) and hasattr(f, "find_spec")]:
                if spec := finder.find_spec(name, path, target):
                    _follow(spec.loader)
                    return spec
        except Exception:  # whatever is wrong, the regular import meets it again and says so in its own words
            return None
        finally:
            _finding.discard(name)


def _follow(loader: "Any") -> None:
    """Shadow exec_module on this one loader; its type stays. Built-in and namespace loaders have no body to follow."""
    loader = getattr(loader, "__wrapped__", loader)  # wrapt's own loader hands attribute writes to the one it wraps
    run = getattr(loader, "exec_module", None)
    if run is None or isinstance(loader, type) or getattr(run, "__module__", "") == __name__:
        return  # nothing to follow, or followed already: a zip's loader is one for all its modules

    def exec_module(module: "Any") -> None:
        _tell("before_body", module)
        run(module)
        _tell("after_body", module)

    loader.exec_module = exec_module


def _tell(step: str, module: "Any") -> None:
    """Hand a watched module to the engine. A broken racefix costs one warning, never the import."""
    global failure
    try:
        if module.__spec__.name in _watched and not failure:
            getattr(__import__("racefix.engine").engine, step)(module)
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
        if os.environ.get("RACEFIX_STRICT") == "1":
            raise
        if os.environ.get("RACEFIX_LOG") != "off":
            __import__("logging").getLogger("racefix").warning("racefix is inactive in this process: %s", failure)


def install(by: str = "") -> None:
    """Put the finder first on sys.meta_path, once; not off Linux, not with RACEFIX_DISABLE=all."""
    global activation
    off = "all" in os.environ.get("RACEFIX_DISABLE", "").replace(",", " ").split()
    if sys.platform == "linux" and not off and not any(type(f) is Finder for f in sys.meta_path):
        sys.meta_path.insert(0, Finder())
        activation = by or ("start" if sys.version_info >= (3, 15) else "pth")


watch = _watched.add  # watch(module): follow it too; for the start-up file of third-party patches
