"""The commands: what they print, for people and programs, and their exit statuses."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import FAULTY, coldlib, python, run

RACEFIX = (sys.executable, "-m", "racefix")
RACING = """
def _run(directory, start):
    from coldlib import cache
    cache.make(str(directory / "file"), start)

def _check(directory, start):
    if (directory / "file").read_text() != start:
        raise RuntimeError("torn")

def make(call, path, content):
    import os
    try:
        with open(path, "x") as file:
            file.write(content)
    except FileExistsError:
        return False
    return True
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The made-up library with a slow check-then-act, and a patch whose race shows it."""
    site = coldlib(tmp_path, source=FAULTY.replace("    with", "    import time; time.sleep(0.02)\n    with"))
    text = (site / "coldlib_patches.py").read_text()
    text = text.replace('digest = ""', "").replace("def digest(", RACING + "\ndef digest(")
    text = text.replace(repr(FAULTY), repr((site / "coldlib" / "cache.py").read_text()))
    text = text.replace('Race(("nothing",), nothing, nothing, nothing)', 'Race(("one", "two"), nothing, _run, _check)')
    text = text.replace('Path("/nowhere")', f"Path({str(tmp_path / 'cache' / 'deeper')!r})")
    (site / "coldlib_patches.py").write_text(text)
    return site


def test_the_script_and_the_module_are_the_same() -> None:
    script = Path(sys.executable).with_name("racefix")
    assert run(script, "--version").stdout == run(*RACEFIX, "--version").stdout


def test_status_for_programs(site: Path) -> None:
    status = json.loads(run(*RACEFIX, "status", "--json", path=[site]).stdout)
    assert set(status) == {"racefix", "active", "activation", "patches"}
    assert (status["active"], status["activation"]) == (True, "pth")
    patch = next(patch for patch in status["patches"] if patch["name"] == "coldlib.make")
    assert patch == {
        "name": "coldlib.make",
        "library": "coldlib",
        "distribution": "coldlib",
        "installed": "1.0",
        "state": "ready",
        "reason": "the code of 1.0",
        "upstream": ["https://example.org/1"],
        "targets": [
            {
                "target": "coldlib.cache:make",
                "affected": ">=1.0",
                "fixed_in": "3.0",
                "state": "ready",
                "reason": "the code of 1.0",
            }
        ],
    }


def test_status_for_people(site: Path) -> None:
    plain = run(*RACEFIX, path=[site])
    assert plain.returncode == 0
    line = next(line for line in plain.stdout.splitlines() if line.startswith("coldlib.make"))
    assert line.split() == ["coldlib.make", "coldlib", "coldlib", "1.0", ">=1.0", "ready", "the", "code", "of", "1.0"]


@pytest.mark.parametrize(
    ("options", "env", "word"),
    [
        ((), {"RACEFIX_DISABLE": "all"}, "RACEFIX_DISABLE=all"),
        (("-S",), {}, "no start-up file ran"),
    ],
)
def test_status_says_why_racefix_is_inactive(options: tuple[str, ...], env: dict[str, str], word: str) -> None:
    import packaging

    import racefix

    path = [Path(str(module.__file__)).parent.parent for module in (racefix, packaging)]
    path += [Path(str(__import__("racefix_patches").__file__)).parent.parent]
    done = run(sys.executable, *options, "-m", "racefix", env=env, path=path, check=False)
    assert done.returncode == 1
    assert "inactive" in done.stdout
    assert word in done.stdout


def test_status_needs_attention_where_code_is_unknown(site: Path) -> None:
    (site / "coldlib" / "cache.py").write_text("def make(a): pass")
    assert run(*RACEFIX, "status", path=[site], check=False).returncode == 1


def in_terminal(*command: str, env: dict[str, str], columns: int = 160) -> str:
    """Return what a command prints on a terminal."""
    ours, theirs = pty.openpty()
    environ = {k: v for k, v in os.environ.items() if not k.startswith("RACEFIX_")}
    environ |= {"COLUMNS": str(columns), "TERM": "xterm-256color", **env}
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environ) as process:
        os.close(theirs)
        printed = b""
        try:
            while chunk := os.read(ours, 65536):
                printed += chunk
        except OSError:  # the other side is closed
            pass
    os.close(ours)
    assert process.returncode in (0, 1)
    return printed.decode()


def test_a_terminal_gets_colour_unless_it_does_not_want_it(site: Path) -> None:
    pytest.importorskip("rich")
    coloured = in_terminal(*RACEFIX, env={"PYTHONPATH": str(site)})
    assert "\x1b[" in coloured
    assert "─" in coloured
    plain = in_terminal(*RACEFIX, env={"PYTHONPATH": str(site), "NO_COLOR": "1"})
    assert "\x1b[32m" not in plain


def test_a_terminal_without_rich_gets_plain_columns(site: Path) -> None:
    (site / "rich.py").write_text("raise ImportError('not here')")
    printed = in_terminal(*RACEFIX, env={"PYTHONPATH": str(site)})
    assert "\x1b[" not in printed
    assert "coldlib.make" in printed


def test_explain(site: Path) -> None:
    printed = run(*RACEFIX, "explain", "coldlib.make", path=[site]).stdout
    for word in ("It looks before it leaps.", "RACEFIX_DISABLE=coldlib.make", "when 3.0 is the oldest", ">=1.0", "3.0"):
        assert word in printed
    (patch,) = json.loads(run(*RACEFIX, "explain", "coldlib", "--json", path=[site]).stdout)
    assert patch["name"] == "coldlib.make"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("explain", "coldlib.mak"), "no patch or library 'coldlib.mak'; did you mean coldlib.make?"),
        (("explain",), "required: NAME"),
        (("statsu",), "invalid choice: 'statsu'"),
        (("race", "--procs", "1"), "'1' is not a whole number from 2 to 256"),
        (("race", "--rounds", "many"), "'many' is not a whole number"),
        (("race", "--dir", "/no/such/place"), "'/no/such/place' is not a directory"),
        (("race", "--patch", "coldlb"), "no patch or library 'coldlb'; did you mean coldlib?"),
    ],
)
def test_wrong_usage_is_a_clear_error(arguments: tuple[str, ...], message: str, site: Path) -> None:
    done = run(*RACEFIX, *arguments, path=[site], check=False)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def race(site: Path, *options: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    options = ("--patch", "coldlib", "--procs", "3", "--rounds", "2", *options)
    return run(*RACEFIX, "race", *options, path=[site], check=check)


def test_race_for_programs(site: Path, tmp_path: Path) -> None:
    as_here, node_local = json.loads(race(site, "--json").stdout)
    assert (as_here["locks"], as_here["hosts"]) == ("as here", 1)
    assert (node_local["locks"], node_local["hosts"]) == ("node-local (emulated)", 3)
    for row in (as_here, node_local):
        assert (row["patch"], row["directory"], row["procs"], row["rounds"]) == ("coldlib.make", str(tmp_path), 3, 4)
        assert row["filesystem"] != "unknown"
        assert set(row["without"]) == set(row["with"]) == {"calls", "failed", "errors", "builds", "seconds"}
        assert row["without"]["calls"] == row["with"]["calls"] == 12
        assert row["without"]["failed"] == row["without"]["errors"]["FileExistsError EEXIST"] == 8
        assert (row["with"]["failed"], row["with"]["errors"]) == (0, {})


def test_race_for_people_in_a_directory_that_is_left_as_it_was(site: Path, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    printed = race(site, "--dir", str(tmp_path / "here")).stdout
    assert [line.split()[:6] for line in printed.splitlines() if line.startswith("coldlib.make")][0:2] == [
        ["coldlib.make", "as", "here", "without", "12", "8"],
        ["coldlib.make", "as", "here", "with", "12", "0"],
    ]
    assert os.listdir(tmp_path / "here") == []


def test_race_fails_where_racefix_does(site: Path) -> None:
    text = (site / "coldlib_patches.py").read_text()
    (site / "coldlib_patches.py").write_text(
        text.replace("        return False\n", "        call.changing()\n        raise\n")
    )
    done = race(site, check=False)
    assert done.returncode == 1
    assert "FileExistsError EEXIST" in done.stdout


def test_an_interrupted_race_leaves_the_directory_as_it_was(site: Path, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    command = (*RACEFIX, "race", "--patch", "coldlib", "--rounds", "100000", "--dir", str(tmp_path / "here"))
    with subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(site)}, start_new_session=True) as process:
        while process.poll() is None and not list((tmp_path / "here").glob("*/round*")):
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(30) == 130
    for _ in range(100):  # the interpreter that raced ends on its own
        if os.listdir(tmp_path / "here") == []:
            return
        time.sleep(0.1)
    raise AssertionError(os.listdir(tmp_path / "here"))


def test_race_says_when_there_is_nothing_to_race(site: Path) -> None:
    (site / "coldlib-1.0.dist-info").rename(site / "gone")
    (site / "coldlib").rename(site / "gone too")
    done = race(site, check=False)
    assert done.returncode == 1
    assert "nothing to race: coldlib.make: not-installed" in done.stderr


def test_race_says_when_the_library_does_not_import(site: Path) -> None:
    (site / "coldlib" / "__init__.py").write_text("raise ImportError('no GPU here')")
    done = race(site, check=False)
    assert done.returncode == 1
    assert "no GPU here" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    done = run("bash", "-c", f"{sys.executable} -m racefix explain flashinfer | head -1; exit ${{PIPESTATUS[0]}}")
    assert (done.returncode, done.stderr) == (0, "")


def test_status_is_quick_and_imports_no_library(site: Path) -> None:
    program = (
        "import sys, racefix; racefix.status(); print([m for m in sys.modules if m in ('torch', 'rich', 'coldlib')])"
    )
    assert python(program, path=[site]).stdout.strip() == "[]"
