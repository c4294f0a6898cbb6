"""Names of nodes: what they look like, and those that mean something else already."""

from __future__ import annotations

import keyword
import re

from graph.expressions import BUILTINS, CONSTANTS, HELPERS
from graph.problems import Path, Place

LONGEST_NAME = 100
_NAME = re.compile(r"[a-z][a-z0-9_]*")
OURS = frozenset({"input", "item", "index", "output", "run"})


def check_name(name: str, place: Place, path: Path) -> None:
    """Reports a node's name that expressions couldn't use."""
    if name in OURS or name in BUILTINS or name in HELPERS or name in CONSTANTS:
        place.problem("bad_name", f"`{name}` means something else in expressions", path, f"write `{name}_`", key=True)
    elif keyword.iskeyword(name):
        place.problem("bad_name", f"`{name}` is a word of Python", path, f"write `{name}_`", key=True)
    elif len(name) > LONGEST_NAME:
        place.problem("bad_name", f"a node's name has at most {LONGEST_NAME} letters", path, key=True)
    elif _NAME.fullmatch(name) is None:
        if "-" in name:
            message = f"`{name}` has a hyphen, which expressions would read as minus"
        else:
            message = f"`{name[:60]}` isn't a node's name"
        hint = f"write `{_mended(name)}`: small letters, digits and `_`, a letter first"
        place.problem("bad_name", message, path, hint, key=True)


def _mended(name: str) -> str:
    plain = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_")[:LONGEST_NAME]
    return plain if _NAME.fullmatch(plain) else f"node_{plain}".rstrip("_")
