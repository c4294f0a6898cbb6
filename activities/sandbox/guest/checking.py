"""What can be said of a script before it runs: that `run` can be called with its input, and that its imports are there.

A finding is JSON: message, line, column, and maybe a hint; with a ``code`` it is a warning, without one it refuses the
script.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from typing import Any, TypeAlias

from . import prelude

Finding: TypeAlias = dict[str, Any]

SHAPE = "write `def run(input):` and return its output"
NEVER_HERE = {"TYPE_CHECKING", "__name__"}
"""What is below an `if` about these is for tools and other programs, not for the sandbox."""


def findings(tree: ast.Module, first_line: int) -> list[Finding]:
    """All findings about a script that parses."""
    return [*_run(tree, first_line), *_imports(tree.body)]


def finding(message: str, at: ast.stmt | ast.expr | ast.arg, **more: str) -> Finding:
    """What is wrong at a place of the script."""
    return {"message": message, "line": at.lineno, "column": at.col_offset + 1, **more}


def _run(tree: ast.Module, first_line: int) -> Iterator[Finding]:
    """That something at top level is called ``run``, and if it's a plain function, that it can be called with its
    input, and with ``feedback`` if it has that."""
    for node in ast.walk(tree):
        match node:
            case ast.AsyncFunctionDef(name="run"):
                yield finding("`run` is a plain function here: nothing can be awaited", node, hint=SHAPE)
                return
            case ast.FunctionDef(name="run") if node in tree.body:
                yield from _parameters(node)
                return
            case ast.Name(id="run", ctx=ast.Store()) | ast.FunctionDef(name="run") | ast.alias(asname="run"):
                return
            case ast.alias(name="run", asname=None) | ast.ClassDef(name="run"):
                return
    yield {"message": "the script doesn't define `run(input)`", "line": first_line, "column": 1, "hint": SHAPE}


def _parameters(function: ast.FunctionDef) -> Iterator[Finding]:
    args = function.args
    named = [*args.posonlyargs, *args.args]
    needed = named[: len(named) - len(args.defaults)]
    needed += [a for a, default in zip(args.kwonlyargs, args.kw_defaults, strict=True) if default is None]
    given = named[:1] + [a for a in (*args.args, *args.kwonlyargs) if a.arg == "feedback"]
    if not (named or args.vararg) or any(a not in given for a in needed):
        message = "`run` takes one argument, the input (and `feedback`, if it wants that)"
        yield finding(message, function, hint=SHAPE)
        return
    for parameter in (*named, *args.kwonlyargs):
        if parameter not in given and not parameter.arg.startswith("_"):
            message = f"`{parameter.arg}` always has its default: `run` is given its input, and `feedback`"
            hint = "call it `feedback`, or begin it with `_` if the default is all it is for"
            yield finding(message, parameter, code="pointless", hint=hint)


def _imports(module: list[ast.stmt]) -> Iterator[Finding]:
    """Imports of what isn't there: at module level they are sure to fail, elsewhere when they are reached. Inside `try`
    and `with` the script may be prepared for it."""
    pending = [(statement, True) for statement in module]
    while pending:
        statement, sure = pending.pop()
        inner: list[ast.stmt] = []
        match statement:
            case ast.Import() | ast.ImportFrom():
                for reason in _reasons(statement):
                    if sure:
                        yield finding(reason, statement)
                    else:
                        yield finding(f"this fails if it is reached: {reason}", statement, code="missing_module")
            case ast.Try(handlers=[_, *_]) | ast.TryStar() | ast.With():
                pass
            case ast.If(test=test, orelse=orelse) if _never_here(test):
                inner = orelse
            case ast.Match(cases=cases):
                inner = [within for case in cases for within in case.body]
            case _:
                for field in ("body", "orelse", "finalbody"):
                    inner += getattr(statement, field, [])
        pending += [(within, False) for within in inner]


def _reasons(statement: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(statement, ast.Import):
        names = [alias.name for alias in statement.names]
    elif statement.level:
        yield "a script is one file: there is nothing beside it to import from"
        return
    else:
        names = [statement.module or ""]
    for name in names:
        if name in sys.modules:
            continue
        try:
            prelude.Finder.find_spec(name)
        except ImportError as error:
            yield str(error)


def _never_here(test: ast.expr) -> bool:
    return any(
        (isinstance(node, ast.Name) and node.id in NEVER_HERE)
        or (isinstance(node, ast.Attribute) and node.attr in NEVER_HERE)
        for node in ast.walk(test)
    )
