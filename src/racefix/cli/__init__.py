"""The ``racefix`` command: one module per sub-command, each with ``add_to`` and ``run``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from .. import __version__
from . import explain, race, status

COMMANDS = (status, explain, race)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0 all well, 1 something needs attention, 2 wrong usage."""
    parser = argparse.ArgumentParser(
        prog="racefix",
        description="Race-safe versions of the functions that make GPU jobs die at a cold start.",
        epilog="Without a command: status. Exit status: 0 all well, 1 something needs attention, 2 wrong usage.",
    )
    parser.add_argument("--version", action="version", version=f"racefix {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for command in COMMANDS:
        command.add_to(commands)
    options = parser.parse_args(arguments if arguments is not None else sys.argv[1:] or ["status"])
    if not hasattr(options, "run"):
        parser.error("which command?")
    try:
        return int(options.run(options))
    except BrokenPipeError:  # the reader has seen enough: head, less
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
