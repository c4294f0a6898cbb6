"""What the graph may ask of the file system: the metadata of every distribution installed in an environment.

It reads what installers wrote (``*.dist-info``, ``*.egg-info``, ``*.egg``) and judges nothing: that is the
scripts' work. Nothing is imported and nothing outside the metadata folders is opened, because metadata is other
people's text: it may be broken, in an old encoding, missing, or point somewhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from typing import Final, TypedDict

from temporalio.exceptions import ApplicationError

METADATA_LIMIT: Final = 4 * 1024 * 1024
"""Bytes of one METADATA file that are read; old ones hold the whole description among the headers."""
TEXT_LIMIT: Final = 4 * 1024
"""Characters kept of one licence text: its first three quarters and its last one, where exceptions stand."""
TEXTS_LIMIT: Final = 8 * 1024
"""Characters kept of all licence texts of one distribution, shared evenly."""
FILES_LIMIT: Final = 4
"""Licence files kept of one distribution."""
FIELD_LIMIT: Final = 200
"""Characters kept of a name, a version, a classifier, an address."""
CLASSIFIERS_LIMIT: Final = 20
CUT: Final = "\n[... cut ...]\n"
"""Stands where the middle of a long text was left out."""

_LICENCE_FILE = re.compile(r"(un)?licen[cs]e|copying", re.IGNORECASE)
_SITE_PACKAGES = ("lib/python*/site-packages", "Lib/site-packages", "lib/python*/dist-packages")
_HOME_LABELS = ("homepage", "home", "repository", "source", "sourcecode", "github", "documentation")


class LicenceFile(TypedDict):
    """``name`` relative to the metadata folder; ``text`` with the middle of a long one left out."""

    name: str
    text: str


class Distribution(TypedDict):
    """One installed distribution, a few KiB at most. What isn't stated is null or empty."""

    name: str
    version: str | None
    license_expression: str | None
    license: str | None
    classifiers: list[str]
    license_files: list[LicenceFile]
    license_files_omitted: int
    """Licence files that were found but not kept or not readable."""
    homepage: str | None
    problems: list[str]
    """What is wrong with the metadata itself."""


class Environment(TypedDict):
    """Where the distributions were found."""

    path: str | list[str]
    folders: list[str]
    duplicates: int
    """Metadata folders that name a distribution and version already listed."""


class Installed(TypedDict):
    distributions: list[Distribution]
    environment: Environment


def list_distributions(path: str | list[str]) -> Installed:
    """Every distribution installed under ``path``: a site-packages folder, the root of a virtual environment, or
    several of them.

    Sorted by name, then version; the same name and version twice is listed once. Broken metadata doesn't stop it:
    the distribution is listed with what could be read and ``problems``.

    Raises:
        ApplicationError: type ``bad_path`` if ``path`` is no folder that can be read, ``nothing_installed`` if no
            distribution is installed there, or in any of several. The type becomes the node's code.
    """
    roots = [_folder(one) for one in ([path] if isinstance(path, str) else path)]
    folders = list(dict.fromkeys(folder for root in roots for folder in _site_packages(root)))
    found = sorted(
        ((_read(entry), entry) for folder in folders for entry in _metadata(folder)),
        key=lambda pair: (normalised(pair[0]["name"]), pair[0]["version"] or "", str(pair[1])),
    )
    distinct: dict[tuple[str, str | None], Distribution] = {}
    for distribution, _ in found:
        distinct.setdefault((normalised(distribution["name"]), distribution["version"]), distribution)
    if not distinct:
        raise ApplicationError(
            f"no Python distribution is installed in {path!r}: it holds neither *.dist-info nor *.egg-info, "
            "and no lib/python*/site-packages that does",
            type="nothing_installed",
        )
    shown = [_printable(str(root)) for root in roots]
    return {
        "distributions": list(distinct.values()),
        "environment": {
            "path": shown[0] if isinstance(path, str) else shown,
            "folders": [_printable(str(folder)) for folder in folders],
            "duplicates": len(found) - len(distinct),
        },
    }


def bad_path(message: str) -> ApplicationError:
    """The failure that the path given is no folder that can be read."""
    return ApplicationError(message, type="bad_path")


def normalised(name: str) -> str:
    """``name`` as package indexes compare it: lower case, runs of ``-_.`` as one hyphen."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _folder(path: str) -> Path:
    if not path.strip() or "\0" in path:
        raise bad_path("the path of the environment is empty or holds a NUL character")
    try:
        folder = Path(path).expanduser()
        if not folder.exists():
            raise bad_path(f"the folder {path!r} doesn't exist")
        if not folder.is_dir():
            raise bad_path(f"{path!r} is a file; give a site-packages folder or the root of a virtual environment")
        return folder.resolve()
    except RuntimeError as error:  # ~name of a user that there isn't
        raise bad_path(f"the folder {path!r} can't be found: {error}") from error
    except OSError as error:
        raise bad_path(f"the folder {path!r} can't be read: {error.strerror}") from error


def _site_packages(root: Path) -> list[Path]:
    """``root`` itself if metadata lies in it, else the site-packages folders of the environment that it is."""
    if next(_metadata(root), None) is not None:
        return [root]
    # lib64 is often a link to lib: only what resolves to a folder of its own counts.
    return sorted({folder.resolve() for pattern in _SITE_PACKAGES for folder in root.glob(pattern) if folder.is_dir()})


def _metadata(folder: Path) -> Iterator[Path]:
    """The metadata folders (and old single files) in ``folder``, by name; not an installer's leftovers (``~...``)."""
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise bad_path(f"the folder {str(folder)!r} can't be read: {error.strerror}") from error
    for entry in entries:
        if entry.name.startswith(("~", "-")):
            continue
        if entry.name.endswith((".dist-info", ".egg-info")):
            yield entry
        elif entry.name.endswith(".egg") and (entry / "EGG-INFO").is_dir():
            yield entry / "EGG-INFO"


def _read(entry: Path) -> Distribution:
    problems: list[str] = []
    headers = _headers(entry, problems)
    name, version = _named_by_folder(entry)
    if stated := _field(headers, "Name"):
        name = stated
    else:
        problems.append("the metadata states no name; taken from the folder's")
    files, omitted = _licence_files(entry, headers, problems)
    return {
        "name": _bounded(name),
        "version": _field(headers, "Version") or version,
        "license_expression": _field(headers, "License-Expression"),
        "license": _field(headers, "License", TEXT_LIMIT),
        "classifiers": _classifiers(headers),
        "license_files": files,
        "license_files_omitted": omitted,
        "homepage": _homepage(headers),
        "problems": problems,
    }


def _headers(entry: Path, problems: list[str]) -> Message:
    """The headers of the first metadata file there is; empty ones, and a problem, if none can be read."""
    candidates = [entry] if entry.is_file() else [entry / "METADATA", entry / "PKG-INFO"]
    for file in candidates:
        try:
            with file.open("rb") as stream:
                data = stream.read(METADATA_LIMIT)
        except FileNotFoundError:
            continue
        except OSError as error:
            problems.append(f"{file.name} can't be read: {error.strerror}")
            continue
        if not data.strip():
            problems.append(f"{file.name} is empty")
            continue
        return HeaderParser().parsestr(_decoded(data, file.name, problems).lstrip("\r\n"))
    if not problems:
        problems.append("there is no METADATA file")
    return Message()


def _decoded(data: bytes, name: str, problems: list[str]) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        # Tools of long ago wrote the author's own encoding; latin-1 reads any byte and keeps ASCII headers right.
        problems.append(f"{name} isn't UTF-8")
        return data.decode("latin-1")


def _field(headers: Message, key: str, limit: int = FIELD_LIMIT) -> str | None:
    """The header's text, or None if it isn't there, empty, or one of the placeholders that old tools wrote."""
    value = headers.get(key)
    text = "" if value is None else str(value).strip()
    return None if text.upper() in ("", "UNKNOWN", "NONE") else _bounded(text, limit)


def _classifiers(headers: Message) -> list[str]:
    stated = (str(value).strip() for value in headers.get_all("Classifier") or [])
    licences = dict.fromkeys(_bounded(text) for text in stated if text.startswith("License ::"))
    return list(licences)[:CLASSIFIERS_LIMIT]


def _homepage(headers: Message) -> str | None:
    if home := _field(headers, "Home-page"):
        return home
    urls: dict[str, str] = {}
    for value in headers.get_all("Project-URL") or []:
        label, _, url = str(value).partition(",")
        urls.setdefault(re.sub(r"[^a-z]", "", label.lower()), url.strip())
    return next((_bounded(urls[label]) for label in _HOME_LABELS if urls.get(label)), None)


def _licence_files(entry: Path, headers: Message, problems: list[str]) -> tuple[list[LicenceFile], int]:
    """The licence texts that lie beside the metadata, and how many more there are."""
    if not entry.is_dir():
        return [], 0
    try:
        paths = _licence_paths(entry, headers)
    except OSError as error:
        problems.append(f"the licence files can't be listed: {error.strerror}")
        return [], 0
    chosen = paths[:FILES_LIMIT]
    texts = [(name, _text(file, min(TEXT_LIMIT, TEXTS_LIMIT // len(chosen)))) for name, file in chosen]
    kept: list[LicenceFile] = [{"name": name, "text": text} for name, text in texts if text is not None]
    return kept, len(paths) - len(kept)


def _licence_paths(entry: Path, headers: Message) -> list[tuple[str, Path]]:
    """Names and places of the licence files: those that ``License-File`` lists, else those named like one."""
    folders = [entry / "licenses", entry / "license_files", entry]
    stated = [str(name).strip() for name in headers.get_all("License-File") or []]
    names = [name for name in dict.fromkeys(stated) if _LICENCE_FILE.search(name)]
    files: list[tuple[str, Path]] = []
    for name in names:
        if (file := next((f for folder in folders if (f := _inside(folder, name)) is not None), None)) is not None:
            files.append((_bounded(name), file))
    if not files:
        in_subfolders = [file for folder in folders[:2] for file in sorted(folder.rglob("*"))]
        named = [f for f in [*in_subfolders, *sorted(entry.iterdir())] if _LICENCE_FILE.match(f.name)]
        files = [
            (_bounded(file.relative_to(entry).as_posix()), inside)
            for file in named
            if (inside := _inside(entry, str(file.relative_to(entry)))) is not None
        ]
    return files


def _inside(folder: Path, name: str) -> Path | None:
    """The file ``name`` of ``folder``, or None: metadata may name anything, so what lies outside isn't opened."""
    try:
        file = (folder / name).resolve()
        return file if file.is_relative_to(folder.resolve()) and file.is_file() else None
    except (OSError, ValueError):
        return None


def _text(file: Path, limit: int) -> str | None:
    """Head and tail of a text file, ``limit`` characters at most; None if it can't be read."""
    try:
        with file.open("rb") as stream:
            text = stream.read(METADATA_LIMIT).decode("utf-8", errors="replace")
    except OSError:
        return None
    return text if len(text) <= limit else text[: limit * 3 // 4] + CUT + text[len(CUT) - limit // 4 :]


def _named_by_folder(entry: Path) -> tuple[str, str | None]:
    """Name and version as in ``name-1.0.dist-info``, ``name-1.0-py3.11.egg-info``, ``name-1.0-py3.11.egg/EGG-INFO``."""
    folder = entry.parent if entry.name == "EGG-INFO" else entry
    parts = folder.name.rsplit(".", 1)[0].split("-")
    return parts[0] or folder.name, parts[1] if len(parts) > 1 else None


def _bounded(text: str, limit: int = FIELD_LIMIT) -> str:
    text = _printable(text)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _printable(text: str) -> str:
    """``text`` without the half characters that stand for undecodable bytes of a file's name: JSON has no such."""
    return text.encode(errors="replace").decode()
