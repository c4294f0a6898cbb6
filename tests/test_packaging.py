"""What a fresh machine, an image and a cluster are made from: they must fit each other."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from ruamel.yaml import YAML

from cli.server import DYNAMIC_CONFIG, SEARCH_ATTRIBUTES

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("graph", "workflows", "activities", "cli")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PIN = re.compile(r"^(?P<name>[a-z0-9-]+)==(?P<version>\S+)(?: ; (?P<marker>.+?))? \\$", re.MULTILINE)


def yaml(path: str) -> Any:
    return YAML(typ="safe").load(ROOT / path)


def test_the_lock_pins_every_dependency_within_its_range() -> None:
    pins = {m["name"]: m["version"] for m in PIN.finditer((ROOT / "requirements.lock").read_text())}
    for text in PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"]:
        requirement = Requirement(text)
        version = pins.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement.name} isn't in requirements.lock: run `make lock`"
        assert requirement.specifier.contains(version), f"{requirement} isn't met by {version}: run `make lock`"


def test_every_pin_has_hashes_and_no_line_names_a_place_to_download_from() -> None:
    text = (ROOT / "requirements.lock").read_text()
    entries = re.split(r"^(?=[a-z0-9-]+==)", text, flags=re.MULTILINE)[1:]
    assert len(entries) == len(PIN.findall(text))
    for entry in entries:
        assert "--hash=sha256:" in entry, entry.splitlines()[0]
    assert "://" not in text
    assert not re.search(r"^-", text, re.MULTILINE)


def test_the_changelog_tells_of_this_version() -> None:
    assert f"## {PROJECT['version']} " in (ROOT / "CHANGELOG.md").read_text()


def test_every_make_target_that_people_use_is_in_its_help() -> None:
    printed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in ("setup", "demo", "dev", "worker", "test", "check", "bench", "lock", "clean"):
        assert re.search(rf"^  make {target} +\S", printed, re.MULTILINE), target


@pytest.mark.slow
def test_a_wheel_holds_every_module_and_data_file_and_nothing_else(tmp_path: Path) -> None:
    source = tmp_path / "source"  # building leaves files behind
    source.mkdir()
    ignore = shutil.ignore_patterns("__pycache__")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=ignore)
    for name in ("worker.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(source)]
    subprocess.run(command, check=True, capture_output=True, timeout=100)
    (wheel,) = tmp_path.glob("ferrata-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    wanted = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert held == wanted | {"worker.py"}


def test_the_compose_file_is_valid() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    result = subprocess.run([*command, str(ROOT / "docker-compose.yml")], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_compose_file_pins_its_images_and_waits_for_what_it_needs() -> None:
    services = yaml("docker-compose.yml")["services"]
    for name, service in services.items():
        assert ("build" in service) or re.search(r":\d", service["image"]), f"{name} has no pinned image"
        assert "auto-setup" not in service.get("image", "")
        for needed, how in service.get("depends_on", {}).items():
            wanted = "healthcheck" if how["condition"] == "service_healthy" else "restart"
            assert wanted in services[needed], f"{name} waits for {needed}, which has no {wanted}"
        for mounted in service.get("volumes", []):
            here = mounted.split(":")[0]
            assert not here.startswith("./") or (ROOT / here).is_file(), f"{name} mounts {here}, which isn't there"


def test_what_the_image_copies_is_sent_to_its_build() -> None:
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert sent >= {*PACKAGES, "examples", "worker.py", "pyproject.toml", "requirements.lock", "README.md", "LICENSE"}
    for name in sent:
        assert (ROOT / name).exists(), name


def test_a_cluster_is_set_up_as_the_development_server_is() -> None:
    config = {key: entries[0]["value"] for key, entries in yaml("deploy/dynamicconfig.yaml").items()}
    assert config == DYNAMIC_CONFIG
    script = (ROOT / "deploy" / "setup-namespace.sh").read_text()
    assert dict(re.findall(r"^register (\w+) (\w+)$", script, re.MULTILINE)) == SEARCH_ATTRIBUTES
