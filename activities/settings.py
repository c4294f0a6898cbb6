"""A worker's settings, read once from `FERRATA_*` environment variables.

Only what belongs to Ferrata: how to reach the Temporal server is Temporal's own (`TEMPORAL_*`, `temporal.toml`).
The list below is the one place that knows the variables; `docs/settings.md` shows the same table, and a test
compares them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic import BaseModel, Field

from graph.errors import LoadError, Problem
from graph.nearest import nearest
from graph.values import trim

PREFIX: Final = "FERRATA_"
STORE_SCHEMES: Final = ("file", "s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl", "memory")
MOST_PROCESSES: Final = 256
MOST_SLOTS: Final = 1000


def cores() -> int:
    """The processor cores this process may use, at least one."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Settings(BaseModel, frozen=True):
    """What a worker was told. Paths are absolute once read by `from_env`."""

    store: str = Field(default_factory=lambda: str(Path.cwd() / ".ferrata" / "store"))
    """A folder's path, or an object store's URL."""
    graphs: tuple[Path, ...] = Field(default_factory=lambda: (Path.cwd(),))
    """Folders under which graphs are looked up by name or path."""
    readable: tuple[Path, ...] = ()
    """Folders whose files graphs may be granted to read; none named: the graph folders."""
    functions: tuple[str, ...] = ()
    """Modules whose functions graphs may call."""
    activities: tuple[str, ...] = ()
    """Modules whose activities the worker registers."""
    models: str | None = None
    """The models file's absolute path, or its content as JSON; None: no models."""
    cache: Path | None = None
    """Where the sandbox and its compiled code are kept; None: the sandbox's own place."""
    task_queue: str = "ferrata"
    build_id: str | None = None
    """The version of this worker, for Temporal's worker versioning; None: not versioned."""
    deployment: str = "ferrata"
    """What the builds that follow one another are versions of."""
    processes: int = Field(default_factory=cores)
    """Attempt processes."""
    slots: int = 16
    """Activities at once in each attempt process."""

    @property
    def read_folders(self) -> tuple[Path, ...]:
        """The folders whose files graphs may be granted to read."""
        return self.readable or self.graphs

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, folder: Path | None = None) -> Settings:
        """The settings in ``environ`` (default: the process's), with relative paths taken from ``folder``
        (default: the working folder). A variable that is empty counts as not set.

        Raises:
            LoadError: code ``bad_setting``, one problem for each bad value.
        """
        settings, problems = cls.read(environ, folder)
        if problems:
            raise LoadError(problems)
        return settings

    @classmethod
    def read(
        cls, environ: Mapping[str, str] | None = None, folder: Path | None = None
    ) -> tuple[Settings, list[Problem]]:
        """As `from_env`, but bad values are left out and their problems returned: there may be more to say."""
        environ = os.environ if environ is None else environ
        folder = (folder or Path.cwd()).absolute()
        found: dict[str, Any] = {"store": str(folder / ".ferrata" / "store"), "graphs": (folder,)}
        problems: list[Problem] = []
        for variable in VARIABLES:
            text = environ.get(variable.name, "").strip()
            if not text:
                continue
            try:
                found[variable.field] = variable.read(text, folder)
            except _BadValueError as bad:
                problems.append(bad_setting(variable.name, text, bad.wrong, bad.mend))
        settings = cls(**found)
        if settings.store.startswith("memory:") and settings.processes > 1:
            problems.append(
                bad_setting(
                    "FERRATA_STORE",
                    settings.store,
                    f"a memory store is seen by one process only, and there are {settings.processes} attempt processes",
                    "use a folder, or an object store that all processes reach; or set FERRATA_PROCESSES=1 for a trial",
                )
            )
        return settings, problems

    @staticmethod
    def warnings(environ: Mapping[str, str] | None = None) -> list[str]:
        """One line for each `FERRATA_*` variable that isn't known, with the nearest one that is, or has no effect."""
        known = [variable.name for variable in VARIABLES]
        environ = os.environ if environ is None else environ
        lines = []
        for name in sorted(environ):
            if name.startswith(PREFIX) and name not in known:
                near = nearest(name, known)
                mend = f"did you mean {near}?" if near else f"known are {', '.join(known)}"
                lines.append(f"{name} is no setting of Ferrata and has no effect: {mend}")
        if environ.get("FERRATA_DEPLOYMENT", "").strip() and not environ.get("FERRATA_BUILD_ID", "").strip():
            lines.append("FERRATA_DEPLOYMENT has no effect without FERRATA_BUILD_ID")
        return lines


@dataclass(frozen=True)
class Variable:
    """One environment variable: the field it fills, its default and meaning in words, and how its text is read."""

    name: str
    field: str
    default: str
    meaning: str
    read: Callable[[str, Path], Any]


def settings_table() -> str:
    """All variables as a Markdown table, the one in ``docs/settings.md``."""
    rows = [f"| `{v.name}` | {v.default} | {v.meaning} |" for v in VARIABLES]
    return "\n".join(["| variable | default | meaning |", "| --- | --- | --- |", *rows])


def bad_setting(variable: str, value: str, wrong: str, mend: str) -> Problem:
    """The problem that a variable's value is wrong: code ``bad_setting``, naming variable, value and mend."""
    return Problem(code="bad_setting", message=f"{variable} is `{trim(_masked(value), 200)}`: {wrong}", hint=mend)


class _BadValueError(Exception):
    def __init__(self, wrong: str, mend: str) -> None:
        super().__init__(wrong)
        self.wrong = wrong
        self.mend = mend


def _masked(value: str) -> str:
    """``value`` without the user and password that a URL may hold: messages end up in logs."""
    return re.sub(r"(://)[^/@\s]*@", r"\1***@", value)


def _store(text: str, folder: Path) -> str:
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", text)
    if scheme is None:
        return str(folder / text)
    if scheme[1].lower() not in STORE_SCHEMES:
        raise _BadValueError(
            f"`{scheme[1]}` is no kind of store", "use a folder's path, or file, s3, gs or az as scheme"
        )
    url = urlsplit(text)
    if "@" in url.netloc and scheme[1].lower() not in ("abfs", "abfss"):  # there, the container comes before the @
        raise _BadValueError(
            "a store's URL holds no credentials", "pass them in the variables of the store's own, as AWS_ACCESS_KEY_ID"
        )
    if url.scheme == "file" and (url.netloc not in ("", "localhost") or not url.path.startswith("/")):
        raise _BadValueError(
            "a file URL has three slashes and an absolute path", f"write a plain path: {url.netloc}{url.path}"
        )
    return text


def _folders(text: str, folder: Path) -> tuple[Path, ...]:
    folders = tuple(folder / part for part in text.split(os.pathsep) if part.strip())
    for path in folders:
        if not path.is_dir():
            raise _BadValueError(
                f"`{path}` is no folder",
                f"name existing folders, with `{os.pathsep}` between them if there are several",
            )
    return folders


def _modules(text: str, folder: Path) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            raise _BadValueError(
                f"`{name}` is no module's name", "name importable modules, as in `shop.prices,shop.stock`"
            )
    return tuple(dict.fromkeys(names))


def _models(text: str, folder: Path) -> str:
    if text.startswith("{"):
        return text
    path = folder / text
    if not path.is_file():
        raise _BadValueError(f"`{path}` is no file", "name a YAML or JSON file, or give its content as JSON: {...}")
    return str(path)


def _cache(text: str, folder: Path) -> Path:
    path = folder / text
    if path.exists() and not path.is_dir():
        raise _BadValueError(f"`{path}` is no folder", "name a folder; it is made when it is missing")
    return path


def _queue(text: str, folder: Path) -> str:
    if len(text) > 1000:
        raise _BadValueError("the name is longer than the 1000 characters that Temporal takes", "choose a shorter name")
    return text


def _build_id(text: str, folder: Path) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}", text):
        raise _BadValueError(
            "no build's name", "use up to 100 letters, digits, `.`, `_`, `+` and `-`, as in `1.4.0` or a commit's hash"
        )
    return text


def _deployment(text: str, folder: Path) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}", text):
        raise _BadValueError("no deployment's name", "use up to 100 letters, digits, `_` and `-`")
    return text


def _number(most: int) -> Callable[[str, Path], int]:
    def read(text: str, folder: Path) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", text) or not 1 <= int(text) <= most:
            raise _BadValueError("not a whole number in range", f"set a number from 1 to {most}")
        return int(text)

    return read


VARIABLES: Final = (
    Variable(
        "FERRATA_STORE",
        "store",
        "`.ferrata/store`",
        "Where data lies: a folder, or the URL of an object store (`s3://bucket/prefix`, `gs://...`, `az://...`).",
        _store,
    ),
    Variable(
        "FERRATA_GRAPHS",
        "graphs",
        "the working folder",
        "Folders of graph files, separated as in `PATH`. Runs name graphs below them, never outside.",
        _folders,
    ),
    Variable(
        "FERRATA_READ",
        "readable",
        "the folders of graph files",
        "Folders whose files `grants: {read: [...]}` of a graph may name, separated as in `PATH`.",
        _folders,
    ),
    Variable(
        "FERRATA_FUNCTIONS",
        "functions",
        "none",
        "Modules whose functions graphs may call, separated by commas.",
        _modules,
    ),
    Variable(
        "FERRATA_ACTIVITIES",
        "activities",
        "none",
        "Modules whose Temporal activities the worker offers, separated by commas.",
        _modules,
    ),
    Variable(
        "FERRATA_MODELS",
        "models",
        "none",
        "The models: a YAML or JSON file's path, or JSON that begins with `{`. See [models](models.md).",
        _models,
    ),
    Variable(
        "FERRATA_CACHE",
        "cache",
        "`.ferrata/sandbox` of the project",
        "Folder of the sandbox and its compiled code.",
        _cache,
    ),
    Variable(
        "FERRATA_TASK_QUEUE",
        "task_queue",
        "`ferrata`",
        "The Temporal task queue that the worker serves.",
        _queue,
    ),
    Variable(
        "FERRATA_BUILD_ID",
        "build_id",
        "none",
        "Name of this build: runs stay on the build that they started on. See [versioning](versioning.md).",
        _build_id,
    ),
    Variable(
        "FERRATA_DEPLOYMENT",
        "deployment",
        "`ferrata`",
        "The deployment of which `FERRATA_BUILD_ID` is a version; each task queue needs its own.",
        _deployment,
    ),
    Variable(
        "FERRATA_PROCESSES",
        "processes",
        "one per core",
        f"Attempt processes, 1 to {MOST_PROCESSES}. Scripts run in parallel only in different processes.",
        _number(MOST_PROCESSES),
    ),
    Variable(
        "FERRATA_SLOTS",
        "slots",
        "16",
        f"Activities at once in each attempt process, 1 to {MOST_SLOTS}.",
        _number(MOST_SLOTS),
    ),
)
"""Every variable, in the order of the documentation."""
