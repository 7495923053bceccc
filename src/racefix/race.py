"""Run a patch's small race on the real installed functions: many processes at a barrier, round after round.

``measure`` runs a race in an interpreter of its own, whose program is ``python -m racefix.race``: racefix starts
switched off there, and the processes that shall have it apply it after the fork.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from . import config, engine, node_local, registry
from .fs import names
from .patch import Race

SILENCE = 60.0  # seconds without an answer from any process, after which a race is given up


@dataclass
class Outcome:
    """What a race came to for the processes without, or with, racefix.

    ``errors`` counts failed calls by error; ``rounds_failed`` rounds in which one of these processes failed or the
    result was wrong; ``seconds`` is the time from each barrier to the last call's end, summed up.
    """

    calls: int = 0
    failed: int = 0
    rounds: int = 0
    rounds_failed: int = 0
    builds: int = 0
    seconds: float = 0.0
    errors: dict[str, int] = field(default_factory=dict)

    def fail(self, error: str) -> None:
        """Count a failed call."""
        self.failed += 1
        self.errors[error] = self.errors.get(error, 0) + 1


@dataclass(frozen=True)
class Plan:
    """What to run.

    Args:
        patch: name of the patch.
        directory: an existing directory; the race works in a new directory inside and removes it.
        patched: how many of the processes have racefix.
        procs: how many processes there are.
        rounds: how many rounds from each start.
        starts: names of starts; all of the race's if empty.
        node_local: whether each process's locks are its own, as if each were a host of a share without locks.
    """

    patch: str
    directory: str
    patched: int
    procs: int = 8
    rounds: int = 200
    starts: tuple[str, ...] = ()
    node_local: bool = False


@dataclass(frozen=True)
class Result:
    """The outcomes of a race: of the processes without racefix, and of those with it."""

    without: Outcome
    with_: Outcome


def measure(plan: Plan) -> Result:
    """Run a race in an interpreter of its own.

    Raises:
        RuntimeError: the race could not be run; the message holds what the interpreter said last.
    """
    with tempfile.TemporaryDirectory(prefix="racefix-race-") as scratch:
        file = Path(scratch) / "result.json"
        order = json.dumps({"plan": asdict(plan), "result": str(file)})
        command = [sys.executable, "-m", "racefix.race", order]
        environ = os.environ | {"RACEFIX_DISABLE": "all"}
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        if done.returncode or not file.exists():
            last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
            raise RuntimeError(f"{plan.patch}: the race could not be run: {last[0]}")
        result = json.loads(file.read_text())
        return Result(Outcome(**result["without"]), Outcome(**result["with_"]))


def run(plan: Plan, race: Race) -> Result:
    """Run a race with processes forked from this one, which has the library unpatched.

    Raises:
        TimeoutError: no process answered for SILENCE seconds. All of them are killed.
        ChildProcessError: a process died.
    """
    directory = Path(names.private(os.path.join(plan.directory, "race"), "race"))
    directory.mkdir()
    try:
        _rehearse(plan, race, directory)
        return _run(plan, race, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _rehearse(plan: Plan, race: Race, directory: Path) -> None:
    """Import everything that the processes then share. From some starts the original may fail even alone."""
    starts = plan.starts or race.starts
    failures = []
    for number, start in enumerate(starts):
        with _round(directory, f"rehearsal{number}") as where:
            race.prepare(where, start)
            try:
                race.run(where, start)
                race.check(where, start)
            except Exception as failure:
                failures.append(failure)
    if len(failures) == len(starts):
        raise failures[0]


@contextlib.contextmanager
def _round(directory: Path, name: str) -> Iterator[Path]:
    where = directory / name
    where.mkdir()
    try:
        yield where
    finally:
        shutil.rmtree(where, ignore_errors=True)  # on a share it may resist for a while


def _run(plan: Plan, race: Race, directory: Path) -> Result:
    result = Result(Outcome(), Outcome())
    schedule = [start for start in plan.starts or race.starts for _ in range(plan.rounds)]
    answers: dict[int, Outcome] = {}  # the side of the process that answers through this descriptor
    gates: list[int] = []
    pids: list[int] = []
    try:
        for number in range(plan.procs):
            read, write = os.pipe()
            gate, opener = os.pipe()
            gates.append(opener)
            patched = (number + 1) * plan.patched // plan.procs > number * plan.patched // plan.procs  # every other
            answers[read] = result.with_ if patched else result.without
            pids.append(_fork(partial(_serve, race, plan, directory, schedule, gate, write, patched)))
            os.close(write)
            os.close(gate)
        list(_answers(answers, "the set-up"))
        for number, start in enumerate(schedule):
            with _round(directory, f"round{number}") as where:
                race.prepare(where, start)
                for gate in gates:
                    os.write(gate, b".")
                _collect(answers, race, where, start)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        for descriptor in (*gates, *answers):
            os.close(descriptor)
    return result


def _fork(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return pid


def _serve(race: Race, plan: Plan, directory: Path, schedule: list[str], gate: int, answer: int, patched: bool) -> None:
    """The program of one racing process: a line when it is ready, then for each byte at the gate a call and a line."""
    if plan.node_local:
        node_local.emulate(tempfile.mkdtemp(prefix="host-", dir=directory))
    if patched:
        others = (patch.name for patch in registry.patches() if patch.race is not race)
        os.environ["RACEFIX_DISABLE"] = ",".join(others)  # one fault at a time; and another may be too late here
        config.current.cache_clear()
        engine.apply()
    os.write(answer, b"\n")
    for number, start in enumerate(schedule):
        os.read(gate, 1)
        error = ""
        try:
            race.run(directory / f"round{number}", start)
        except Exception as failure:
            error = describe(failure)
        os.write(answer, f"{error}\n".encode())


def _collect(answers: dict[int, Outcome], race: Race, where: Path, start: str) -> None:
    """Take each process's answer and count it, then check the result."""
    began = time.perf_counter()
    failed: list[Outcome] = []
    for side, error in _answers(answers, start):
        side.calls += 1
        if error:
            side.fail(error)
            failed.append(side)
    seconds = time.perf_counter() - began
    sides = list({id(side): side for side in answers.values()}.values())
    try:
        race.check(where, start)
    except Exception as wrong:
        for side in sides:
            side.fail(f"wrong result: {describe(wrong)}")
        failed += sides
    for side in sides:
        side.rounds += 1
        side.rounds_failed += any(side is other for other in failed)
        side.seconds += seconds


def _answers(answers: dict[int, Outcome], after: str) -> Iterator[tuple[Outcome, str]]:
    """Yield each process's next line, with its side, as it comes."""
    waiting = set(answers)
    while waiting:
        ready, _, _ = select.select(waiting, [], [], SILENCE)
        if not ready:
            raise TimeoutError(f"{len(waiting)} processes gave no answer for {SILENCE:.0f} s, after {after!r}")
        for descriptor in ready:
            line = os.read(descriptor, 4096).decode()
            if not line:
                raise ChildProcessError(f"a racing process died, after {after!r}")
            waiting.discard(descriptor)
            yield answers[descriptor], line.strip()


def describe(error: Exception) -> str:
    """Return an error's type and, for an OSError, its name: texts with paths in them cannot be counted."""
    code = errno.errorcode.get(error.errno or 0, "") if isinstance(error, OSError) else str(error)[:80]
    return " ".join(f"{type(error).__name__} {code}".split())


def _main() -> None:
    order = json.loads(sys.argv[1])
    plan = Plan(**{**order["plan"], "starts": tuple(order["plan"]["starts"])})
    patch = next(patch for patch in registry.patches() if patch.name == plan.patch)
    Path(order["result"]).write_text(json.dumps(asdict(run(plan, patch.race))))


if __name__ == "__main__":
    _main()
