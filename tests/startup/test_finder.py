"""The finder beside everything else that takes part in imports."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tests.support import coldlib, python

BEGIN = """
import sys, racefix._startup
racefix._startup.install()
racefix._startup.watch("coldlib.cache")
def patched():
    import coldlib.cache
    return coldlib.cache.make("x", "") == "safe"
"""


def run(site: Path, program: str) -> list[str]:
    done = python(f"{BEGIN}\n{program}", path=[site])
    assert done.stderr == ""
    return done.stdout.split()


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return coldlib(tmp_path / "site")


def test_a_probe_loads_nothing(site: Path) -> None:
    program = """
import importlib.util
for _ in range(2):
    spec = importlib.util.find_spec("coldlib.cache")
print(type(spec.loader).__name__, *(name in sys.modules for name in ("coldlib.cache", "racefix.engine", "wrapt")))
print(patched())
"""
    assert run(site, program) == ["SourceFileLoader", "False", "False", "False", "True"]


def test_other_modules_are_not_followed(site: Path) -> None:
    assert run(site, "import coldlib.user as u; print('racefix.engine' in sys.modules, u.make('x', ''))") == [
        "True",
        "safe",
    ]
    assert run(site, "import coldlib, json; print('racefix.engine' in sys.modules)") == ["False"]


def test_the_module_keeps_its_loader_and_what_hangs_on_it(site: Path) -> None:
    program = """
import coldlib.cache as c, inspect, pkgutil, importlib.resources, importlib.machinery
print(type(c.__loader__) is importlib.machinery.SourceFileLoader, c.__spec__.loader is c.__loader__)
print("Write a file" in inspect.getsource(c), len(pkgutil.get_data("coldlib", "cache.py")) > 0)
print(importlib.resources.files("coldlib").joinpath("cache.py").is_file())
"""
    assert run(site, program) == ["True"] * 5


def test_reload(site: Path) -> None:
    assert run(site, "import coldlib.cache as c, importlib; importlib.reload(c); print(patched())") == ["True"]


def test_a_lazy_loader(site: Path) -> None:
    program = """
import importlib.util
spec = importlib.util.find_spec("coldlib.cache")
spec.loader = importlib.util.LazyLoader(spec.loader)
module = importlib.util.module_from_spec(spec)
sys.modules["coldlib.cache"] = module
spec.loader.exec_module(module)
print("racefix.engine" in sys.modules)
print(module.make("x", ""), "racefix.engine" in sys.modules)
"""
    assert run(site, program) == ["False", "safe", "True"]


def test_a_zip(site: Path, tmp_path: Path) -> None:
    """One loader serves all modules of a zip: it is followed for the watched ones only, and found again."""
    (site / "coldlib" / "other.py").write_text("")
    with zipfile.ZipFile(tmp_path / "site.zip", "w") as archive:
        for file in site.rglob("*.py"):
            archive.write(file, file.relative_to(site))
        for file in site.glob("*.dist-info/*"):
            archive.write(file, file.relative_to(site))
    program = """
import importlib.util
racefix._startup.watch("coldlib.user")
importlib.util.find_spec("coldlib.cache"), importlib.util.find_spec("coldlib.user")
import coldlib.other
print("racefix.engine" in sys.modules)
print(patched(), type(sys.modules["coldlib.cache"].__loader__).__name__)
import coldlib.user
print(coldlib.user.make("x", ""))
"""
    assert run(tmp_path / "site.zip", program) == ["False", "True", "zipimporter", "safe"]


WRAPT_HOOK = "import wrapt; wrapt.register_post_import_hook(lambda m: seen.append(m.make.__name__), 'coldlib.cache')\n"
FRONT = """
class Front:
    "Asks everybody, itself included, as some finders do."
    busy = False
    def find_spec(self, name, path=None, target=None):
        if self.busy or name != "coldlib.cache":
            return None
        self.busy = True
        try:
            import importlib.util
            return importlib.util.find_spec(name)
        finally:
            self.busy = False
"""
GUARDLESS = """
class Front:
    "Asks every finder but itself, with no guard of its own."
    asked = 0
    def find_spec(self, name, path=None, target=None):
        self.asked += name == "coldlib.cache"
        assert self.asked < 5, "we ask each other for ever"
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(name, path, target)):
                return spec
"""
LEGACY = (
    "class Front:\n    def find_module(self, name, path=None): return None\n    def find_spec(self, *a): return None\n"
)
BARE = "class Front: pass\nimport warnings; warnings.simplefilter('ignore')\nFront.find_spec = lambda *a: None\n"


@pytest.mark.parametrize("finder", [FRONT, GUARDLESS, LEGACY, BARE])
@pytest.mark.parametrize("position", ["0", "1", "len(sys.meta_path)"])
def test_other_finders(finder: str, position: str, site: Path) -> None:
    assert run(site, f"{finder}\nsys.meta_path.insert({position}, Front())\nprint(patched())") == ["True"]


@pytest.mark.parametrize("before", [True, False])
def test_wrapts_own_import_hooks_run_too(before: bool, site: Path) -> None:
    """Its finder stands in front of ours or behind it; its loader wraps the one that we follow."""
    first = "ImportHookFinder" if before else "Finder"
    move = f"sys.meta_path.sort(key=lambda f: type(f).__name__ != {first!r})\n"
    program = f"seen = []\n{WRAPT_HOOK}{move}print(patched(), *seen)"
    assert run(site, program) == ["True", "make"]


def test_a_finder_that_raises_fails_the_import_as_it_would_without_racefix(site: Path) -> None:
    program = """
class Front:
    def find_spec(self, name, path=None, target=None):
        if name == "coldlib.cache":
            raise ImportError("not on my watch")
sys.meta_path.append(Front()); sys.meta_path.insert(1, Front())
try:
    import coldlib.cache
except ImportError as error:
    print(str(error).replace(" ", "_"))
"""
    assert run(site, program) == ["not_on_my_watch"]


def test_a_loader_that_cannot_be_followed_is_left_alone(site: Path) -> None:
    program = """
import importlib.util, importlib.machinery
class Slotted:
    __slots__ = ()
    def create_module(self, spec): return None
    def exec_module(self, module): module.make = lambda path, content: "slotted"
class Front:
    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, Slotted()) if name == "coldlib.cache" else None
sys.meta_path.insert(1, Front())
import coldlib.cache
print(coldlib.cache.make("x", ""), "racefix.engine" in sys.modules)
"""
    assert run(site, program) == ["slotted", "False"]


def test_a_module_that_fails_fails_as_ever_and_works_when_it_does(site: Path) -> None:
    source = (site / "coldlib" / "cache.py").read_text()
    (site / "coldlib" / "cache.py").write_text(f"import os\nif 'BAD' in os.environ: 1 / 0\n{source}")
    program = """
import os
os.environ["BAD"] = "1"
try:
    import coldlib.cache
except ZeroDivisionError:
    print("coldlib.cache" in sys.modules)
del os.environ["BAD"]
print(patched())
"""
    assert run(site, program) == ["False", "True"]


def test_a_slow_probe_in_one_thread_does_not_hide_an_import_in_another(site: Path) -> None:
    program = """
import importlib.util, threading, time
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "coldlib.cache" and threading.current_thread().name == "probe":
            inside.set()
            time.sleep(0.3)
inside = threading.Event()
sys.meta_path.insert(1, Slow())
import coldlib
probe = threading.Thread(target=importlib.util.find_spec, args=("coldlib.cache",), name="probe")
probe.start(); inside.wait()
print(patched())
probe.join()
"""
    assert run(site, program) == ["True"]


def test_names_that_are_not_there_are_still_not_there(site: Path) -> None:
    program = """
racefix._startup.watch("coldlib.missing"); racefix._startup.watch("missing")
for name in "coldlib.missing", "missing":
    try:
        __import__(name)
    except ModuleNotFoundError as error:
        print(error.name)
"""
    assert run(site, program) == ["coldlib.missing", "missing"]


def test_run_module(site: Path) -> None:
    """A module that is run as a program is executed by runpy, not by its loader: the original serves."""
    (site / "coldlib" / "tool.py").write_text("from coldlib.cache import make\nprint(make('x', ''))")
    assert run(site, "import runpy; runpy.run_module('coldlib.tool', run_name='__main__')") == ["safe"]
