"""Apply the patches to the modules they name, and take them back.

The start-up file calls ``before_body`` and ``after_body`` around the execution of a target module; ``apply`` serves
processes in which no start-up file runs. No lock is held while a module is imported or a patch's code runs.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from inspect import getattr_static
from types import ModuleType

from wrapt import apply_patch, resolve_path

from . import _startup, code, config, events, once, rebind, registry, versions
from .decision import Decision, State, before_looking, by_code, by_source
from .patch import Function, Patch, Target

RECORDED = frozenset({State.APPLIED, State.UNKNOWN_CODE, State.FAILED})


@dataclass(frozen=True)
class _Site:
    """A function that is replaced: where, by what, and what was there."""

    parent: object
    attribute: str
    original: Function
    wrapper: Function


_lock = threading.RLock()  # guards the two tables and the exchange of an attribute, nothing else
_sites: dict[str, _Site] = {}
_decisions: dict[tuple[str, str], Decision] = {}


def before_body(module: ModuleType) -> None:
    """Prepare what a module's body is about to do. Called when the module is created and not yet executed."""
    for patch, target in _of(module):
        if target.when == "before":
            prepare = partial(target.wrapper, module)
            _carry_out(patch, target, partial(by_source, patch, target, module.__spec__), prepare)


def after_body(module: ModuleType) -> None:
    """Patch a module whose body has just run, before any importer binds its names."""
    for patch, target in _of(module):
        if target.when == "after":
            _patch(patch, target, module)


def apply() -> None:
    """Apply every patch, to modules imported already and to those to come; again does no harm.

    For processes in which no start-up file runs: ``python -S``, zipped and frozen applications, a directory on
    PYTHONPATH. Once a process; with the spawn and forkserver methods in each child too, at module level. By-name
    copies in the library's own modules are exchanged; what still holds the original is part of the reason on record.
    """
    _startup.install("apply")
    for patch in registry.patches():
        for target in patch.targets:
            _startup.watch(target.module)
            module = sys.modules.get(target.module)
            if module is None:
                continue
            if target.when == "after":
                _patch(patch, target, module, late=True)
            elif (patch.name, str(target)) not in _decisions:
                _carry_out(patch, target, partial(by_source, patch, target, module.__spec__), _too_late)


def remove() -> None:
    """Put every original back and stop following imports. A function that was wrapped once more keeps its wrapper."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder) is not _startup.Finder]
    _startup.activation = "none"
    with _lock:
        for name, site in _sites.items():
            if _current(site.parent, site.attribute) is site.wrapper:
                apply_patch(site.parent, site.attribute, site.original)
            else:
                events.warn(f"{name} has been wrapped by somebody else since; it still goes through racefix")
            rebind.rebind(site.wrapper, site.original)
        _sites.clear()
        _decisions.clear()


def decision(patch: Patch, target: Target) -> Decision:
    """Return what was decided in this process, or what would be if the target's module were imported now."""
    if settled := _decisions.get((patch.name, str(target))):
        return settled
    module = sys.modules.get(target.module)
    if module is None or target.when == "before":
        return by_source(patch, target, code.find(target.module))
    try:
        return _by_function(patch, target, module, resolve_path(module, target.qualname)[2])
    except AttributeError:
        return Decision(State.NOT_AFFECTED, f"there is no {target.qualname} in it")


def _of(module: ModuleType) -> Iterator[tuple[Patch, Target]]:
    name = module.__spec__.name if module.__spec__ else module.__name__
    return ((patch, target) for patch in registry.patches() for target in patch.targets if target.module == name)


def _by_function(patch: Patch, target: Target, module: ModuleType, function: object) -> Decision:
    if decision := before_looking(patch):
        return decision
    if not code.is_own(function, module):
        return Decision(State.FOREIGN, "somebody else has wrapped it")
    line = function.__code__.co_firstlineno  # type: ignore[attr-defined]
    read = code.read(code.source_of(module.__spec__), target.qualname, line)
    return by_code(patch, target, read, versions.installed(patch.distributions))


def _patch(patch: Patch, target: Target, module: ModuleType, late: bool = False) -> None:
    try:
        parent, attribute, original = resolve_path(module, target.qualname)
    except AttributeError:
        if not (late and getattr(module.__spec__, "_initializing", False)):  # in the making: after_body comes to it
            _settle(patch, target, Decision(State.NOT_AFFECTED, f"there is no {target.qualname} in it"))
        return
    site = _sites.get(str(target))
    if site and site.wrapper is original:
        return

    def replace() -> str:
        wrapper = target.wrapper(original)
        with _lock:
            if _current(parent, attribute) is not original:
                return ""  # another thread was faster
            apply_patch(parent, attribute, wrapper)
            _sites[str(target)] = _Site(parent, attribute, original, wrapper)
        rebind.rebind(original, wrapper, target.module.partition(".")[0])
        kept = rebind.holders(original) if late else []
        return f"; the original is still held by {', '.join(kept)}" if kept else ""

    _carry_out(patch, target, partial(_by_function, patch, target, module, original), replace)


def _current(parent: object, attribute: str) -> object:
    return getattr_static(parent, attribute, None)


def _too_late() -> None:
    raise RuntimeError("the module ran before racefix was applied, and the fault lies in the module's body")


def _carry_out(patch: Patch, target: Target, decide: Callable[[], Decision], act: Callable[[], object]) -> None:
    """Decide, act, and put on record what came of it. An error leaves the original in place and costs a warning."""
    try:
        decision = decide()
        if decision.state is State.READY:
            remark = act()
            decision = Decision(State.APPLIED, decision.reason + (remark if isinstance(remark, str) else ""))
    except Exception as error:
        _settle(patch, target, Decision(State.FAILED, f"{type(error).__name__}: {error}"))
        if config.current().strict:
            raise
    else:
        _settle(patch, target, decision)


def _settle(patch: Patch, target: Target, decision: Decision) -> None:
    with _lock:
        _decisions[patch.name, str(target)] = decision
    if decision.state in RECORDED:
        found = versions.installed(patch.distributions)
        release = f"{found.distribution} {found.text}" if found else "an unknown release"
        detail = f"{target} of {release}: {decision.reason}"
        quiet = decision.state is State.UNKNOWN_CODE and not once.first(f"{patch.name} {release} {decision.state}")
        events.record(decision.state.value, patch.name, detail, log=not quiet)


def _unlock_child() -> None:
    global _lock
    _lock = threading.RLock()  # the thread that held it was not forked


os.register_at_fork(after_in_child=_unlock_child)
