"""The activity `load`: find the graph, compile it, check the run's input, store both; return a small plan.

Everything that can be known to be wrong is said here, before the first node runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from functools import lru_cache, partial

from temporalio import activity
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.service import RPCError

from activities.grants import not_grantable
from activities.inputs import check_input
from activities.lookup import find_graph
from activities.resume import check_same, checked, child_in_flight, same_input, store_pages, take_up
from activities.stored import load_value
from activities.tools import Tools
from graph.compile import Compilation, compile_graph
from graph.compiled import CompiledGraph
from graph.errors import LoadError, Problem
from graph.language import check_language
from graph.paging import join
from graph.planning import item_plan, plan_of
from graph.snapshot import Snapshot
from graph.values import JSON, Ref, Value
from graph.wire import LOAD, RESTORE, SAVE, Apart, Continued, Loaded, LoadRequest, Page
from graph.world import World

INPUT_INLINE = 2 * 1024
"""Bytes up to which a run's input travels inline: every attempt carries it."""
MOST_WARNINGS = 50
SCRIPTS_KEPT = 1024
"""Scripts whose syntax a process remembers."""
SEARCH_ATTRIBUTES = ("FerrataGraph", "FerrataStatus", "FerrataEscalations")


class LoadActivities:
    """Bound to one process's tools."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._registered: list[str] | None = None
        # Graphs come again and again, and often one script serves many nodes.
        self._check_script = lru_cache(SCRIPTS_KEPT)(lambda text: tools.sandbox.check_syntax(text, "script.py"))

    @activity.defn(name=LOAD)
    async def load(self, request: LoadRequest) -> Loaded:
        """Compile and store a graph, or take up one that a parent run stored. Raises LoadError, StoreError, Failure."""
        check_language("the run asks for", request.language)
        if request.continued is not None:
            return await self._continue(request.continued, request.apart)
        if request.apart is not None:
            graph = await self._tools.graph(request.apart.scope.graph)
            return Loaded(
                plan=item_plan(graph, request.apart.node),
                graph=request.apart.scope.graph,
                input=request.apart.scope.input,
                search_attributes=await self._search_attributes(),
            )
        if request.resume is not None and request.compiled is None:
            return await self._resume(request, *await take_up(self._tools, request.resume, request.redrive))
        if request.resume is not None and (before := await child_in_flight(self._tools, request)):
            return await self._resume(request, *before)
        warnings: list[str] = []
        if request.compiled is not None:
            ref = request.compiled
            graph = await self._tools.graph(ref)
            input = await load_value(self._tools.store, request.value or Value())
        else:
            graph, warnings = await self._compiled(request.graph)
            input = request.input
            ref = await self._store(graph)
        input = await asyncio.to_thread(check_input, graph, input)
        return Loaded(
            plan=plan_of(graph),
            graph=ref,
            input=await self._tools.store.as_value(input, INPUT_INLINE),
            search_attributes=await self._search_attributes(),
            warnings=warnings,
        )

    async def _resume(self, request: LoadRequest, snapshot: Snapshot, graph: CompiledGraph) -> Loaded:
        """Go on from a snapshot, with its graph and its input."""
        input = await load_value(self._tools.store, snapshot.input)
        if request.graph is not None:
            check_same(graph, (await self._compiled(request.graph))[0])
        if request.input is not None and not same_input(graph, request.input, input):
            message = "a resumed run keeps the input that it started with, and another one was given"
            raise LoadError([Problem(code="bad_request", message=message, hint="leave out `input`")])
        await self._check_queues(graph)
        value = await self._tools.store.as_value(input, INPUT_INLINE)
        return Loaded(
            plan=plan_of(graph),
            graph=snapshot.compiled,
            input=value,
            search_attributes=await self._search_attributes(),
            pages=await store_pages(self._tools, snapshot.model_copy(update={"input": value})),
        )

    async def _continue(self, continued: Continued, apart: Apart | None) -> Loaded:
        """Go on from pages that the run saved itself, in a fresh history."""
        data = join([await self._tools.store.get_json(ref) for ref in continued.pages])
        snapshot, graph = await checked(self._tools, data, redrive=False, apart=apart.node if apart else None)
        return Loaded(
            plan=item_plan(graph, apart.node) if apart else plan_of(graph),
            graph=snapshot.compiled,
            input=snapshot.input,
            search_attributes=await self._search_attributes(),
            pages=continued.pages,
        )

    @activity.defn(name=SAVE)
    async def save(self, request: Page) -> Ref:
        """Store one page of a run's snapshot. Raises StoreError."""
        return await self._tools.store.put_json(request.page)

    @activity.defn(name=RESTORE)
    async def restore(self, ref: Ref) -> Page:
        """One page of a snapshot that `load` stored. Raises StoreError."""
        return Page(page=await self._tools.store.get_json(ref))

    async def _compiled(self, wanted: JSON) -> tuple[CompiledGraph, list[str]]:
        """The graph that a run names, and warnings. Raises LoadError."""
        # Reading and compiling take a while for a large graph, and the heartbeat must go on.
        compilation = await asyncio.to_thread(self._compile, wanted)
        await self._check_queues(compilation.graph)
        return compilation.graph, [str(warning) for warning in compilation.warnings[:MOST_WARNINGS]]

    def _compile(self, wanted: JSON) -> Compilation:
        source, files = find_graph(self._tools.settings.graphs, wanted)
        world = World(
            script=self._check_script,
            function=self._tools.functions.describe,
            activities=self._tools.registered,
            models=frozenset(self._tools.models.names()),
            readable=partial(not_grantable, self._tools.settings.read_folders),
        )
        return compile_graph(source, files, world)

    async def _store(self, graph: CompiledGraph) -> Ref:
        """Store a graph and its children, deepest first, so that each knows where its children lie."""
        for fingerprint, child in graph.graphs.items():
            graph.refs[fingerprint] = await self._store(child)
        return await self._tools.store.put(graph.model_dump_json(by_alias=True, exclude={"graphs"}).encode())

    async def _check_queues(self, graph: CompiledGraph) -> None:
        """Refuse task queues that nobody polls, in child graphs too: an activity there would wait for ever."""
        wanted = [
            (part.file, node, implementation.activity.task_queue)
            for part in with_children(graph)
            for node in part.nodes
            for implementation in node.implementations
            if implementation.activity is not None and implementation.activity.task_queue is not None
        ]
        polled = {queue: await self._is_polled(queue) for queue in dict.fromkeys(queue for _, _, queue in wanted)}
        problems = [
            Problem(
                code="unpolled_queue",
                message=f"node `{node.name}`: no worker polls the task queue `{queue}`",
                file=file,
                line=node.line or None,
                column=node.column or None,
                hint="start a worker for that queue, or mend its name",
            )
            for file, node, queue in wanted
            if not polled[queue]
        ]
        if problems:
            raise LoadError(problems)

    async def _is_polled(self, queue: str) -> bool:
        client = self._tools.client
        answer = await client.workflow_service.describe_task_queue(
            DescribeTaskQueueRequest(
                namespace=client.namespace,
                task_queue=TaskQueue(name=queue),
                task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
            )
        )
        return bool(answer.pollers)

    async def _search_attributes(self) -> list[str]:
        """Ours that the namespace has; asked once per process. Setting another would block the run for ever."""
        if self._registered is None:
            client = self._tools.client
            try:
                answer = await client.operator_service.list_search_attributes(
                    ListSearchAttributesRequest(namespace=client.namespace), timeout=timedelta(seconds=5)
                )
            except RPCError as error:
                activity.logger.warning("search attributes can't be listed, so none are set: %s", error)
                return []
            self._registered = [name for name in SEARCH_ATTRIBUTES if name in answer.custom_attributes]
        return self._registered


def with_children(graph: CompiledGraph) -> Iterator[CompiledGraph]:
    """``graph`` and the graphs below it."""
    yield graph
    for child in graph.graphs.values():
        yield from with_children(child)
