"""Names that other modules bound by ``from x import f`` before f was replaced."""

from __future__ import annotations

import gc
import sys
from types import CellType, FunctionType, ModuleType

from .patch import Function


def rebind(old: Function, new: Function, package: str = "") -> None:
    """Replace ``old`` by ``new`` wherever it is a module's global, by identity.

    Args:
        old: what the names are bound to.
        new: what they shall be bound to.
        package: only in this top-level package; everywhere if empty.
    """
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType) and (not package or f"{name}.".startswith(f"{package}.")):
            namespace = vars(module)  # never getattr: a lazy module would import things
            for key in [key for key, value in list(namespace.items()) if value is old]:
                namespace[key] = new


def holders(function: Function) -> list[str]:
    """Return what still holds a function outside of module globals: closures, defaults and containers, in words."""
    globals_ = {id(vars(module)) for module in list(sys.modules.values()) if isinstance(module, ModuleType)}
    found = []
    for holder in gc.get_referrers(function):
        if isinstance(holder, CellType):
            found += [f"a closure of {owner}" for owner in _functions(holder)]
        elif isinstance(holder, tuple):
            found += [f"a default of {owner}" for owner in _functions_with_default(holder)]
        elif isinstance(holder, (dict, list, set)) and id(holder) not in globals_ and not _is_ours(holder, function):
            found.append(f"a {type(holder).__name__}")
    return sorted(set(found))


def _functions(cell: CellType) -> list[str]:
    closures = [r for r in gc.get_referrers(cell) if isinstance(r, tuple)]
    owners = [f for c in closures for f in gc.get_referrers(c) if isinstance(f, FunctionType) and f.__closure__ is c]
    return [_name(f) for f in owners if not f.__module__.startswith("racefix")]


def _functions_with_default(defaults: tuple[object, ...]) -> list[str]:
    owners = [f for f in gc.get_referrers(defaults) if isinstance(f, FunctionType) and f.__defaults__ is defaults]
    return [_name(f) for f in owners]


def _is_ours(holder: object, function: Function) -> bool:
    return isinstance(holder, dict) and holder.get("__wrapped__") is function


def _name(function: FunctionType) -> str:
    return f"{function.__module__}:{function.__qualname__}"
