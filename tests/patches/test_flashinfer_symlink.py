"""flashinfer.symlink on the real releases: the original still fails; the patched function and its peers do not."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from racefix.race import Plan, Result, measure
from tests.nfslab.fixtures import Laboratory
from tests.patches.conftest import Release
from tests.support import FULL, ROUNDS, Environment, python, run, site_packages

UNLOCKED, LOCKED, NEWEST = "0.6.7.post2", "0.6.8", "0.7.4"
RELEASES = (UNLOCKED, LOCKED, NEWEST)
LINK = "flashinfer.jit.cubin_loader:ensure_symlink"
SETUP = "flashinfer.jit.attention.fmha_v2.generate_kernels:_setup_output_directory"
HEADERS = ("link absent", "wrong link", "stale directory")  # the starts that race ensure_symlink
FMHA = ("fmha_v2 cold", "fmha_v2 warm")  # and _setup_output_directory


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own: flashinfer keeps its cache there, and writes to it when it is imported."""
    home = tmp_path / "home"
    home.mkdir()
    for variable in ("HOME", "FLASHINFER_WORKSPACE_BASE", "TMPDIR"):
        monkeypatch.setenv(variable, str(home))
    return home


STATES = """
import flashinfer.jit.cubin_loader, flashinfer.jit.attention
import json, racefix
(patch,) = (patch for patch in racefix.status().patches if patch.name == "flashinfer.symlink")
print(json.dumps([patch.state, {target.target: target.state for target in patch.targets}]))
"""


def states(release: Path, **env: str) -> tuple[str, dict[str, str], str]:
    """Import flashinfer; return the patch's state, those of its targets, and what was written to standard error."""
    done = python(STATES, path=[release], env=env)
    state, targets = json.loads(done.stdout.splitlines()[-1])
    return state, targets, done.stderr


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("release", "link", "setup"),
    [
        ("0.5.3", "not-affected", "not-affected"),
        ("0.6.0", "not-affected", "applied"),
        ("0.6.6", "not-affected", "applied"),
        (UNLOCKED, "applied", "applied"),
        ("0.6.7.post3", "applied", "applied"),
        (LOCKED, "applied", "applied"),
        ("0.6.16", "applied", "applied"),
        (NEWEST, "applied", "applied"),
    ],
)
def test_states_of_the_releases(release: str, link: str, setup: str, flashinfer: Release) -> None:
    state, targets, err = states(flashinfer(release))
    assert (state, targets) == (setup, {LINK: link, SETUP: setup})
    assert "racefix" not in err


@pytest.mark.usefixtures("home")
def test_each_way_to_turn_it_off_brings_the_original_back(flashinfer: Release) -> None:
    for name in ("flashinfer.symlink", "flashinfer"):
        state, targets, _ = states(flashinfer(LOCKED), RACEFIX_DISABLE=name)
        assert {state, *targets.values()} == {"disabled"}
    program = """
        import sys, flashinfer.jit.cubin_loader as loader
        print(hasattr(loader.ensure_symlink, "__wrapped__"), "racefix.engine" in sys.modules)
    """
    for name, expected in (("", "True True"), ("flashinfer", "False True"), ("all", "False False")):
        done = python(program, path=[flashinfer(LOCKED)], env={"RACEFIX_DISABLE": name})
        assert done.stdout.strip() == expected


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("late", [False, True])
def test_every_importer_has_the_patched_function(late: bool, flashinfer: Release) -> None:
    begin = "import os, flashinfer, racefix; del os.environ['RACEFIX_DISABLE']; racefix.apply()" if late else ""
    program = f"""{begin}
import flashinfer, sys
library = {{name: vars(module) for name, module in sys.modules.items() if name.startswith("flashinfer.")}}
held = {{name: names["ensure_symlink"] for name, names in library.items() if "ensure_symlink" in names}}
assert set(held) >= {{"flashinfer.jit.cubin_loader", "flashinfer.jit.fused_moe", "flashinfer.jit.gemm.core"}}, held
print(len(set(held.values())), all(hasattr(function, "__wrapped__") for function in held.values()))
"""
    done = python(program, path=[flashinfer(NEWEST)], env={"RACEFIX_DISABLE": "all"} if late else {})
    assert done.stdout.split() == ["1", "True"]


@pytest.mark.usefixtures("home")
def test_a_release_that_does_not_exist_yet(flashinfer: Release, made_up: Callable[..., Path]) -> None:
    assert states(made_up(flashinfer(LOCKED), "9.9.9"))[0] == "applied"
    unknown = made_up(flashinfer(LOCKED), "9.9.8", r"(    lock_path = str\(link\))", r"    extra = None\n\1")
    state, targets, err = states(unknown, SLURM_JOB_ID="1")
    assert (state, targets) == ("unknown-code", {LINK: "unknown-code", SETUP: "applied"})
    assert err.count("RACEFIX_FORCE=flashinfer.symlink") == 1
    assert "flashinfer-python 9.9.8" in err
    assert "RACEFIX_FORCE" not in states(unknown, SLURM_JOB_ID="1")[2]
    assert states(unknown, SLURM_JOB_ID="1", RACEFIX_FORCE="flashinfer")[0] == "applied"


@pytest.mark.usefixtures("home")
def test_a_function_that_another_tool_has_wrapped(flashinfer: Release, made_up: Callable[..., Path]) -> None:
    tool = "import wrapt\nensure_symlink = wrapt.FunctionWrapper(ensure_symlink, lambda f, _, a, k: f(*a, **k))\n"
    wrapped = made_up(flashinfer(LOCKED), "0.6.8+acme", r"\ndef verify_symlinked", f"\n{tool}\n\ndef verify_symlinked")
    assert states(wrapped)[1] == {LINK: "foreign", SETUP: "applied"}


@pytest.mark.usefixtures("home")
def test_the_recorded_code_is_that_of_the_installed_release(flashinfer: Release) -> None:
    """Each Python reads the same digests from the same files."""
    program = """
        import json, racefix
        (found,) = (patch for patch in racefix.status().patches if patch.name == "flashinfer.symlink")
        print(json.dumps([target.reason for target in found.targets]))
    """
    done = python(program, path=[flashinfer(UNLOCKED)])
    link, setup = json.loads(done.stdout)
    assert link == "the code of 0.6.7.post1 to 0.6.7.post2: three steps, no lock"
    assert setup.startswith("the code of 0.6.0rc1 to ")


# A peer, which on another host does not see our lock, acts right before the step that it spoils. With the real
# functions, in one process: nothing is left to luck.
PEERS = """
import contextlib, os, pathlib, posix, shutil, sys, json
from flashinfer.jit import cubin_loader
from flashinfer.jit.attention.fmha_v2 import generate_kernels

home = pathlib.Path(os.environ["HOME"])
STEPS = {
    "symlink": [(os, "symlink"), (pathlib.Path, "symlink_to")],
    "unlink": [(os, "unlink"), (pathlib.Path, "unlink")],
    "remove the directory": [(shutil, "rmtree"), (os, "rename")],
}

def makes(link, target):
    with contextlib.suppress(FileExistsError):
        posix.symlink(target, link)

def removes(link, target):
    posix.unlink(link)

def replaces(link, target):
    posix.rename(link, link.with_name("gone"))
    posix.symlink(target, link)

@contextlib.contextmanager
def before(step, peer):
    came = []
    def late(real):
        def call(*arguments, **options):
            if not came:
                came.append(True)
                peer()
            return real(*arguments, **options)
        return call
    real = [(owner, name, getattr(owner, name)) for owner, name in STEPS[step]]
    for owner, name, function in real:
        setattr(owner, name, late(function))
    try:
        yield
    finally:
        for owner, name, function in real:
            setattr(owner, name, function)

def outcome(name, step, peer, start):
    directory = home / name
    (directory / "include").mkdir(parents=True)
    target, link = directory / "artifact", directory / "include" / "src"
    target.mkdir()
    if start == "right link":
        link.symlink_to(target)
    elif start == "wrong link":
        link.symlink_to("elsewhere")
    elif start == "directory":
        (link / "inside").mkdir(parents=True)
    with before(step, lambda: peer(link, target)):
        try:
            if name.startswith("fmha_v2"):
                generate_kernels._setup_output_directory(target, link.parent)
            else:
                cubin_loader.ensure_symlink(link, target)
        except OSError as error:
            return type(error).__name__
    return "fine" if os.readlink(link) == str(target) else os.readlink(link)

print(json.dumps({
    "link absent": outcome("link absent", "symlink", makes, ""),
    "wrong link": outcome("wrong link", "symlink", makes, "wrong link"),
    "stale directory": outcome("stale directory", "remove the directory", replaces, "directory"),
    "fmha_v2 cold": outcome("fmha_v2 cold", "symlink", makes, ""),
    "fmha_v2 warm": outcome("fmha_v2 warm", "unlink", removes, "right link"),
}))
"""
DIES_OF = {
    "link absent": "FileExistsError",
    "wrong link": "FileExistsError",
    "stale directory": "OSError",
    "fmha_v2 cold": "FileExistsError",
    "fmha_v2 warm": "FileNotFoundError",
}


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("release", RELEASES)
def test_the_original_still_fails(release: str, flashinfer: Release) -> None:
    """When this goes red for a new release, upstream has mended it and the patch can step back."""
    done = python(PEERS, path=[flashinfer(release)], env={"RACEFIX_DISABLE": "all"})
    assert json.loads(done.stdout.splitlines()[-1]) == DIES_OF


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("release", RELEASES)
def test_the_patched_function_does_not(release: str, flashinfer: Release) -> None:
    done = python(PEERS, path=[flashinfer(release)], env={"RACEFIX_STRICT": "1"})
    assert json.loads(done.stdout.splitlines()[-1]) == dict.fromkeys(DIES_OF, "fine")


REAL_ERRORS = """
import json, os, pathlib
from flashinfer.jit import cubin_loader
from flashinfer.jit.attention.fmha_v2 import generate_kernels

os.chdir(os.environ["HOME"])
pathlib.Path("file").write_text("in the way")
pathlib.Path("gen/src").mkdir(parents=True)

def error(function, *arguments, **options):
    try:
        return function(*arguments, **options)
    except Exception as error:
        return repr(error), str(error), error.__suppress_context__, repr(error.__context__)

print(json.dumps([
    error(cubin_loader.ensure_symlink, "file/link", "target"),
    error(cubin_loader.ensure_symlink, "file/deeper/link", "target"),
    error(cubin_loader.ensure_symlink, "x" * 300, "target"),
    error(cubin_loader.ensure_symlink, b"link", "target"),
    error(cubin_loader.ensure_symlink, "link"),
    error(cubin_loader.ensure_symlink, "link", target="target", lock=1),
    error(generate_kernels._setup_output_directory, pathlib.Path("target"), pathlib.Path("gen")),
    error(generate_kernels._setup_output_directory, pathlib.Path("target"), pathlib.Path("file")),
    error(generate_kernels._setup_output_directory, "target", "gen"),
]))
"""


@pytest.mark.parametrize("release", RELEASES)
def test_real_errors_are_upstreams_own(release: str, flashinfer: Release, home: Path, tmp_path: Path) -> None:
    """A file in the way, a name that is too long, a directory where none is removed, wrong arguments."""
    errors = []
    for name, env in (("without", {"RACEFIX_DISABLE": "all"}), ("with", {})):
        (tmp_path / name).mkdir()
        done = python(REAL_ERRORS, path=[flashinfer(release)], env={**env, "HOME": str(tmp_path / name)})
        errors.append(json.loads(done.stdout.splitlines()[-1].replace(str(tmp_path / name), "HOME")))
        assert (tmp_path / name / "file").read_text() == "in the way"
        assert not list((tmp_path / name).rglob(".racefix-*"))
    without, with_racefix = errors
    assert with_racefix == without
    assert None not in without


def race(release: Path, home: Path, monkeypatch: pytest.MonkeyPatch, patched: int, **options: object) -> Result:
    """Race 8 processes at a barrier, so many of them with racefix."""
    monkeypatch.setenv("PYTHONPATH", str(release))
    return measure(Plan("flashinfer.symlink", str(home), patched, 8, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize("node_local", [False, True])
@pytest.mark.parametrize("release", RELEASES)
def test_no_call_fails_with_racefix(
    release: str, node_local: bool, flashinfer: Release, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RACEFIX_STRICT", "1")
    result = race(flashinfer(release), home, monkeypatch, 8, rounds=ROUNDS, node_local=node_local)
    assert (result.with_.calls, result.with_.errors) == (8 * 5 * ROUNDS, {})
    assert [path.name for path in home.iterdir() if path.name.startswith(".racefix-")] == []


@pytest.mark.parametrize("release", RELEASES)
def test_the_race_shows_the_fault(
    release: str, flashinfer: Release, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its own lock working, upstream's ensure_symlink holds from 0.6.7.post3 on; nothing else does."""
    rounds = ROUNDS // 8
    directory = flashinfer(release)
    as_here = race(directory, home, monkeypatch, 0, rounds=rounds, starts=HEADERS).without
    assert bool(as_here.failed) == (release == UNLOCKED)
    for starts, node_local in ((FMHA, False), (HEADERS, True), (FMHA, True)):
        result = race(directory, home, monkeypatch, 0, rounds=rounds, starts=starts, node_local=node_local)
        assert result.without.failed > 0


@pytest.mark.parametrize("release", [LOCKED, NEWEST])
def test_peers_without_racefix_do_not_fail_where_their_lock_works(
    release: str, flashinfer: Release, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half and half: we take upstream's lock too. Without that, 138 of 1,200 of the peers' calls failed."""
    rounds = ROUNDS if FULL else 50
    result = race(flashinfer(release), home, monkeypatch, 4, rounds=rounds, starts=HEADERS)
    assert (result.with_.calls, result.with_.errors) == (4 * 3 * rounds, {})
    assert (result.without.calls, result.without.errors) == (4 * 3 * rounds, {})


@pytest.mark.parametrize("node_local", [False, True])
@pytest.mark.parametrize("release", RELEASES)
def test_peers_without_racefix_never_make_us_fail(
    release: str, node_local: bool, flashinfer: Release, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half and half where no lock keeps the peers out: they fail among themselves, as before; we do not."""
    starts = FMHA if not node_local and release != UNLOCKED else (*HEADERS, *FMHA)
    result = race(flashinfer(release), home, monkeypatch, 4, rounds=ROUNDS, starts=starts, node_local=node_local)
    assert (result.with_.calls, result.with_.errors) == (4 * len(starts) * ROUNDS, {})


# Each host imports flashinfer once, says that it is ready, and forks when it is told the time of the first round.
ON_A_HOST = """
import json, os, pathlib, sys, time
from flashinfer.jit import cubin_loader
from flashinfer.jit.attention.fmha_v2 import generate_kernels

shared, rounds = pathlib.Path(os.environ["NFSLAB_SHARED"]), int(sys.argv[1])
target = shared / "artifact"
print("ready", flush=True)
begin = float(sys.stdin.readline())

def work():
    failed = 0
    for number in range(rounds):
        include = shared / f"round{number}" / "include"
        name = "src" if number % 4 == 3 else "link"
        os.path.lexists(include / name)
        time.sleep(max(0, begin + number * 0.12 - time.time()))
        try:
            if name == "src":
                generate_kernels._setup_output_directory(target, include)
            else:
                cubin_loader.ensure_symlink(include / name, target)
            failed += os.listdir(include / name) != ["Header.h"]
        except OSError as error:
            failed += 1
    return failed

children = {}
for _ in range(4):
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, str(work()).encode())
        os._exit(0)
    os.close(write)
    children[read] = 0
print(json.dumps([int(os.read(read, 100)) for read in children]), flush=True)
"""


@pytest.mark.parametrize("racefix", [False, True])
def test_two_hosts_of_a_share(racefix: bool, laboratory: Laboratory, flashinfer: Release, tmp_path: Path) -> None:
    """Locks end at the host, names are seen late, handles go stale, and a reply in ten is lost."""
    rounds = 200 if FULL else 40
    share = laboratory(hosts=2, ac=30, ac_reg=30, locks="local", replay=0.1, seed=3)
    (share.backing / "artifact").mkdir()
    (share.backing / "artifact" / "Header.h").touch()
    for number in range(rounds):
        link = share.backing / f"round{number}" / "include" / "link"
        link.parent.mkdir(parents=True)
        if number % 4 == 1:
            link.symlink_to("elsewhere")
        elif number % 4 == 2:
            (link / "inside").mkdir(parents=True)
    processes = []
    for host in share.hosts:
        home = tmp_path / host.name
        home.mkdir()
        env = {variable: str(home) for variable in ("HOME", "TMPDIR", "FLASHINFER_WORKSPACE_BASE")}
        env |= {"PYTHONPATH": str(flashinfer(NEWEST)), "RACEFIX_DISABLE": "" if racefix else "all"}
        command = [sys.executable, "-c", ON_A_HOST, str(rounds)]
        processes.append(
            host.popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        )
    for process in processes:
        assert process.stdout
        while process.stdout.readline() != "ready\n":
            assert process.poll() is None
    begin = time.time() + 1
    printed = [process.communicate(f"{begin}\n", timeout=300)[0] for process in processes]
    failed = [number for output in printed for number in json.loads(output)]
    if racefix:
        assert failed == [0] * 8
    else:
        assert sum(failed) > rounds // 10


def test_a_fresh_environment_in_which_racefix_was_installed_and_nothing_else_done(
    flashinfer: Release, environment: Environment, wheel: Path, home: Path
) -> None:
    """The libraries come from this environment by a path line, behind the fresh one's own packages."""
    fresh = environment(wheel)
    (here,) = (path for path in map(Path, sys.path) if (path / "torch" / "__init__.py").exists())
    (site_packages(fresh) / "zz_libraries.pth").write_text(f"{flashinfer(UNLOCKED)}\n{here}\n")
    program = f"""
        import flashinfer.jit.cubin_loader
        from racefix import race, registry
        (patch,) = (patch for patch in registry.patches() if patch.name == "flashinfer.symlink")
        plan = race.Plan(patch.name, {str(home)!r}, patched=0, procs=8, rounds={ROUNDS})
        print(race.__file__, race.run(plan, patch.race).without.failed)
    """
    where, failed = python(program, executable=fresh).stdout.split()
    assert (Path(where).parent.parent, failed) == (site_packages(fresh), "0")
    _, failed = python(program, executable=fresh, env={"RACEFIX_DISABLE": "flashinfer.symlink"}).stdout.split()
    assert int(failed) > 0


@pytest.mark.usefixtures("home")
def test_the_command_on_the_real_library(flashinfer: Release) -> None:
    command = (sys.executable, "-m", "racefix", "race", "--patch", "flashinfer", "--rounds", "8", "--json")
    as_here, node_local = json.loads(run(*command, path=[flashinfer(NEWEST)]).stdout)
    for row in (as_here, node_local):
        assert row["without"]["failed"] > 0
        assert (row["with"]["failed"], row["with"]["calls"]) == (0, 8 * 8 * 5)


@pytest.mark.usefixtures("home")
def test_torch_compile_runs_the_patched_function(flashinfer: Release) -> None:
    """torch.compile looks through wrapt's proxies at the original; a plain function it takes as it is."""
    program = textwrap.dedent("""
        import os, torch, types
        import flashinfer.jit.cubin_loader as loader
        from racefix import events
        os.chdir(os.environ["HOME"])
        os.mkdir("include")
        os.symlink("elsewhere", "include/link")
        assert type(loader.ensure_symlink) is types.FunctionType
        def f(x):
            loader.ensure_symlink("include/link", "artifact")
            return x + 1
        print(torch.compile(f, backend="eager")(torch.ones(1)).item(), os.readlink("include/link"))
    """)
    assert python(program, path=[flashinfer(LOCKED)]).stdout.split()[-2:] == ["2.0", "artifact"]
