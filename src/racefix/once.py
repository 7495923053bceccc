"""Say a thing once per host and job, not once in each of its processes."""

from __future__ import annotations

import hashlib
import os

from .fs import private

JOBS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "FLUX_JOB_ID")


def first(what: str) -> bool:
    """Tell whether this process is the first of its host and job to ask about ``what``; True if that is not known.

    The first one makes a file in a private directory on this host; O_EXCL lets only one do so. A job is the batch
    system's, else the shell's: the process group.
    """
    name = hashlib.sha256(f"{_job()}\n{what}".encode("utf-8", "surrogateescape")).hexdigest()
    try:
        path = os.path.join(private.directory(), name)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return False
    except OSError:
        return True
    return True


def _job() -> str:
    for variable in JOBS:
        if variable in os.environ:
            return f"{variable}={os.environ[variable]}"
    leader = os.getpgrp()
    try:
        with open(f"/proc/{leader}/stat", encoding="utf-8", errors="replace") as file:
            started = file.read().rpartition(")")[2].split()[19]  # starttime, in clock ticks since boot: proc(5)
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()} {leader} {started}"
    except (OSError, IndexError):
        return f"group {leader} of {os.getppid()}"
