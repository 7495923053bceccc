"""A function's digest names its code: the same on every Python, for every way of laying it out and documenting it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from racefix import code

FUNCTION = """
def f(a, /, b: int = 1, *rest, c, d=None, **more):
    text = f"{a!r:>{b}} and {rest=}" "joined" f"{c}"
    with open(a) as x, open(b) as y:
        pass
    match c:
        case [1, *others] if others:
            return others
        case {"k": v, **w} | Point(x=0):
            pass
    try:
        return {**more, "k": [*rest], 1.5: 1j, b"x": ...}[a:b, ::2]
    except (OSError, ValueError) as e:
        raise RuntimeError from e
    async def inner(): return [i async for i in x if i] or (yield)
    lambda *, k=1: (n := k)
"""


def read(source: str, qualname: str = "f") -> code.Code:
    found = code.read(dedent(source), qualname)
    assert found
    return found


def test_the_digest_is_the_same_on_every_python() -> None:
    """Recorded once; tox runs this on 3.10 to 3.13, whose syntax trees differ."""
    assert read(FUNCTION).digest == "12d8ddeb76764aee8feb7253c44ad61b0dec0137731f74a76d5d0ad6d3899418"


def test_parameters() -> None:
    assert read(FUNCTION).parameters == "a, /, b, *rest, c, d, **more"
    assert read("def f(): pass").parameters == ""
    assert read("def f(a, *, b): pass").parameters == "a, *, b"


SAME = [
    "def f(x):\n    return x + 1",
    "\n\n# moved\ndef f(x):\n\n    'documented'\n    return (x +\n            1)  # and commented",
    "def f(x): return x + 0x1",
    "if True:\n    def f(x):\n        return x + 1",
    "try:\n    import x\nexcept ImportError:\n    def f(x):\n        return x + 1",
]
OTHER = [
    "def f(x):\n    return x + 2",
    "def f(x):\n    return x + 1.0",
    "def f(y):\n    return y + 1",
    "def f(x=1):\n    return x + 1",
    "def f(x):\n    'documented'\n    'twice'\n    return x + 1",
    "@cache\ndef f(x):\n    return x + 1",
    "async def f(x):\n    return x + 1",
]


@pytest.mark.parametrize("source", SAME)
def test_layout_and_documentation_do_not_count(source: str) -> None:
    assert read(source).digest == read(SAME[0]).digest


@pytest.mark.parametrize("source", OTHER)
def test_code_counts(source: str) -> None:
    assert read(source).digest != read(SAME[0]).digest


def test_strings_that_differ_differ() -> None:
    assert read("def f(): return 'a'").digest != read("def f(): return b'a'").digest
    assert read("def f(): return u'a'").digest == read("def f(): return 'a'").digest
    assert read(r"def f(): return '\ud800'").digest  # a lone surrogate cannot be encoded as it is


def test_methods_and_nested_classes() -> None:
    source = "class A:\n  class B:\n    def f(self): return 1\ndef f(): return 2"
    assert read(source, "A.B.f").parameters == "self"
    assert code.read(source, "A.f") is None


def test_several_definitions_are_told_apart_by_their_line() -> None:
    source = "if x:\n    def f(): return 1\nelse:\n    @g\n    def f(): return 2\n"
    assert len(code.definitions(source, "f") or ()) == 2
    assert code.read(source, "f") is None
    assert code.read(source, "f", line=2) != code.read(source, "f", line=4)
    assert code.read(source, "f", line=3) is None


@pytest.mark.parametrize("source", [None, "", "def f(:", "\0", "def g(): pass"])
def test_no_source_no_code(source: str | None) -> None:
    assert code.read(source, "f") is None


def test_find_imports_nothing(tmp_path: Path) -> None:
    """Regular, nested namespace and broken packages."""
    (tmp_path / "regular" / "space" / "deep").mkdir(parents=True)
    (tmp_path / "regular" / "__init__.py").write_text("raise SystemExit('imported')")
    (tmp_path / "regular" / "space" / "deep" / "module.py").write_text("raise SystemExit('imported')")
    (tmp_path / "regular" / "plain.py").write_text("")
    program = """
        import sys
        before = set(sys.modules)
        from racefix import code
        for name in "regular", "regular.plain", "regular.space.deep.module":
            print(code.find(name).origin)
        for name in "regular.nothing", "regular.plain.nothing", "nothing", "nothing.at.all", "regular.space.nothing.x":
            assert code.find(name) is None, name
        assert not [name for name in sys.modules if name.startswith("regular")]
    """
    done = subprocess.run(
        [sys.executable, "-c", dedent(program)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert [Path(line).name for line in done.stdout.split()] == ["__init__.py", "plain.py", "module.py"]
