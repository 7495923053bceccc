"""``racefix race``: the real functions, raced without and with racefix."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .. import config, overview, registry
from ..decision import State
from ..fs import mounts
from ..patch import Patch
from ..race import Outcome, Plan, measure
from . import output

AS_HERE, NODE_LOCAL = "as here", "node-local (emulated)"


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to a parser."""
    about = "race the installed libraries' own functions, without and with racefix"
    how = (
        "many processes at a barrier, round after round, once with file locks as they are here, and once as on a share"
        " whose locks end at the host (emulated: each process is a host of its own)."
    )
    parser = commands.add_parser(
        "race",
        help=about,
        description=f"{about.capitalize()}: {how}",
        epilog="Works in a new directory and removes it; existing caches are not touched. Exit status 1 if a call fails"
        " with racefix, or if no affected library is installed.",
    )
    parser.add_argument(
        "--patch", metavar="NAME", action="append", help="race this patch or library only; may be repeated"
    )
    parser.add_argument("--procs", metavar="N", type=_between(2, 256), default=8, help="processes (default: 8)")
    parser.add_argument(
        "--rounds",
        metavar="N",
        type=_between(1, 100_000),
        help="rounds from each start (default: what a minute allows)",
    )
    parser.add_argument(
        "--dir", metavar="DIR", type=_directory, help="where to race (default: where the library's cache is)"
    )
    output.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the races and print both sides; 1 if a call failed with racefix or nothing could be raced."""
    patches = registry.patches()
    names = sorted({name for patch in patches for name in (patch.name, patch.library)})
    for name in options.patch or ():
        if name not in names:
            print(f"racefix: no patch or library {name!r}{config.nearest(name, names)}", file=sys.stderr)
            return 2
    states = {patch.name: patch.state for patch in overview.status().patches}
    wanted = [patch for patch in patches if not options.patch or {patch.name, patch.library} & {*options.patch}]
    there = [patch for patch in wanted if states[patch.name] in (State.READY, State.APPLIED, State.DISABLED)]
    if not there:
        why = ", ".join(f"{patch.name}: {states[patch.name]}" for patch in wanted)
        print(f"racefix: nothing to race: {why}", file=sys.stderr)
        return 1
    try:
        rows = [row for patch in there for row in _race(patch, options)]
    except (OSError, RuntimeError) as error:
        print(f"racefix: {error}", file=sys.stderr)
        return 1
    if options.json:
        output.as_json(rows)
    else:
        _print(rows)
    return int(any(row["with"]["failed"] for row in rows))


def _race(patch: Patch, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    directory = options.dir or _nearest_directory(patch)
    rounds = options.rounds or patch.race.rounds
    for locks in (AS_HERE, NODE_LOCAL):
        outcomes = []
        for patched in (0, options.procs):
            if sys.stderr.isatty():
                print(
                    f"racing {patch.name}, locks {locks}, {'with' if patched else 'without'} racefix …", file=sys.stderr
                )
            plan = Plan(patch.name, directory, patched, options.procs, rounds, node_local=locks is NODE_LOCAL)
            result = measure(plan)
            outcomes.append(_as_dict(result.with_ if patched else result.without))
        yield {
            "patch": patch.name,
            "locks": locks,
            "directory": directory,
            "filesystem": mounts.filesystem(directory),
            "hosts": options.procs if locks is NODE_LOCAL else 1,
            "procs": options.procs,
            "rounds": rounds * len(patch.race.starts),
            "without": outcomes[0],
            "with": outcomes[1],
        }


def _as_dict(outcome: Outcome) -> dict[str, Any]:
    kept = ("calls", "failed", "errors", "builds", "seconds")
    return {key: value for key, value in asdict(outcome).items() if key in kept}


def _print(rows: list[dict[str, Any]]) -> None:
    where = sorted({f"{row['directory']} ({row['filesystem']})" for row in rows})
    print(f"{rows[0]['procs']} processes at a barrier, in {', '.join(where)}\n")
    cells = [
        (
            row["patch"],
            row["locks"],
            side,
            str(sums["calls"]),
            str(sums["failed"]),
            f"{sums['seconds']:.2f}",
            _errors(sums),
        )
        for row in rows
        for side in ("without", "with")
        for sums in [row[side]]
    ]
    styles = [output.BAD if row[side]["failed"] else output.GOOD for row in rows for side in ("without", "with")]
    output.table(("patch", "locks", "racefix", "calls", "failed", "seconds", "errors"), cells, styles)


def _errors(sums: dict[str, Any]) -> str:
    counted = sorted(sums["errors"].items(), key=lambda item: -item[1])
    return ", ".join(f"{count} {error}" for error, count in counted)


def _nearest_directory(patch: Patch) -> str:
    """Return the library's cache directory, or the nearest directory above it that exists."""
    cache = patch.caches()[0]
    return str(next(path for path in (cache, *cache.absolute().parents) if path.is_dir()))


def _directory(text: str) -> str:
    if not os.path.isdir(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a directory")
    if not os.access(text, os.W_OK | os.X_OK):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written to")
    return str(Path(text).absolute())


def _between(least: int, most: int) -> Any:
    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}")
        return value

    return number
