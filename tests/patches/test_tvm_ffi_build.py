"""tvm_ffi.build on the real releases: the original still fails; what racefix builds is whole, one's own, and kept."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from racefix import elf
from racefix.fs import names
from racefix.race import Plan, measure
from racefix_patches import tvm_ffi as patches
from tests.nfslab.fixtures import Laboratory
from tests.patches import hosts
from tests.patches.conftest import Release
from tests.support import FULL, Environment, python, run, site_packages

FIRST, OLD, NEWEST = "0.1.1", "0.1.9", "0.1.15.post2"
BETWEEN = ("0.1.2", "0.1.3", "0.1.4", "0.1.5", "0.1.6", "0.1.7", "0.1.8.post2")
LATER = ("0.1.10", "0.1.11", "0.1.12", "0.1.13.post3", "0.1.14.post1")
RELEASES = (FIRST, *BETWEEN, OLD, *LATER, NEWEST)
SOME = RELEASES if FULL else (FIRST, "0.1.3", OLD, NEWEST)
RACED = (OLD, NEWEST)
BUILD = next(patch for patch in patches.PATCHES if patch.name == "tvm_ffi.build")
COMPILER = """#!/bin/sh
# A compiler that says what it does, and that stops in the middle of linking if it is told to.
echo "$@" >> "$LOG"
if [ -n "$STOP" ] && [ "$1" != -MMD ]; then
    for last; do :; done
    head -c 5000 "$(command -v c++)" > "$last"
    touch "$STOP.stopped"
    while [ -e "$STOP" ]; do sleep 0.01; done
fi
exec c++ "$@"
"""
PRELUDE = """
import json, os, sys, time
from pathlib import Path
from tvm_ffi import cpp, load_module
here, build = Path(os.environ["HERE"]), Path(os.environ["HERE"]) / "build"
def load(**options):
    return cpp.load("race", cpp_files=[str(here / "race.cc")], build_directory=str(build), **options)
def path(**options):
    return Path(cpp.build("race", cpp_files=[str(here / "race.cc")], build_directory=str(build), **options))
def call(module, number=41):
    return module.get_function("add_one")(number)
"""


class Project:
    """A module's source, its build directory, a compiler that counts, and programs that build there."""

    def __init__(self, directory: Path, release: Path) -> None:
        self.directory, self.release = directory, release
        self.build = directory / "build"
        self.log = directory / "compiler.log"
        (directory / "cxx").write_text(COMPILER)
        (directory / "cxx").chmod(0o755)
        BUILD.race.prepare(directory, "cold")
        self.source = directory / "race.cc"

    @property
    def env(self) -> dict[str, str]:
        own = {"HERE": str(self.directory), "LOG": str(self.log), "CXX": str(self.directory / "cxx")}
        return {**own, "TMPDIR": os.environ["TMPDIR"], "TVM_FFI_CACHE_DIR": str(self.directory / "cache")}

    def run(self, program: str, check: bool = True, **env: str) -> subprocess.CompletedProcess[str]:
        code = PRELUDE + textwrap.dedent(program)
        return python(code, path=[self.release], env={**self.env, **env}, check=check)

    def start(self, program: str, **env: str) -> subprocess.Popen[str]:
        environ = {**os.environ, **self.env, "PYTHONPATH": str(self.release), **env}
        command = [sys.executable, "-c", PRELUDE + textwrap.dedent(program)]
        return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True, start_new_session=True)

    def compiled(self) -> int:
        """How many sources were compiled so far."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return sum(" -c " in line for line in lines)

    def generations(self) -> list[Path]:
        return [path for path in self.build.iterdir() if path.name.startswith(names.GENERATION)]

    def left_over(self) -> list[str]:
        return [
            path.name
            for path in self.build.iterdir()
            if path.name.startswith(names.PREFIX) and not path.name.startswith(names.GENERATION)
        ]


@pytest.fixture
def project(tmp_path: Path, tvm_ffi: Release) -> Callable[[str], Project]:
    numbers = itertools.count()

    def make(release: str = NEWEST) -> Project:
        directory = tmp_path / f"project{next(numbers)}"
        directory.mkdir()
        return Project(directory, tvm_ffi(release))

    return make


STATES = """
import json, racefix, sys, tvm_ffi, tvm_ffi.cpp
patches = [patch for patch in racefix.status().patches if patch.library == "tvm_ffi"]
print(json.dumps({patch.name: sorted({target.state for target in patch.targets}) for patch in patches}))
"""


@pytest.mark.parametrize("release", SOME)
def test_states_of_the_releases(release: str, tvm_ffi: Release) -> None:
    done = python(STATES, path=[tvm_ffi(release)])
    assert json.loads(done.stdout) == {
        "tvm_ffi.build": ["applied", "not-affected"],
        "tvm_ffi.lock": ["applied"],
        "tvm_ffi.torch_addon": ["applied"],
    }
    assert "racefix" not in done.stderr
    off = json.loads(python(STATES, path=[tvm_ffi(release)], env={"RACEFIX_DISABLE": "tvm_ffi.build"}).stdout)
    assert off["tvm_ffi.build"] == ["disabled"]
    assert off["tvm_ffi.lock"] == ["applied"]


def test_every_release_is_on_record() -> None:
    """A release that was looked at has either the code on record or none: none is left to its version alone."""
    file = json.loads(Path(patches.__file__).with_suffix(".json").read_text())
    known = {
        release for bodies in file["functions"].values() for body in bodies.values() for release in body["releases"]
    }
    assert set(RELEASES) <= known
    for target in BUILD.targets:
        assert {body.verdict for body in target.bodies.values()} == {"faulty"}


INLINE = """
    from tvm_ffi import cpp
    options = dict(cpp_sources="int add_one(int x) { return x + 1; }", functions=["add_one"])
    paths = {cpp.build_inline("inline", **options) for _ in range(3)}
    assert cpp.load_inline("inline", **options).get_function("add_one")(41) == 42
    print(*paths)
"""


@pytest.mark.parametrize("release", SOME)
def test_an_inline_module_in_the_default_directory(release: str, project: Callable[[str], Project]) -> None:
    made = project(release)
    (path,) = made.run(INLINE).stdout.split()
    assert made.compiled() == 1
    assert Path(path).parent.name.startswith(names.GENERATION)
    assert os.path.samefile(path, Path(path).parent.parent / "inline.so")
    assert made.run(INLINE, PATH="/nowhere").stdout.split() == [path]
    assert made.compiled() == 1


POLL = """
    from racefix import elf
    seen = set()
    while not (here / "stop").exists():
        if (build / "race.so").is_file():
            try:
                seen.add(call(load_module(str(build / "race.so"))) == 42)
            except Exception as error:
                seen.add(type(error).__name__)
            break
    print(*seen)
"""


@pytest.mark.parametrize("release", RACED)
@pytest.mark.parametrize("racefix", [False, True])
def test_who_looks_for_the_library_without_a_lock(
    racefix: bool, release: str, project: Callable[[str], Project]
) -> None:
    """As sglang 0.5.14 does: deterministic, since the linker stops halfway."""
    made = project(release)
    stop = made.directory / "stop-linking"
    stop.touch()
    off = "" if racefix else "all"
    builder = made.start("print(call(load()))", STOP=str(stop), RACEFIX_DISABLE=off)
    wait_for(stop.with_name("stop-linking.stopped"))
    reader = made.start(POLL, RACEFIX_DISABLE=off)
    time.sleep(1.0)
    stop.unlink()
    assert builder.communicate()[0].split() == ["42"]
    assert reader.communicate()[0].split() == (["True"] if racefix else ["RuntimeError"])


@pytest.mark.parametrize("release", RACED)
def test_hosts_whose_locks_end_at_the_host(release: str, tmp_path: Path, tvm_ffi: Release) -> None:
    """Eight processes, each a host of its own, on one coherent file system."""
    rounds = 10 if FULL else 4
    environ = {"PYTHONPATH": str(tvm_ffi(release))}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environ.items():
            patch.setenv(name, value)
        plan = Plan("tvm_ffi.build", str(tmp_path), patched=8, rounds=rounds, node_local=True)
        assert measure(plan).with_.failed == 0
        without = measure(Plan("tvm_ffi.build", str(tmp_path), 0, rounds=10, starts=("cold",), node_local=True)).without
        assert without.failed > 0
        mixed = measure(Plan("tvm_ffi.build", str(tmp_path), 4, rounds=rounds, node_local=True))
        assert mixed.with_.failed == 0


FAULTS: dict[str, dict[str, Any]] = {
    "late names, stale handles": {"ac": 3, "ac_reg": 3},
    "lost replies": {"ac": 30, "ac_reg": 30, "replay": 0.3, "seed": 5},
    "all together": {"ac": 30, "ac_reg": 30, "replay": 0.3, "failed_rename": "hidden", "clock_skew": 3600, "seed": 9},
}


@pytest.mark.parametrize("release", RACED)
@pytest.mark.parametrize("fault", FAULTS)
def test_two_hosts_of_a_share(
    fault: str, release: str, laboratory: Laboratory, tvm_ffi: Release, tmp_path: Path
) -> None:
    share = laboratory(hosts=2, locks="local", **FAULTS[fault])
    rounds = 30 if FULL else 6
    result = hosts.race(share, BUILD.race, BUILD.name, "cold", rounds, tvm_ffi(release), tmp_path)
    assert result == hosts.Failures()


@pytest.mark.parametrize("release", RACED)
def test_two_hosts_of_a_share_without_racefix(
    release: str, laboratory: Laboratory, tvm_ffi: Release, tmp_path: Path
) -> None:
    share = laboratory(hosts=2, locks="local")
    half = (True, False) * 2
    result = hosts.race(share, BUILD.race, BUILD.name, "cold", 20, tvm_ffi(release), tmp_path / "no", (False,) * 4)
    assert result.without
    share = laboratory(hosts=2, locks="local")
    result = hosts.race(share, BUILD.race, BUILD.name, "cold", 10, tvm_ffi(release), tmp_path / "half", half)
    assert not result.with_racefix


TOOLCHAIN = """
    import fcntl
    fcntl.flock = lambda file, operation: None
    for number in range(3):
        module = cpp.load("race", cpp_files=[str(here / "tools.cc")], build_directory=str(here / f"build{number}"))
        print(module.get_function("add_one")(0), end=" ")
"""


def test_two_toolchains_in_one_directory(project: Callable[[str], Project]) -> None:
    """Each loads its own build, though no lock keeps them apart and the directory's name says nothing of them."""
    made = project(NEWEST)
    source = made.source.read_text().replace("given->value + 1", "KIND")
    (made.directory / "tools.cc").write_text(source)
    started = {kind: [made.start(TOOLCHAIN, CXX=f"c++ -DKIND={kind}") for _ in range(3)] for kind in (1, 2)}
    for kind, processes in started.items():
        for process in processes:
            assert process.communicate()[0].split() == [str(kind)] * 3
    for number in range(3):
        assert len(list((made.directory / f"build{number}").glob(f"{names.GENERATION}*"))) == 2


def test_a_header_edit_while_others_load(project: Callable[[str], Project]) -> None:
    """Each loads what the header said when it asked; what is mapped already stays mapped and whole."""
    made = project(NEWEST)
    header = made.directory / "kind.h"
    made.source.write_text('#include "kind.h"\n' + made.source.read_text().replace("given->value + 1", "KIND"))
    mapped: list[subprocess.Popen[str]] = []
    for kind in range(1, 5):
        header.write_text(f"#define KIND {kind}\n")
        program = """
            module = load()
            print(call(module), flush=True)
            time.sleep(1)
            print(call(module), call(load_module(str(build / "race.so"))) > 0)
        """
        mapped += [made.start(program) for _ in range(2)]
        for process in mapped[-2:]:
            assert process.stdout
            assert process.stdout.readline().split() == [str(kind)]
    for number, process in enumerate(mapped):
        assert process.communicate()[0].split() == [str(number // 2 + 1), "True"]
    assert made.compiled() == len(made.generations()) == 4
    header.write_text("#define KIND 1\n")
    assert made.run("print(call(load()))").stdout.split() == ["1"]
    assert made.compiled() == 4, "the first generation holds again"


def test_the_same_bytes_with_other_times_are_no_reason_to_build(project: Callable[[str], Project]) -> None:
    made = project(NEWEST)
    made.run("load()")
    os.utime(made.source)
    later = time.time() + 5
    os.utime(made.source, (later, later))
    assert made.run("print(call(load()))").stdout.split() == ["42"]
    assert made.compiled() == 1


def test_only_what_has_changed_is_compiled(project: Callable[[str], Project]) -> None:
    """As ninja does in the shared directory: the objects of the last generation serve again."""
    made = project(NEWEST)
    for number in range(3):
        (made.directory / f"part{number}.cc").write_text(f'extern "C" int part{number}() {{ return 1; }}\n')
    program = """
        import ctypes
        parts = [str(here / f"part{number}.cc") for number in range(3)]
        library = ctypes.CDLL(cpp.build("parts", cpp_files=parts, build_directory=str(build)))
        print(*(getattr(library, f"part{number}")() for number in range(3)))
    """
    assert made.run(program).stdout.split() == ["1", "1", "1"]
    (made.directory / "part1.cc").write_text('extern "C" int part1() { return 2; }\n')
    assert made.run(program).stdout.split() == ["1", "2", "1"]
    assert made.compiled() == 4


@pytest.mark.parametrize("release", SOME[1:])
def test_a_cache_that_was_warm_before_racefix_came(release: str, project: Callable[[str], Project]) -> None:
    made = project(release)
    made.run("load()", RACEFIX_DISABLE="all")
    before = (made.build / "race.so").stat().st_ino
    path = made.run("print(path())").stdout.strip()
    assert made.compiled() == 1
    assert Path(path).stat().st_ino == (made.build / "race.so").stat().st_ino == before
    made.source.write_text(made.source.read_text().replace("+ 1 +", "+ 2 +"))
    assert made.run("print(call(load()))").stdout.split() == ["43"]
    assert before in {file.stat().st_ino for file in made.build.glob(f"{names.GENERATION}*/race.so")}


def test_half_a_library_from_before_is_not_adopted(project: Callable[[str], Project]) -> None:
    made = project(NEWEST)
    made.run("load()", RACEFIX_DISABLE="all")
    old = made.build / "race.so"
    times = old.stat()
    os.truncate(old, 5000)
    os.utime(old, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert made.run("print(call(load()))").stdout.split() == ["42"]
    assert elf.is_whole(str(old))


def test_a_stale_library_from_before_lives_on_for_who_has_it_mapped(project: Callable[[str], Project]) -> None:
    made = project(NEWEST)
    made.run("load()", RACEFIX_DISABLE="all")
    before = (made.build / "race.so").stat().st_ino
    made.source.write_text(made.source.read_text().replace("+ 1 +", "+ 2 +"))
    assert made.run("print(call(load()))").stdout.split() == ["43"]
    assert (made.build / "race.so").stat().st_ino != before
    assert before in {file.stat().st_ino for file in made.build.glob(f"{names.GENERATION}*/race.so")}


def test_going_back_to_upstream_is_no_worse_than_before(project: Callable[[str], Project]) -> None:
    made = project(NEWEST)
    made.run("load()")
    assert made.run("print(call(load()))", RACEFIX_DISABLE="all").stdout.split() == ["42"]
    assert made.run("print(call(load()))").stdout.split() == ["42"]


OPTIONS = """
    (here / "kind.h").write_text("#define KIND 7\\n")
    build.mkdir()
    (build / "include").mkdir()
    (build / "include" / "relative.h").write_text("#define RELATIVE 5\\n")
    (here / "up.h").write_text("#define UP 3\\n")
    (here / "options.cc").write_text(Path(here / "race.cc").read_text().replace("given->value + 1", "SUM"))
    flags = ["-Iinclude", "-include relative.h", "-include ../up.h"][:int(os.environ["FLAGS"])]
    words = ["RELATIVE", "RELATIVE", "RELATIVE + UP"][int(os.environ["FLAGS"]) - 1]
    cpp_files = [str(here / "options.cc")]
    module = cpp.load("options", cpp_files=cpp_files, build_directory=str(build),
                      extra_cflags=[*flags, f"-DSUM='({words})'"])
    print(module.get_function("add_one")(0))
"""


@pytest.mark.parametrize(("flags", "expected", "own"), [(2, "5", 1), (3, "8", 0)])
def test_relative_flags(flags: int, expected: str, own: int, project: Callable[[str], Project]) -> None:
    """What lies in the build directory is found from a private one too; a path out of it is left to the original."""
    made = project(NEWEST)
    done = made.run(OPTIONS, FLAGS=str(flags))
    assert done.stdout.split() == [expected]
    assert len(made.generations()) == own
    assert ("fell-back" in done.stderr) == (not own)


def test_an_object_as_output(project: Callable[[str], Project]) -> None:
    made = project(NEWEST)
    program = """
        found = path(output="race.o")
        assert found.name == "race.o"
        print(found, (build / "race.o").read_bytes() == found.read_bytes(), os.path.samefile(found, build / "race.o"))
    """
    for _ in range(2):
        _found, equal, same = made.run(program).stdout.split()
        assert (equal, same) == ("True", "False"), "an unpatched peer's cp would write through a link"
    assert made.compiled() == 1


def test_an_output_elsewhere_is_left_to_the_original(project: Callable[[str], Project]) -> None:
    made = project(NEWEST)
    elsewhere = made.directory / "elsewhere.so"
    for off in ("", "all"):
        made.run("path(output=str(here / 'elsewhere.so'))", RACEFIX_DISABLE=off)
        assert elf.is_whole(str(elsewhere))
        elsewhere.unlink()


def test_an_error_in_the_source_comes_in_upstreams_words(project: Callable[[str], Project]) -> None:
    made = project(NEWEST)
    made.source.write_text("int broken = ;\n")
    program = """
        try:
            load()
        except Exception as error:
            print(type(error).__name__, error)
    """
    theirs = made.run(program, RACEFIX_DISABLE="all").stdout
    ours = made.run(program).stdout
    assert theirs.startswith("RuntimeError ninja exited with status 1")
    assert ours == theirs
    assert made.compiled() == 2
    assert not made.left_over()


def test_the_options_of_the_environment(project: Callable[[str], Project]) -> None:
    made = project(NEWEST)
    (made.directory / "bin").mkdir()
    ninja = made.directory / "bin" / "ninja"
    (real,) = run("sh", "-c", "command -v ninja").stdout.split()
    ninja.write_text(f'#!/bin/sh\necho "$@" >> {made.directory}/ninja.log\nexec {real} "$@"\n')
    ninja.chmod(0o755)
    program = "import logging\nlogging.basicConfig(level='INFO')\nload()"
    env = {"PATH": f"{ninja.parent}{os.pathsep}{os.environ['PATH']}", "MAX_JOBS": "3"}
    done = python(
        PRELUDE + program, path=[made.release], env={**made.env, **env, "TVM_FFI_CPP_EXTENSION_LOG_BUILD": "1"}
    )
    assert "ninja build stdout" in done.stderr
    assert (made.directory / "ninja.log").read_text().splitlines()[0] == "-v -j 3"


def test_cubins_are_this_calls_own(project: Callable[[str], Project]) -> None:
    """The names in the directory are shared; what is embedded comes from the call, and is a part of the key."""
    made = project(NEWEST)
    program = """
        import hashlib
        from tvm_ffi.cpp import extension
        for text in (b"one", b"two", b"one"):
            try:
                extension.build_inline("cubins", cpp_sources="int one(int x) { return x; }", functions=["one"],
                                       embed_cubin={"kernel": text}, build_directory=str(build))
            except RuntimeError as error:
                print(str(error)[-300:])
            kept = {file.read_bytes() for file in build.glob(".racefix-gen-*/kernel.cubin")}
            print(*sorted(kept))
    """
    assert made.run(program).stdout.splitlines()[-1] == "b'one' b'two'"
    assert made.compiled() == 2


def test_a_directory_that_cannot_be_written(laboratory: Laboratory, project: Callable[[str], Project]) -> None:
    """A baked image: warm with racefix or from before, it loads; nothing is made and nothing hangs."""
    made = project(NEWEST)
    for off in ("all", ""):
        made.run("load()", RACEFIX_DISABLE=off)
        program = PRELUDE + "\nprint(call(load()))"
        command = ["unshare", "--mount", "sh", "-c", 'mount --bind -o ro "$0" "$0" && exec "$@"', str(made.build)]
        environ = {**made.env, "PYTHONPATH": str(made.release)}
        assert run(*command, sys.executable, "-c", program, path=[made.release], env=environ).stdout.split() == ["42"]
    assert made.compiled() == 1


LONG = """
    import racefix_patches.tvm_ffi as patches
    patches.LONG_WAIT = 0.2
    print(call(load()))
"""


def test_one_compile_on_a_host_however_long_it_takes(project: Callable[[str], Project]) -> None:
    made = project(NEWEST)
    stop = made.directory / "stop-linking"
    stop.touch()
    processes = [made.start(LONG, STOP=str(stop)) for _ in range(4)]
    time.sleep(2)
    stop.unlink()
    assert [process.communicate()[0].split() for process in processes] == [["42"]] * 4
    assert made.compiled() == len(made.generations()) == 1


def test_one_compile_on_a_host_whose_locks_are_unknown_to_upstream(project: Callable[[str], Project]) -> None:
    """Where upstream's own lock does not work, a lock on this host's own disk and a lease keep the builders apart."""
    made = project(NEWEST)
    program = """
        import errno, fcntl, os
        flock = fcntl.flock
        def no_locks(file, operation):
            if os.readlink(f"/proc/self/fd/{file}").startswith(str(here / "build")):
                raise OSError(errno.ENOLCK, "No locks available")
            flock(file, operation)
        fcntl.flock = no_locks
        print(call(load()))
    """
    processes = [made.start(program) for _ in range(6)]
    assert [process.communicate()[0].split() for process in processes] == [["42"]] * 6
    assert made.compiled() == 1


@pytest.mark.parametrize("victim", ["python", "ninja", "compiler", "group"])
def test_killed_at_any_moment(victim: str, project: Callable[[str], Project]) -> None:
    """The start after a kill succeeds, the one after that compiles nothing, and leftovers go when they are old."""
    made = project(NEWEST)
    chance = random.Random(victim)
    survived = 0
    for number in range(25 if FULL else 4):
        made.source.write_text(made.source.read_text() + f"// {number}\n")
        process = made.start("load()")
        time.sleep(0.15 + chance.random() * 0.5)
        kill(victim, process)
        process.communicate()
        survived += process.returncode == 0
        assert made.run("print(call(load()))").stdout.split() == ["42"]
        count = made.compiled()
        assert made.run("print(call(load()))").stdout.split() == ["42"]
        assert made.compiled() == count
        assert elf.is_whole(str(made.build / "race.so"))
    time.sleep(1)  # what a killed parent has left running is done
    for name in made.left_over():
        os.utime(made.build / name, (1, 1))
    made.source.write_text(made.source.read_text() + "// the last\n")
    made.run("load()")
    assert not made.left_over()


def kill(victim: str, process: subprocess.Popen[str]) -> None:
    if victim == "group":
        os.killpg(process.pid, signal.SIGKILL)
    elif victim == "python":
        process.kill()
    else:
        names = {"ninja": ["ninja"], "compiler": ["cc1plus", "as", "ld", "collect2"]}[victim]
        subprocess.run(["pkill", "-KILL", "-g", str(process.pid), "-x", "|".join(names)], check=False)


def wait_for(path: Path, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < until, f"{path} does not come"
        time.sleep(0.01)


def test_a_fresh_environment_in_which_racefix_was_installed_and_nothing_else_done(
    tvm_ffi: Release, environment: Environment, wheel: Path, tmp_path: Path
) -> None:
    fresh = environment(wheel)
    (here,) = (path for path in map(Path, sys.path) if (path / "typing_extensions.py").exists())
    (site_packages(fresh) / "zz_libraries.pth").write_text(f"{tvm_ffi(NEWEST)}\n{here}\n")
    BUILD.race.prepare(tmp_path, "cold")
    program = PRELUDE + "print(path().parent.name, call(load()))"
    generation, result = python(program, executable=fresh, env={"HERE": str(tmp_path)}).stdout.split()
    assert (generation.startswith(names.GENERATION), result) == (True, "42")


def test_the_command_on_the_real_library(tvm_ffi: Release, tmp_path: Path) -> None:
    command = (sys.executable, "-m", "racefix", "race", "--patch", "tvm_ffi.build", "--dir", tmp_path, "--json")
    rows = json.loads(run(*command, "--rounds", "2", path=[tvm_ffi(NEWEST)]).stdout)
    assert [(row["with"]["failed"], row["with"]["calls"]) for row in rows] == [(0, 8 * 2 * 2)] * 2
