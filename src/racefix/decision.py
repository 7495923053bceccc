"""Whether a target is patched here, and why or why not."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import Enum
from importlib.machinery import ModuleSpec

from . import code, config, versions
from .code import Code
from .patch import Patch, Target


class State(str, Enum):
    """What became of a target. Listed from the most to the least serious: a patch's state is its worst target's."""

    FAILED = "failed"
    UNKNOWN_CODE = "unknown-code"
    FOREIGN = "foreign"
    APPLIED = "applied"
    READY = "ready"
    DISABLED = "disabled"
    FIXED_UPSTREAM = "fixed-upstream"
    NOT_AFFECTED = "not-affected"
    NOT_INSTALLED = "not-installed"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Decision:
    """A state and the reason for it. ``READY`` means: patch it."""

    state: State
    reason: str


def before_looking(patch: Patch) -> Decision | None:
    """Decide what needs no look at the library: whether the user has turned the patch off."""
    if sys.platform != "linux":
        return Decision(State.DISABLED, "racefix works on Linux only")
    if config.current().is_disabled(patch.name):
        return Decision(State.DISABLED, "named in RACEFIX_DISABLE")
    return None


def by_code(patch: Patch, target: Target, read: Code | None, installed: versions.Installed | None) -> Decision:
    """Decide for a function that exists and that nobody has wrapped.

    A known faulty body is patched at any version and a known fixed one never; only for unknown code do the version
    ranges decide, then its signature, then RACEFIX_FORCE.
    """
    body = target.bodies.get(read.digest) if read else None
    if body and body.verdict != "unread":
        releases = f"the code of {_span(body.releases)}"
        if body.verdict == "fixed":
            return Decision(State.FIXED_UPSTREAM, f"{releases}, which has the fix")
        return Decision(State.READY, releases + (f": {body.remark}" if body.remark else ""))
    version = installed.version if installed else None
    if version and versions.is_fixed(version, target.fixed_in):
        return Decision(State.FIXED_UPSTREAM, f"{version} is at or past {target.fixed_in}")
    if version and not versions.is_affected(version, target.affected):
        return Decision(State.NOT_AFFECTED, f"{version} is not in {target.affected}")
    if read and read.parameters in target.signature:
        return Decision(State.READY, f"takes ({read.parameters}), as the patch expects")
    what = "its code is not one of those recorded" if read else "there is no source to tell its code by"
    if config.current().is_forced(patch.name):
        return Decision(State.READY, f"{what}, but RACEFIX_FORCE names it")
    return Decision(State.UNKNOWN_CODE, f"{what}; RACEFIX_FORCE={patch.name} applies the patch all the same")


def by_source(patch: Patch, target: Target, spec: ModuleSpec | None) -> Decision:
    """Decide from metadata and source alone, for a module that is not executed yet (or whose spec is None: absent)."""
    if decision := before_looking(patch):
        return decision
    installed = versions.installed(patch.distributions)
    if spec is None and installed is None:
        return Decision(State.NOT_INSTALLED, f"no distribution named {' or '.join(patch.distributions)}")
    if spec is None:
        return Decision(State.NOT_AFFECTED, f"this release has no module {target.module}")
    source = code.source_of(spec)
    if code.definitions(source, target.qualname) == []:
        return Decision(State.NOT_AFFECTED, f"this release has no {target.qualname} in {target.module}")
    return by_code(patch, target, code.read(source, target.qualname), installed)


def worst(states: list[State]) -> State:
    """Return the most serious of some states."""
    return min(states, key=list(State).index)


def _span(releases: tuple[str, ...]) -> str:
    return releases[0] if len(releases) == 1 else f"{releases[0]} to {releases[-1]}"
