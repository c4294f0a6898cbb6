"""A worker's settings: what the variables mean, and what bad ones say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from activities.settings import VARIABLES, Settings, settings_table
from graph.errors import LoadError

DOCS = Path(__file__).parent.parent / "docs"


def test_without_variables_everything_lies_under_the_working_folder(tmp_path: Path) -> None:
    settings = Settings.from_env({}, tmp_path)
    assert settings.store == str(tmp_path / ".ferrata" / "store")
    assert settings.graphs == (tmp_path,)
    assert settings.task_queue == "ferrata"
    assert settings.slots == 16
    assert settings.processes >= 1
    assert (settings.build_id, settings.deployment) == (None, "ferrata")
    assert (settings.functions, settings.activities, settings.models, settings.cache) == ((), (), None, None)


def test_every_variable_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "models.yaml").write_text("{}")
    environ = {
        "FERRATA_STORE": "data/blobs",
        "FERRATA_GRAPHS": f"a{os.pathsep}{tmp_path / 'b'}",
        "FERRATA_READ": f"b{os.pathsep}{tmp_path / 'a'}",
        "FERRATA_FUNCTIONS": "shop.prices, shop.stock,shop.prices",
        "FERRATA_ACTIVITIES": "shop.mail",
        "FERRATA_MODELS": "models.yaml",
        "FERRATA_CACHE": "cache",
        "FERRATA_TASK_QUEUE": "other",
        "FERRATA_BUILD_ID": "1.4.0+a7c",
        "FERRATA_DEPLOYMENT": "shop",
        "FERRATA_PROCESSES": "3",
        "FERRATA_SLOTS": "5",
    }
    assert set(environ) == {variable.name for variable in VARIABLES}
    assert Settings.from_env(environ, tmp_path) == Settings(
        store=str(tmp_path / "data" / "blobs"),
        graphs=(tmp_path / "a", tmp_path / "b"),
        readable=(tmp_path / "b", tmp_path / "a"),
        functions=("shop.prices", "shop.stock"),
        activities=("shop.mail",),
        models=str(tmp_path / "models.yaml"),
        cache=tmp_path / "cache",
        task_queue="other",
        build_id="1.4.0+a7c",
        deployment="shop",
        processes=3,
        slots=5,
    )


def test_graphs_may_read_the_graph_folders_unless_others_are_named(tmp_path: Path) -> None:
    (tmp_path / "graphs").mkdir()
    (tmp_path / "data").mkdir()
    assert Settings.from_env({}, tmp_path).read_folders == (tmp_path,)
    assert Settings.from_env({"FERRATA_GRAPHS": "graphs"}, tmp_path).read_folders == (tmp_path / "graphs",)
    named = {"FERRATA_GRAPHS": "graphs", "FERRATA_READ": "data"}
    assert Settings.from_env(named, tmp_path).read_folders == (tmp_path / "data",)


def test_an_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    assert Settings.from_env({"FERRATA_SLOTS": " ", "FERRATA_STORE": ""}, tmp_path) == Settings.from_env({}, tmp_path)


def test_models_may_be_given_inline(tmp_path: Path) -> None:
    text = '{"small": {"provider": "stub", "echo": true}}'
    assert Settings.from_env({"FERRATA_MODELS": text}, tmp_path).models == text


@pytest.mark.parametrize("url", ["s3://bucket/prefix", "gs://bucket", "file:///srv/blobs", "az://container"])
def test_a_store_may_be_a_url(url: str, tmp_path: Path) -> None:
    assert Settings.from_env({"FERRATA_STORE": url}, tmp_path).store == url


@pytest.mark.parametrize(
    ("name", "value", "says", "mend"),
    [
        ("FERRATA_SLOTS", "many", "not a whole number", "from 1 to 1000"),
        ("FERRATA_SLOTS", "0", "not a whole number in range", "from 1 to 1000"),
        ("FERRATA_SLOTS", "-1", "not a whole number in range", "from 1 to 1000"),
        ("FERRATA_PROCESSES", "9999999999999", "not a whole number in range", "from 1 to 256"),
        ("FERRATA_PROCESSES", "2.5", "not a whole number", "from 1 to 256"),
        ("FERRATA_GRAPHS", "nowhere", "nowhere` is no folder", "name existing folders"),
        ("FERRATA_FUNCTIONS", "shop/prices.py", "`shop/prices.py` is no module's name", "importable modules"),
        ("FERRATA_ACTIVITIES", "a..b", "`a..b` is no module's name", "importable modules"),
        ("FERRATA_MODELS", "none.yaml", "none.yaml` is no file", "YAML or JSON"),
        ("FERRATA_STORE", "redis://host", "`redis` is no kind of store", "use a folder's path"),
        ("FERRATA_STORE", "file://relative/path", "three slashes", "relative/path"),
        ("FERRATA_TASK_QUEUE", "q" * 1001, "1000 characters", "shorter"),
        ("FERRATA_BUILD_ID", "a:b", "no build's name", "a commit's hash"),
        ("FERRATA_BUILD_ID", "two words", "no build's name", "a commit's hash"),
        ("FERRATA_BUILD_ID", "b" * 101, "no build's name", "up to 100"),
        ("FERRATA_DEPLOYMENT", "shop.eu", "no deployment's name", "letters, digits"),
        ("FERRATA_DEPLOYMENT", "__ours", "no deployment's name", "letters, digits"),
    ],
)
def test_a_bad_value_is_refused_with_variable_value_and_mend(
    name: str, value: str, says: str, mend: str, tmp_path: Path
) -> None:
    with pytest.raises(LoadError) as caught:
        Settings.from_env({name: value}, tmp_path)
    [problem] = caught.value.problems
    assert problem.code == "bad_setting"
    assert problem.message.startswith(f"{name} is `{value[:100]}")
    assert says in problem.message
    assert mend in (problem.hint or "")


def test_all_bad_values_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(LoadError) as caught:
        Settings.from_env({"FERRATA_SLOTS": "x", "FERRATA_PROCESSES": "y", "FERRATA_GRAPHS": "z"}, tmp_path)
    assert len(caught.value.problems) == 3


def test_a_cache_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    with pytest.raises(LoadError, match="is no folder"):
        Settings.from_env({"FERRATA_CACHE": "taken"}, tmp_path)


def test_a_memory_store_is_refused_for_several_processes(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="seen by one process only") as caught:
        Settings.from_env({"FERRATA_STORE": "memory://", "FERRATA_PROCESSES": "2"}, tmp_path)
    assert "FERRATA_PROCESSES=1" in str(caught.value)
    assert Settings.from_env({"FERRATA_STORE": "memory://", "FERRATA_PROCESSES": "1"}, tmp_path).store == "memory://"


def test_credentials_in_a_store_url_are_refused_and_not_shown(tmp_path: Path) -> None:
    with pytest.raises(LoadError) as caught:
        Settings.from_env({"FERRATA_STORE": "s3://someone:hidden@bucket"}, tmp_path)
    assert "hidden" not in str(caught.value)
    assert "AWS_ACCESS_KEY_ID" in str(caught.value)


def test_an_unknown_variable_is_warned_of_with_the_nearest_known_one() -> None:
    lines = Settings.warnings({"FERRATA_MODEL": "x", "FERRATA_SLOTS": "1", "FERRATA_QQQQQQQQQ": "1", "PATH": "/bin"})
    assert lines[0] == "FERRATA_MODEL is no setting of Ferrata and has no effect: did you mean FERRATA_MODELS?"
    assert lines[1].startswith("FERRATA_QQQQQQQQQ is no setting of Ferrata and has no effect: known are FERRATA_STORE,")
    assert len(lines) == 2


def test_a_deployment_without_a_build_is_warned_of() -> None:
    [line] = Settings.warnings({"FERRATA_DEPLOYMENT": "shop", "FERRATA_BUILD_ID": " "})
    assert line == "FERRATA_DEPLOYMENT has no effect without FERRATA_BUILD_ID"
    assert Settings.warnings({"FERRATA_DEPLOYMENT": "shop", "FERRATA_BUILD_ID": "1"}) == []


def test_the_documentation_has_the_table_of_all_settings() -> None:
    assert settings_table() in (DOCS / "settings.md").read_text()
