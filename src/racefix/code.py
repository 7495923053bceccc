"""What code is this: a function's digest and parameters, read from its source.

The digest is a sha256 over a walk of the function's syntax tree: node types and fields, without positions, contexts,
string kinds, type comments, type parameters and docstrings. It is the same on Python 3.10 to 3.13, which token
streams, ``ast.dump`` and ``ast.unparse`` are not, and it does not change when a release only moves or documents code.
"""

from __future__ import annotations

import ast
import hashlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from types import FunctionType, ModuleType
from typing import Any

Definition = ast.FunctionDef | ast.AsyncFunctionDef
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_WITH_DOCSTRING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_NOT_CODE = frozenset({"ctx", "kind", "type_comment", "type_params"})


@dataclass(frozen=True)
class Code:
    """A function as its source shows it: ``digest`` names its body, ``parameters`` reads ``"link, target"``."""

    digest: str
    parameters: str


def digest(function: Definition) -> str:
    """Return the digest of a function's code, as 64 hexadecimal digits."""
    return hashlib.sha256("\n".join(_walk(function)).encode("utf-8", "surrogatepass")).hexdigest()


def _walk(node: object) -> Iterator[str]:
    if isinstance(node, ast.AST):
        yield f"({type(node).__name__}"
        for name, value in ast.iter_fields(node):
            if name in _NOT_CODE:
                continue
            yield f".{name}"
            yield from _walk(_without_docstring(node, value) if name == "body" else value)
        yield ")"
    elif isinstance(node, list):
        yield "["
        for item in node:
            yield from _walk(item)
        yield "]"
    else:
        yield f"{type(node).__name__} {node!r}"


def _without_docstring(node: ast.AST, body: Any) -> Any:
    if isinstance(node, _WITH_DOCSTRING) and body and isinstance(body[0], ast.Expr):
        value = body[0].value
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return body[1:]
    return body


def parameters(function: Definition) -> str:
    """Return the names and kinds of a function's parameters: ``"path, /, content, *, retries, **options"``."""
    given = function.args
    names = [a.arg for a in given.posonlyargs] + (["/"] if given.posonlyargs else []) + [a.arg for a in given.args]
    if given.vararg or given.kwonlyargs:
        names.append(f"*{given.vararg.arg if given.vararg else ''}")
    names += [a.arg for a in given.kwonlyargs]
    if given.kwarg:
        names.append(f"**{given.kwarg.arg}")
    return ", ".join(names)


def definitions(source: str, qualname: str) -> list[Definition]:
    """Return every definition of ``qualname`` in a module's source, those in if and try blocks included.

    Raises SyntaxError for source that this Python cannot parse.
    """
    found: list[ast.AST] = [ast.parse(source)]
    parts = qualname.split(".")
    for depth, part in enumerate(parts):
        last = depth == len(parts) - 1
        inside = [node for scope in found for node in _statements(scope)]
        found = [
            node for node in inside if isinstance(node, DEFINITIONS if last else ast.ClassDef) and node.name == part
        ]
    return [node for node in found if isinstance(node, DEFINITIONS)]


def _statements(scope: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            yield node
            if not isinstance(node, _WITH_DOCSTRING):
                yield from _statements(node)


def read(source: str | None, qualname: str, line: int | None = None) -> Code | None:
    """Return the code of ``qualname``, or None without source or where several definitions cannot be told apart.

    Args:
        source: text of the module.
        qualname: the function's name in it.
        line: the first line of the one that is in force (``co_firstlineno``), if known.
    """
    try:
        found = definitions(source, qualname) if source else []
    except (SyntaxError, ValueError):
        return None
    if line is not None:
        found = [f for f in found if line == min([f.lineno, *(d.lineno for d in f.decorator_list)])]
    return Code(digest(found[0]), parameters(found[0])) if len(found) == 1 else None


def source_of(spec: ModuleSpec | None) -> str | None:
    """Return the source text of the module with that spec, or None if there is none (compiled, built in, deleted)."""
    get_source = getattr(spec and spec.loader, "get_source", None)
    try:
        source = get_source(spec.name) if spec and get_source else None
        return source if isinstance(source, str) else None
    except (ImportError, OSError, SyntaxError, UnicodeError):
        return None


def find(module: str) -> ModuleSpec | None:
    """Return a module's spec without importing it or any parent package, or None if it is not there."""
    parent = module.rpartition(".")[0]
    path = _locations(parent) if parent else None
    return None if path == [] else _ask_finders(module, path)


def _locations(package: str) -> list[str]:
    parent, _, name = package.rpartition(".")
    path = _locations(parent) if parent else None
    try:
        spec = None if path == [] else _ask_finders(package, path)
        return list(spec.submodule_search_locations or ()) if spec else []
    except KeyError:  # a namespace package (no __init__.py) looks for its parent in sys.modules
        return [inside for inside in (os.path.join(above, name) for above in path or ()) if os.path.isdir(inside)]


def _ask_finders(module: str, path: list[str] | None) -> ModuleSpec | None:
    finders = (getattr(finder, "find_spec", None) for finder in sys.meta_path)
    return next(filter(None, (find_spec(module, path) for find_spec in finders if find_spec)), None)


def is_own(function: object, module: ModuleType) -> bool:
    """Tell whether this is a plain function whose code belongs to the module's own file, wrapped by nobody."""
    return (
        isinstance(function, FunctionType)
        and not hasattr(function, "__wrapped__")
        and function.__module__ == module.__name__
        and function.__code__.co_filename
        in {getattr(module, "__file__", None), getattr(module.__spec__, "origin", None)}
    )
