"""The drawing of a graph."""

from __future__ import annotations

from graph.compile import compile_graph
from graph.files import MemoryFiles
from graph.mermaid import mermaid
from graph.plan import Plan
from graph.planning import plan_of
from graph.source import read_source

TEXT = """
nodes:
  fetch: {function: "m:f", input: {}, on_fail: [retry: 2, reroute: {function: "m:g"}, escalate]}
  second: {over: "${fetch}", value: "${item}"}
  end: {value: "${second}", after: {fetch: any}}
  undo: {activity: {name: Undo, task_queue: q}, input: {}, after: {fetch: failed}}
  last: {value: 1, after: [undo]}
"""


def plan() -> Plan:
    return plan_of(compile_graph(read_source(TEXT, "graph.yaml"), MemoryFiles()).graph)


def test_nodes_show_kind_and_ladder_and_edges_what_they_carry() -> None:
    lines = mermaid(plan()).splitlines()
    assert lines[0] == "flowchart TD"
    assert '  n_fetch[["fetch<br/>function<br/>retry 2, reroute function:m:g, escalate"]]' in lines
    assert '  n_second("second<br/>map of value")' in lines
    assert "  n_fetch --> n_second" in lines
    assert "  n_fetch -.->|any| n_end" in lines
    assert "  n_fetch -.->|failed| n_undo" in lines
    assert "  n_undo -.-> n_last" in lines


def test_statuses_colour_their_nodes_and_idle_ones_stay_plain() -> None:
    text = mermaid(plan(), {"fetch": "succeeded", "second": "active", "end": "idle"})
    assert "  class n_fetch succeeded" in text
    assert "  class n_second active" in text
    assert "class n_end" not in text
    assert "classDef failed" not in text


def test_a_word_of_mermaid_is_safe_as_a_name() -> None:
    assert " end[" not in mermaid(plan())
