"""Where a resumed run starts: finding the snapshot, checking that its graph is the same, storing it in pages."""

from __future__ import annotations

import time
from typing import Any

from pydantic import ValidationError
from temporalio.client import WorkflowExecutionStatus, WorkflowHandle, WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode

from activities.inputs import check_input
from activities.store import StoreError
from activities.stored import load_value
from activities.tools import Tools
from graph.compiled import CompiledGraph
from graph.errors import LoadError, Problem
from graph.fingerprint import differences
from graph.nearest import suggest
from graph.paging import join, pages
from graph.planning import item_graph
from graph.snapshot import PAGE_LIMIT, Snapshot, bad_snapshot, check_nodes, read_snapshot, redriven
from graph.values import ANSWER_LIMIT, INLINE_LIMIT, JSON, Ref, Value, canonical, encode
from graph.wire import LoadRequest

KEYS = ("run", "run_id")
CARRIED = ANSWER_LIMIT
"""Bytes of inline values that a snapshot's pages carry, since they pass through history."""
MOST_PAGES = 1000
TRANSIENT = (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.RESOURCE_EXHAUSTED)
"""What the server answers when asking again may help."""


async def take_up(tools: Tools, resume: dict[str, Any], redrive: bool) -> tuple[Snapshot, CompiledGraph]:
    """The snapshot that ``resume`` means, ready to go on from, and the graph that it is of.

    Raises:
        LoadError: ``bad_snapshot``, ``unknown_run``, ``still_running``, ``not_resumable``, ``unknown_language``.
        StoreError: a blob that it names is missing or damaged.
    """
    return await checked(tools, await given(tools, resume), redrive)


async def checked(tools: Tools, data: JSON, redrive: bool, apart: str | None = None) -> tuple[Snapshot, CompiledGraph]:
    """The snapshot in ``data``, once it is known that a run can go on from it; ``apart``: the run of one item of the
    map of this name. Raises as `take_up`."""
    snapshot = read_snapshot(data)
    try:
        await tools.store.get(snapshot.compiled)  # one that is known already may be asked for with another size
        graph = await tools.graph(snapshot.compiled)
    except ValidationError as error:
        raise bad_snapshot("what the snapshot calls its compiled graph is none") from error
    except StoreError as error:
        if error.transient:
            raise
        raise bad_snapshot(f"the snapshot's graph can't be read: {error.message}") from error
    if graph.fingerprint != snapshot.fingerprint:
        raise bad_snapshot("the snapshot's fingerprint isn't that of its graph")
    if apart is None and snapshot.graph != graph.name:
        raise bad_snapshot(
            f"it is of `{snapshot.graph}`, the run of one item of a map: resume the run that has the map"
        )
    check_nodes(snapshot, graph if apart is None else item_graph(graph, apart), round(time.time() * 1000))
    if redrive:
        return redriven(snapshot, graph), graph
    if is_cancelled(snapshot):
        message = f"the run `{snapshot.run}` was cancelled"
        hint = "say `redrive: true` to run again what was cancelled or never started"
        raise LoadError([Problem(code="not_resumable", message=message, hint=hint)])
    return snapshot, graph


def is_cancelled(snapshot: Snapshot) -> bool:
    """Whether the run was cancelled, or was just being: a node is cancelled, and no failure says why."""
    cancelled = any(node["status"] == "cancelled" for node in snapshot.nodes.values())
    return snapshot.status == "cancelled" or (cancelled and not snapshot.failures and snapshot.error is None)


def check_same(before: CompiledGraph, after: CompiledGraph) -> None:
    """A run keeps the definition that it started with. Raises LoadError ``changed_graph``, naming what differs."""
    if before.fingerprint != after.fingerprint:
        found = differences(before, after)
        message = f"the graph isn't the one that the run started with; it differs in {', '.join(found[:20])}"
        hint = "leave out `graph` to go on with the old one, or start a new run"
        raise LoadError([Problem(code="changed_graph", message=message, hint=hint)])


async def store_pages(tools: Tools, snapshot: Snapshot) -> list[Ref]:
    """The snapshot in the store, in pages that fit through history. Its values stay as they are, as long as they fit
    together; else the largest go to the store."""
    held = {"values": dict(snapshot.values), "replies": dict(snapshot.replies)}
    sizes = {
        (kind, name): len(encode(value.inline))
        for kind, values in held.items()
        for name, value in values.items()
        if value.ref is None
    }
    excess = sum(sizes.values()) - CARRIED
    for (kind, name), size in sorted(sizes.items(), key=lambda item: -item[1]):
        # Somebody may have given the snapshot, so sizes and limits are made sure of.
        limit = 0 if excess > 0 else INLINE_LIMIT
        held[kind][name] = await tools.store.as_value(held[kind][name].inline, limit)
        excess -= 0 if held[kind][name].ref is None else size
    whole = snapshot.model_copy(update=held).to_json()
    return [await tools.store.put_json(page) for page in pages(whole, PAGE_LIMIT)]


async def child_in_flight(tools: Tools, request: LoadRequest) -> tuple[Snapshot, CompiledGraph] | None:
    """The state of the child run that a restored parent had in flight; None if there is none to go on from, so that it
    starts anew. One that was cancelled with its parent is redriven, and one that hasn't ended yet is asked all the
    same: it is about to, or its parent was restored while it ran.

    Raises:
        StoreError: transient.
    """
    runs = request.resume.get("runs") if isinstance(request.resume, dict) else None
    wanted = await load_value(tools.store, request.value or Value())
    for run in runs if isinstance(runs, list) else []:
        try:
            data = await ask(tools.client.get_workflow_handle(str(run)), ended=False)
            snapshot, graph = await checked(tools, data, redrive=is_cancelled(read_snapshot(data)))
            if snapshot.compiled == request.compiled and same_input(
                graph, wanted, await load_value(tools.store, snapshot.input)
            ):
                return snapshot, graph
        except LoadError:
            continue
        except StoreError as error:
            if error.transient:
                raise
    return None


def same_input(graph: CompiledGraph, input: JSON, before: JSON) -> bool:
    """Whether ``input``, with defaults filled in, is what a run of ``graph`` was started with. Raises LoadError if it
    isn't valid."""
    return canonical(check_input(graph, input)) == canonical(before)


async def given(tools: Tools, resume: dict[str, Any]) -> JSON:
    """The snapshot's JSON: itself, a reference to it, or what another run answers."""
    if "nodes" in resume:
        return resume
    if "digest" in resume:
        try:
            return await tools.store.get_json(Ref.model_validate(resume))
        except (ValidationError, RecursionError) as error:
            raise bad_snapshot("`resume` is neither a reference nor does it lead to a snapshot") from error
    for key in resume:
        if key not in KEYS:
            raise bad_snapshot(f"unknown key `{key}` in `resume`; {suggest(key, KEYS)}")
    run, run_id = resume.get("run"), resume.get("run_id")
    if not isinstance(run, str) or not (run_id is None or isinstance(run_id, str)):
        raise bad_snapshot("`resume` names no run")
    return await ask(tools.client.get_workflow_handle(run, run_id=run_id))


def number_of_pages(page: JSON) -> int:
    """How many pages a snapshot has, by its first; 1 if it doesn't say."""
    pages = page.get("pages") if isinstance(page, dict) else None
    return pages if isinstance(pages, int) else 1


async def ask(handle: WorkflowHandle[Any, Any], *, ended: bool = True) -> JSON:
    """The snapshot of a run by its query; ``ended``: that it has ended is a condition."""
    try:
        if ended and (await handle.describe()).status == WorkflowExecutionStatus.RUNNING:
            message = f"the run `{handle.id}` is still running"
            hint = "let it end, cancel or terminate it first"
            raise LoadError([Problem(code="still_running", message=message, hint=hint)])
        found = [await handle.query("snapshot", 0)]
        found += [
            await handle.query("snapshot", number) for number in range(1, min(number_of_pages(found[0]), MOST_PAGES))
        ]
    except (RPCError, WorkflowQueryFailedError) as error:
        if isinstance(error, RPCError) and error.status in TRANSIENT:
            raise  # for Temporal to try again
        message = f"the run `{handle.id}` can't be asked for its snapshot: {error.message}"
        hint = "check the id; a run that failed before its graph was loaded has none"
        if isinstance(error, RPCError) and error.status is RPCStatusCode.FAILED_PRECONDITION:
            hint = "start a worker that serves it, of the build that it ran on, or give the snapshot itself"
        raise LoadError([Problem(code="unknown_run", message=message, hint=hint)]) from error
    try:
        return join(found)
    except (KeyError, TypeError, AttributeError) as error:
        raise bad_snapshot(f"what the run `{handle.id}` answers isn't a snapshot") from error
