"""Run a patch's small race on several emulated hosts at once, with processes forked on each."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from racefix.patch import Race
from tests.nfslab.filesystem import SharedFilesystem

PROGRAM = """
import collections, json, os, pathlib, sys
from racefix import config, events, registry
patch, start, *disabled = sys.argv[1:]
shared = pathlib.Path(os.environ["NFSLAB_SHARED"])
(race_of,) = (found.race for found in registry.patches() if found.name == patch)
children = []
for name in disabled:
    gate, opener = os.pipe()
    result, answer = os.pipe()
    if os.fork() == 0:
        os.close(opener)  # or the end of the others never comes
        for _, other, _ in children:
            os.close(other)
        os.environ["RACEFIX_DISABLE"] = name
        config.current.cache_clear()
        while number := os.read(gate, 8).decode():
            try:
                race_of.run(shared / f"round{number}", start)
                answered = ""
            except Exception as error:
                answered = f"{type(error).__name__}: {error}"[:4000]
            fell_back = sum(count for (_, event), count in events.counts.items() if event == "fell-back")
            os.write(answer, json.dumps([answered, fell_back]).encode())
        os._exit(0)
    os.close(gate)
    os.close(answer)
    children.append((os.getpid(), opener, result))
print("ready", flush=True)
for line in sys.stdin:
    for _, opener, _ in children:
        os.write(opener, line.strip().encode())
    print(json.dumps([json.loads(os.read(result, 8192)) for _, _, result in children]), flush=True)
"""


@dataclass
class Failures:
    """What went wrong: messages of the calls with and without racefix; how often the original had to help out."""

    with_racefix: list[str] = field(default_factory=list)
    without: list[str] = field(default_factory=list)
    fell_back: int = 0


def race(
    share: SharedFilesystem,
    race: Race,
    patch: str,
    start: str,
    rounds: int,
    library: Path,
    scratch: Path,
    racefix: Sequence[bool] = (True,) * 4,
) -> Failures:
    """Run rounds of a race on all hosts of a share.

    Args:
        racefix: for each process of a host, whether it has racefix.
        library: a directory for PYTHONPATH with the library's release.
        scratch: an empty directory, for each host's own files.
    """
    processes = []
    for host in share.hosts:
        home = scratch / host.name
        home.mkdir(parents=True)
        env = {
            "HOME": str(home),
            "TMPDIR": str(home),
            "PYTHONPATH": str(library),
            "RACEFIX_LOG": "off",
        }
        command = [sys.executable, "-c", PROGRAM, patch, start, *("" if has else "all" for has in racefix)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
        processes.append(host.popen(command, env=env, **pipes))
    result = Failures()
    for process in processes:
        assert process.stdout and process.stdout.readline() == "ready\n"
    for number in range(rounds):
        where = share.backing / f"round{number}"
        where.mkdir()
        race.prepare(where, start)
        for process in processes:
            assert process.stdin
            process.stdin.write(f"{number}\n")
        for process in processes:
            assert process.stdout
            for has, (failed, fell_back) in zip(racefix, json.loads(process.stdout.readline()), strict=True):
                result.fell_back = max(result.fell_back, fell_back)
                if failed:
                    (result.with_racefix if has else result.without).append(failed)
    for process in processes:
        process.communicate(timeout=60)
    return result
