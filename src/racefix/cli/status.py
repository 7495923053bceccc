"""``racefix status``: what is patched here, and why or why not."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from .. import _startup, config, overview
from ..decision import State
from . import output

STYLES = {
    State.APPLIED: output.GOOD,
    State.READY: output.GOOD,
    State.FAILED: output.BAD,
    State.UNKNOWN_CODE: output.BAD,
    State.FOREIGN: output.BAD,
}
ATTENTION = frozenset({State.FAILED, State.UNKNOWN_CODE, State.FOREIGN})
SWITCHED_ON_BY = {
    "pth": "the start-up file racefix_startup.pth",
    "start": "the start-up file racefix_startup.start",
    "apply": "racefix.apply()",
}


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to a parser."""
    about = "show what is patched here, and why or why not"
    parser = commands.add_parser("status", help=about, description=about.capitalize() + ". Imports no library.")
    output.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the state of every patch; 1 if racefix is inactive or a patch needs attention."""
    status = overview.status()
    if options.json:
        output.as_json(status.as_dict())
    else:
        where = (
            f"switched on by {SWITCHED_ON_BY[status.activation]}" if status.active else f"inactive: {_why_inactive()}"
        )
        print(f"racefix {status.racefix}, {where}\n")
        rows = [row for patch in status.patches for row in _rows(patch)]
        columns = ("patch", "library", "installed", "affected", "state", "reason")
        output.table(columns, [cells for cells, _ in rows], [STYLES.get(state, output.DULL) for _, state in rows])
    return int(not status.active or any(patch.state in ATTENTION for patch in status.patches))


def _rows(patch: overview.PatchStatus) -> Iterator[tuple[tuple[str, ...], State]]:
    """A row for the patch; below it one for each function, where there are several and the library is there."""
    ranges = " or ".join(dict.fromkeys(target.affected for target in patch.targets))
    installed = f"{patch.distribution} {patch.installed}" if patch.distribution else "-"
    alone = len(patch.targets) == 1 or patch.state is State.NOT_INSTALLED
    yield (
        (
            patch.name,
            patch.library,
            installed,
            ranges if alone else "",
            patch.state.value,
            patch.reason if alone else "",
        ),
        patch.state,
    )
    for target in () if alone else patch.targets:
        name = target.target.rpartition(":")[2]
        yield (f"  {name}", "", "", target.affected, target.state.value, target.reason), target.state


def _why_inactive() -> str:
    if _startup.failure:
        return f"its engine does not work ({_startup.failure})"
    if "all" in config.current().disable:
        return "RACEFIX_DISABLE=all"
    if sys.platform != "linux":
        return "it works on Linux only"
    return "no start-up file ran in this interpreter (python -S, or installed where none is read); use racefix.apply()"
