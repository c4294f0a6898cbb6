"""What a script finds in the sandbox: modules imported ahead of time, and honest refusals in place of the rest.

Runs once, while the component is built; the result is frozen into it. Security doesn't rest on this file: the
component has no imports but the host's `call` and `log`, so whatever gets around the refusals below meets a trap.
It exists to turn traps into exceptions that say what is missing and which grant would give it.
"""

from __future__ import annotations

import builtins
import gc
import importlib
import io
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

MODULES = (
    *("abc", "array", "ast", "base64", "binascii", "bisect", "calendar", "cmath", "codecs", "collections"),
    *("collections.abc", "colorsys", "configparser", "contextlib", "copy", "csv", "dataclasses"),
    *("datetime", "decimal", "difflib", "email.message", "email.utils", "enum", "fnmatch", "fractions"),
    *("functools", "graphlib", "hashlib", "heapq", "hmac", "html", "html.entities", "html.parser", "io"),
    *("ipaddress", "itertools", "json", "keyword", "math", "numbers", "operator", "os.path", "pathlib"),
    *("pprint", "random", "re", "reprlib", "shlex", "statistics", "string", "string.templatelib", "struct"),
    *("textwrap", "time", "tomllib", "traceback", "types", "typing", "unicodedata", "urllib.parse", "uuid"),
    *("warnings", "xml.etree.ElementTree", "zlib"),
)
"""The modules that docs/scripts.md promises. Others are there because these need them."""

SUPPORT = ("_io", "_thread", "gc", "linecache", "os", "posix", "threading")
"""Needed by the refusals below."""

ENCODINGS = (
    *("ascii", "latin_1", "utf_8", "utf_8_sig", "utf_16", "utf_16_le", "utf_16_be", "utf_32", "utf_32_le"),
    *("utf_32_be", "cp437", "cp850", "cp1250", "cp1251", "cp1252", "iso8859_1", "iso8859_2", "iso8859_15"),
    *("koi8_r", "mac_roman", "shift_jis", "euc_jp", "gbk", "gb18030", "big5", "euc_kr", "idna", "punycode"),
    *("unicode_escape", "raw_unicode_escape", "hex_codec", "base64_codec", "rot_13"),
)

DOCS = "see docs/scripts.md for what is there"
READ = "reading files needs `grants: {read: [...]}`, which no version can give yet: pass the content in `input`"
FETCH = "the network needs `grants: {fetch: [...]}`, which no version can give yet: pass the data in `input`"
ENV = "environment variables need `grants: {env: [...]}`, which no version can give yet: pass the value in `input`"
CLOCK = "there is no clock, and no grant for one: bind `${run.started}` in `input`"
RANDOM = "there is no randomness, and no grant for it: use random.Random(seed) with a seed from `input`"
PROCESS = "there are no processes, and no grant for them"
MODEL = "model calls need `grants: {models: [...]}`; then call infer(prompt)"
TERMINAL = "there is no terminal"

REFUSED = {
    FETCH: (
        *("socket", "_socket", "ssl", "select", "selectors", "asyncio", "http", "urllib.request", "urllib3"),
        *("ftplib", "smtplib", "requests", "httpx", "aiohttp"),
    ),
    PROCESS: ("subprocess", "multiprocessing", "concurrent", "signal", "pty", "fcntl", "ctypes", "_ctypes"),
    READ: ("tempfile", "shutil", "glob", "fileinput", "mmap", "sqlite3", "_sqlite3", "dbm", "shelve"),
    RANDOM: ("secrets",),
    MODEL: ("openai", "anthropic", "litellm"),
}
"""Modules whose absence is a denial rather than a gap."""


class Denied(Exception):
    """The script asked for something that its node wasn't granted. May be caught like any exception; no OSError, lest
    a library take it for a missing file and go on."""


class Unsupported(RuntimeError):
    """The script asked for something that the sandbox doesn't have."""


class MissingModule(Unsupported, ModuleNotFoundError):
    """An import of a module that isn't in the sandbox."""


class DeniedModule(Denied, ModuleNotFoundError):
    """An import of a module that could only do what isn't granted."""


class DeniedVariable(Denied, KeyError):
    """A look-up in os.environ."""

    __str__ = Exception.__str__


class Finder:
    """The only import finder: what was imported ahead of time is found before finders are asked."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: object = None) -> None:
        for reason, names in REFUSED.items():
            if name in names or name.partition(".")[0] in names:
                raise DeniedModule(f"import {name}: {reason}", name=name)
        if name.startswith("encodings."):
            return  # codecs.lookup asks; the author gets its LookupError
        raise MissingModule(f"there is no module {name!r} in the sandbox: {DOCS}", name=name)


class Output(io.TextIOBase):
    """stdout and stderr: each finished line goes to ``emit``, up to a bound that is announced when met."""

    def __init__(self, emit: Callable[[str], None]) -> None:
        self.emit = emit
        self.begin()

    def begin(self) -> None:
        """Start anew: the bound is for one call."""
        self.lines = 200
        self.bytes = 16 * 1024
        self.rest = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if self.lines:
            *lines, self.rest = (self.rest + text[: self.bytes + 1]).split("\n")
            for line in lines:
                self._line(line)
            if len(self.rest) > self.bytes:
                self._line(self.rest)
                self.rest = ""
        return len(text)

    def finish(self) -> None:
        """Log a last line that has no newline."""
        if self.rest:
            self._line(self.rest)
            self.rest = ""

    def _line(self, line: str) -> None:
        if not self.lines:
            return
        data = line.encode("utf-8", "replace")
        if self.lines == 1 or len(data) > self.bytes:
            self.lines = 0
            self.emit("... the log is cut here: at most 200 lines and 16 KiB")
            return
        self.lines -= 1
        self.bytes -= len(data)
        self.emit(data.decode())


def deny(name: str, reason: str, error: type[Exception] = Denied) -> Callable[..., NoReturn]:
    """A function that stands in for ``name`` and raises."""

    def denied(*_args: object, **_kwargs: object) -> NoReturn:
        raise error(f"{name}: {reason}")

    denied.__name__ = denied.__qualname__ = name.rpartition(".")[2]
    return denied


def install(log: Callable[[str], None]) -> Output:
    """Import everything, put the refusals in place, and return the stream that takes what scripts print."""
    for name in (*MODULES, *SUPPORT):
        importlib.import_module(name)
    _warm_up()
    _files()
    _clock()
    _randomness()
    _threads()
    output = Output(log)
    vars(sys).update(dict.fromkeys(("stdout", "stderr", "__stdout__", "__stderr__"), output))
    vars(sys).update(stdin=None, __stdin__=None)
    vars(builtins).update(input=deny("input", TERMINAL), breakpoint=deny("breakpoint", TERMINAL))
    vars(builtins).pop("help", None)
    sys.addaudithook(_audit)
    sys.meta_path[:] = [Finder]
    sys.path_hooks.clear()
    sys.path.clear()
    sys.path_importer_cache.clear()
    gc.collect()
    gc.freeze()  # what is here stays: collections needn't look at it, which touches every page
    return output


AUDITED = {"open": READ, "socket.__new__": FETCH, "os.system": PROCESS, "subprocess.Popen": PROCESS}


def _audit(event: str, _arguments: tuple[object, ...]) -> None:
    """Refuse by CPython's own audit events what got around the names replaced below. It also keeps a syntax error
    from looking for the source line in a file."""
    if event in AUDITED:
        raise Denied(f"{event}: {AUDITED[event]}")


def _warm_up() -> None:
    """Do once what the standard library does lazily on first use, imports above all."""
    for encoding in ENCODINGS:
        importlib.import_module(f"encodings.{encoding}")
    for encoding in ("shift_jis", "euc_jp", "gbk", "gb18030", "big5", "euc_kr", "idna", "cp1252", "utf-16"):
        "a".encode(encoding).decode(encoding)
    import datetime
    import decimal
    import hashlib
    import json
    import linecache
    import re
    import statistics
    import traceback
    import xml.etree.ElementTree as ElementTree

    for algorithm in hashlib.algorithms_guaranteed:
        hashlib.new(algorithm, b"")
    datetime.datetime.strptime("2000-01-01", "%Y-%m-%d").strftime("%d.%m.%Y")
    json.loads(json.dumps({"a": [1.5, None]}))
    re.compile(r"(\w+)|[a-z]*?", re.IGNORECASE)
    statistics.median([decimal.Decimal("1.5"), decimal.Decimal(2)])
    ElementTree.fromstring("<a b='c'>d</a>")
    ast = sys.modules["ast"]
    ast.unparse(ast.parse("a.b[c]"))
    linecache.checkcache = lambda filename=None: None  # there are no files to check
    linecache.updatecache = lambda filename, module_globals=None: []
    try:
        raise ValueError
    except ValueError:
        traceback.format_exc()


KEPT_OS = {"fspath", "fsencode", "fsdecode", "strerror", "_path_normpath", "_path_splitroot", "_path_splitroot_ex"}


def _files() -> None:
    import _io
    import os
    import posix

    for module in (io, _io):
        for name in ("open", "open_code", "FileIO"):
            setattr(module, name, deny(name, READ))
    vars(builtins)["open"] = deny("open", READ)
    for name, value in list(vars(posix).items()):
        if isinstance(value, types.BuiltinFunctionType) and name not in KEPT_OS:
            process = name.startswith(("_exit", "abort", "exec", "fork", "kill", "posix_spawn", "system", "wait"))
            stand_in = deny(f"os.{name}", PROCESS if process else READ)
            setattr(posix, name, stand_in)
            if hasattr(os, name):
                setattr(os, name, stand_in)
    for name in ("getcwd", "popen", "system", "fork"):
        setattr(os, name, deny(f"os.{name}", READ if name == "getcwd" else PROCESS))
    path = os.path
    for name in ("exists", "lexists", "isfile", "isdir", "islink", "getsize", "getmtime", "realpath", "ismount"):
        setattr(path, name, deny(f"os.path.{name}", READ))
    environment = Environment()
    vars(os).update(environ=environment, getenv=environment.__getitem__)


class Environment(dict[str, str]):
    """os.environ: empty, and says so when asked for a variable by ``[]``."""

    def __missing__(self, key: str) -> str:
        raise DeniedVariable(f"os.environ[{key!r}]: {ENV}")


def _clock() -> None:
    import datetime
    import time

    places = {"gmtime": 0, "localtime": 0, "ctime": 0, "asctime": 0, "strftime": 1}
    for name, function in list(vars(time).items()):
        if name in places:
            setattr(time, name, _needs_argument(f"time.{name}", function, places[name]))
        elif isinstance(function, types.BuiltinFunctionType) and name not in ("strptime", "mktime"):
            setattr(time, name, deny(f"time.{name}", CLOCK))
    # datetime's classes are static types: their methods can be replaced through the dict behind the proxy only.
    # Done before anybody looked the names up, so that no method cache holds the old ones.
    for cls, names in ((datetime.datetime, ("now", "utcnow")), (datetime.date, ("today",))):
        (namespace,) = gc.get_referents(cls.__dict__)
        for name in names:
            namespace[name] = classmethod(deny(f"{cls.__name__}.{name}", CLOCK))


def _needs_argument(name: str, function: Callable[..., Any], place: int) -> Callable[..., Any]:
    def checked(*args: Any) -> Any:
        if len(args) <= place or args[place] is None:
            raise Denied(f"{name} without a time: {CLOCK}")
        return function(*args)

    return checked


def _randomness() -> None:
    import os
    import random

    for name in ("urandom", "getrandom"):
        setattr(os, name, deny(f"os.{name}", RANDOM))
    vars(random).update(_urandom=os.urandom)
    original = random.Random.seed

    def seed(self: random.Random, a: Any = None, version: int = 2) -> None:
        if a is None:
            raise Denied(f"random without a seed: {RANDOM}")
        original(self, a, version)

    type.__setattr__(random.Random, "seed", seed)
    shared = random.seed.__self__  # type: ignore[attr-defined]  # the instance behind the module's functions
    shared.seed(0)
    vars(random).update(seed=shared.seed)


def _threads() -> None:
    import _thread
    import threading

    for name in ("start_new_thread", "start_new", "start_joinable_thread"):
        setattr(_thread, name, deny("threading", f"there are no threads in the sandbox: {DOCS}", Unsupported))
    vars(threading).update(_start_joinable_thread=vars(_thread)["start_joinable_thread"])
