"""The original takes over once, before the first change to a shared path, and never after it."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import pytest

from racefix import config, events
from racefix.fallback import Call, falls_back

calls: list[str] = []


def original(path: str, *, mode: int = 0) -> str:
    """What upstream does."""
    calls.append(path)
    if path == "bad":
        raise PermissionError(13, "upstream's own words", path)
    return f"original {path} {mode}"


def wrap(safe: Any) -> Any:
    calls.clear()
    return falls_back("lib.fault", safe)(original)


def works(call: Call, path: str, *, mode: int = 0) -> str:
    return f"safe {path} {mode}"


def fails_early(call: Call, path: str, *, mode: int = 0) -> str:
    raise OSError("no good")


def fails_late(call: Call, path: str, *, mode: int = 0) -> str:
    call.changing()
    raise OSError(28, "No space left on device", path)


patched = falls_back("lib.fault", works)(original)


def test_the_safe_version_serves() -> None:
    assert wrap(works)("x", mode=3) == "safe x 3"
    assert calls == []


def test_the_wrapper_looks_like_the_original() -> None:
    assert inspect.signature(patched) == inspect.signature(original)
    assert (patched.__doc__, patched.__module__) == (original.__doc__, original.__module__)
    assert inspect.isfunction(patched)


def test_the_wrapper_pickles_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "original", patched)
    assert pickle.loads(pickle.dumps(patched)) is patched


def test_before_a_change_the_original_serves_once_and_it_is_recorded() -> None:
    assert wrap(fails_early)("x") == "original x 0"
    assert calls == ["x"]
    assert events.counts["lib.fault", "fell-back"] == 1


def test_a_real_error_comes_in_upstreams_own_words_and_alone() -> None:
    with pytest.raises(PermissionError, match="upstream's own words") as raised:
        wrap(fails_early)("bad")
    assert raised.value.__context__ is None
    assert calls == ["bad"]
    assert events.counts["lib.fault", "fell-back"] == 1


def test_a_wrong_argument_is_upstreams_error() -> None:
    with pytest.raises(TypeError, match=r"original\(\)"):
        wrap(works)("x", colour=1)


def test_after_a_change_the_error_passes() -> None:
    with pytest.raises(OSError, match="No space left"):
        wrap(fails_late)("x")
    assert calls == []


def test_strict_raises_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RACEFIX_STRICT", "1")
    config.current.cache_clear()
    with pytest.raises(OSError, match="no good"):
        wrap(fails_early)("x")
    assert calls == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_a_base_exception_passes(error: type[BaseException]) -> None:
    def interrupted(call: Call, path: str) -> None:
        raise error

    with pytest.raises(error):
        wrap(interrupted)("x")
    assert calls == []
