"""The examples in README and docs are true: graphs compile, and the README's commands run as they stand."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import subprocess
import uuid
from pathlib import Path

import pytest

from activities.graph_files import DiskFiles
from cli.server import DevServer, temporal_binary
from graph.compile import compile_graph
from graph.files import MemoryFiles
from graph.source import read_source
from runs import Runs

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PAGES = (ROOT / "README.md", ROOT / "docs/concepts.md", ROOT / "docs/maps.md")
SCRIPTS = {name: f"# {name}\ndef run(input): return input" for name in ("classify.py", "classify_lenient.py")}


def blocks(path: Path, language: str) -> list[str]:
    return [text for found, text in BLOCK.findall(path.read_text()) if found == language]


@pytest.mark.parametrize(
    ("path", "text"),
    [(path, text) for path in PAGES for text in blocks(path, "yaml")],
    ids=lambda value: value.name if isinstance(value, Path) else value.split("\n")[1].strip(" :#")[:30],
)
def test_graphs_in_the_docs_compile(path: Path, text: str) -> None:
    compile_graph(read_source(text, f"{path.name}.yaml"), MemoryFiles(SCRIPTS))


def test_the_hello_graph_is_the_readmes() -> None:
    shown = next(text for text in blocks(ROOT / "README.md", "yaml") if "# file: examples/hello/graph.yaml" in text)
    kept = (ROOT / "examples/hello/graph.yaml").read_text()
    assert shown.splitlines()[1:] == kept.splitlines()[1:]
    compile_graph(read_source(kept, "graph.yaml"), DiskFiles(ROOT / "examples/hello"))


def json_output(words: list[str]) -> list[str]:
    """What makes a command print JSON, unless it says so itself."""
    return [] if "--output" in words else ["--output", "json"]


async def test_the_readmes_commands_run_as_they_stand(server: DevServer, runs: Runs) -> None:
    (commands,) = blocks(ROOT / "README.md", "bash")
    run, queue = f"my-run-{uuid.uuid4().hex[:8]}", "escalations"
    answers: dict[str, str] = {}
    for line in commands.replace("\\\n", " ").splitlines():
        words = shlex.split(line.partition(" | ")[0], comments=True)
        if not words or words[0] != ".venv/bin/temporal" or "show" in words:
            continue
        if "result" not in words and "start" not in words:
            await runs.client.get_workflow_handle(run).result()
        words = [{"my-run": run, "ferrata": runs.task_queue}.get(word, word) for word in words]
        if "drain" in words:
            outstanding = json.loads(answers["outstanding"])["queryResult"][0]["entries"]
            mine = next(entry["id"] for entry in outstanding if entry["run"] == run)
            words = [word.replace('"ID"', json.dumps(mine)) for word in words]
        done = await asyncio.to_thread(
            subprocess.run,
            [str(temporal_binary()), *words[1:], "--address", server.address, *json_output(words)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (words, done.stderr)
        answers[words[words.index("--type") + 1] if "query" in words else words[2]] = done.stdout
    assert json.loads(answers["result"])["result"]["result"] == {
        "greetings": ["Hello, Ada!", "Hello, Alan!"],
        "left_to_people": 1,
    }
    for name in ("escalations", "outstanding", "output"):
        assert "nobody to greet" in answers[name]
    assert "flowchart TD" in json.loads(answers["mermaid"])["queryResult"][0]
    after = await runs.query(queue, "all")
    assert any(entry["run"] == run and entry["drained_at"] for entry in after["entries"])
    await runs.replays(runs.client.get_workflow_handle(run))
