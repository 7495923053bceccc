"""All patches there are: racefix's own and those of third parties (entry points of the group ``racefix.patches``)."""

from __future__ import annotations

from functools import cache

from importlib_metadata import entry_points

from racefix_patches import PATCHES

from . import config, events, once
from .patch import Patch

GROUP = "racefix.patches"


@cache
def patches() -> tuple[Patch, ...]:
    """Return every patch, by name once. An entry point names a Patch or a sequence of them.

    A third party's patch that cannot be loaded, or whose name is taken, is left out with a warning. What is wrong with
    the RACEFIX_* variables is said here too, since the names that they may hold are known now.
    """
    found = {patch.name: patch for patch in PATCHES}
    problems = list(config.current().problems)
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)):
        try:
            loaded = entry.load()
            for patch in (loaded,) if isinstance(loaded, Patch) else tuple(loaded):
                if found.setdefault(patch.name, patch) is not patch:
                    problems.append(f"patch {patch.name} of {entry.value} is left out: there is one of that name")
        except Exception as error:
            problems.append(f"patches of {entry.value} are left out: {type(error).__name__}: {error}")
    for problem in problems + config.unknown_names(config.current(), tuple(found)):
        if once.first(problem):
            events.warn(problem)
    return tuple(found.values())
