"""Names for what is not published yet: no two processes of any two hosts choose the same."""

from __future__ import annotations

import os
import socket
import uuid

PREFIX = ".racefix-"
"""Begins every name that racefix leaves behind if it is killed, so that leftovers can be recognised."""
GENERATION = f"{PREFIX}gen-"
"""Begins the names of published builds, which outlive their readers: never a leftover."""


def private(beside: str, purpose: str) -> str:
    """Return an unused path in the directory of ``beside``, on its file system, as publishing by rename needs.

    Host name and pid are there for people to read; pids repeat across hosts and host names across containers, so the
    uuid is what makes it unique.
    """
    host = socket.gethostname()[:32].replace(os.sep, "_")
    return os.path.join(os.path.dirname(beside), f"{PREFIX}{purpose}-{host}-{os.getpid()}-{uuid.uuid4().hex}")
