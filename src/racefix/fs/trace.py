"""What a building block tells its caller while it works."""

from __future__ import annotations


class Trace:
    """Follows one call. This one only remembers whether a shared path was changed; callers override ``tell``.

    Attributes:
        changed: whether this call has, or may have, changed a shared path. Until then a caller may use another way.
    """

    changed = False

    def changing(self) -> None:
        """Say that a shared path was, or may have been, changed."""
        self.changed = True

    def tell(self, event: str, detail: str) -> None:
        """Say what happened: ``averted`` (a peer did it first), ``retried`` (looked again), ``waited``."""
