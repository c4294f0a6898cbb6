"""Records the histories that `test_histories.py` replays: `python tests/record_histories.py`, on a server of its own.

Those that are there already are left alone: they keep replaying for ever. What names this machine is taken out.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter

TESTS = Path(__file__).parent
sys.path[:0] = [str(TESTS.parent), str(TESTS)]

from cli.server import DevServer  # noqa: E402
from conftest import MODELS  # noqa: E402
from graph.values import JSON  # noqa: E402
from observing import until  # noqa: E402
from runs import Runs  # noqa: E402
from worker_process import WorkerProcess  # noqa: E402

HISTORIES = TESTS / "histories"
PREFIX = "history-"
"""Workflow ids begin so; a history is replayed under the id that it was recorded with, for child ids hold it."""
FUNCTIONS = "functions_for_tests:"

MAP_OF_RUNS: dict[str, Any] = {
    "nodes": {
        "work": {
            "over": ["a", "b", "c"],
            "activity": {"name": "greet", "args": ["${item}"]},
            "accept": [{"expr": "output != 'hello b'"}],
            "on_fail": [{"retry": 1}, {"reroute": {"value": "instead"}}],
        }
    }
}
"""A map whose items are runs of their own."""

LARGE_MAP: JSON = {
    "nodes": {
        "work": {
            "over": "${list(range(1200))}",
            "value": "${item}",
            "accept": [{"expr": "output % 500 != 7"}],
            "on_fail": [{"reroute": {"value": 0}}],
        },
        "count": {"value": "${len(work.values)}"},
    }
}

GRAPHS: dict[str, tuple[JSON, JSON, str]] = {
    "linear": (
        {
            "nodes": {
                "one": {"value": {"n": "${input.n + 1}"}},
                "two": {
                    "script": "def run(input):\n    return {'n': input['n'] * 2}\n",
                    "input": {"n": "${one.n}"},
                },
                "three": {"function": FUNCTIONS + "echo", "input": {"value": "${two}"}},
            },
            "output": {"n": "${three.n}"},
        },
        {"n": 20},
        "completed",
    ),
    "fan_out": (
        {
            "nodes": {
                "source": {"value": 1},
                **{f"branch_{i}": {"value": f"${{source + {i}}}"} for i in range(8)},
                "not_taken": {"value": "${source}", "when": "source > 1"},
                "join": {"value": [f"${{branch_{i}}}" for i in range(8)]},
            },
        },
        None,
        "completed",
    ),
    "ladder": (
        {
            "nodes": {
                "improves": {
                    "infer": {"model": "small", "prompt": "who?"},
                    "output_schema": {"type": "object", "properties": {"from": {"const": "big"}}},
                    "on_fail": [{"retry": 1}, {"reroute": {"model": "big"}}, "escalate"],
                },
                "escalates": {
                    "infer": {"model": "small", "prompt": "${improves['from']}?"},
                    "accept": [{"expr": "output['from'] == 'nobody'"}],
                    "on_fail": [{"retry": {"times": 1, "feedback": True}}, {"reroute": {"model": "big"}}, "escalate"],
                },
            }
        },
        None,
        "rejected",
    ),
    "delayed_retry": (
        {
            "nodes": {
                "work": {
                    "function": FUNCTIONS + "script",
                    "input": {"run": "${run.id}", "replies": [{"fail": "A"}, {"fail": "B"}, "done"]},
                    "on_fail": [{"retry": {"times": 3, "delay": "100ms", "backoff": 2}}],
                }
            }
        },
        None,
        "completed",
    ),
    "failure_stops": (
        {
            "nodes": {
                "fails": {"script": "def run(input):\n    fail('NO_STOCK', 'none left')\n"},
                "in_flight": {"function": FUNCTIONS + "slow", "input": {"run": "${run.id}", "seconds": 1}},
                "waits": {
                    "function": FUNCTIONS + "fail_as",
                    "input": {"code": "BUSY"},
                    "on_fail": [{"retry": {"times": 2, "delay": "1h"}}],
                },
                "never": {"value": "${in_flight}"},
                "handles": {"value": "handled", "after": {"fails": "failed"}},
                "finally_node": {"value": "done", "after": {"handles": "any"}},
            }
        },
        None,
        "NO_STOCK",
    ),
    "saga": (
        {
            "on_failure": "continue",
            "nodes": {
                "book": {"value": "booked"},
                "pay": {"function": FUNCTIONS + "fail_as", "input": {"code": "DECLINED"}, "after": ["book"]},
                "notify": {"value": "paid", "after": ["pay"], "optional": True},
                "cancel_booking": {"value": "cancelled ${book}", "after": {"pay": "failed"}},
                "report": {"value": ["${cancel_booking}", "${notify}"], "after": {"notify": "any"}},
            },
        },
        None,
        "DECLINED",
    ),
    "map": (
        {
            "nodes": {
                "items": {"value": "${list(range(12))}"},
                "work": {
                    "over": "${items}",
                    "script": "def run(input):\n    if input % 3: fail('ODD', 'no')\n    return input\n",
                    "on_fail": [
                        {"retry": {"times": 1, "delay": "100ms"}},
                        {
                            "reroute": {
                                "script": "def run(input):\n    if input % 2: fail('ODD', 'no')\n    return input\n"
                            }
                        },
                        "escalate",
                    ],
                },
                "count": {"value": "${len(work.values)}"},
            }
        },
        None,
        "completed",
    ),
    "child_graph": (
        {
            "nodes": {
                "child": {
                    "graph": {"nodes": {"twice": {"value": "${input.n * 2}"}}, "output": "${twice}"},
                    "input": {"n": 21},
                },
                "fails": {
                    "graph": {"nodes": {"no": {"script": "def run(input):\n    fail('INNER', 'no')\n"}}},
                    "input": {},
                    "on_fail": [{"retry": 1}],
                    "optional": True,
                },
            }
        },
        None,
        "completed",
    ),
    "activity": (
        {
            "nodes": {
                "greet": {"activity": {"name": "greet", "args": ["${input}"]}},
                "retried": {
                    "activity": {"name": "fail_with", "args": ["${run.id}", "BUSY", 1]},
                    "on_fail": [{"retry": 1}],
                },
                "counts": {
                    "activity": "step",
                    "input": 0,
                    "repeat": {"until": "output >= 3", "max_rounds": 5},
                },
            }
        },
        "world",
        "completed",
    ),
    "wide_fan_in": (
        {
            "nodes": {
                **{f"n{i}": {"value": f"${{'{i}' * 7000}}"} for i in range(10, 26)},
                "joined": {"value": ["${n" + str(i) + "[0]}" for i in range(10, 26)]},
            },
            "output": "${joined}",
        },
        None,
        "completed",
    ),
    "load_failure": ({"nodes": {"work": {"valeu": 1}, "more": {"value": "${nothing}"}}}, None, "unknown_key"),
    "refused": (["no graph"], None, "bad_request"),
    "large_map": (LARGE_MAP, None, "completed"),
    "map_over_a_graph": (
        {
            "nodes": {
                "work": {
                    "over": ["a", "b", "c"],
                    "graph": {
                        "nodes": {
                            "polled": {
                                "function": FUNCTIONS + "script",
                                "input": {"run": "${run.id}", "replies": [{"fail": "NOT_YET"}, "ready"]},
                                "on_fail": [{"retry": {"times": 2, "delay": "100ms"}}],
                            },
                            "both": {"value": "${input} ${polled}"},
                        }
                    },
                }
            }
        },
        None,
        "completed",
    ),
    "map_of_runs": (MAP_OF_RUNS, None, "completed"),
}


async def ended(runs: Runs, name: str) -> WorkflowHandle[Any, Any]:
    """A run of one of `GRAPHS`, ended as it should."""
    graph, input, end = GRAPHS[name]
    handle = await runs.start(graph, input, id=PREFIX + name)
    if end == "completed":
        await handle.result()
    else:
        failed = await runs.failure(handle)
        assert failed.code == end, failed.message
    return handle


async def cancelled(runs: Runs) -> WorkflowHandle[Any, Any]:
    """A run cancelled while one node works and another waits."""
    nodes = {
        "works": {"function": FUNCTIONS + "slow", "input": {"run": "${run.id}", "seconds": 60}},
        "waits": {
            "function": FUNCTIONS + "fail_as",
            "input": {"code": "BUSY"},
            "on_fail": [{"retry": {"times": 2, "delay": "1h"}}],
        },
    }
    handle = await runs.start({"nodes": nodes}, id=PREFIX + "cancelled")
    while "waiting" not in (await runs.query(handle.id, "progress")).get("nodes", {}) or not runs.calls(
        "slow", handle.id
    ):
        await asyncio.sleep(0.05)
    await handle.cancel()
    with suppress(WorkflowFailureError):
        await handle.result()
    return handle


async def waits(runs: Runs) -> WorkflowHandle[Any, Any]:
    """A wait for a time, and replies: an early one, one that is refused, one by update, one by signal."""
    ask = {"wait": {"reply": {"type": "integer"}}, "after": ["pause"]}
    nodes = {"pause": {"wait": {"for": "1s"}}, "one": ask, "two": ask, "three": ask}
    handle = await runs.start({"nodes": nodes}, id=PREFIX + "waits")
    await handle.execute_update("reply", {"node": "one", "value": 1})
    await until(lambda: status(handle, "two"))
    await handle.signal("reply", {"node": "two", "value": "two"})
    await handle.execute_update("reply", {"node": "two", "value": 2})
    await handle.signal("reply", {"node": "three", "value": 3})
    await handle.result()
    return handle


async def status(handle: WorkflowHandle[Any, Any], node: str) -> bool:
    """Whether a node waits."""
    return node in [entry["node"] for entry in (await handle.query("progress")).get("waiting", [])]


async def continued(runs: Runs) -> WorkflowHandle[Any, Any]:
    """The first part of a run that continued as new, in a delay."""
    return await polled(runs, "continued")


async def continued_on(runs: Runs) -> WorkflowHandle[Any, Any]:
    """The second part of such a run."""
    first = await polled(runs, "continued_on")
    history = await first.fetch_history()
    following = history.events[-1].workflow_execution_continued_as_new_event_attributes.new_execution_run_id
    return runs.client.get_workflow_handle(first.id, run_id=following)


async def polled(runs: Runs, name: str) -> WorkflowHandle[Any, Any]:
    """The first part of a long polling run beside a wait."""
    poll = {
        "function": FUNCTIONS + "script",
        "input": {"run": "${run.id}", "key": "poll", "replies": [{"fail": "NOT_YET"}] * 12 + ["ready"]},
        "on_fail": [{"retry": {"times": 100, "delay": "20ms"}}],
    }
    nodes = {"poll": poll, "pause": {"wait": {"for": "2s"}}}
    handle = await runs.start({"nodes": nodes}, id=PREFIX + name)
    await handle.result()
    return runs.client.get_workflow_handle(handle.id, run_id=handle.first_execution_run_id)


async def run_map(runs: Runs) -> WorkflowHandle[Any, Any]:
    """The run that works through a large map's items."""
    handle = await runs.start(LARGE_MAP, id=PREFIX + "run_map")
    await handle.result()
    return runs.client.get_workflow_handle(f"{handle.id}/work/1.0")


async def escalation_queue(runs: Runs) -> WorkflowHandle[Any, Any]:
    """A queue with two entries, one drained, and signals that mean nothing."""
    id = PREFIX + "escalation_queue"
    node = {"value": 1, "accept": [{"expr": "output > 1"}], "on_fail": [{"escalate": {"queue": id}}]}
    for number in range(2):
        run = await runs.start({"nodes": {"work": node}}, id=f"{id}-run-{number}")
        with suppress(WorkflowFailureError):
            await run.result()
    handle = runs.client.get_workflow_handle(id)
    entries = (await handle.query("outstanding"))["entries"]
    await handle.signal("drain", {"ids": [entries[0]["id"], "unknown"], "action": "fail", "note": "no"})
    await handle.signal("drain", args=[1, 2])
    await handle.signal("enqueue", {"not": "an entry"})
    assert (await handle.query("outstanding"))["total"] == 1
    return handle


async def run_map_of_runs(runs: Runs) -> WorkflowHandle[Any, Any]:
    """The run that starts a run for each item of a map."""
    handle = await runs.start(MAP_OF_RUNS, id=PREFIX + "run_map_of_runs")
    await handle.result()
    return runs.client.get_workflow_handle(f"{handle.id}/work/1.0")


async def item_run(runs: Runs) -> WorkflowHandle[Any, Any]:
    """The run of one item."""
    handle = await runs.start(MAP_OF_RUNS, id=PREFIX + "item_run")
    await handle.result()
    return runs.client.get_workflow_handle(f"{handle.id}/work/1.0/1")


KEPT = ("polling_without_continuing",)
"""Histories of earlier versions of the workflows, which can't be recorded again."""

BELOW = {"run_map": "/work/1.0", "run_map_of_runs": "/work/1.0", "item_run": "/work/1.0/1"}
"""The ends of ids of runs that others started."""

RECORDINGS: dict[str, Callable[[Runs], Awaitable[WorkflowHandle[Any, Any]]]] = {
    **{name: lambda runs, name=name: ended(runs, name) for name in GRAPHS},  # type: ignore[misc]
    "cancelled": cancelled,
    "escalation_queue": escalation_queue,
    "waits": waits,
    "continued": continued,
    "continued_on": continued_on,
    "run_map": run_map,
    "run_map_of_runs": run_map_of_runs,
    "item_run": item_run,
}


def scrubbed(history: JSON) -> str:
    """A history's JSON text without what names this machine: processes' identities and stack traces. No other place
    should name it; a test sees to that."""
    without_traces(history)
    text = json.dumps(history, indent=1, ensure_ascii=False) + "\n"
    return re.sub(r"\d+@[^\s\"]+", "worker", text)


def without_traces(part: JSON) -> None:
    """Take stack traces out: replay doesn't read them."""
    if isinstance(part, dict):
        part.pop("stackTrace", None)
        part.pop("binaryChecksum", None)
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        without_traces(inner)


async def main() -> None:
    """Record those that are missing."""
    HISTORIES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = {
            "FERRATA_FUNCTIONS": "functions_for_tests",
            "FERRATA_ACTIVITIES": "activities_for_tests",
            "FERRATA_MODELS": json.dumps({name: {"provider": "stub", **MODELS[name]} for name in ("small", "big")}),
            "TEST_LOG": str(folder),
            "PYTHONPATH": str(TESTS),
        }
        # Few events, so that runs continue as new soon.
        async with DevServer(dynamic_config={"limit.historyCount.suggestContinueAsNew": 60}) as server:
            client = await Client.connect(server.address, data_converter=pydantic_data_converter, identity="recorder")
            async with WorkerProcess(server, folder, task_queue="ferrata", env=environment) as worker:
                runs = Runs(client, worker.task_queue, folder)
                for name, record in RECORDINGS.items():
                    if (HISTORIES / f"{name}.json").exists():
                        continue
                    handle = await record(runs)
                    history = await runs.replays(handle)
                    text = scrubbed(json.loads(history.to_json()))
                    (HISTORIES / f"{name}.json").write_text(text)
                    print(f"{name}: {len(history.events)} events, {len(text) // 1024} KiB")


if __name__ == "__main__":
    os.chdir(TESTS.parent)
    asyncio.run(main())
