"""The RACEFIX_* variables: parsed once, checked, and what was wrong with them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache

LOG_LEVELS = ("off", "warning", "info", "debug")
CACHE_MODES = ("auto", "always", "never")
VARIABLES = ("DISABLE", "FORCE", "LOG", "REPORT", "STRICT", "CACHE")


@dataclass(frozen=True)
class Config:
    """What the user asked for.

    ``disable`` and ``force`` hold names as given; ``report`` is an absolute directory or None; ``problems`` are
    sentences about values that could not be used, each naming its variable.
    """

    disable: tuple[str, ...] = ()
    force: tuple[str, ...] = ()
    log: str = "warning"
    report: str | None = None
    strict: bool = False
    cache: str = "auto"
    problems: tuple[str, ...] = ()

    def is_disabled(self, patch: str) -> bool:
        """Tell whether RACEFIX_DISABLE names this patch, its library, or all."""
        return bool({patch, patch.partition(".")[0], "all"} & set(self.disable))

    def is_forced(self, patch: str) -> bool:
        """Tell whether RACEFIX_FORCE names this patch, its library, or all."""
        return bool({patch, patch.partition(".")[0], "all"} & set(self.force))


def parse(environ: Mapping[str, str]) -> Config:
    """Read the RACEFIX_* variables of an environment. Never raises: what is unusable becomes a problem."""
    problems = [
        f"unknown variable {name}{nearest(name, [f'RACEFIX_{v}' for v in VARIABLES])}"
        for name in sorted(environ)
        if name.startswith("RACEFIX_") and name.removeprefix("RACEFIX_") not in VARIABLES
    ]

    def choice(variable: str, allowed: tuple[str, ...], default: str) -> str:
        value = environ.get(variable, "").strip().lower() or default
        if value in allowed:
            return value
        problems.append(f"{variable}={environ[variable]!r} is none of {', '.join(allowed)}{nearest(value, allowed)}")
        return default

    report = environ.get("RACEFIX_REPORT", "").strip()
    if report and os.path.exists(report) and not os.path.isdir(report):
        problems.append(f"RACEFIX_REPORT={report!r} is not a directory; no report is written")
        report = ""
    return Config(
        disable=_names(environ.get("RACEFIX_DISABLE", "")),
        force=_names(environ.get("RACEFIX_FORCE", "")),
        log=choice("RACEFIX_LOG", LOG_LEVELS, "warning"),
        report=os.path.abspath(report) if report else None,
        strict=choice("RACEFIX_STRICT", ("0", "1"), "0") == "1",
        cache=choice("RACEFIX_CACHE", CACHE_MODES, "auto"),
        problems=tuple(problems),
    )


@cache
def current() -> Config:
    """Return this process's configuration, read from the environment at the first call."""
    return parse(os.environ)


def unknown_names(config: Config, patches: Iterable[str]) -> list[str]:
    """Return a sentence for each name in RACEFIX_DISABLE and RACEFIX_FORCE that no patch or library has."""
    known = sorted({"all", *patches, *(name.partition(".")[0] for name in patches)})
    return [
        f"{variable} names {name!r}, which is no patch or library{nearest(name, known)}"
        for variable, names in (("RACEFIX_DISABLE", config.disable), ("RACEFIX_FORCE", config.force))
        for name in names
        if name not in known
    ]


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean …?"`` for the known name nearest to this one, or nothing if none is near."""
    close = get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else ""


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.replace(",", " ").split())
