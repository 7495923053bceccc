"""``racefix explain NAME``: the fault, its releases, what racefix does instead, and when that ends."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

from .. import config, registry
from ..patch import Patch, Target
from . import output


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to a parser."""
    about = "explain a patch: the fault, the releases that have it, what is done instead"
    parser = commands.add_parser("explain", help=about, description=about.capitalize() + ".")
    parser.add_argument(
        "name", metavar="NAME", help="a patch, such as flashinfer.symlink, or a library: all of its patches"
    )
    output.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print what there is to know about a patch, or about each of a library's."""
    patches = registry.patches()
    chosen = [patch for patch in patches if options.name in (patch.name, patch.library)]
    if not chosen:
        known = sorted({name for patch in patches for name in (patch.name, patch.library)})
        print(f"racefix: no patch or library {options.name!r}{config.nearest(options.name, known)}", file=sys.stderr)
        return 2
    if options.json:
        output.as_json([_as_dict(patch) for patch in chosen])
    else:
        print("\n\n".join("\n".join(_lines(patch)) for patch in chosen))
    return 0


def _as_dict(patch: Patch) -> dict[str, Any]:
    return {
        "name": patch.name,
        "library": patch.library,
        "summary": patch.summary,
        "fault": patch.fault,
        "upstream": patch.upstream,
        "distributions": patch.distributions,
        "retire": patch.retire,
        "disable": f"RACEFIX_DISABLE={patch.name}",
        "caches": [str(path) for path in patch.caches()],
        "targets": [
            {
                "target": str(target),
                "affected": target.affected,
                "fixed_in": target.fixed_in,
                "bodies": {
                    digest: {"verdict": body.verdict, "remark": body.remark, "releases": body.releases}
                    for digest, body in target.bodies.items()
                },
                "signature": sorted(target.signature),
            }
            for target in patch.targets
        ],
    }


def _lines(patch: Patch) -> Iterator[str]:
    yield f"{patch.name}: {patch.summary}"
    yield ""
    yield from textwrap.fill(" ".join(patch.fault.split()), 100).splitlines()
    for target in patch.targets:
        yield ""
        yield f"{target}"
        yield from (f"    {line}" for line in _releases(target))
    yield ""
    yield f"Installed as:  {' or '.join(patch.distributions)}"
    yield f"Turn it off:   RACEFIX_DISABLE={patch.name}"
    yield f"It retires:    {patch.retire}"
    yield f"Caches here:   {', '.join(str(path) for path in patch.caches())}"
    yield "Upstream:      " + "\n               ".join(patch.upstream)


def _releases(target: Target) -> Iterator[str]:
    fixed = f", fixed in {target.fixed_in}" if target.fixed_in else ", no release has a fix"
    yield f"affected {target.affected}{fixed}"
    for body in target.bodies.values():
        span = body.releases[0] if len(body.releases) == 1 else f"{body.releases[0]} to {body.releases[-1]}"
        remark = f": {body.remark}" if body.remark else ""
        yield f"{body.verdict} code in {span} ({len(body.releases)} releases){remark}"
    for parameters in sorted(target.signature):
        yield f"or any code that takes ({parameters})"
