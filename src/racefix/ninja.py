"""Builds by ninja: what a build file says and what its log knows (https://ninja-build.org/manual.html)."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from . import build
from .fs import lookup, names, publish, sweep

BUILD_FILE = "build.ninja"
SEARCHED = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH")
_OPTION = re.compile(r"^-[A-Za-z]+(?=\.)|^-[A-Za-z]")  # as it stands before a path: -Iinclude, -isystem../include


@dataclass(frozen=True)
class BuildFile:
    """What a build file says, as far as it matters to who publishes its results.

    Attributes:
        defaults: what is built if nothing else is asked for.
        outputs: everything that its statements make.
        sources: everything that they read by name and do not make.
        words: the words of all commands in use, variables replaced.
        tools: the commands' leading words, up to their first option.
    """

    defaults: tuple[str, ...]
    outputs: frozenset[str]
    sources: tuple[str, ...]
    words: tuple[str, ...]
    tools: tuple[str, ...]


def read(text: str) -> BuildFile:
    """Read the text of a build file. Understands what generators of flat files write: no includes, no subninja."""
    variables: dict[str, str] = {}
    commands: dict[str, str] = {}
    defaults: list[str] = []
    statements: list[tuple[list[str], str, list[str]]] = []
    rule = ""
    for line in re.sub(r"\$\n\s*", "", text).splitlines():
        name, equals, value = (part.strip() for part in line.partition("="))
        if line.startswith("rule "):
            rule = line.split()[1]
        elif line.startswith("default "):
            defaults += _paths(line[len("default ") :])
        elif line.startswith("build "):
            made, _, rest = re.sub(r"\$:", "\0", line[len("build ") :]).partition(":")
            rule, *given = rest.split(maxsplit=1)
            inputs = [path for path in _paths("".join(given)) if path not in ("|", "||")]
            statements.append((_paths(made), rule, inputs))
        elif line[:1].isspace() and name == "command":
            commands[rule] = value
        elif equals and not line[:1].isspace():
            variables[name] = _replace(value, variables)
    outputs = frozenset(path for made, _, _ in statements for path in made)
    used = [_replace(commands.get(rule, ""), variables).split() for rule in dict.fromkeys(s[1] for s in statements)]
    return BuildFile(
        tuple(defaults),
        outputs,
        tuple(dict.fromkeys(path for _, _, inputs in statements for path in inputs if path not in outputs)),
        tuple(word for words in used for word in words),
        tuple(dict.fromkeys(tool for words in used for tool in _leading(words))),
    )


def _paths(text: str) -> list[str]:
    escaped = text.replace("$ ", "\1").split()
    return [path.replace("\1", " ").replace("\0", ":").replace("$:", ":").replace("$$", "$") for path in escaped]


def _replace(text: str, variables: Mapping[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        return "$" if found[0] == "$$" else variables.get(found[1] or found[2], "")

    return re.sub(r"\$\$|\$\{([\w.-]+)\}|\$([\w-]+)", value, text)


def _leading(words: list[str]) -> Iterator[str]:
    for word in words:
        if word.startswith("-"):
            return
        if shutil.which(word):
            yield word


def leads_out(file: BuildFile) -> str:
    """Return a word that leads, or may lead, out of the build directory by a relative path; nothing if there is none.

    Such a build means something else in any other directory. What is in the directory itself can be linked to.
    """
    searched = (path for name in SEARCHED for path in os.environ.get(name, "").split(os.pathsep))
    for word in (*file.words, *file.sources, *searched):
        paths = (os.path.normpath(_OPTION.sub("", part)) for part in re.split("[,=:]", word))
        if word.startswith("@") or any(path.split(os.sep)[0] == os.pardir for path in paths):
            return word
    return ""


def recipe(
    directory: str, text: bytes, written: Mapping[str, bytes], embedded: Mapping[str, bytes], run: Callable[[str], None]
) -> build.Recipe:
    """Make a recipe for what a build file makes.

    Args:
        directory: the shared build directory, an absolute path.
        text: the build file, as this caller means it; the one in the directory may be another's.
        written: sources in the directory, by path, as this caller means them.
        embedded: other files that the build reads, by their names in the directory.
        run: runs ninja in the directory it is given, where all of these files are.

    Raises:
        ValueError: the build cannot be moved to another directory.
    """
    file = read(text.decode())
    if len(file.defaults) != 1 or os.path.basename(file.defaults[0]) != file.defaults[0]:
        raise ValueError(f"the build makes {', '.join(file.defaults) or 'nothing'}, not one file in its directory")
    if word := leads_out(file):
        raise ValueError(f"{word} leads out of the build directory")
    said = hashlib.sha256(text)
    for name, data in sorted({**written, **embedded}.items()):
        said.update(f"\n{os.path.basename(name)} {hashlib.sha256(data).hexdigest()}".encode())

    def make(private: str, previous: build.Previous | None) -> list[str]:
        if previous:
            _reuse(previous, private, file)
        linked = _link_to(directory, private, file.outputs | set(embedded))
        for name, data in {BUILD_FILE: text, **embedded}.items():
            publish.write(os.path.join(private, name), data)
        run(private)
        found = _all_read(private, directory, file)
        for path in linked:
            sweep.remove(path)
        return found

    def current() -> list[str] | None:
        try:
            return _all_read(directory, directory, file) if _is_current(directory, text) else None
        except subprocess.CalledProcessError:
            return None

    return build.Recipe(directory, file.defaults[0], said.hexdigest()[:16], file.tools, written, make, current)


def _link_to(directory: str, private: str, made: frozenset[str]) -> list[str]:
    """Link to what is in the build directory, so that relative paths lead there; not to what the build makes."""
    linked = []
    for name in os.listdir(directory):
        depfile_of = name.removesuffix(".d")
        if name == BUILD_FILE or depfile_of in made or name.startswith((names.PREFIX, ".ninja_", ".nfs")):
            continue
        linked.append(os.path.join(private, name))
        with contextlib.suppress(FileExistsError):  # nobody else makes anything here: the reply was lost
            os.symlink(os.path.join(os.pardir, name), linked[-1])
    return linked


def _reuse(previous: build.Previous, private: str, file: BuildFile) -> None:
    """Take over the objects of an earlier build whose dependencies are unchanged; ninja may still build them anew."""
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        for output, paths in _dependencies(previous.directory).items():
            absolute = [os.path.join(os.path.dirname(previous.directory), path) for path in paths]
            if output in file.outputs and absolute and all(previous.unchanged(path) for path in absolute):
                shutil.copy2(os.path.join(previous.directory, output), os.path.join(private, output))
        for log in (".ninja_log", ".ninja_deps"):
            shutil.copy2(os.path.join(previous.directory, log), os.path.join(private, log))


def _all_read(where: str, directory: str, file: BuildFile) -> list[str]:
    """Return everything that a finished build has read. Raises CalledProcessError if ninja cannot tell."""
    # Not made real: a link such as /usr/local/cuda may lead elsewhere one day.
    said = (path for paths in _dependencies(where).values() for path in paths)
    return sorted({os.path.join(directory, path) for path in (*said, *file.sources)})


def _dependencies(where: str) -> dict[str, list[str]]:
    """Return what the compilers have read for each output (the depfiles), as ninja's log in a directory has it."""
    done = subprocess.run(["ninja", "-t", "deps"], cwd=where, capture_output=True, check=True)
    found: dict[str, list[str]] = {}
    output = ""
    for line in map(os.fsdecode, done.stdout.splitlines()):
        if line[:1].isspace():
            found[output].append(line.strip())
        elif line:
            output = line.partition(": #deps ")[0]
            found[output] = []
    return found


def _is_current(directory: str, text: bytes) -> bool:
    """Tell whether what this very build file makes is in the directory already, up to date."""
    try:
        if lookup.again(publish.read, os.path.join(directory, BUILD_FILE)) != text:
            return False
        done = subprocess.run(["ninja", "-n"], cwd=directory, capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0 and b"no work to do" in done.stdout
