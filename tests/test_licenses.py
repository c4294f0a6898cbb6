"""The licence example: its function on real folders, its two scripts over real-world metadata."""

from __future__ import annotations

import builtins
import importlib.util
import json
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.licenses._spdx import EXCEPTIONS, LICENSES
from temporalio.exceptions import ApplicationError

from activities.graph_files import DiskFiles
from examples.licenses.demo import environments
from examples.licenses.functions import CUT, FILES_LIMIT, TEXT_LIMIT, list_distributions
from graph.compile import compile_graph
from graph.source import read_source

FOLDER = Path(__file__).resolve().parent.parent / "examples" / "licenses"
SCHEMA = json.loads((FOLDER / "spdx.schema.json").read_text())

MIT = """Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, ... subject to the following
conditions: The above copyright notice and this permission notice shall be included in all copies or substantial
portions of the Software. THE SOFTWARE IS PROVIDED "AS IS"..."""
BSD_GRANT = """Redistribution and use in source and binary forms, with or without modification, are permitted provided
that the following conditions are met:
 * Redistributions of source code must retain the above copyright notice
 * Redistributions in binary form must reproduce the above copyright notice"""
BSD_END = '\nTHIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS AND CONTRIBUTORS "AS IS"'
BSD2 = BSD_GRANT + BSD_END
BSD3 = BSD_GRANT + "\n * Neither the name of X nor the names of its contributors may be used to endorse" + BSD_END
BSD4 = BSD_GRANT + "\n * All advertising materials mentioning features or use of this software must" + BSD_END
APACHE = "                Apache License\n          Version 2.0, January 2004\n  TERMS AND CONDITIONS FOR USE"
LLVM = APACHE + CUT + "--- LLVM Exceptions to the Apache 2.0 License ----"
ISC = """Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby
granted, provided that the above copyright notice and this permission notice appear in all copies."""
ZERO_BSD = """Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is
hereby granted. THE SOFTWARE IS PROVIDED "AS IS" AND THE AUTHOR DISCLAIMS ALL WARRANTIES"""
ZLIB = (
    """2. Altered source versions must be plainly marked. 1. The origin of this software must not be misrepresented"""
)
GPL3 = "GNU GENERAL PUBLIC LICENSE\n Version 3, 29 June 2007\n" + CUT
GPL3 += "either version 3 of the License, or (at your option) any later version."
GPL2_LATER = """under the terms of the GNU General Public License as published by the Free Software Foundation; either
version 2 of the License, or (at your option) any later version."""
LGPL21 = "GNU LESSER GENERAL PUBLIC LICENSE\n Version 2.1, February 1999"
PSF = "PYTHON SOFTWARE FOUNDATION LICENSE VERSION 2\n1. This LICENSE AGREEMENT is between the PSF"
CPYTHON = "A. HISTORY OF THE SOFTWARE\nat Stichting Mathematisch Centrum (CWI) in the Netherlands\n" + PSF
UNLICENSE = "This is free and unencumbered software released into the public domain."
OSI = "License :: OSI Approved :: "


class ScriptFailed(Exception):
    """What the sandbox's ``fail`` is here."""


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"script_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


STRICT, LENIENT = load("classify"), load("classify_lenient")


@pytest.fixture(autouse=True, scope="module")
def _fail() -> Iterator[None]:
    """`fail` as a builtin, as the sandbox gives it to scripts."""

    def fail(code: str, message: str, details: Any = None) -> NoReturn:
        json.dumps(details, allow_nan=False)
        assert message
        raise ScriptFailed(code, message, details)

    builtins.fail = fail  # type: ignore[attr-defined]
    yield
    del builtins.fail  # type: ignore[attr-defined]


def distribution(texts: dict[str, str] | None = None, **fields: Any) -> dict[str, Any]:
    return {
        "name": "sample",
        "version": "1.0",
        "license_expression": None,
        "license": None,
        "classifiers": [],
        "license_files": [{"name": name, "text": text} for name, text in (texts or {}).items()],
        "license_files_omitted": 0,
        "homepage": None,
        "problems": [],
        **fields,
    }


def classify(input: dict[str, Any]) -> dict[str, Any]:
    """Both scripts as the graph runs them: the second when the first says UNKNOWN."""
    output: dict[str, Any] = STRICT.run(input)
    if output["spdx"] == "UNKNOWN":
        output = LENIENT.run(input)
    jsonschema.validate(output, SCHEMA)
    return output


def outcome(input: dict[str, Any]) -> str:
    """The licence, or the code of the failure."""
    try:
        return str(classify(input)["spdx"])
    except ScriptFailed as failed:
        return str(failed.args[0])


# Scripts: (field or expression or classifiers or texts) -> SPDX, None when a person must decide.

SAMPLES: dict[str, tuple[dict[str, Any], str | None]] = {
    "expression": ({"license_expression": "MIT"}, "MIT"),
    "expression in odd case": ({"license_expression": "apache-2.0 or Mit"}, "Apache-2.0 OR MIT"),
    "expression nested": (
        {"license_expression": "(MIT OR (Apache-2.0 AND BSD-2-Clause))"},
        "(MIT OR (Apache-2.0 AND BSD-2-Clause))",
    ),
    "expression with exception": (
        {"license_expression": "Apache-2.0 WITH LLVM-exception"},
        "Apache-2.0 WITH LLVM-exception",
    ),
    "expression deprecated": ({"license_expression": "GPL-3.0+"}, "GPL-3.0-or-later"),
    "expression of its own": ({"license_expression": "LicenseRef-Acme-1"}, "LicenseRef-Acme-1"),
    "expression beats classifiers": ({"license_expression": "ISC", "classifiers": [OSI + "MIT License"]}, "ISC"),
    "expression that is a name": ({"license_expression": "Apache 2.0"}, "Apache-2.0"),
    "expression that is nonsense": ({"license_expression": "MIT OR"}, None),
    "expression with unknown exception": ({"license_expression": "MIT WITH cheese"}, None),
    "classifier": ({"classifiers": [OSI + "MIT License"]}, "MIT"),
    "classifier with an empty one": (
        {"classifiers": ["License :: DFSG approved", OSI + "ISC License (ISCL)"]},
        "ISC",
    ),
    "classifier with or later": (
        {"classifiers": [OSI + "GNU General Public License v3 or later (GPLv3+)"]},
        "GPL-3.0-or-later",
    ),
    "classifier of a version only": (
        {"classifiers": [OSI + "GNU General Public License v3 (GPLv3)"]},
        "GPL-3.0-only",
    ),
    "classifier and narrower field": (
        {"license": "GPL-3.0-or-later", "classifiers": [OSI + "GNU General Public License v3 (GPLv3)"]},
        "GPL-3.0-or-later",
    ),
    "classifier of a family and of a version": (
        {
            "classifiers": [
                OSI + "GNU General Public License (GPL)",
                OSI + "GNU General Public License v2 or later (GPLv2+)",
            ]
        },
        "GPL-2.0-or-later",
    ),
    "classifiers two, nothing said": ({"classifiers": [OSI + "MIT License", OSI + "Apache Software License"]}, None),
    "classifiers two, field says either": (
        {
            "license": "MIT OR Apache-2.0",
            "classifiers": [OSI + "MIT License", OSI + "Apache Software License"],
        },
        "MIT OR Apache-2.0",
    ),
    "classifiers two, field says dual": (
        {
            "license": "Dual License",
            "classifiers": [OSI + "BSD License", OSI + "Apache Software License"],
            "texts": {"LICENSE": "Licensed under the Apache License, Version 2.0\n" + BSD3},
        },
        "Apache-2.0 OR BSD-3-Clause",
    ),
    "classifier against field": ({"license": "GPL-3.0-only", "classifiers": [OSI + "MIT License"]}, None),
    "classifier proprietary": ({"classifiers": ["License :: Other/Proprietary License"]}, None),
    "classifier public domain": ({"classifiers": ["License :: Public Domain"]}, "LicenseRef-Public-Domain"),
    "classifier Apache": ({"classifiers": [OSI + "Apache Software License"]}, "Apache-2.0"),
    "classifier Apache with text": (
        {"classifiers": [OSI + "Apache Software License"], "texts": {"LICENSE": APACHE}},
        "Apache-2.0",
    ),
    "classifier PSF": ({"classifiers": [OSI + "Python Software Foundation License"]}, "PSF-2.0"),
    "classifier BSD alone": ({"classifiers": [OSI + "BSD License"]}, None),
    "classifier BSD, two clauses": ({"classifiers": [OSI + "BSD License"], "texts": {"LICENSE": BSD2}}, "BSD-2-Clause"),
    "classifier BSD, three clauses": (
        {"classifiers": [OSI + "BSD License"], "texts": {"LICENSE": BSD3}},
        "BSD-3-Clause",
    ),
    "classifier BSD, four clauses": (
        {"classifiers": [OSI + "BSD License"], "texts": {"LICENSE": BSD4}},
        "BSD-4-Clause",
    ),
    "classifier BSD, text cut in the clauses": (
        {"classifiers": [OSI + "BSD License"], "texts": {"LICENSE": BSD_GRANT + CUT + BSD_END}},
        None,
    ),
    "classifier BSD, text MIT": ({"classifiers": [OSI + "BSD License"], "texts": {"LICENSE": MIT}}, None),
    "classifier LGPLv2+": (
        {"classifiers": [OSI + "GNU Lesser General Public License v2 or later (LGPLv2+)"]},
        None,
    ),
    "classifier LGPLv2+ with text": (
        {
            "classifiers": [OSI + "GNU Lesser General Public License v2 or later (LGPLv2+)"],
            "texts": {"COPYING": LGPL21},
        },
        "LGPL-2.1-or-later",
    ),
    "field Apache 2.0": ({"license": "Apache 2.0"}, "Apache-2.0"),
    "field Apache License, Version 2.0": ({"license": "Apache License, Version 2.0"}, "Apache-2.0"),
    "field BSD 3-Clause License": ({"license": "BSD 3-Clause License"}, "BSD-3-Clause"),
    "field New or Revised": ({"license": 'BSD 3-Clause "New" or "Revised" License'}, "BSD-3-Clause"),
    "field New BSD": ({"license": "New BSD"}, "BSD-3-Clause"),
    "field simplified BSD": ({"license": "Simplified BSD"}, "BSD-2-Clause"),
    "field BSD with a version": ({"license": "BSD License 2.0"}, None),
    "field MIT License": ({"license": "The MIT License (MIT)"}, "MIT"),
    "field MIT/X11": ({"license": "Expat (MIT/X11)"}, "MIT"),
    "field MPL 2": ({"license": "MPL 2"}, "MPL-2.0"),
    "field Mozilla": ({"license": "Mozilla Public License 2.0 (MPL 2.0)"}, "MPL-2.0"),
    "field PSF": ({"license": "PSF"}, "PSF-2.0"),
    "field PSF, text of CPython": ({"license": "PSF-2.0", "texts": {"LICENSE": CPYTHON}}, "PSF-2.0"),
    "field ZPL 2.1": ({"license": "ZPL 2.1"}, "ZPL-2.1"),
    "field GPL v2 or later": ({"license": "GNU GPL v2 or any later version"}, "GPL-2.0-or-later"),
    "field GPL >= 2": ({"license": "GPL (>= 2)"}, "GPL-2.0-or-later"),
    "field GPL": ({"license": "GNU GPL"}, None),
    "field GPL or LGPL": ({"license": "GPL or LGPL"}, None),
    "field LGPL v3": (
        {"license": "LGPL v3", "classifiers": [OSI + "GNU Library or Lesser General Public License (LGPL)"]},
        "LGPL-3.0-only",
    ),
    "field with a slash": ({"license": "Apache-2.0/MIT"}, "Apache-2.0 OR MIT"),
    "field with or later and a choice": ({"license": "LGPLv2.1 or later or MIT"}, "LGPL-2.1-or-later OR MIT"),
    "field nested": (
        {"license": "(Apache 2.0 OR BSD-3-Clause) AND PSF-2.0"},
        "(Apache-2.0 OR BSD-3-Clause) AND PSF-2.0",
    ),
    "field dual": ({"license": "Dual licensed under MIT and Apache 2.0"}, "MIT OR Apache-2.0"),
    "field with a comma": ({"license": "MIT, BSD"}, None),
    "field proprietary": ({"license": "Proprietary"}, None),
    "field pointing at a file": ({"license": "see LICENSE", "texts": {"LICENSE": ISC}}, "ISC"),
    "field naming what is unknown": ({"license": "CC-BY-4.0", "texts": {"LICENSE": MIT}}, None),
    "field holding the text": ({"license": "Copyright X\n\n" + MIT}, "MIT"),
    "field and text at odds": ({"license": "MIT", "texts": {"LICENSE": GPL3}}, None),
    "text MIT": ({"texts": {"LICENSE": MIT}}, "MIT"),
    "text ISC": ({"texts": {"LICENSE": ISC}}, "ISC"),
    "text 0BSD": ({"texts": {"LICENSE": ZERO_BSD}}, "0BSD"),
    "text Zlib": ({"texts": {"LICENSE": ZLIB}}, "Zlib"),
    "text Unlicense": ({"texts": {"UNLICENSE": UNLICENSE}}, "Unlicense"),
    "text Apache with exception": ({"texts": {"LICENSE": LLVM}}, "Apache-2.0 WITH LLVM-exception"),
    "text CC0": ({"texts": {"LICENSE": "Creative Commons Legal Code\n\nCC0 1.0 Universal"}}, "CC0-1.0"),
    "text MPL": ({"texts": {"LICENSE": "Mozilla Public License Version 2.0\n======="}}, "MPL-2.0"),
    "text ZPL": ({"texts": {"LICENSE": "Zope Public License (ZPL) Version 2.1"}}, "ZPL-2.1"),
    "text PSF": ({"texts": {"LICENSE": PSF}}, "PSF-2.0"),
    "text of a GPL notice": ({"texts": {"COPYING": GPL2_LATER}}, "GPL-2.0-or-later"),
    "text of the whole GPL": ({"texts": {"COPYING": GPL3}}, None),
    "text and a bundled one": (
        {"texts": {"licenses/LICENSE": MIT, "licenses/vendor/LICENSE": APACHE}},
        "MIT AND Apache-2.0",
    ),
    "text twice": ({"texts": {"LICENSE": MIT, "LICENSE.other": MIT}}, "MIT"),
    "texts side by side": ({"texts": {"LICENSE-MIT": MIT, "LICENSE-APACHE": APACHE}}, None),
    "texts more than were read": ({"texts": {"LICENSE": MIT}, "license_files_omitted": 2}, None),
    "text with a restriction": ({"license": "MIT", "texts": {"LICENSE": "Commons Clause\n" + MIT}}, None),
    "text unknown": ({"texts": {"LICENSE": "Do as you please."}}, None),
    "nothing at all": ({}, None),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_licence_is_read_as_a_careful_person_would(name: str) -> None:
    fields, expected = SAMPLES[name]
    sample = distribution(**fields)
    if expected is not None:
        output = classify(sample)
        assert output == {"name": "sample", "version": "1.0", "spdx": expected, "source": output["source"]}
        return
    with pytest.raises(ScriptFailed) as failed:
        classify(sample)
    code, message, details = failed.value.args
    assert code == "unknown_licence"
    assert message.startswith("sample: it")
    assert details.keys() == {"field", "classifiers", "texts", "candidates"}


def test_the_reason_for_a_person_names_candidates_problems_and_homepage() -> None:
    sample = distribution(license="BSD", homepage="https://example.org/x", problems=["METADATA isn't UTF-8"])
    with pytest.raises(ScriptFailed) as failed:
        LENIENT.run(sample)
    _, message, details = failed.value.args
    assert message == (
        "sample: it declares 'BSD', which may be any of BSD-2-Clause, BSD-3-Clause, BSD-4-Clause "
        "(its metadata: METADATA isn't UTF-8); see https://example.org/x"
    )
    assert details["candidates"] == ["BSD-2-Clause", "BSD-3-Clause", "BSD-4-Clause"]


def test_strict_reading_knows_the_whole_spdx_list() -> None:
    assert set(STRICT.LICENCES.split()) == {entry["id"] for entry in LICENSES.values()}
    assert set(STRICT.EXCEPTIONS.split()) == {entry["id"] for entry in EXCEPTIONS.values()}
    assert set(STRICT.EXACT.values()) <= set(STRICT.LICENCES.split())


def test_every_licence_the_lenient_script_can_name_is_in_the_spdx_list() -> None:
    tables = [row for _, _, versions in LENIENT.FAMILIES for row in versions.values()]
    tables += [row for row, _, _ in LENIENT.FINGERPRINTS]
    named = {name for row in tables for name in row.replace("__WITH__LLVM-exception", "").split()} - {"?"}
    assert named <= set(STRICT.LICENCES.split())


WORDS = st.sampled_from(
    ["MIT", "apache-2.0", "GPL-2.0-only", "and", "OR", "WITH", "(", ")", "LLVM-exception", "x", "+"]
)


@given(st.lists(WORDS, max_size=9).map(" ".join))
def test_strict_expressions_are_those_of_the_packaging_library(text: str) -> None:
    try:
        expected = canonicalize_license_expression(text)
    except InvalidLicenseExpression:
        assert STRICT.spdx(text) is None
    else:
        assert STRICT.spdx(text) == expected


FRAGMENTS = st.sampled_from(
    [
        "MIT",
        "BSD",
        "GPL v2",
        "or later",
        " or ",
        " and ",
        "(",
        ")",
        "/",
        ",",
        "v",
        "3.0",
        "dual",
        "with",
        "+",
        "\n",
        "see",
    ]
)
TEXT = st.one_of(st.text(max_size=60), st.lists(FRAGMENTS, max_size=8).map("".join))
FILES = st.dictionaries(st.text(max_size=10), st.one_of(TEXT, st.sampled_from([MIT, BSD2, GPL3])), max_size=3)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.none() | TEXT, st.none() | TEXT, st.lists(TEXT.map(lambda text: "License :: " + text), max_size=3), FILES)
def test_no_metadata_crashes_the_scripts(
    expression: str | None, field: str | None, classifiers: list[str], texts: dict[str, str]
) -> None:
    sample = distribution(texts, license_expression=expression, license=field, classifiers=classifiers)
    assert outcome(sample) == "unknown_licence" or re.match(r"[(A-Za-z0-9]", outcome(sample))


def test_long_hostile_text_is_read_in_no_time() -> None:
    for text in ("(" * 4000, "mit or " * 600, "gnu general public license " * 150, "v" * 4000, "1." * 2000, " " * 4000):
        sample = distribution({"LICENSE": text}, license=text[:190], classifiers=["License :: " + text[:180]])
        with pytest.raises(ScriptFailed):
            classify(sample)


# The function, on folders


def add(folder: Path, name: str, metadata: bytes | str | None, files: dict[str, str | bytes] | None = None) -> Path:
    entry = folder / name
    entry.mkdir(parents=True)
    if metadata is not None:
        (entry / "METADATA").write_bytes(metadata.encode() if isinstance(metadata, str) else metadata)
    for file, content in (files or {}).items():
        (entry / file).parent.mkdir(parents=True, exist_ok=True)
        (entry / file).write_bytes(content.encode() if isinstance(content, str) else content)
    return entry


def listed(folder: Path) -> dict[str, dict[str, Any]]:
    installed = list_distributions(str(folder))
    assert json.loads(json.dumps(installed, allow_nan=False)) == installed
    return {d["name"]: dict(d) for d in installed["distributions"]}


def test_a_distribution_is_read_from_its_metadata(tmp_path: Path) -> None:
    add(
        tmp_path,
        "sample-1.2.dist-info",
        "Metadata-Version: 2.4\nName: sample\nVersion: 1.2\nLicense-Expression: MIT\nLicense-File: LICENSE\n"
        "License-File: AUTHORS\nClassifier: Topic :: X\nClassifier: License :: OSI Approved :: MIT License\n"
        "Project-URL: Source Code, https://example.org/s\nProject-URL: Homepage, https://example.org/h\n\n"
        "License: not a header, but the description",
        {"licenses/LICENSE": MIT, "licenses/AUTHORS": "me"},
    )
    assert listed(tmp_path)["sample"] == {
        "name": "sample",
        "version": "1.2",
        "license_expression": "MIT",
        "license": None,
        "classifiers": ["License :: OSI Approved :: MIT License"],
        "license_files": [{"name": "LICENSE", "text": MIT}],
        "license_files_omitted": 0,
        "homepage": "https://example.org/h",
        "problems": [],
    }


def test_old_forms_of_metadata_are_read(tmp_path: Path) -> None:
    add(tmp_path, "folder-1.0-py2.7.egg-info", None, {"PKG-INFO": "Name: folder\nVersion: 1.0\nLicense: UNKNOWN\n"})
    (tmp_path / "single-2.0.egg-info").write_text("Name: single\nVersion: 2.0\nLicense: ZPL 2.1\nDescription: a\n b\n")
    add(tmp_path, "egg-3.0-py3.6.egg/EGG-INFO", None, {"PKG-INFO": "Name: egg\nLicense: MIT\n"})
    found = listed(tmp_path)
    assert {name: (d["version"], d["license"]) for name, d in found.items()} == {
        "folder": ("1.0", None),
        "single": ("2.0", "ZPL 2.1"),
        "egg": ("3.0", "MIT"),
    }


def test_broken_metadata_is_listed_with_what_is_wrong(tmp_path: Path) -> None:
    add(tmp_path, "missing-1.0.dist-info", None)
    add(tmp_path, "empty-1.0.dist-info", "")
    add(tmp_path, "latin-1.0.dist-info", "Name: latin\nAuthor: José\nLicense: MIT\n".encode("latin-1"))
    add(tmp_path, "marked-1.0.dist-info", b"\xef\xbb\xbfName: marked\nLicense: MIT\n")
    add(tmp_path, "binary-1.0.dist-info", bytes(range(256)) * 8)
    add(tmp_path, "nameless.dist-info", "License: MIT\n")
    entry = add(tmp_path, "folder-1.0.dist-info", None)
    (entry / "METADATA").mkdir()
    found = listed(tmp_path)
    assert {name: d["problems"] for name, d in found.items()} == {
        "binary": ["METADATA isn't UTF-8", "the metadata states no name; taken from the folder's"],
        "empty": ["METADATA is empty", "the metadata states no name; taken from the folder's"],
        "folder": ["METADATA can't be read: Is a directory", "the metadata states no name; taken from the folder's"],
        "latin": ["METADATA isn't UTF-8"],
        "marked": [],
        "missing": ["there is no METADATA file", "the metadata states no name; taken from the folder's"],
        "nameless": ["the metadata states no name; taken from the folder's"],
    }
    assert found["latin"]["license"] == found["marked"]["license"] == "MIT"


def test_licence_files_are_found_without_being_listed(tmp_path: Path) -> None:
    add(tmp_path, "a-1.dist-info", "Name: a\n", {"LICENCE.txt": MIT, "licenses/sub/COPYING": ISC, "NOTICE": "x"})
    assert [file["name"] for file in listed(tmp_path)["a"]["license_files"]] == ["licenses/sub/COPYING", "LICENCE.txt"]


def test_metadata_cannot_make_it_read_outside_its_folder(tmp_path: Path) -> None:
    (tmp_path / "LICENSE").write_text("secret")
    site = tmp_path / "site"
    entry = add(site, "evil-1.dist-info", "Name: evil\nLicense-File: ../../LICENSE\nLicense-File: LICENSE-link\n")
    (entry / "LICENSE-link").symlink_to(tmp_path / "LICENSE")
    assert listed(site)["evil"]["license_files"] == []


def test_items_stay_small_and_say_what_was_left_out(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {f"licenses/LICENSE-{i}": "head" + "x" * 100_000 + "tail" for i in range(9)}
    add(tmp_path, "big-1.dist-info", f"Name: big\nLicense: {'y' * 100_000}\nDescription: {'z' * 100_000}\n", files)
    big = listed(tmp_path)["big"]
    assert len(json.dumps(big)) < 16_000
    assert (len(big["license_files"]), big["license_files_omitted"]) == (FILES_LIMIT, 9 - FILES_LIMIT)
    text = big["license_files"][0]["text"]
    assert text.startswith("head")
    assert CUT in text
    assert text.endswith("tail")
    assert len(text) <= TEXT_LIMIT


def test_the_list_is_sorted_and_each_version_is_in_it_once(tmp_path: Path) -> None:
    for folder, name in [("Zoo-1", "Zoo"), ("a_b-2", "a_b"), ("a.b-2", "A.b"), ("a_b-1", "a_b"), ("~oo-1", "oo")]:
        add(tmp_path, f"{folder}.dist-info", f"Name: {name}\nVersion: {folder[-1]}\n")
    installed = list_distributions(str(tmp_path))
    assert [(d["name"], d["version"]) for d in installed["distributions"]] == [("a_b", "1"), ("A.b", "2"), ("Zoo", "1")]
    assert installed["environment"]["duplicates"] == 1
    assert list_distributions(str(tmp_path)) == installed


def test_the_root_of_an_environment_will_do(tmp_path: Path) -> None:
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    add(site, "a-1.dist-info", "Name: a\n")
    (tmp_path / "lib64").symlink_to(tmp_path / "lib")
    assert list_distributions(str(tmp_path))["environment"] == {
        "path": str(tmp_path.resolve()),
        "folders": [str(site.resolve())],
        "duplicates": 0,
    }


def test_several_places_are_listed_together(tmp_path: Path) -> None:
    for place, name in (("one", "a"), ("two", "b"), ("two", "a")):
        add(tmp_path / place, f"{name}-1.dist-info", f"Name: {name}\nVersion: 1\n")
    (tmp_path / "three").mkdir()
    paths = [str(tmp_path / place) for place in ("one", "two", "three", "one")]
    installed = list_distributions(paths)
    assert [d["name"] for d in installed["distributions"]] == ["a", "b"]
    assert installed["environment"] == {"path": paths, "folders": paths[:2], "duplicates": 1}
    with pytest.raises(ApplicationError, match="no Python distribution is installed"):
        list_distributions(paths[2:3])


def test_the_demo_audits_this_environment_and_the_python_below_it() -> None:
    places = environments()
    assert places[0] == sysconfig.get_path("purelib")
    assert len(set(places)) == len(places)
    assert len(list_distributions(places)["distributions"]) >= len(list_distributions(places[0])["distributions"])


@pytest.mark.skipif(sys.platform == "darwin", reason="its file systems refuse such names")
def test_undecodable_file_names_are_still_json(tmp_path: Path) -> None:
    os.makedirs(os.fsencode(tmp_path) + b"/caf\xe9-1.0.dist-info/licenses")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9-1.0.dist-info/licenses/LICENSE-\xff")).write_text(MIT)
    (found,) = listed(tmp_path).values()
    assert found["name"] == "caf?"
    assert found["license_files"][0]["name"] == "licenses/LICENSE-?"


def test_thousands_of_distributions_are_listed_quickly(tmp_path: Path) -> None:
    for i in range(3000):
        entry = tmp_path / f"d{i}-1.dist-info"
        entry.mkdir()
        (entry / "METADATA").write_text(f"Name: d{i}\nVersion: 1\nLicense: MIT\n")
    assert len(list_distributions(str(tmp_path))["distributions"]) == 3000


@pytest.mark.parametrize(
    ("path", "code", "words"),
    [
        ("", "bad_path", "empty"),
        ("no/such/folder", "bad_path", "doesn't exist"),
        (__file__, "bad_path", "is a file"),
        ("~no_such_user_here/x", "bad_path", "can't be found"),
        ("a\0b", "bad_path", "NUL"),
        ("x" * 5000, "bad_path", "can't be read"),
        (str(Path(__file__).parent), "nothing_installed", "no Python distribution is installed"),
    ],
    ids=["empty", "missing", "file", "user", "nul", "long", "nothing"],
)
def test_a_bad_path_says_what_is_wrong(path: str, code: str, words: str) -> None:
    with pytest.raises(ApplicationError, match=words) as failed:
        list_distributions(path)
    assert failed.value.type == code


def test_most_of_what_is_really_installed_resolves() -> None:
    installed = list_distributions(sysconfig.get_path("purelib"))["distributions"]
    unresolved = []
    for item in installed:
        try:
            classify(dict(item))
        except ScriptFailed as failed:
            unresolved.append(failed.args[1])
    assert len(installed) > 30
    assert len(unresolved) < len(installed) / 10, unresolved


def test_the_graph_compiles_without_a_warning() -> None:
    file = FOLDER / "graph.yaml"
    compiled = compile_graph(read_source(file.read_text(), str(file)), DiskFiles(FOLDER))
    assert compiled.warnings == []
    assert [node.name for node in compiled.graph.nodes] == ["installed", "classify", "report"]


def test_the_scripts_need_nothing_but_the_standard_library() -> None:
    for name in ("classify", "classify_lenient"):
        subprocess.run([sys.executable, "-IS", str(FOLDER / f"{name}.py")], check=True)
