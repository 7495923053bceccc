"""What happened: counters, log lines, and the lines of RACEFIX_REPORT.

Events are ``applied``, ``averted`` (a peer did it first, and that is no error), ``retried``, ``waited``,
``fell-back`` (the original did the work), ``unknown-code`` and ``failed``.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
import uuid
from collections import Counter
from functools import cache
from typing import TextIO

from . import config

LEVELS = {
    "applied": logging.INFO,
    "averted": logging.INFO,
    "retried": logging.DEBUG,
    "waited": logging.DEBUG,
    "fell-back": logging.WARNING,
    "unknown-code": logging.WARNING,
    "failed": logging.WARNING,
}
RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")

counts: Counter[tuple[str, str]] = Counter()
"""How often each (patch, event) happened in this process."""


def record(event: str, patch: str, detail: str, *, log: bool = True) -> None:
    """Count an event, log it, and append it to this process's report file. Never raises."""
    counts[patch, event] += 1
    if log:
        say(LEVELS[event], f"{patch}: {event}: {detail}")
    if config.current().report:
        _report({"event": event, "patch": patch, "detail": detail})


def warn(message: str) -> None:
    """Log a warning, with host and rank."""
    say(logging.WARNING, message)


def say(level: int, message: str) -> None:
    """Log a message through the ``racefix`` logger, with host and rank, if RACEFIX_LOG lets its level through."""
    wanted = config.current().log
    if wanted == "off" or level < (threshold := getattr(logging, wanted.upper())):
        return
    logger = logging.getLogger("racefix")
    if logger.level == logging.NOTSET:
        logger.setLevel(threshold)
    own = None if logger.hasHandlers() else logging.StreamHandler()  # an application's own set-up is left alone
    if own:
        logger.addHandler(own)
    try:
        logger.log(level, "racefix %s: %s", whereabouts(), message)
    finally:
        if own:
            logger.removeHandler(own)


def whereabouts() -> str:
    """Return host, rank (if a launcher gave one) and pid, for people to read."""
    rank = next((f" rank {os.environ[name]}" for name in RANKS if name in os.environ), "")
    return f"[{socket.gethostname()}{rank} pid {os.getpid()}]"


def _report(event: dict[str, str]) -> None:
    """One file a process and one write a line: lines that several hosts append to one file get lost on NFS."""
    rank = next((os.environ[name] for name in RANKS if name in os.environ), None)
    line = {"time": time.time(), "host": socket.gethostname(), "pid": os.getpid(), "rank": rank, **event}
    directory = config.current().report or os.devnull
    try:
        _report_file(directory, os.getpid()).write(json.dumps(line) + "\n")
    except OSError as error:
        _report_failed(directory, str(error))


@cache
def _report_file(directory: str, pid: int) -> TextIO:
    os.makedirs(directory, exist_ok=True)
    name = f"{socket.gethostname()}-{pid}-{uuid.uuid4().hex}.jsonl"
    return open(os.path.join(directory, name), "x", buffering=1, encoding="utf-8")


@cache
def _report_failed(directory: str, why: str) -> None:
    warn(f"RACEFIX_REPORT={directory!r}: cannot write the report: {why}")


os.register_at_fork(after_in_child=counts.clear)
