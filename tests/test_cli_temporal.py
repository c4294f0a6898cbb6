"""Runs driven by the real `temporal` command, as people do it: start, query, signal, result, show."""

from __future__ import annotations

import asyncio
import json
import subprocess
import uuid
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowHistory

from cli.server import DevServer, temporal_binary
from graph.values import JSON
from observing import until
from runs import Runs, assert_no_task_failed
from workflows import replayer

GRAPH: dict[str, Any] = {
    "name": "from-the-shell",
    "nodes": {
        "ask": {"infer": {"model": "small", "prompt": "who, ${run.id}?"}, "output_schema": {"type": "object"}},
        "work": {
            "script": "def run(input):\n    return {'text': input['text'] * 2}",
            "input": {"text": "${input.text}"},
            "on_fail": [{"retry": {"times": 1, "feedback": True}}],
        },
        "both": {"value": {"who": "${ask['from']}", "text": "${work.text}"}},
    },
    "output": "${both}",
}
ESCALATING: dict[str, Any] = {
    "nodes": {
        "work": {
            "infer": {"model": "small", "prompt": "who, ${run.id}?"},
            "output_schema": {"properties": {"from": {"const": "big"}}},
            "on_fail": [{"retry": 1}, "escalate"],
        }
    }
}


class Shell:
    """The command, pointed at the session's server."""

    def __init__(self, server: DevServer, runs: Runs, folder: Path) -> None:
        self.environment = server.environment
        self.task_queue = runs.task_queue
        self.folder = folder

    async def __call__(self, *arguments: str, fails: bool = False) -> str:
        """What `temporal ARGUMENTS` prints (its standard error, if it should fail)."""
        done = await self._run(*arguments, fails=fails)
        return done.stderr if fails else done.stdout

    async def _run(self, *arguments: str, fails: bool) -> subprocess.CompletedProcess[str]:
        command = [str(temporal_binary()), *arguments]
        done = await asyncio.to_thread(
            subprocess.run, command, env=self.environment, capture_output=True, text=True, timeout=60
        )
        assert (done.returncode != 0) == fails, (arguments, done.stdout, done.stderr)
        return done

    async def start(self, request: JSON) -> str:
        """Start a run with this request, written to a file; returns the id."""
        run = f"shell-{uuid.uuid4().hex[:8]}"
        file = self.folder / f"{run}.json"
        file.write_text(json.dumps(request, ensure_ascii=False))
        await self(
            *("workflow", "start", "--type", "RunGraph", "--task-queue", self.task_queue),
            *("--workflow-id", run, "--input-file", str(file)),
        )
        return run

    async def query(self, id: str, name: str, *more: str) -> Any:
        """The answer of a query."""
        printed = json.loads(await self("workflow", "query", "--workflow-id", id, "--type", name, *more, "-o", "json"))
        [answer] = printed["queryResult"]
        return answer

    async def result(self, id: str, fails: bool = False) -> Any:
        """What `workflow result` says of a run that ended, as JSON."""
        done = await self._run("workflow", "result", "--workflow-id", id, "-o", "json", fails=fails)
        return json.loads(done.stdout)


@pytest.fixture
def shell(server: DevServer, runs: Runs, tmp_path: Path) -> Shell:
    return Shell(server, runs, tmp_path)


async def test_a_run_is_started_from_a_file_and_its_result_read(shell: Shell) -> None:
    run = await shell.start({"graph": GRAPH, "input": {"text": "日本語"}})
    answer = await shell.result(run)
    assert answer["status"] == "COMPLETED"
    envelope = answer["result"]
    assert envelope["status"] == "completed"
    assert envelope["result"] == {"who": "small", "text": "日本語日本語"}
    assert envelope["nodes"] == {"ask": "succeeded", "work": "succeeded", "both": "succeeded"}
    assert (envelope["escalations"], envelope["failures"]) == (0, 0)
    assert envelope["usage"]["total_tokens"] > 0


async def test_a_run_is_started_with_its_input_on_the_command_line(shell: Shell) -> None:
    run = f"shell-{uuid.uuid4().hex[:8]}"
    request = json.dumps({"graph": {"nodes": {"work": {"value": "${input.n + 1}"}}}, "input": {"n": 41}})
    await shell(
        *("workflow", "start", "--type", "RunGraph", "--task-queue", shell.task_queue),
        *("--workflow-id", run, "--input", request),
    )
    assert (await shell.result(run))["result"]["result"] == 42


async def test_a_failed_runs_result_is_its_message_without_frames_of_anybodys_code(shell: Shell) -> None:
    graph = {"nodes": {"work": {"script": "def run(input):\n    fail('NO_NAME', 'nobody to greet')"}}}
    for request, words in ((graph, "nobody to greet"), ("no/such/graph", "there is no graph"), (7, "must be a name")):
        run = await shell.start({"graph": request})
        printed = (await shell._run("workflow", "result", "--workflow-id", run, fails=True)).stdout
        assert words in printed
        shown = await shell("workflow", "show", "--workflow-id", run, "-o", "json")
        assert words in shown
        for text in (printed, shown):
            assert "stackTrace" not in text
            assert ".py" not in text


async def test_every_query_of_a_concluded_run_answers(shell: Shell) -> None:
    run = await shell.start({"graph": GRAPH, "input": {"text": "ab"}})
    await shell.result(run)
    progress = await shell.query(run, "progress")
    assert (progress["graph"], progress["status"]) == ("from-the-shell", "completed")
    assert progress["nodes"] == {"total": 3, "succeeded": 3}
    assert "3 of 3 nodes" in progress["markdown"]
    state = await shell.query(run, "state")
    assert state["fingerprint"].startswith("sha256:")
    assert [n["status"] for n in state["nodes"].values()] == ["succeeded"] * 3
    [execution] = state["nodes"]["both"]["executions"]
    assert [source["node"] for source in execution["from"]] == ["ask", "work"]
    # The command prints an empty list as null.
    assert not await shell.query(run, "escalations")
    mermaid = await shell.query(run, "mermaid")
    assert mermaid.startswith("flowchart TD")
    assert all(name in mermaid for name in GRAPH["nodes"])
    assert await shell.query(run, "output", "--input", '"work"') == {"node": "work", "value": {"text": "abab"}}


async def test_a_query_for_a_node_that_is_not_there_says_which_there_are(shell: Shell) -> None:
    run = await shell.start({"graph": GRAPH, "input": {"text": "ab"}})
    await shell.result(run)
    arguments = ("workflow", "query", "--workflow-id", run, "--type", "output")
    assert "did you mean `work`" in await shell(*arguments, "--input", '"wrok"', fails=True)
    assert "give a node's name" in await shell(*arguments, fails=True)
    assert "no_such" in await shell("workflow", "query", "--workflow-id", run, "--type", "no_such", fails=True)


async def test_a_running_run_answers_and_is_cancelled(shell: Shell) -> None:
    node = {"infer": {"model": "slow", "prompt": "${run.id}"}}
    run = await shell.start({"graph": {"nodes": {"work": node, "rest": {"value": "${work}"}}}})

    async def active() -> bool:
        return bool((await shell.query(run, "progress")).get("running"))

    await until(active)
    state = await shell.query(run, "state")
    assert (state["status"], state["nodes"]["rest"]["status"]) == ("running", "idle")
    assert [a["status"] for a in state["nodes"]["work"]["executions"][0]["attempts"]] == ["running"]
    assert "it is active" in await shell(
        *("workflow", "query", "--workflow-id", run, "--type", "output", "--input", '"work"'), fails=True
    )
    await shell("workflow", "cancel", "--workflow-id", run)
    answer = await shell.result(run, fails=True)
    assert answer["status"] == "CANCELED"
    assert (await shell.query(run, "state"))["nodes"]["work"]["status"] == "cancelled"


async def test_what_a_run_escalated_is_drained_by_a_signal(shell: Shell) -> None:
    run = await shell.start({"graph": ESCALATING})
    failed = await shell.result(run, fails=True)
    assert failed["status"] == "FAILED"
    [entry] = await shell.query(run, "escalations")
    assert (entry["run"], entry["node"], entry["code"]) == (run, "work", "rejected")

    async def drained() -> dict[str, JSON]:
        entries = (await shell.query("escalations", "all"))["entries"]
        [found] = [e for e in entries if e["id"] == entry["id"]]
        return found if found["drained_at"] else {}

    assert entry in (await shell.query("escalations", "outstanding"))["entries"]
    word = {"ids": [entry["id"]], "action": "accept", "value": {"from": "big"}, "by": "ann"}
    arguments = ("workflow", "signal", "--workflow-id", "escalations", "--name", "drain")
    await shell(*arguments, "--input", json.dumps(word))
    found = await until(drained)
    assert (found["resolution"]["by"], found["resolution"]["value"]) == ("ann", {"from": "big"})
    entries = (await shell.query("escalations", "outstanding"))["entries"] or []
    assert entry["id"] not in [e["id"] for e in entries]
    # Once more, without input, and for nobody: nothing changes.
    await shell(*arguments, "--input", json.dumps({**word, "by": "bob"}))
    await shell(*arguments)
    await shell(*arguments, "--input", '{"ids": ["nobody"]}', "--input", "7")
    assert await drained() == found


async def test_a_failed_run_shows_its_code_and_reason(shell: Shell) -> None:
    run = await shell.start({"graph": {"nodes": {"work": {"script": "def run(input):\n    fail('NO', 'never ever')"}}}})
    answer = await shell.result(run, fails=True)
    failure = answer["closeEvent"]["workflowExecutionFailedEventAttributes"]["failure"]
    assert failure["message"] == "node `work`: never ever"
    assert failure["applicationFailureInfo"]["type"] == "NO"
    described = json.loads(await shell("workflow", "describe", "--workflow-id", run, "-o", "json"))
    assert "FAILED" in described["workflowExecutionInfo"]["status"]
    assert "never ever" in await shell("workflow", "show", "--workflow-id", run)


async def test_a_graph_that_is_wrong_fails_at_once_with_place_and_mend(shell: Shell) -> None:
    graph = {"nodes": {"work": {"value": "${wrk.text}"}, "rest": {"valeu": 1}}}
    answer = await shell.result(await shell.start({"graph": graph}), fails=True)
    message = answer["closeEvent"]["workflowExecutionFailedEventAttributes"]["failure"]["message"]
    assert "`wrk`" in message
    assert "did you mean `value`" in message


@pytest.mark.parametrize(
    "request_",
    [
        {"graph": GRAPH, "input": {"text": "ab"}},
        {"graph": ESCALATING},
        {"graph": {"nodes": {"work": {"value": "${nothing}"}}}},
        {
            "graph": {
                "nodes": {
                    "many": {"over": "${input.list}", "value": {"n": "${item * 2}"}},
                    "inner": {
                        "graph": {"nodes": {"step": {"activity": {"name": "step", "args": ["${input}"]}}}},
                        "input": 1,
                    },
                }
            },
            "input": {"list": [1, 2, 3]},
        },
    ],
    ids=["completed", "escalated", "refused", "map-child-activity"],
)
async def test_what_show_prints_replays(shell: Shell, request_: dict[str, Any]) -> None:
    run = await shell.start(request_)
    await shell(
        "workflow", "result", "--workflow-id", run, fails=request_["graph"] is not GRAPH and "input" not in request_
    )
    printed = await shell("workflow", "show", "--workflow-id", run, "-o", "json")
    history = WorkflowHistory.from_json(run, printed)
    assert_no_task_failed(history)
    await replayer().replay_workflow(history)


async def test_a_run_is_found_by_its_graph_and_status(shell: Shell) -> None:
    name = f"named-{uuid.uuid4().hex[:8]}"
    run = await shell.start({"graph": {**ESCALATING, "name": name}})
    await shell.result(run, fails=True)
    query = f"FerrataGraph = '{name}' AND FerrataStatus = 'failed' AND FerrataEscalations = 1"

    async def listed() -> list[str]:
        found = json.loads(await shell("workflow", "list", "--query", query, "-o", "json"))
        return [item["execution"]["workflowId"] for item in found or []]

    assert await until(listed) == [run]
