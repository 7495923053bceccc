"""Installed and nothing else done: active in every process of the environment, and gone when it is removed."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.support import ROOT, Environment, coldlib, python, run, site_packages

ACTIVE = "import sys; print(sum(type(f).__module__ == 'racefix._startup' for f in sys.meta_path))"
WATCH = "import racefix._startup; racefix._startup.watch('coldlib.cache')\n"
# What the start-up file of a third party's patches does; site runs it after racefix's.


def finders(executable: Path, *options: str, env: dict[str, str] | None = None) -> int:
    return int(python(ACTIVE, *options, executable=executable, env=env).stdout)


@pytest.mark.parametrize("options", [(), ("-I",), ("-E",), ("-s",), ("-P",), ("-O",), ("-X", "utf8")])
def test_one_finder_in_every_interpreter(options: tuple[str, ...], installed: Path) -> None:
    """One, although a virtual environment runs the lines of a .pth file twice (CPython issue 75723)."""
    if options == ("-P",) and sys.version_info < (3, 11):
        pytest.skip("python -P came with 3.11")
    assert finders(installed, *options) == 1


def test_no_finder_without_site_or_with_disable_all(installed: Path) -> None:
    assert finders(installed, "-S") == 0
    for value in ("all", "x, all", "flashinfer all"):
        assert finders(installed, env={"RACEFIX_DISABLE": value}) == 0
    assert finders(installed, env={"RACEFIX_DISABLE": "flashinfer"}) == 1


def test_start_imports_two_modules_and_no_more(installed: Path, environment: Environment) -> None:
    """Beside the codec with which Python 3.13 reads any .pth file."""
    program = "import sys; print(*sorted(sys.modules))"
    with_racefix = set(python(program, executable=installed).stdout.split())
    bare = environment()
    (site_packages(bare) / "empty.pth").write_text("# nothing\n")
    without = set(python(program, executable=bare).stdout.split())
    assert with_racefix - without == {"racefix", "racefix._startup"}


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_are_active(method: str, installed: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"""
import multiprocessing, sys
def child():
    from coldlib.cache import make
    print(make("x", ""), sum(type(f).__module__ == "racefix._startup" for f in sys.meta_path))
{WATCH}
if __name__ == "__main__":
    process = multiprocessing.get_context("{method}").Process(target=child)
    process.start()
    process.join()
""")
    assert run(installed, program, path=[coldlib(tmp_path / "site")]).stdout.split() == ["safe", "1"]


def test_status_names_the_start_up_file(installed: Path) -> None:
    status = json.loads(run(installed.with_name("racefix"), "status", "--json").stdout)
    assert (status["active"], status["activation"]) == (True, "pth")


@pytest.mark.parametrize("way", ["editable", "sdist"])
def test_other_ways_to_install_are_active_too(way: str, environment: Environment, tmp_path: Path) -> None:
    if way == "editable":
        what: tuple[object, ...] = ("--editable", ROOT)
    else:
        builder = environment("build", "hatchling")
        run(builder, "-m", "build", "--sdist", "--no-isolation", "--outdir", tmp_path, ROOT)
        what = tuple(tmp_path.glob("*.tar.gz"))
    executable = environment(*what)
    assert finders(executable) == 1
    assert python("import racefix_patches.flashinfer, racefix; racefix.apply()", executable=executable).stderr == ""
    run(executable, "-m", "pip", "uninstall", "--quiet", "--yes", "racefix")
    assert finders(executable) == 0


def test_uninstall_leaves_nothing(environment: Environment, wheel: Path) -> None:
    executable = environment(wheel)
    python("import racefix; racefix.apply()", executable=executable, env={"PYTHONDONTWRITEBYTECODE": ""})
    run(executable, "-m", "pip", "uninstall", "--quiet", "--yes", "racefix")
    assert [path.name for path in site_packages(executable).iterdir() if "racefix" in path.name] == []
    assert python("", executable=executable).stderr == ""


def breakable(installed: Path, tmp_path: Path) -> Path:
    """A copy of the environment's packages that a test may damage, in a tree whose .pth files site reads."""
    copy = tmp_path / "lib"
    shutil.copytree(site_packages(installed), copy, ignore=shutil.ignore_patterns("pip*", "setuptools*"))
    return copy


def start(copy: Path, program: str, env: dict[str, str] | None = None) -> tuple[str, str]:
    """Run a program in an interpreter that reads the start-up files of ``copy`` as site does."""
    begin = f"import site; site.addsitedir({str(copy)!r})\n"
    done = python(begin + program, "-S", path=[copy.parent / "site"], env=env)
    return done.stdout, done.stderr


IMPORT = f"{WATCH}import coldlib.cache; print(coldlib.cache.make.__name__, hasattr(coldlib.cache.make, '__wrapped__'))"


def test_the_copy_works_before_it_is_damaged(installed: Path, tmp_path: Path) -> None:
    coldlib(tmp_path / "site")
    assert start(breakable(installed, tmp_path), IMPORT) == ("make True\n", "")


@pytest.mark.parametrize(
    "damage",
    [
        "racefix/engine.py",
        "racefix/patch.py",
        "racefix/fs/lookup.py",
        "racefix_patches/__init__.py",
        "racefix_patches/flashinfer.json",
        "wrapt",
        "packaging",
        "importlib_metadata",
    ],
)
def test_half_a_racefix_costs_one_warning_and_no_import(damage: str, installed: Path, tmp_path: Path) -> None:
    coldlib(tmp_path / "site")
    (tmp_path / "site" / "coldlib" / "second.py").write_text("from .cache import make")
    copy = breakable(installed, tmp_path)
    if (copy / damage).is_dir():
        shutil.rmtree(copy / damage)
    else:
        (copy / damage).unlink()
    again = "racefix._startup.watch('coldlib.second'); import coldlib.second"
    out, err = start(copy, f"{IMPORT}\n{again}")
    assert out == "make False\n"
    assert err.count("racefix is inactive in this process") == 1
    assert len(err.splitlines()) == 1
    assert start(copy, f"{IMPORT}\n{again}", {"RACEFIX_LOG": "off"}) == ("make False\n", "")


@pytest.mark.parametrize("broken", ["raise RuntimeError('broken')", "import no_such_module", "", "raise SystemError"])
def test_a_broken_wrapt_costs_one_warning_and_no_import(broken: str, installed: Path, tmp_path: Path) -> None:
    coldlib(tmp_path / "site")
    (tmp_path / "site" / "wrapt.py").write_text(broken)
    out, err = start(breakable(installed, tmp_path), IMPORT)
    assert out == "make False\n"
    assert (err.count("racefix is inactive"), len(err.splitlines())) == (1, 1)


@pytest.mark.parametrize("damage", ["racefix/_startup.py", "racefix/__init__.py", "racefix"])
def test_python_starts_without_the_start_up_module(damage: str, installed: Path, tmp_path: Path) -> None:
    copy = breakable(installed, tmp_path)
    if (copy / damage).is_dir():
        shutil.rmtree(copy / damage)
    else:
        (copy / damage).unlink()
    assert start(copy, "print('started')")[0] == "started\n"


def test_strict_raises_what_is_broken(installed: Path, tmp_path: Path) -> None:
    coldlib(tmp_path / "site")
    copy = breakable(installed, tmp_path)
    (copy / "racefix" / "engine.py").unlink()
    with pytest.raises(AssertionError, match=r"No module named 'racefix\.engine'"):
        start(copy, IMPORT, {"RACEFIX_STRICT": "1"})


def test_the_plugin_entry_points_apply(installed: Path) -> None:
    program = """
        import importlib.metadata as metadata
        for group in "vllm.general_plugins", "sglang.srt.plugins":
            (entry,) = metadata.entry_points(group=group, name="racefix")
            entry.load()()
        import racefix; print(racefix.status().activation)
    """
    assert python(program, "-S", executable=installed, path=[site_packages(installed)]).stdout == "apply\n"
