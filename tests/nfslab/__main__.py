"""Run a command on several hosts, or have their mounts: ``python -m tests.nfslab run`` and ``mount``."""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

from .filesystem import SharedFilesystem
from .options import Options

EACH_PROCESS = """
for i in $(seq 0 $((NFSLAB_PROCS - 1))); do
    (
        export NFSLAB_PROC=$i
        "$@" >"$NFSLAB_LOGS/$NFSLAB_HOST-$i.log" 2>&1
        echo $? >"$NFSLAB_LOGS/$NFSLAB_HOST-$i.rc"
    ) &
done
wait
"""
"""The processes of a host are in one pid namespace: they see one another, and pids repeat across hosts."""


def main() -> int:
    arguments = parser().parse_args()
    options = {field.name: getattr(arguments, field.name) for field in fields(Options)}
    options["delay"] = {name: float(ms) for name, ms in (delay.split("=") for delay in arguments.delay)}
    with SharedFilesystem(arguments.hosts, arguments.backing, **options) as filesystem:
        if arguments.what == "mount":
            print(*(host.path for host in filesystem.hosts), sep="\n", flush=True)
            with contextlib.suppress(KeyboardInterrupt):
                sys.stdin.read()
            return 0
        logs = Path(arguments.logs or tempfile.mkdtemp(prefix="nfslab-logs.")).absolute()
        logs.mkdir(parents=True, exist_ok=True)
        statuses = run(filesystem, arguments.command, arguments.procs, arguments.timeout, logs)
    failed = sum(status != 0 for status in statuses.values())
    print(json.dumps({"rc": statuses, "failed": failed, "logs": str(logs), "stats": filesystem.stats}))
    return int(failed > 0)


def run(
    filesystem: SharedFilesystem, command: list[str], procs: int, timeout: float, logs: Path
) -> dict[str, int | None]:
    """Run a command in so many processes on each host at once; return their exit statuses, None if killed."""
    env = {"NFSLAB_PROCS": str(procs), "NFSLAB_LOGS": str(logs)}
    running = [host.popen(["sh", "-c", EACH_PROCESS, "sh", *command], env=env) for host in filesystem.hosts]
    try:
        for process in running:
            process.wait(timeout)
    except subprocess.TimeoutExpired:
        pass
    finally:
        for process in running:
            process.kill()
            process.wait()
    names = [f"{host.name}-{number}" for host in filesystem.hosts for number in range(procs)]
    return {name: read_status(logs / f"{name}.rc") for name in names}


def read_status(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def parser() -> argparse.ArgumentParser:
    """Return the parser; each field of ``Options`` is an option."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--hosts", type=int, default=2)
    common.add_argument("--backing", help="the server's directory; a temporary one if it is not given")
    types = get_type_hints(Options)
    for field in fields(Options):
        flag = f"--{field.name.replace('_', '-')}"
        how: dict[str, Any] = {"default": field.default, "type": types[field.name]}
        if field.name == "delay":
            how = {"default": [], "action": "append", "metavar": "OPERATION=MS"}
        elif types[field.name] is bool:
            how = {"default": field.default, "action": argparse.BooleanOptionalAction}
        elif choices := get_args(types[field.name]):
            how = {"default": field.default, "choices": choices}
        common.add_argument(flag, **how)
    whole = argparse.ArgumentParser(
        prog="python -m tests.nfslab",
        description=f"{__doc__}\n\n{Options.__doc__}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = whole.add_subparsers(dest="what", required=True)
    commands.add_parser("mount", parents=[common], help="print the mounts, and keep them until standard input ends")
    one = commands.add_parser("run", parents=[common], help="run a command on each host")
    one.add_argument("--procs", type=int, default=1, help="processes on each host")
    one.add_argument("--timeout", type=float, default=600, help="seconds after which all is killed")
    one.add_argument("--logs", help="a directory for output and exit status of each process")
    one.add_argument("command", nargs="+", help="what to run, after --")
    return whole


if __name__ == "__main__":
    sys.exit(main())
