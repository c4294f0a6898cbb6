"""YAML 1.2 text to plain JSON data and places. ruamel.yaml parses; what a scalar means is decided here, by the core
schema alone: no dates, `on` and `NO` are texts, and no directive changes that.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.composer import MaxDepthExceededError
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from graph.errors import LoadError, Problem
from graph.lexing import place_of
from graph.positions import Lines, offset_in, offset_of_character
from graph.values import JSON
from graph.yaml_mistakes import explain

MAX_DEPTH: Final = 100
"""Levels of nesting."""
MAX_NODES: Final = 200_000
"""Values, each counted wherever an anchor brings it in."""
MAX_TEXT: Final = 8 * 1024 * 1024
"""Characters of all texts together, counted likewise."""
MAX_BITS: Final = 1024
"""Bits of a whole number."""

_CORE: Final = (
    (re.compile(r"null|Null|NULL|~|"), "null"),
    (re.compile(r"true|True|TRUE|false|False|FALSE"), "bool"),
    (re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"), "int"),
    (re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"), "float"),
    (re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"), "float"),
)
_TAG: Final = "tag:yaml.org,2002:"
_SCALAR_TAGS: Final = frozenset({"str", "null", "bool", "int", "float"})
_PAIRS: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")


@dataclass(slots=True)
class _Spot:
    """Where one value is written, its key, and its parts."""

    node: Node
    key: Node | None = None
    parts: dict[str | int, _Spot] = field(default_factory=dict)


class YamlPlaces:
    """Where each part of a YAML text stands."""

    def __init__(self, text: str, root: _Spot) -> None:
        self._text = text
        self._root = root
        self._lines = Lines(text)

    def place(self, path: tuple[str | int, ...], key: bool) -> tuple[int, int] | None:
        """Line and column of the value at ``path`` (or of its key); None if there is no such value."""
        spot = self._find(path)
        if spot is None:
            return None
        return _place(spot.node if spot.key is None or not key else spot.key)

    def text_place(self, path: tuple[str | int, ...], value: str, line: int, column: int) -> tuple[int, int] | None:
        """Line and column in the file of a place within the text ``value`` at ``path``."""
        spot = self._find(path)
        if spot is None or not isinstance(spot.node, ScalarNode):
            return None
        start, end = spot.node.start_mark.index, spot.node.end_mark.index
        index = offset_in(value, line, column)
        return self._lines.place(offset_of_character(self._text, start, end, spot.node.style, value, index))

    def _find(self, path: tuple[str | int, ...]) -> _Spot | None:
        spot: _Spot | None = self._root
        for step in path:
            spot = spot.parts.get(step) if spot is not None else None
        return spot


def read_yaml(text: str, file: str) -> tuple[JSON, YamlPlaces]:
    """The data of a YAML text and its places.

    Raises:
        LoadError: with all problems that can be found. Codes: ``bad_yaml``, ``duplicate_key``, ``bad_key``,
            ``bad_value``, ``too_large``, ``empty_file``.
    """
    root = _compose(text, file)
    if root is None or (isinstance(root, ScalarNode) and root.value == "" and root.style is None):
        raise LoadError([Problem(code="empty_file", message="the file holds nothing but comments", file=file)])
    builder = _Builder(file)
    spot = _Spot(root)
    data = builder.build(root, spot, 0)
    if builder.problems:
        raise LoadError(sorted(builder.problems, key=lambda p: (p.line or 0, p.column or 0)))
    return data, YamlPlaces(text, spot)


def _compose(text: str, file: str) -> Node | None:
    yaml = YAML(typ="safe", pure=True)
    yaml.max_depth = MAX_DEPTH
    yaml.composer.warn_double_anchors = False  # YAML allows it: an alias means the last one before it
    try:
        root: Node | None = yaml.compose(text)
    except MaxDepthExceededError as error:
        line, column = error.problem_mark.line + 1, error.problem_mark.column + 1
        raise _load_error("too_large", f"it nests deeper than {MAX_DEPTH}", file, line, column) from None
    except MarkedYAMLError as error:
        found = explain(error, text)
        raise _load_error("bad_yaml", found.message, file, *place_of(text, found.offset), found.hint) from None
    except ReaderError as error:
        message = f"the character U+{error.character:04X} can't be in YAML"
        hint = "write it as an escape, in double quotes"
        raise _load_error("bad_yaml", message, file, *place_of(text, error.position), hint) from None
    except YAMLError as error:
        raise _load_error("bad_yaml", str(error), file) from None
    except (ValueError, OverflowError, KeyError, RecursionError):  # impossible characters and versions slip through
        raise _load_error("bad_yaml", "this can't be read as YAML", file) from None
    return root


class _Full(Exception):
    """Too many values: reading stops."""


class _Builder:
    """Makes plain data of the composed nodes, and notes every problem."""

    def __init__(self, file: str) -> None:
        self.problems: list[Problem] = []
        self._file = file
        self._nodes = 0
        self._text = 0
        self._open: set[int] = set()

    def build(self, node: Node, spot: _Spot, depth: int) -> JSON:
        """The data of ``node``; the places of its parts go to ``spot``. Raises LoadError when it gets too large."""
        self._count(node, depth)
        if isinstance(node, ScalarNode):
            return self._scalar(node)
        if id(node) in self._open:
            self._problem("bad_yaml", "an anchor can't hold itself", node, "leave out the alias `*...`")
            return None
        self._open.add(id(node))
        try:
            self._check_tag(node, "map" if isinstance(node, MappingNode) else "seq")
            if isinstance(node, MappingNode):
                return self._mapping(node, spot, depth)
            return self._sequence(node, spot, depth)
        finally:
            self._open.discard(id(node))

    def _sequence(self, node: Node, spot: _Spot, depth: int) -> list[JSON]:
        items: list[JSON] = []
        for index, item in enumerate(node.value):
            spot.parts[index] = _Spot(item)
            items.append(self.build(item, spot.parts[index], depth + 1))
        return items

    def _mapping(self, node: Node, spot: _Spot, depth: int) -> dict[str, JSON]:
        data: dict[str, JSON] = {}
        merged: list[Node] = []
        first: dict[str, Node] = {}
        for key, value in node.value:
            name = self._key(key)
            if name is None:
                continue
            if name in first:
                line = _place(first[name])[0]
                self._problem("duplicate_key", f"the key `{name}` is there twice", key, f"the other is in line {line}")
                continue
            first[name] = key
            if name == "<<" and key.style is None:
                merged += self._merge_sources(value)
                continue
            spot.parts[name] = _Spot(value, key)
            data[name] = self.build(value, spot.parts[name], depth + 1)
        for source in merged:
            part = _Spot(source)
            for name, value in self.build(source, part, depth + 1).items():
                if name not in data:
                    data[name] = value
                    spot.parts[name] = part.parts[name]
        return data

    def _merge_sources(self, value: Node) -> list[Node]:
        sources = value.value if isinstance(value, SequenceNode) else [value]
        if all(isinstance(source, MappingNode) and id(source) not in self._open for source in sources):
            return list(sources)
        self._problem("bad_yaml", "`<<` merges mappings only", value, "give it an alias `*name`, or a list of them")
        return []

    def _key(self, key: Node) -> str | None:
        """The name of a key; None (and a problem) if it is no text."""
        if isinstance(key, ScalarNode):
            name = key.value if key.style is None and key.value == "<<" else self._scalar(key)
            if isinstance(name, str):
                return name
            found = f"`{key.value}` is {_kind(name)}" if key.value else "it is empty"
            self._problem("bad_key", f"a key must be a text, but {found}", key, f'quote it: `"{key.value}"`')
        else:
            self._problem(
                "bad_key",
                "a key must be a text, but this is a mapping or list",
                key,
                "an unquoted `{` or `[`? Quote it",
            )
        return None

    def _scalar(self, node: ScalarNode) -> JSON:
        tag = self._check_tag(node, None)
        if tag is None:
            return None
        explicit = node.ctag.handle is not None
        if (node.style is not None and not explicit) or (tag == "str" and explicit):
            return self._string(node)
        kind = next((kind for pattern, kind in _CORE if pattern.fullmatch(node.value)), "str")
        if explicit and kind != tag and not (tag == "float" and kind == "int"):
            self._problem("bad_value", f"`{node.value}` is no {tag}", node, "leave out the tag `!!...`")
            return None
        if kind == "str":
            return self._string(node)
        if kind == "bool":
            return node.value.lower() == "true"
        return None if kind == "null" else self._number(node, tag if explicit else kind)

    def _number(self, node: Node, kind: str) -> int | float | None:
        text = str(node.value).lower()
        if kind == "int":
            if len(text) > MAX_BITS or (whole := _whole(text)).bit_length() > MAX_BITS:
                self._problem("bad_value", f"a whole number of more than {MAX_BITS} bits", node, "make it a text")
                return None
            return whole
        number = float(text.replace(".inf", "inf").replace(".nan", "nan"))
        if not math.isfinite(number):
            self._problem("bad_value", f"`{node.value}` isn't a finite number", node, "quote it if it is a text")
            return None
        return number

    def _string(self, node: Node) -> str:
        text = _PAIRS.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), node.value)
        if any("\ud800" <= character <= "\udfff" for character in text):
            self._problem("bad_value", "half a character (a lone surrogate)", node, "write the character itself")
        return text

    def _check_tag(self, node: Node, wanted: str | None) -> str | None:
        """The node's core tag, like ``int``; None (and a problem) if it has another."""
        tag = str(node.ctag)
        short = tag.removeprefix(_TAG)
        if node.ctag.handle is None and tag.startswith(_TAG):
            return short
        if tag.startswith(_TAG) and (short == wanted or (wanted is None and short in _SCALAR_TAGS)):
            return short
        shown = (node.ctag.handle or "!") + str(node.ctag.suffix)
        hint = "quote the text if it starts with `!`; in expressions write `not`"
        self._problem("bad_value", f"tags like `{shown}` aren't used here", node, hint)
        return None

    def _count(self, node: Node, depth: int) -> None:
        self._nodes += 1
        self._text += len(node.value) if isinstance(node, ScalarNode) else 0
        if depth > MAX_DEPTH:
            limit = f"nests deeper than {MAX_DEPTH}"
        elif self._nodes > MAX_NODES:
            limit = f"has more than {MAX_NODES} values"
        elif self._text > MAX_TEXT:
            limit = f"has more than {MAX_TEXT} characters"
        else:
            return
        line, column = _place(node)
        raise _load_error("too_large", f"with its anchors written out, it {limit}", self._file, line, column)

    def _problem(self, code: str, message: str, node: Node, hint: str) -> None:
        line, column = _place(node)
        problem = Problem(code=code, message=message, file=self._file, line=line, column=column, hint=hint)
        if problem not in self.problems:  # an alias meets it again
            self.problems.append(problem)


def _whole(text: str) -> int:
    if text.startswith(("0x", "0o")):
        return int(text, 0)
    return int(text)


def _place(node: Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _kind(value: Any) -> str:
    return "null" if value is None else "a boolean" if isinstance(value, bool) else "a number"


def _load_error(
    code: str, message: str, file: str, line: int | None = None, column: int | None = None, hint: str | None = None
) -> LoadError:
    return LoadError([Problem(code=code, message=message, file=file, line=line, column=column, hint=hint)])
