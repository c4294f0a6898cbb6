"""Maps whose items pass through a whole graph: inside a chunk, with the semantics of a run."""

from __future__ import annotations

from typing import Any

from mapped import scheduled
from runs import Runs

ADD = "def run(input):\n    return input + 1\n"


def through(nodes: dict[str, Any], **graph: Any) -> dict[str, Any]:
    """A map over the run's input ``items`` whose items pass through a graph of ``nodes``."""
    return {"nodes": nodes, **graph}


def mapped(graph: dict[str, Any], **node: Any) -> dict[str, Any]:
    return {"nodes": {"work": {"over": "${input.items}", "graph": graph, **node}}, "output": "${work}"}


async def test_each_item_passes_through_the_graph_in_one_chunk(runs: Runs) -> None:
    nodes = {
        "one": {"script": ADD},
        "two": {"script": ADD, "input": "${one}"},
        "both": {"value": {"given": "${input}", "one": "${one}", "two": "${two}"}},
    }
    handle = await runs.start(mapped(through(nodes)), {"items": list(range(300))})
    output = (await handle.result())["result"]
    assert output["values"] == [{"given": n, "one": n + 1, "two": n + 2} for n in range(300)]
    assert output["succeeded"] == 300
    assert scheduled(await runs.replays(handle))["chunk"] == 1
