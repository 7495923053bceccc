"""The rule for a race-safe version that fails: the original takes over, but only before a shared path was changed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from . import config, events
from .fs.trace import Trace
from .patch import Function


class Call(Trace):
    """One call of a patched function: hands the building blocks' events to the patch's counters."""

    def __init__(self, patch: str, original: Function) -> None:
        self.patch = patch
        self._original = original

    def original(self, *args: Any, **kwargs: Any) -> Any:
        """Call the original as a part of the race-safe version. Its error is upstream's answer, so it passes."""
        try:
            return self._original(*args, **kwargs)
        except BaseException:
            self.changing()
            raise

    def tell(self, event: str, detail: str) -> None:
        events.record(event, self.patch, detail)


def falls_back(patch: str, safe: Callable[..., Any]) -> Callable[[Function], Function]:
    """Make a wrapper factory of a race-safe function.

    The wrapper calls ``safe(call, *args, **kwargs)``. If that raises before ``call.changing()`` was said, the
    original is called once in its place, so a real error comes in upstream's own words; later errors pass, and so
    does every BaseException. With RACEFIX_STRICT=1 the first error passes.

    Args:
        patch: the patch's name, for the record.
        safe: the race-safe version; its first argument is the ``Call``.
    """

    def factory(original: Function) -> Function:
        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            call = Call(patch, original)
            try:
                return safe(call, *args, **kwargs)
            except Exception as error:
                if call.changed or config.current().strict:
                    raise
                failure = f"{type(error).__name__}: {error}"
            served = False
            try:
                result = original(*args, **kwargs)
                served = True
                return result
            finally:  # where the original fails too, its error says enough
                events.record("fell-back", patch, f"{original.__qualname__} after {failure}", log=served)

        return wrapper

    return factory
