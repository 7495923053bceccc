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
            if name not in _NOT_CODE:
                yield f".{name}"
                yield from _walk(_essence(node, name, value))
        yield ")"
    elif isinstance(node, list):
        yield "["
        for item in node:
            yield from _walk(item)
        yield "]"
    else:
        yield f"{type(node).__name__} {node!r}"


def _essence(node: ast.AST, name: str, value: Any) -> Any:
    """Leave out a docstring, and the empty strings that Python 3.12.1 puts into nested format specifiers."""
    if name == "body" and isinstance(node, _WITH_DOCSTRING) and value and isinstance(value[0], ast.Expr):
        return value[1:] if isinstance(_text(value[0].value), str) else value
    if isinstance(node, ast.JoinedStr):
        return [part for part in value if _text(part) != ""]
    return value


def _text(node: ast.AST) -> object:
    return node.value if isinstance(node, ast.Constant) else None


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


def definitions(source: str | None, qualname: str) -> list[Definition] | None:
    """Return every definition of ``qualname`` in a module's source, those in if and try blocks included.

    None if there is no source, or none that this Python can parse: that says nothing about the function.
    """
    try:
        found: list[ast.AST] = [ast.parse("(" if source is None else source)]
    except (SyntaxError, ValueError):
        return None
    parts = qualname.split(".")
    for depth, part in enumerate(parts):
        wanted = DEFINITIONS if depth == len(parts) - 1 else (ast.ClassDef,)
        inside = [node for scope in found for node in _statements(scope)]
        found = [node for node in inside if isinstance(node, wanted) and getattr(node, "name", "") == part]
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
    found = definitions(source, qualname) or []
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
    file = getattr(module, "__file__", None) or ""
    return (
        isinstance(function, FunctionType)
        and not hasattr(function, "__wrapped__")
        and function.__module__ == module.__name__
        and (function.__code__.co_filename == file or file.endswith(".pyc"))  # without source it names another file
    )
