"""The state of every patch in this process: what ``racefix status`` shows and ``racefix.status()`` returns."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from typing import Any

from . import __version__, _startup, engine, registry, versions
from .decision import State, worst
from .patch import Patch, Target


@dataclass(frozen=True)
class TargetStatus:
    """One function of a patch: ``target`` reads ``module:qualname``."""

    target: str
    affected: str
    fixed_in: str | None
    state: State
    reason: str


@dataclass(frozen=True)
class PatchStatus:
    """One patch; ``state`` and ``reason`` are its most serious target's."""

    name: str
    library: str
    distribution: str | None
    installed: str | None
    state: State
    reason: str
    upstream: tuple[str, ...]
    targets: tuple[TargetStatus, ...]


@dataclass(frozen=True)
class Status:
    """This interpreter: racefix's version, whether and by what it is active, and its patches."""

    racefix: str
    active: bool
    activation: str
    patches: tuple[PatchStatus, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain dictionaries, as ``racefix status --json`` prints it."""
        return asdict(self)


def status() -> Status:
    """Return the state of every patch in this process. Imports no affected library."""
    active = any(type(finder) is _startup.Finder for finder in sys.meta_path) and not _startup.failure
    patches = tuple(_patch(patch) for patch in registry.patches())
    return Status(__version__, active, _startup.activation if active else "none", patches)


def _patch(patch: Patch) -> PatchStatus:
    targets = tuple(_target(patch, target) for target in patch.targets)
    state = worst([target.state for target in targets])
    reason = next(target.reason for target in targets if target.state is state)
    found = versions.installed(patch.distributions)
    name, text = (found.distribution, found.text) if found else (None, None)
    return PatchStatus(patch.name, patch.library, name, text, state, reason, patch.upstream, targets)


def _target(patch: Patch, target: Target) -> TargetStatus:
    decided = engine.decision(patch, target)
    return TargetStatus(str(target), target.affected, target.fixed_in, decided.state, decided.reason)
