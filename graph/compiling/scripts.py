"""Scripts of a graph: read, parsed, and known to define `run(input)` before anything runs."""

from __future__ import annotations

from graph.compiled import ScriptSource
from graph.compiling.context import Context
from graph.errors import Problem
from graph.files import FileProblem
from graph.problems import Path
from graph.spec import ScriptSpec

LARGEST_SCRIPT = 512 * 1024
"""Bytes of a script's text."""


def load_script(context: Context, spec: ScriptSpec, path: Path, inline: Path) -> ScriptSource | None:
    """The script that ``spec`` at ``path`` names or holds; ``inline`` is where an inline text stands.

    None (and problems, in the script's own lines) if it can't be read, doesn't parse, or has no `run(input)`.
    """
    if (spec.file is None) == (spec.inline is None):
        context.place.problem("bad_value", "a script is given by `file` or `inline`, one of them", path)
        return None
    if spec.inline is not None:
        line, _ = context.place.text_place(inline, 1, 1)
        source = ScriptSource(text=spec.inline, file=context.place.source.file or context.name, line=line or 1)
        return source if _sound(context, source, _Reporter(context, None, inline)) else None
    assert spec.file is not None
    try:
        text = context.files.read(spec.file).decode("utf-8-sig")
    except FileProblem as problem:
        context.place.problem("bad_file", str(problem), (*path, "file"), problem.hint)
        return None
    except UnicodeDecodeError:
        context.place.problem("bad_script", f"`{spec.file}` isn't UTF-8 text", (*path, "file"))
        return None
    source = ScriptSource(text=text, file=spec.file)
    return source if _sound(context, source, _Reporter(context, spec.file, path)) else None


class _Reporter:
    """Reports problems in the script's own lines, wherever its text is."""

    def __init__(self, context: Context, file: str | None, path: Path) -> None:
        self._context, self._file, self._path = context, file, path

    def __call__(self, problem: Problem) -> None:
        place, code, line, column = self._context.place, problem.code, problem.line or 1, problem.column or 1
        warning = code != "bad_script"
        if self._file is not None:
            place.in_file(self._file, code, problem.message, line, column, problem.hint, warning)
        else:
            place.in_text(self._path, line, column, code, problem.message, problem.hint, warning)


def _sound(context: Context, source: ScriptSource, report: _Reporter) -> bool:
    if len(source.text.encode(errors="replace")) > LARGEST_SCRIPT:
        report(Problem(code="bad_script", message=f"the script is larger than {LARGEST_SCRIPT // 1024} KiB"))
        return False
    check = context.world.script
    found = check(source.text) if check is not None else []
    for problem in found:
        report(problem)
    return all(problem.code != "bad_script" for problem in found)
