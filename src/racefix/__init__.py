"""Race-safe versions of the functions that make GPU jobs die at a cold start.

This module is imported by every Python process of an environment that has racefix, because the start-up file
imports ``racefix._startup``. It therefore loads nothing: each public name is fetched when it is first used.
"""

TYPE_CHECKING = False  # typing is not imported at interpreter start; type checkers know this name
if TYPE_CHECKING:
    from .engine import apply as apply
    from .engine import remove as remove
    from .overview import status as status
    from .patch import Patch as Patch
    from .patch import Target as Target

__version__ = "0.1.0"

_HOME = {"apply": "engine", "remove": "engine", "status": "overview", "Patch": "patch", "Target": "patch"}

__all__ = ["Patch", "Target", "__version__", "apply", "remove", "status"]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
