"""Expressions before they are parsed: where one ends inside a text, and what the usual mistakes look like.

Python's own parser decides what an expression means (`graph.expressions`); this module only finds the brackets and
strings, so that a place can be given that fits the text as the author wrote it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from graph.errors import FerrataError

MAX_NESTING = 100
"""Levels of brackets, and of operators within operators."""

_TOKEN = re.compile(
    r"""
    (?P<prefix>\b[A-Za-z]{1,2})?
    (?P<string>
        '''(?:\\.|[^\\])*?''' | \"""(?:\\.|[^\\])*?\""" | '(?:\\.|[^'\\\n])*' | "(?:\\.|[^"\\\n])*"
    )
    | (?P<comment>\#[^\n]*)
    | (?P<open>[(\[{])
    | (?P<close>[)\]}])
    | (?P<quote>['"])
    """,
    re.VERBOSE | re.DOTALL,
)
_CLOSES = {")": "(", "]": "[", "}": "{"}
_BAD_ESCAPE = re.compile(r"\\(?:[\n\\'\"abfnrtv0-7xNuU]|(?P<bad>.))", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_EATEN = "YAML turned a backslash of a double-quoted text into this; use single quotes, a `|` block, or double it"


class ExpressionError(FerrataError):
    """An expression that can't be used: code ``bad_expression`` or ``unknown_name``.

    ``line`` and ``column`` count from 1 (columns in characters), within the text that was given.
    """

    def __init__(self, code: str, message: str, hint: str | None = None, *, line: int = 1, column: int = 1) -> None:
        super().__init__(code, message, hint)
        self.line = line
        self.column = column

    def moved(self, line: int, column: int) -> ExpressionError:
        """The same error in a text where this expression starts at ``line`` and ``column``."""
        at = (line, self.column + column - 1) if self.line == 1 else (self.line + line - 1, self.column)
        return ExpressionError(self.code, self.message, self.hint, line=at[0], column=at[1])


def place_of(text: str, index: int) -> tuple[int, int]:
    """Line and column, from 1, of the character ``index`` of ``text``."""
    index = max(0, min(index, len(text)))
    return text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)


def error_at(text: str, index: int, message: str, hint: str | None = None) -> ExpressionError:
    """A ``bad_expression`` at the character ``index`` of ``text``."""
    line, column = place_of(text, index)
    return ExpressionError("bad_expression", message, hint, line=line, column=column)


def shown(text: str) -> str:
    """``text`` for a message: as it was delivered, with control characters made visible, cut if long."""
    visible = _CONTROL.sub(lambda m: m[0].encode("unicode_escape").decode(), text.strip())
    return visible if len(visible) <= 160 else visible[:157] + "..."


def end_of(text: str, start: int, *, embedded: bool) -> int:
    """Where the expression that starts at ``start`` ends: at the ``}`` that closes ``${`` if ``embedded`` (the index of
    that brace, or -1 if there is none), else at the end of ``text``.

    Raises:
        ExpressionError: a string or bracket isn't closed, brackets don't match or nest too deeply, or a string
            holds an unknown escape.
    """
    opened: list[int] = []
    for token in _TOKEN.finditer(text, start):
        index = token.end() - 1
        if token["open"]:
            opened.append(index)
            if len(opened) > MAX_NESTING:
                raise error_at(text, index, f"brackets nest deeper than {MAX_NESTING}", "use a script")
        elif close := token["close"]:
            if not opened and embedded and close == "}":
                return index
            if not opened or text[opened[-1]] != _CLOSES[close]:
                raise _unmatched(text, index, opened)
            opened.pop()
        elif token["quote"]:
            eaten = _EATEN if "\n" in text[start:].strip() else None
            raise error_at(text, index, f"a string isn't closed in `{shown(text[start:])}`", eaten or "close the quote")
        elif token["string"]:
            _check_escapes(text, token)
    if opened and not embedded:
        raise error_at(text, opened[-1], f"`{text[opened[-1]]}` isn't closed in `{shown(text[start:])}`", "close it")
    return -1 if embedded else len(text)


def _unmatched(text: str, index: int, opened: list[int]) -> ExpressionError:
    if not opened:
        return error_at(text, index, f"`{text[index]}` closes nothing, in `{shown(text)}`", "leave it out")
    message = f"`{text[opened[-1]]}` isn't closed: `{text[index]}` comes first, in `{shown(text)}`"
    return error_at(text, opened[-1], message, "close it")


def _check_escapes(text: str, token: re.Match[str]) -> None:
    """Python is about to make unknown escapes errors; and behind each is a regular expression or a lost backslash."""
    if "r" in (token["prefix"] or "").lower():
        return
    for escape in _BAD_ESCAPE.finditer(token["string"]):
        if escape["bad"]:
            raise error_at(
                text,
                token.start("string") + escape.start(),
                f"`{escape[0]}` is no escape in `{shown(token['string'])}`",
                f"write `\\{escape[0]}`, or r'...' if all backslashes are meant as they are",
            )


@dataclass(frozen=True)
class _Mistake:
    pattern: re.Pattern[str]
    message: str
    hint: str


def _mistake(pattern: str, message: str, hint: str) -> _Mistake:
    return _Mistake(re.compile(pattern), message, hint)


_MISTAKES = (
    _mistake(r"\$\{", "`${` inside an expression", "leave out `${` and its `}`: this is an expression already"),
    _mistake(r"\$\w", "`$` before a name", "write the name without `$`"),
    _mistake(r"&&", "`&&` isn't Python", "write `and`"),
    _mistake(r"\|\|", "`||` isn't Python", "write `or`"),
    _mistake(r"!==", "`!==` isn't Python", "write `!=`"),
    _mistake(r"===", "`===` isn't Python", "write `==`"),
    _mistake(r"\?\.", "`?.` isn't Python", "write `a.b if a else null`"),
    _mistake(r"\?\?", "`??` isn't Python", "write `b if a is None else a`"),
    _mistake(r"\?", "`a ? b : c` isn't Python", "write `b if a else c`"),
    _mistake(r"!(?!=)", "`!` isn't Python", "write `not`"),
    _mistake(r"=>", "`=>` isn't Python", "use a comprehension: `[x.name for x in items]`"),
    _mistake(r";", "`;` separates statements", "an expression is one value"),
    _mistake(r"^\s*if\b", "`if` starts a statement", "write `b if a else c`"),
    _mistake(r"^\s*for\b", "`for` starts a statement", "use a comprehension: `[x.name for x in items]`"),
    _mistake(
        r"^\s*(?:import|from|while|def|class|return|del|assert|raise|try|with|pass|global|nonlocal|async|print)\b",
        "a statement isn't an expression",
        "an expression is one value; put statements in a script",
    ),
)
_ASSIGNS = re.compile(r"(?<![=!<>:+\-*/%&|^@])=(?!=)")


def syntax_error(text: str, index: int, reason: str) -> ExpressionError:
    """The error for what Python's parser refused at the character ``index``: a usual mistake by its own message."""
    code = _TOKEN.sub(lambda t: t[0] if t["open"] or t["close"] else _blank(t[0]), text)
    for mistake in _MISTAKES:
        if found := mistake.pattern.search(code):
            at = found.start() + len(found[0]) - len(found[0].lstrip())
            return error_at(text, at, f"{mistake.message}, in `{shown(text)}`", mistake.hint)
    if "'=='" in reason and (found := _ASSIGNS.search(code)):
        return error_at(text, found.start(), f"`=` assigns, in `{shown(text)}`", "compare with `==`")
    reason = reason.removesuffix(". Perhaps you forgot a comma?")
    return error_at(text, index, f"{reason}, in `{shown(text)}`", "it must be one Python expression")


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)
