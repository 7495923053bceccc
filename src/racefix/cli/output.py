"""How the commands print: JSON, a table by rich on a terminal, plain columns elsewhere and without rich."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

GOOD, BAD, DULL = "green", "bold red", "dim"


def add_json(parser: argparse.ArgumentParser) -> None:
    """Give a command its ``--json`` option."""
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def as_json(value: object) -> None:
    """Print a value as JSON."""
    print(json.dumps(value, indent=2))


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], styles: Sequence[str]) -> None:
    """Print a table.

    Args:
        columns: headings.
        rows: the cells.
        styles: a rich style for each row; only rich shows it.
    """
    if sys.stdout.isatty():
        try:
            from rich.box import SIMPLE_HEAD
            from rich.console import Console
            from rich.table import Table
        except ImportError:
            pass
        else:
            drawn = Table(*columns, box=SIMPLE_HEAD)
            for row, style in zip(rows, styles, strict=True):
                drawn.add_row(*row, style=style)
            Console().print(drawn)
            return
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
    for row in [columns, *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
