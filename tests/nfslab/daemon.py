"""The program of the process that serves one host's mount: ``python -m tests.nfslab.daemon ORDER``.

It writes a line when the mount is there, and its counters as JSON when it ends: at SIGTERM, when the mount is gone, or
when its standard input ends, as it does with the process that started it. At SIGUSR1 the host's caches are dropped.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

from . import mount
from .client import Client
from .options import Options
from .view import View

THREADS = 4
SIGNALS = {signal.SIGTERM, signal.SIGUSR1}


def main() -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # in all threads: this one waits for them
    order = json.loads(sys.argv[1])
    directory = order["mount"]
    view = View(order["backing"], Options(**order["options"]))  # before the mount, which may hide the backing directory
    client = Client(view, mount.mount(directory))
    for work in [client.serve] * THREADS + [sys.stdin.buffer.read]:
        threading.Thread(target=_work_and_stop, args=(work,), daemon=True).start()
    os.write(1, b"ready\n")
    while signal.sigwait(SIGNALS) == signal.SIGUSR1:
        view.drop()
    mount.unmount(directory)
    with contextlib.suppress(OSError):  # nobody may be there to read them
        os.write(1, json.dumps(dict(view.stats)).encode())
    os._exit(0)  # other threads may be in a system call for as long as they like


def _work_and_stop(work: Callable[[], object]) -> None:
    work()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
