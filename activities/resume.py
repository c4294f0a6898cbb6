"""Where a resumed run starts: finding the snapshot, checking that its graph is the same, storing it in pages."""

from __future__ import annotations

from typing import Any

from temporalio.client import WorkflowExecutionStatus, WorkflowHandle, WorkflowQueryFailedError
from temporalio.service import RPCError

from activities.store import StoreError
from activities.tools import Tools
from graph.compiled import CompiledGraph
from graph.errors import LoadError, Problem
from graph.fingerprint import differences
from graph.nearest import suggest
from graph.snapshot import PAGE_LIMIT, Snapshot, bad_snapshot, check_nodes, join, pages, read_snapshot, redriven
from graph.values import JSON, KIB, Ref, Value
from graph.wire import LoadRequest

KEYS = ("run", "run_id")
CARRIED = KIB
"""Bytes up to which a value stays inline in a snapshot's pages."""
MOST_PAGES = 1000


async def take_up(tools: Tools, resume: dict[str, Any], redrive: bool) -> tuple[Snapshot, CompiledGraph]:
    """The snapshot that ``resume`` means, ready to go on from, and the graph that it is of.

    Raises:
        LoadError: ``bad_snapshot``, ``unknown_run``, ``still_running``, ``not_resumable``.
        StoreError: a blob that it names is missing or damaged.
    """
    snapshot = read_snapshot(await given(tools, resume))
    try:
        graph = await tools.graph(snapshot.compiled)
    except StoreError as error:
        if error.transient:
            raise
        raise bad_snapshot(f"the snapshot's graph can't be read: {error.message}") from error
    if graph.fingerprint != snapshot.fingerprint:
        raise bad_snapshot("the snapshot's fingerprint isn't that of its graph")
    check_nodes(snapshot, graph)
    if redrive:
        return redriven(snapshot, graph), graph
    if snapshot.status == "cancelled":
        message = f"the run `{snapshot.run}` was cancelled"
        hint = "say `redrive: true` to run again what was cancelled or never started"
        raise LoadError([Problem(code="not_resumable", message=message, hint=hint)])
    return snapshot, graph


def check_same(before: CompiledGraph, after: CompiledGraph) -> None:
    """A run keeps the definition that it started with. Raises LoadError ``changed_graph``, naming what differs."""
    if before.fingerprint != after.fingerprint:
        found = differences(before, after)
        message = f"the graph isn't the one that the run started with; it differs in {', '.join(found[:20])}"
        hint = "leave out `graph` to go on with the old one, or start a new run"
        raise LoadError([Problem(code="changed_graph", message=message, hint=hint)])


async def store_pages(tools: Tools, snapshot: Snapshot) -> list[Ref]:
    """The snapshot in the store, in pages that fit through history; larger values lie beside them."""
    values = {name: await carried(tools, value) for name, value in snapshot.values.items()}
    whole = snapshot.model_copy(update={"values": values}).to_json()
    return [await tools.store.put_json(page) for page in pages(whole, PAGE_LIMIT)]


async def carried(tools: Tools, value: Value) -> Value:
    if value.ref is not None or value.size <= CARRIED:
        return value
    return await tools.store.as_value(value.inline, CARRIED)


async def has_snapshot(tools: Tools, request: LoadRequest) -> bool:
    """Whether the child run that a restored parent had in flight can be gone on from; else it starts anew."""
    try:
        snapshot, _ = await take_up(tools, request.resume, redrive=False)
    except LoadError:
        return False
    return snapshot.compiled == request.compiled


async def given(tools: Tools, resume: dict[str, Any]) -> JSON:
    """The snapshot's JSON: itself, a reference to it, or what another run answers."""
    if "nodes" in resume:
        return resume
    if "digest" in resume:
        return await tools.store.get_json(Ref.model_validate(resume))
    for key in resume:
        if key not in KEYS:
            raise bad_snapshot(f"unknown key `{key}` in `resume`; {suggest(key, KEYS)}")
    run, run_id = resume.get("run"), resume.get("run_id")
    if not isinstance(run, str) or not (run_id is None or isinstance(run_id, str)):
        raise bad_snapshot("`resume` names no run")
    return await ask(tools.client.get_workflow_handle(run, run_id=run_id))


async def ask(handle: WorkflowHandle[Any, Any]) -> JSON:
    """The snapshot of a run that has ended, by its query."""
    try:
        status = (await handle.describe()).status
        if status == WorkflowExecutionStatus.RUNNING:
            message = f"the run `{handle.id}` is still running"
            hint = "let it end, cancel or terminate it first"
            raise LoadError([Problem(code="still_running", message=message, hint=hint)])
        found = [await handle.query("snapshot", 0)]
        found += [await handle.query("snapshot", number) for number in range(1, min(found[0]["pages"], MOST_PAGES))]
    except (RPCError, WorkflowQueryFailedError) as error:
        message = f"the run `{handle.id}` can't be asked for its snapshot: {error.message}"
        hint = "check the id; a run that failed before its graph was loaded has none"
        raise LoadError([Problem(code="unknown_run", message=message, hint=hint)]) from error
    return join(found)
