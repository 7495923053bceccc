"""System calls that fail: before their work is done, or after it, as when a server's reply is lost."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from typing import Any

import pytest

REAL = (errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO)
Plan = dict[tuple[str, int], tuple[int, bool]]
"""The n-th use of a call, counted from 1: the errno it fails with, and whether its work is done all the same."""


class Faults:
    """Makes calls of the os module fail by a plan, while ``active``; ``used`` counts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, calls: Iterable[str], plan: Plan) -> None:
        self.plan = plan
        self.used: dict[str, int] = {}
        self.active = False
        for call in calls:
            monkeypatch.setattr(os, call, self.faulty(call, getattr(os, call)))

    def faulty(self, call: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **options: Any) -> Any:
            if not self.active:
                return real(*arguments, **options)
            self.used[call] = self.used.get(call, 0) + 1
            error, done = self.plan.get((call, self.used[call]), (0, False))
            result = real(*arguments, **options) if done or not error else None
            if error:
                raise OSError(error, os.strerror(error), arguments[0])
            return result

        return wrapper
