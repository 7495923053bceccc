"""What a patch is: one fault of one library, the functions that have it, and their race-safe versions."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal

Function = Callable[..., Any]


@dataclass(frozen=True)
class Body:
    """One body that a function has had upstream.

    ``verdict`` is a maintainer's, after reading it: "faulty" (has the race), "fixed" (does not), or "unread".
    """

    verdict: Literal["faulty", "fixed", "unread"]
    releases: tuple[str, ...]
    parameters: str
    remark: str = ""


Bodies = Mapping[str, Body]
"""The bodies of one function by their digest (``racefix.code``)."""


def recorded(package: str, name: str) -> Mapping[str, Bodies]:
    """Read ``<name>.json`` of ``package``: by ``module:qualname``, the bodies that each function has had.

    The file is written by ``patches/record.py``; a function that is not in it yet has no bodies. Raises OSError or
    ValueError if it is missing or malformed.
    """
    data = json.loads(resources.files(package).joinpath(f"{name}.json").read_text("utf-8"))
    functions: dict[str, Bodies] = defaultdict(dict)
    for function, bodies in data["functions"].items():
        functions[function] = {
            digest: Body(body["verdict"], tuple(body["releases"]), body["parameters"], body["remark"])
            for digest, body in bodies.items()
        }
    return functions


@dataclass(frozen=True)
class Target:
    """One function that has the fault, and how to replace it.

    Args:
        module: the module that defines the function; the patch is applied when that module is executed.
        qualname: its name there, dotted for a method.
        affected: the releases that have the fault, as a version specifier (PEP 440), ``">=0.6.7.post1"``.
        wrapper: takes the original and returns a race-safe function: a plain closure with ``functools.wraps``.
            With ``when="before"`` it takes the module, not yet executed, and its result is not used.
        fixed_in: the first release without the fault, or None as long as there is none.
        when: "after" the module's body ran, or "before" it, for a fault inside the body.
        bodies: what the function's code has been, for a wrapper that replaces the original.
        signature: parameter lists (``"link, target"``) that a wrapper which calls the original can serve.
    """

    module: str
    qualname: str
    affected: str
    wrapper: Callable[[Any], Any]
    fixed_in: str | None = None
    when: Literal["after", "before"] = "after"
    bodies: Bodies = field(default_factory=dict)
    signature: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.module}:{self.qualname}"


@dataclass(frozen=True)
class Race:
    """A small real race over the patched functions, for the tests and for ``racefix race``.

    Args:
        starts: names of the states of the disk from which a round starts.
        prepare: called with a directory and a start by one process, before each round.
        run: called with the same by all processes at once, right after a barrier. What it raises is a failure.
        check: called with the same by one process after each round. What it raises is a failure.
        rounds: how many rounds from each start show the fault in about a minute.
    """

    starts: tuple[str, ...]
    prepare: Callable[[Path, str], None]
    run: Callable[[Path, str], None]
    check: Callable[[Path, str], None]
    rounds: int = 100


@dataclass(frozen=True)
class Patch:
    """One fault of one library.

    Args:
        name: ``library.fault``; what RACEFIX_DISABLE and the commands call it.
        summary: one line: what is made safe.
        fault: a few sentences: what goes wrong, and what racefix does instead.
        upstream: links to reports and fixes.
        distributions: names under which the library is installed; the first installed one counts.
        targets: the functions that have the fault.
        retire: one sentence: when this patch can be deleted.
        race: a small real race that shows the fault.
        caches: returns where the library writes, without importing it.

    Raises:
        ValueError: the name is not of the form ``library.fault``, or there is no target.
    """

    name: str
    summary: str
    fault: str
    upstream: tuple[str, ...]
    distributions: tuple[str, ...]
    targets: tuple[Target, ...]
    retire: str
    race: Race
    caches: Callable[[], tuple[Path, ...]]

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9_]+\.[a-z0-9_]+", self.name):
            raise ValueError(f"a patch is named library.fault, in lower case: {self.name!r}")
        if not self.targets or not self.distributions:
            raise ValueError(f"patch {self.name}: needs at least one target and one distribution")

    @property
    def library(self) -> str:
        """The library's name: the first half of the patch's."""
        return self.name.partition(".")[0]
