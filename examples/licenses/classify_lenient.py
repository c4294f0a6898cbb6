"""Read a distribution's licence as a careful person would: loose spellings, open classifiers, and licence texts.

Every hint (the licence field, a classifier, a text) leaves some licences possible. What all hints leave is the
answer; when that is none, or more than one without a usual meaning, the script fails with a reason that helps the
person who gets the escalation. It would rather ask than guess.

Runs in the sandbox: a distribution in, ``{"name", "version", "spdx", "source"}`` out.
"""

import re
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

if TYPE_CHECKING:

    def fail(code: str, message: str, details: object = None) -> NoReturn:
        """Provided by the sandbox: ends the attempt with the author's own code."""


class Hint(NamedTuple):
    """``said`` leaves the licences ``among`` possible; ``usual`` is what is meant when nothing says more."""

    said: str
    among: frozenset[str]
    usual: str | None = None


BSD = "? BSD-2-Clause BSD-3-Clause BSD-4-Clause"
FAMILIES: list[tuple[str, str, dict[str, str]]] = [
    # Words that name the family, words that may come along, licences by stated version ("" for none).
    # Of several licences the first is the usual one, unless "?" stands there.
    ("mit expat", "x11", {"": "MIT", "0": "MIT-0"}),
    ("apache asl", "software foundation", {"": "Apache-2.0 Apache-1.1", "2": "Apache-2.0", "1.1": "Apache-1.1"}),
    (
        "bsd",
        "clause or style like",
        {"": BSD, "0": "0BSD", "2": "BSD-2-Clause", "3": "BSD-3-Clause", "4": "BSD-4-Clause"},
    ),
    ("mpl mozilla", "public", {"": "? MPL-1.0 MPL-1.1 MPL-2.0", "1": "MPL-1.0", "1.1": "MPL-1.1", "2": "MPL-2.0"}),
    ("psf psfl", "python", {"": "PSF-2.0 Python-2.0", "2": "PSF-2.0"}),
    ("python", "", {"": "? PSF-2.0 Python-2.0", "2": "? PSF-2.0 Python-2.0"}),
    ("isc iscl", "", {"": "ISC"}),
    ("zlib", "libpng", {"": "Zlib"}),
    ("unlicense", "", {"": "Unlicense"}),
    ("cczero", "universal public domain dedication creative commons", {"": "CC0-1.0", "1": "CC0-1.0"}),
    ("wtfpl", "", {"": "WTFPL", "2": "WTFPL"}),
    ("boost", "bsl software", {"": "BSL-1.0", "1": "BSL-1.0"}),
    ("bsl", "", {"1": "BSL-1.0"}),  # without the version it may be the Business Source License
    ("zope zpl", "public", {"": "? ZPL-1.1 ZPL-2.0 ZPL-2.1", "2": "ZPL-2.0", "2.1": "ZPL-2.1"}),
    ("eclipse epl", "public", {"": "? EPL-1.0 EPL-2.0", "1": "EPL-1.0", "2": "EPL-2.0"}),
    ("eupl", "european union public", {"": "? EUPL-1.1 EUPL-1.2", "1.1": "EUPL-1.1", "1.2": "EUPL-1.2"}),
    ("artistic", "", {"": "? Artistic-1.0 Artistic-2.0", "1": "Artistic-1.0", "2": "Artistic-2.0"}),
    ("hpnd", "historical permission notice disclaimer", {"": "HPND"}),
    ("postgresql", "", {"": "PostgreSQL"}),
]
GNU_VERSIONS = {"GPL": ("1.0", "2.0", "3.0"), "LGPL": ("2.0", "2.1", "3.0"), "AGPL": ("1.0", "3.0")}
GNU_WORDS = {"gnu", "gpl", "lgpl", "agpl", "general", "public", "lesser", "library", "affero", "or", "only", "+"}
NOISE = {"the", "a", "license", "licence", "licensed", "licenses", "version", "under", "terms", "of", "see", "file"}
SYNONYMS = {"zero": "0", "two": "2", "three": "3", "four": "4"}
BSD_NICKNAMES = {"simplified": "2", "new": "3", "modified": "3", "revised": "3", "original": "4", "freebsd": "2"}
RESTRICTIONS = re.compile(r"commons clause|non-?\s?commercial use|personal use only|evaluation purposes|\beula\b", re.I)
RESERVED = re.compile(r"proprietary|commercial|confidential|all rights reserved", re.I)
"""Words that restrict in a short licence field; long licence texts use them for other ends."""
SAYS_NOTHING = re.compile(
    r"\s*($|see\b|file\b|https?:|copyright|\(c\)|copying|licen[cs]e\b|other\b|free\b|open.?source)", re.I
)
"""Beginnings of licence fields that only point elsewhere, if no licence is named in what follows."""
BUNDLED = re.compile(r"vendor|third.?party|bundled|external|/", re.I)
"""Names of licence files that belong to something shipped along, whose terms therefore apply as well."""

GRANT = "permission is hereby granted free of charge to any person obtaining a copy"
KEEP = "copyright notice and this permission notice shall be included"
NAMELESS = "except as contained in this notice the name"
AS_IS = "to permit persons to whom the software is furnished to do so the software is provided as is"
FINGERPRINTS = [
    # Licences (as in FAMILIES), phrases that a text must hold, phrases that it must not.
    ("MIT", [GRANT, KEEP], [NAMELESS]),
    ("X11 MIT", [GRANT, KEEP, NAMELESS], []),
    ("MIT-0", [GRANT, AS_IS], []),
    ("ISC", ["with or without fee is hereby granted provided that the above copyright notice and this permission"], []),
    ("0BSD", ["with or without fee is hereby granted the software is provided as is"], []),
    ("Apache-2.0", ["apache license version 2 0"], ["llvm exceptions to the apache 2 0 license"]),
    ("Apache-2.0__WITH__LLVM-exception Apache-2.0", ["llvm exceptions to the apache 2 0 license"], []),
    ("Apache-1.1", ["apache software license version 1 1"], []),
    ("MPL-2.0", ["mozilla public license version 2 0"], []),
    ("MPL-2.0", ["subject to the terms of the mozilla public license v 2 0"], []),
    ("MPL-1.1", ["mozilla public license version 1 1"], []),
    ("PSF-2.0 Python-2.0", ["python software foundation license version 2"], ["history of the software", "beopen"]),
    ("? PSF-2.0 Python-2.0", ["history of the software", "stichting mathematisch centrum"], []),
    ("Unlicense", ["this is free and unencumbered software released into the public domain"], []),
    ("CC0-1.0", ["cc0 1 0 universal"], []),
    ("Zlib", ["the origin of this software must not be misrepresented", "altered source versions must be"], []),
    ("ZPL-2.1", ["zope public license zpl version 2 1"], []),
    ("ZPL-2.0", ["zope public license zpl version 2 0"], []),
    ("BSL-1.0", ["boost software license version 1 0"], []),
    ("EPL-2.0", ["eclipse public license v 2 0"], []),
    ("WTFPL", ["do what the fuck you want to public license"], []),
]
LATER = re.compile(
    r"[ -]*(?:or|and)[ -](?:\(?at your option\)?[ -])?(?:any[ -])?"
    r"(?:later|newer|greater|above|higher)(?: versions?)?|>="
)
GNU_TITLE = re.compile(r"gnu (lesser |library |affero )?general public license version (\d(?: \d)?) \d* ?[a-z]+ \d{4}")
GNU_NOTICE = re.compile(
    r"gnu (lesser |library |affero )?general public license as published by the free software foundation "
    r"(?:either )?version (\d(?: \d)?)(?: of the license)?( or (?:at your option )?any later version)?"
)


def run(input: dict[str, Any]) -> dict[str, Any]:
    """The licence of one distribution as an SPDX expression; fails with ``unknown_licence`` if that takes a person."""
    field = input["license_expression"] or input["license"] or ""
    statement = field if len(field) <= 200 and field.count("\n") < 3 else ""
    texts = {file["name"]: read_text(file["text"]) for file in input["license_files"]}
    if field and not statement:
        texts["License field"] = read_text(field)
    classifiers = read_classifiers(input, texts)
    found = RESERVED.search(statement) or RESTRICTIONS.search(
        "\n".join([field, *(f["text"] for f in input["license_files"])])
    )
    if found:
        give_up(input, f"it speaks of {found[0]!r}: read its terms", texts)

    dual = re.search(r"\bdual(?:ly|-)?\s*(?:licen[cs]ed?)?(?:\s*under)?\b\s*[:,]?|\beither\b", statement, re.IGNORECASE)
    rest = statement.replace(dual[0], " ").strip() if dual else statement
    parts = read_statement(rest, dual is not None)
    if not parts and dual and len(classifiers) > 1:
        parts = [part for hint in sorted(classifiers, key=lambda hint: hint.said) for part in (hint, "OR")][:-1]
    if not parts and (dual or mentions_licence(rest) or not SAYS_NOTHING.match(rest)):
        give_up(input, f"its licence field {statement!r} can't be read with certainty", texts)
    if len(parts) > 1:
        return answer(input, combined(input, parts, classifiers, texts), "field")
    declared = [part for part in parts if isinstance(part, Hint)] + classifiers
    if declared:
        known = [hint for hints in texts.values() for hint in hints]
        expression, read_on = single(input, declared, known, texts)
        return answer(input, expression, ("field" if parts else "classifier") + ("+text" if read_on else ""))
    return answer(input, by_texts(input, texts), "text")


def answer(distribution: dict[str, Any], expression: str, source: str) -> dict[str, Any]:
    return {
        "name": distribution["name"],
        "version": distribution["version"],
        "spdx": expression,
        "source": source,
    }


def give_up(distribution: dict[str, Any], why: str, texts: dict[str, list[Hint]], among: object = ()) -> NoReturn:
    """Fail with what a person needs to decide: why, what was declared, what the texts look like, where to read on."""
    message = f"{distribution['name']}: {why}"
    if distribution["problems"]:
        message += f" (its metadata: {'; '.join(distribution['problems'])})"
    if distribution["homepage"]:
        message += f"; see {distribution['homepage']}"
    details = {
        "field": (distribution["license_expression"] or distribution["license"] or "")[:200],
        "classifiers": distribution["classifiers"],
        "texts": {name: sorted({one for hint in hints for one in hint.among}) for name, hints in texts.items()},
        "candidates": sorted(among) if isinstance(among, frozenset) else [],
    }
    fail("unknown_licence", message, details)


# Deciding


def single(
    distribution: dict[str, Any], declared: list[Hint], known: list[Hint], texts: dict[str, list[Hint]]
) -> tuple[str, bool]:
    """The one licence that all declarations and the texts leave, and whether it took the texts to tell."""
    among = frozenset.intersection(*(hint.among for hint in declared))
    said = " and ".join(dict.fromkeys(repr(hint.said) for hint in declared))
    if not among:
        give_up(distribution, f"it declares {said}, without saying whether both apply or either may be chosen", texts)
    in_texts: frozenset[str] = frozenset().union(*(hint.among for hint in known))
    left = among & in_texts if in_texts else among
    if not left:
        found = ", ".join(sorted(in_texts))
        give_up(distribution, f"it declares {said}, but its licence text is that of {found}", texts, in_texts)
    chosen = next((h.usual for h in [*declared, *known] if h.usual in left and left <= h.among), None)
    if len(left) == 1:
        chosen = next(iter(left))
    if chosen is None:
        give_up(distribution, f"it declares {said}, which may be any of {', '.join(sorted(left))}", texts, left)
    return chosen, len(among) > 1 and bool(in_texts)


def combined(
    distribution: dict[str, Any], parts: list[Hint | str], classifiers: list[Hint], texts: dict[str, list[Hint]]
) -> str:
    """The expression that ``parts`` (hints, operators, parentheses) spell, each hint narrowed down by the texts."""
    hints = [part for part in parts if isinstance(part, Hint)]
    for classifier in classifiers:
        if not any(classifier.among & hint.among for hint in hints):
            give_up(distribution, f"its classifier {classifier.said!r} isn't in what its licence field says", texts)
    words: list[str] = []
    for part in parts:
        if isinstance(part, str):
            words.append(part)
            continue
        helpful = [h for hs in texts.values() for h in hs if h.among & part.among]
        words.append(single(distribution, [part], helpful, texts)[0])
    return " ".join(words).replace("( ", "(").replace(" )", ")")


def by_texts(distribution: dict[str, Any], texts: dict[str, list[Hint]]) -> str:
    """What the licence texts alone tell, if each is known and they don't leave open how they go together."""
    if not texts:
        give_up(distribution, "it declares no licence and ships no licence text", texts)
    unread = [name for name, hints in texts.items() if len(hints) != 1]
    if unread:
        what = "several licences" if texts[unread[0]] else "no licence that is known here"
        give_up(distribution, f"it declares no licence, and {unread[0]} holds {what}", texts)
    found: dict[str, str] = {}
    for name, (hint,) in texts.items():
        if hint.usual is None:
            among = ", ".join(sorted(hint.among))
            give_up(distribution, f"it declares no licence; the text in {name} fits any of {among}", texts, hint.among)
        found.setdefault(hint.usual, name)
    if distribution["license_files_omitted"]:
        give_up(distribution, "it declares no licence and ships more licence files than were read", texts)
    # Terms of bundled parts apply along with the project's own; of equals, who knows whether one may choose?
    if len(found) > 1 and sum(not BUNDLED.search(name.removeprefix("licenses/")) for name in found.values()) > 1:
        give_up(distribution, f"it ships {' and '.join(found)} without saying whether one may choose", texts)
    return " AND ".join(found)


# Reading


def read_classifiers(distribution: dict[str, Any], texts: dict[str, list[Hint]]) -> list[Hint]:
    hints: list[Hint] = []
    for classifier in distribution["classifiers"]:
        name = classifier.rsplit(" :: ", 1)[-1]
        if name in ("OSI Approved", "DFSG approved"):
            continue
        hint = read_name(name)
        if hint is None:
            give_up(distribution, f"its classifier {classifier!r} stands for no licence known here", texts)
        hints.append(hint)
    return hints


def read_statement(text: str, dual: bool) -> list[Hint | str]:
    """``text`` as hints with operators and parentheses between them; empty if any of it can't be read."""
    if whole := read_name(text):
        return [whole]
    parts: list[Hint | str] = []
    wanted, depth = True, 0
    for word in re.split(r"(\(|\)|[/|,;&]|\band\b|\bor\b)", later_as_plus(text)):
        if not word.strip():
            continue
        if word == "(" and wanted:
            parts.append("(")
            depth += 1
        elif word == ")" and not wanted and depth:
            parts.append(")")
            depth -= 1
        elif word in ("and", "or", "/", "|", ",", ";", "&") and not wanted:
            if word in (",", ";", "&") and not dual:
                return []
            parts.append("AND" if word == "and" and not dual else "OR")
            wanted = True
        elif wanted and (hint := read_name(word)):
            parts.append(hint)
            wanted = False
        else:
            return []
    mixed = "AND" in parts and "OR" in parts and "(" not in parts
    return [] if wanted or depth or mixed else parts


def read_name(text: str) -> Hint | None:
    """The licences that the name of one licence, however spelt, may stand for."""
    text = text.strip()
    name, _, exception = later_as_plus(text).partition(" with ")
    if exception:
        plain = read_name(name)
        if plain and "Apache-2.0" in plain.among and re.fullmatch(r"\W*llvm[ -]exceptions?\W*", exception):
            return Hint(text, frozenset({"Apache-2.0 WITH LLVM-exception"}))
        return None
    words, versions = name_words(name)
    if not words or len(versions) > 1:
        return None
    version = next(iter(versions), "")
    if words == {"public", "domain"}:
        return Hint(text, frozenset({"LicenseRef-Public-Domain"}))
    if words & {"gpl", "lgpl", "agpl", "gnu"} and words <= GNU_WORDS:
        return read_gnu(text, words, version)
    for names, along, by_version in FAMILIES:
        named = words & set(names.split())
        if named and words <= {*names.split(), *along.split()} and version in by_version:
            return listed(text, by_version[version])
    return None


def name_words(name: str) -> tuple[set[str], set[str]]:
    """The words of a lower-case licence name that mean something, and the versions among them (2.0 is 2)."""
    name = re.sub(r"\bcc[ -]?0|\bcc[ -]zero|creative commons zero", "cczero", name)
    name = name.replace("python software foundation", "psf")
    name = re.sub(r"(?<![a-z])v(?:ersion|\.)?\s*(?=\d)|(?<=[a-z])v(?=\d)", " ", name)
    name = re.sub(r"([a-z]{2})(\d)", r"\1 \2", re.sub(r"(\d)([a-z])", r"\1 \2", name))
    words: set[str] = set()
    numbers: set[str] = set()
    for word in re.findall(r"\d+(?:\.\d+)*|[a-z]+\d*|\+", name):
        word = SYNONYMS.get(word, word)
        if word[0].isdigit():
            numbers.add(word)
        elif word not in NOISE:
            words.add(word)
    if words & {"bsd", "freebsd"}:  # here a number counts clauses: 3, never 3.0
        numbers |= {BSD_NICKNAMES[word] for word in words & BSD_NICKNAMES.keys()}
        return words - BSD_NICKNAMES.keys() | {"bsd"}, numbers
    return words, {re.sub(r"(?:\.0)+$", "", number) for number in numbers}


def later_as_plus(text: str) -> str:
    """``text`` in lower case with ``+`` for "or later" in its many forms, so that "or" means a choice."""
    return LATER.sub(" + ", text.lower())


def read_gnu(text: str, words: set[str], version: str) -> Hint | None:
    if len(words & {"gpl", "lgpl", "agpl"}) > 1:
        return None
    family = "AGPL" if words & {"agpl", "affero"} else "LGPL" if words & {"lgpl", "lesser", "library"} else "GPL"
    return gnu(text, family, version, later="+" in words, only="only" in words)


def gnu(said: str, family: str, version: str, *, later: bool, only: bool = False) -> Hint | None:
    """A GNU licence; "LGPL 2" may be 2.0 or 2.1, and a bare version is usually meant as that version only."""
    stated = [v for v in GNU_VERSIONS[family] if v == version or v.removesuffix(".0") == version or not version]
    if family == "LGPL" and version == "2":
        stated = ["2.0", "2.1"]
    endings = ["or-later"] if later else ["only"] if only else ["only", "or-later"]
    among = [f"{family}-{v}-{ending}" for v in stated for ending in endings]
    return Hint(said, frozenset(among), among[0] if len(stated) == 1 else None) if among else None


def read_text(text: str) -> list[Hint]:
    """The licences whose characteristic phrases a text holds; several if it is a collection of them."""
    plain = " ".join(re.findall(r"[a-z0-9]+", text.lower()))
    hints = [
        listed(licences, licences)
        for licences, wanted, unwanted in FINGERPRINTS
        if all(phrase in plain for phrase in wanted) and not any(phrase in plain for phrase in unwanted)
    ]
    hints += bsd_text(plain) + gnu_text(plain)
    return list(dict.fromkeys(hint._replace(said=", ".join(sorted(hint.among))) for hint in hints))


def bsd_text(plain: str) -> list[Hint]:
    """Which BSD licence: the clauses stand between the grant and the disclaimer, so both must be in sight."""
    _, granted, after = plain.partition(
        "redistribution and use in source and binary forms with or without modification"
    )
    if not granted:
        return []
    clauses, disclaimed, _ = after.partition("this software is provided")
    if "advertising materials mentioning features" in clauses:
        return [listed("BSD", "BSD-4-Clause")]
    if re.search(r"may (?:not )?be used to endorse|neither the names? of", clauses):
        return [listed("BSD", "BSD-3-Clause")]
    if disclaimed and " cut " not in clauses:
        return [listed("BSD", "BSD-2-Clause")]
    return [listed("BSD", "? BSD-2-Clause BSD-3-Clause BSD-4-Clause")]


def gnu_text(plain: str) -> list[Hint]:
    """GNU licences. A full text leaves "or later" open; only a notice before it (not its appendix) tells."""
    title = GNU_TITLE.search(plain)
    hints: list[Hint | None] = []
    for notice in GNU_NOTICE.finditer(plain[: title.start()] if title else plain):
        hints.append(
            gnu(notice[0], gnu_family(notice[1]), dotted(notice[2]), later=bool(notice[3]), only=not notice[3])
        )
    if title and not hints:
        hint = gnu(title[0], gnu_family(title[1]), dotted(title[2]), later=False)
        hints.append(hint and hint._replace(usual=None))
    return [hint for hint in hints if hint]


def dotted(version: str) -> str:
    """``2 1`` as ``2.1``, ``3`` as ``3.0``."""
    return version.replace(" ", ".") if " " in version else version + ".0"


def gnu_family(qualifier: str | None) -> str:
    return {"lesser ": "LGPL", "library ": "LGPL", "affero ": "AGPL"}.get(qualifier or "", "GPL")


def listed(said: str, licences: str) -> Hint:
    """A hint from a row of a table above: licences between blanks, the usual one first, ``?`` if there is none."""
    names = [name.replace("__", " ") for name in licences.split()]
    return Hint(said, frozenset(names) - {"?"}, None if names[0] == "?" else names[0])


def mentions_licence(text: str) -> bool:
    """Whether a licence is named somewhere in a text that couldn't be read as a whole."""
    words, _ = name_words(later_as_plus(text))
    return bool(words & {name for names, _, _ in FAMILIES for name in names.split()} | words & {"gpl", "lgpl", "agpl"})
