"""Builds that processes of several hosts share: each is made privately and published as a generation.

A generation is a directory ``.racefix-gen-<inputs>-<contents>`` beside the shared name of what is built: named by what
the caller asked for and by the contents of everything that the build has read, compilers included. It is published
whole and never replaced, so a process can go on mapping what is in it, and hosts with other tools or headers have
generations of their own. The shared name is a hard link into the generation that was asked for last.

Looking one up starts no process: a dependency holds if its size and modification time are those on record, else if
its content is. Whatever changed during a build, or too shortly before it to tell by its time, is told by content.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from . import elf
from .fs import locks, lookup, names, publish, sweep
from .fs.trace import Trace

RECORD = f"{names.PREFIX}build.json"
TRIES = 3
TOO_CLOSE = 2_000_000_000  # nanoseconds; the coarsest modification times in use are of whole seconds
DAMAGED = (OSError, ValueError, LookupError, TypeError, AttributeError)  # a record that is torn, or of another form
COPIED = (".o", ".obj")  # read at once, not mapped, and an unpatched peer's ``cp -f`` would write through a link


@dataclass(frozen=True)
class Previous:
    """An earlier build of the same inputs, from other contents.

    Attributes:
        directory: its generation.
        unchanged: tells whether a path that was read then has the content of then.
    """

    directory: str
    unchanged: Callable[[str], bool]


@dataclass(frozen=True)
class Recipe:
    """What is to be built, and how.

    Attributes:
        directory: the shared build directory, an absolute path.
        output: the name there of what is built.
        inputs: digest of everything that this caller asks for.
        tools: the commands that the build runs.
        written: sources in the directory that this caller has written, by path: peers may write others there.
        make: builds in a private directory, with what it can use of an earlier build if there is one, and returns the
            paths of everything that was read.
        current: returns the same for what is at the shared name, or None if that is not what ``make`` would make.
    """

    directory: str
    output: str
    inputs: str
    tools: tuple[str, ...]
    written: Mapping[str, bytes]
    make: Callable[[str, Previous | None], Iterable[str]]
    current: Callable[[], Iterable[str] | None]

    @property
    def shared(self) -> str:
        """The path at which others look for what is built."""
        return os.path.join(self.directory, self.output)


def obtain(recipe: Recipe, trace: Trace) -> str:
    """Return the path of what the recipe makes, in a generation; one process of each host builds what is missing.

    Raises:
        OSError: no private build can be made (ENOSPC, EROFS, …).
        Exception: what ``recipe.make`` raises.
    """
    found = _find(recipe)
    if found is None:
        found = _make_once(recipe, trace)
    _lead(recipe, found, trace)
    return found


def _make_once(recipe: Recipe, trace: Trace) -> str:
    found: list[str] = []

    def done() -> bool:
        found.extend(filter(None, [_find(recipe)]))
        return bool(found)

    lease = os.path.join(recipe.directory, f"{names.PREFIX}lease-{recipe.inputs}")
    with locks.one_builder(lease, done, trace) as builds:
        return found[0] if not builds else _adopt(recipe, trace) or _build(recipe, trace)


def _find(recipe: Recipe) -> str | None:
    """Return the path of the output in a generation that is what the recipe would make now."""
    for generation in _generations(recipe):
        try:
            record = _read(generation)
            if (
                _is_same(os.path.join(generation, recipe.output), record["output"])
                and _has_same_tools(record)
                and all(_is_unchanged(recipe, record, path) for path in record["files"])
            ):
                return os.path.join(generation, recipe.output)
        except DAMAGED:
            continue
    return None


def _previous(recipe: Recipe) -> Previous | None:
    for generation in _generations(recipe):
        with contextlib.suppress(*DAMAGED):
            record = _read(generation)
            if _has_same_tools(record):
                return Previous(generation, partial(_is_unchanged, recipe, record))
    return None


def _generations(recipe: Recipe) -> list[str]:
    """Return what was built from these inputs and any contents, the latest first."""
    prefix = f"{names.GENERATION}{recipe.inputs}-"
    there = lookup.again(os.listdir, recipe.directory)
    generations = [os.path.join(recipe.directory, name) for name in there if name.startswith(prefix)]
    return generations if len(generations) < 2 else sorted(generations, key=_made, reverse=True)


def _made(generation: str) -> float:
    try:
        return os.stat(generation).st_mtime
    except OSError:
        return 0.0


def _read(generation: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(lookup.again(publish.read, os.path.join(generation, RECORD)))
    return record


def _has_same_tools(record: dict[str, Any]) -> bool:
    return all(_is_same(_tool(name), known) for name, known in record["tools"].items())


def _is_unchanged(recipe: Recipe, record: dict[str, Any], path: str) -> bool:
    """Tell whether a file that a build has read has the content of then; False for one that is gone."""
    try:
        known = record["files"][path]
        if path in recipe.written:
            return bool(known[2] == _digest(recipe.written[path]))
        return _is_same(path, known)
    except DAMAGED:
        return False


def _is_same(path: str, known: tuple[int, int, str]) -> bool:
    size, modified, digest = known
    status = lookup.again(os.stat, path)
    return status.st_size == size and (status.st_mtime_ns == modified or _digest_of(path) == digest)


def _tool(name: str) -> str:
    return shutil.which(name) or name


def _adopt(recipe: Recipe, trace: Trace) -> str | None:
    """Make a generation of what was built before racefix came, if it is up to date and whole."""
    read = recipe.current()
    if read is None or not _is_whole(recipe.shared):
        return None
    now = time.time_ns()
    private = ""
    try:
        private = publish.private_directory(recipe.shared, "adopt")
        _link(recipe.shared, os.path.join(private, recipe.output))
        return _publish(recipe, private, _record(recipe, private, read, lambda _: now), trace)
    except OSError:  # such as on a read-only image: what is there serves as it is
        if private:
            sweep.remove(private)
        return recipe.shared


def _is_whole(path: str) -> bool:
    try:
        return path.endswith(COPIED) or elf.is_whole(path)
    except OSError:
        return False


def _build(recipe: Recipe, trace: Trace, tries: int = TRIES) -> str:
    """Build, and once more if what was read has changed meanwhile; the last result is then for this caller alone."""
    for path, data in recipe.written.items():
        publish.update(path, data)
    private = publish.private_directory(recipe.shared, "build")
    try:
        share, ours = os.stat(private), time.time_ns()
        before = _identities(recipe)
        read = recipe.make(private, _previous(recipe))
        record = _record(recipe, private, read, lambda device: share.st_mtime_ns if device == share.st_dev else ours)
        changed = [path for path, known in record["files"].items() if known and not known[2]]
        if _identities(recipe) != before:
            changed += recipe.written
        if not changed or tries == 1:
            return _publish(recipe, private, record, trace, uuid.uuid4().hex if changed else "")
    except BaseException:
        sweep.remove(private)
        raise
    sweep.remove(private)
    trace.tell("retried", f"{changed[0]} changed while {recipe.shared} was built")
    return _build(recipe, trace, tries - 1)


def _identities(recipe: Recipe) -> list[tuple[int, int, int]]:
    statuses = [lookup.again(os.stat, path) for path in recipe.written]
    return [(status.st_ino, status.st_mtime_ns, status.st_ctime_ns) for status in statuses]


def _record(recipe: Recipe, private: str, read: Iterable[str], began: Callable[[int], int]) -> dict[str, Any]:
    """Say what was built and from what, each as its size, its modification time and its digest."""
    output = os.path.join(private, recipe.output)
    status = os.stat(output)
    return {
        "output": [status.st_size, status.st_mtime_ns, _digest_of(output)],
        "tools": {name: _known(_tool(name), began) for name in recipe.tools},
        "files": {
            path: [0, 0, _digest(recipe.written[path])] if path in recipe.written else _known(path, began)
            for path in read
        },
    }


def _known(path: str, began: Callable[[int], int]) -> list[Any] | None:
    """Describe a file that a build has read; without a digest if it has changed since the build began.

    None, which nothing equals, for a file that is gone. A time that is 0 tells nothing.
    """
    try:
        status = os.stat(path)
        since = began(status.st_dev)
        changed = max(status.st_mtime_ns, status.st_ctime_ns) >= since
        modified = status.st_mtime_ns if status.st_mtime_ns < since - TOO_CLOSE else 0
        return [status.st_size, modified, "" if changed else _digest_of(path)]
    except OSError:
        return None


def _publish(recipe: Recipe, private: str, record: dict[str, Any], trace: Trace, salt: str = "") -> str:
    said = [[name, known and known[2]] for kind in ("tools", "files") for name, known in sorted(record[kind].items())]
    contents = _digest(json.dumps([said, salt]).encode())[:16]
    publish.write(os.path.join(private, RECORD), json.dumps(record).encode())
    publish.seal(private)
    final = os.path.join(recipe.directory, f"{names.GENERATION}{recipe.inputs}-{contents}")
    used = publish.directory(private, final, trace)
    sweep.sweep(recipe.directory, os.stat(used).st_mtime)
    return os.path.join(used, recipe.output)


def _lead(recipe: Recipe, built: str, trace: Trace) -> None:
    """Let the shared name lead to what was built. Best effort: who asked for it has the path in the generation."""
    with contextlib.suppress(OSError):
        if built == recipe.shared or _leads(recipe.shared, built):
            return
        private = names.private(recipe.shared, "link")
        try:
            linked = _link(built, private)
            status = _status(recipe.shared)
            if status and not recipe.output.endswith(COPIED):
                if not linked:  # the old file would be gone for who has it mapped
                    return
                if status.st_nlink == 1:
                    _keep(recipe)
            os.replace(private, recipe.shared)
            trace.changing()
        finally:
            sweep.remove(private)  # rename leaves it where both names are links to one file: rename(2)


def _leads(shared: str, built: str) -> bool:
    ours, status = os.stat(built), _status(shared)
    return status is not None and (status.st_size, status.st_mtime_ns) == (ours.st_size, ours.st_mtime_ns)


def _status(path: str) -> os.stat_result | None:
    try:
        return lookup.again(os.lstat, path)
    except FileNotFoundError:
        return None


def _keep(recipe: Recipe) -> None:
    """Give what is at the shared name, built without racefix, a name to live on: somebody may have it mapped."""
    kept = os.path.join(recipe.directory, f"{names.GENERATION}kept-{uuid.uuid4().hex}")
    os.mkdir(kept)
    os.link(recipe.shared, os.path.join(kept, recipe.output), follow_symlinks=False)


def _link(path: str, new: str) -> bool:
    """Make a hard link, or a copy where links do not work or would be written through; tell whether it is a link."""
    if not path.endswith(COPIED):
        try:
            os.link(path, new)
            return True
        except OSError as error:
            if error.errno not in publish.NO_LINKS:
                raise
    shutil.copy2(path, new)
    return False


def _digest_of(path: str) -> str:
    with open(path, "rb") as file:
        return _digest(file.read())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
