"""The fixture for tests of any folder; tests/conftest.py imports it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from .filesystem import SharedFilesystem

Laboratory = Callable[..., SharedFilesystem]
"""Starts a shared file system with the arguments of ``SharedFilesystem``; it is closed when the test ends."""


@pytest.fixture
def laboratory() -> Iterator[Laboratory]:
    if not SharedFilesystem.available():
        pytest.skip("needs root and /dev/fuse")
    with contextlib.ExitStack() as stack:

        def start(*arguments: Any, **options: Any) -> SharedFilesystem:
            return stack.enter_context(SharedFilesystem(*arguments, **options))

        yield start
