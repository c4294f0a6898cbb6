"""Why a text isn't YAML, in words that help: the parser's errors, explained for those who write graphs."""

from __future__ import annotations

import re
from typing import NamedTuple

from ruamel.yaml.error import MarkedYAMLError


class Explanation(NamedTuple):
    """What is wrong, the offset where, and the mend."""

    message: str
    offset: int
    hint: str | None


_EXPRESSION = re.compile(r"\$\{[^\n]*?\}")
_BLOCK = re.compile(
    r"^( *)(?:- +)*[^\s#][^\n]*:[ ]+[|>][-+1-9]{0,2}[ \t]*(?:#[^\n]*)?\n(?:[ \t]*\n)*( *)(?=\S)", re.MULTILINE
)
_CODE_LINE = re.compile(r"(?:def|async def|class|import|from|for|if|while|with|return|try|@)\b")


def explain(error: MarkedYAMLError, text: str) -> Explanation:
    """What ``error``, met while reading ``text``, means."""
    problem = str(error.problem or error.context or "this can't be read as YAML")
    mark = error.problem_mark or error.context_mark
    index = min(mark.index, len(text)) if mark is not None else 0
    opened = error.context_mark.index if error.context_mark is not None else index
    character = text[index : index + 1]
    line = text[text.rfind("\n", 0, index) + 1 : index]

    unindented = _unindented_block(text, index)
    if unindented is not None:
        return Explanation("a text after `|` whose lines aren't indented", unindented, "indent the lines below `|`")
    if "but got '{'" in problem and text[max(0, index - 1) : index] == "$":
        whole = _EXPRESSION.match(text, index - 1)
        shown = whole[0] if whole else "${...}"
        return Explanation(
            f"`{shown}` isn't quoted: inside `{{}}` and `[]`, YAML takes its braces for its own",
            index - 1,
            f'quote it: `"{shown}"`',
        )
    if character == "\t" or "tab" in problem.split():
        return Explanation("a tab can't indent YAML", index, "indent with spaces")
    if "mapping values are not allowed" in problem:
        if "${" in line:
            return Explanation(
                "a `:` inside an expression that isn't quoted", index, "put quotes around the whole text, or use `|`"
            )
        return Explanation(
            "a `:` where no key can be", index, "quote the text if the `:` belongs to it; else look at the indentation"
        )
    if "cannot start any token" in problem:
        return Explanation(f"a text can't start with `{character}`", index, "quote it")
    if "undefined alias" in problem:
        return Explanation(
            f"{problem.removeprefix('found ')}",
            index,
            "quote the text if it starts with `*`; else define `&` before it",
        )
    if "unknown escape character" in problem:
        return Explanation(
            f"`\\{character}` is no escape in a double-quoted text", max(0, index - 1), "use single quotes, or `\\\\`"
        )
    if "quoted scalar" in str(error.context) and "end of stream" in problem:
        return Explanation("the quote isn't closed", opened, "close it, or double a quote inside single quotes")
    if "expected ',' or" in problem:
        bracket = text[opened : opened + 1]
        return Explanation(f"`{bracket}` isn't closed, or a `,` is missing", index, "quote texts that hold `{}[],:`")
    if "another document" in problem:
        return Explanation("a second document (`---`)", index, "one graph per file")
    if "expected <block end>" in problem:
        return Explanation(
            "this doesn't belong to what is above it",
            index,
            "look at the indentation; a quoted text ends at its closing quote",
        )
    if "could not find expected ':'" in problem:
        return Explanation("a key without its `:`", opened, "write `key: value`, or quote a text of several lines")
    if "expected the node content" in problem or "sequence entries are not allowed" in problem:
        return Explanation(f"a text can't start with `{character}`", index, "quote it")
    return Explanation(problem, index, None)


def _unindented_block(text: str, index: int) -> int | None:
    """Where Python follows the last `|` before ``index`` without being indented."""
    found = None
    for match in _BLOCK.finditer(text, 0, index + 1):
        found = match
    if found is None or len(found[2]) > len(found[1]) or _CODE_LINE.match(text, found.end()) is None:
        return None
    return found.end()
