"""The loop of a host: take a request of the kernel's, answer it, with delays and lost replies as they were ordered."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import re
import threading
import time
import traceback
from collections.abc import Callable

from . import protocol
from .directories import Directories
from .files import Files
from .locks import Locks
from .names import Names
from .protocol import Op, Request
from .session import Session
from .view import View

Handler = Callable[[Request], bytes | None]
NAMES = {int(op): op.name.lower() for op in Op}


class Client:
    """Answers what the kernel asks through an open /dev/fuse. Any number of threads may ``serve``."""

    def __init__(self, view: View, device: int) -> None:
        self._view = view
        self._options = view.options
        self._device = device
        locks = Locks(view)
        parts = (Session(view), Names(view), Files(view, locks), Directories(view), locks)
        self._handlers: dict[int, Handler] = {
            op: getattr(part, name) for part in parts for op, name in NAMES.items() if hasattr(part, name)
        }
        self._random = random.Random(view.options.seed)
        names = set(filter(None, view.options.replay_ops.split(",")))
        self._replayed = {op: code for op, code in protocol.LOST_REPLY.items() if not names or NAMES[op] in names}
        self._replay_match = re.compile(os.fsencode(view.options.replay_match))
        # Open as long as this process lives.
        self._trace = open(view.options.trace, "a", buffering=1) if view.options.trace else None  # noqa: SIM115

    def serve(self) -> None:
        """Answer until the mount is gone."""
        buffer = bytearray(protocol.BUFFER_SIZE)
        content = memoryview(buffer)
        while True:
            try:
                length = os.readv(self._device, [buffer])
            except OSError as error:
                if error.errno in (errno.EINTR, errno.EAGAIN, errno.ENOENT):
                    continue
                return
            opcode, unique, node = protocol.IN_HEADER.unpack_from(buffer)
            body = content[protocol.IN_HEADER.size : length]
            if opcode == Op.SETLKW:
                waiting = Request(unique, node, bytes(body))
                threading.Thread(target=self._answer, args=(opcode, waiting), daemon=True).start()
            else:
                self._answer(opcode, Request(unique, node, body))

    def _answer(self, opcode: int, request: Request) -> None:
        name = NAMES.get(opcode, str(opcode))
        if delay := self._options.delay.get(name):
            time.sleep(delay / 1000 * (0.5 + self._random.random()))
        self._view.stats[name] += 1
        code, payload = self._do(opcode, request)
        if self._trace:
            outcome = errno.errorcode.get(code, "ok")
            self._trace.write(
                f"{time.time():.3f} {name} node {request.node} {bytes(request.body[:60])!r} -> {outcome}\n"
            )
        if payload is None:  # the kernel expects no reply, of FORGET for one
            return
        with contextlib.suppress(OSError):  # the request was interrupted, or the mount is gone
            os.writev(self._device, protocol.reply(request.unique, code, payload))

    def _do(self, opcode: int, request: Request) -> tuple[int, bytes | None]:
        """Return an errno, 0 if it was done, and the reply."""
        handler = self._handlers.get(opcode)
        if handler is None:
            return errno.ENOSYS, b""
        try:
            payload = handler(request)
        except OSError as error:
            if error.errno == errno.ESTALE:
                self._view.stats["estale"] += 1
                self._view.distrust(request.node)
            return error.errno or errno.EIO, b""
        except Exception:
            traceback.print_exc()
            return errno.EIO, b""
        if self._options.replay and opcode in self._replayed and self._loses_reply(request):
            self._view.stats["replayed"] += 1
            return self._replayed[Op(opcode)], b""
        return 0, payload

    def _loses_reply(self, request: Request) -> bool:
        return bool(self._replay_match.search(bytes(request.body))) and self._random.random() < self._options.replay
