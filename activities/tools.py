"""What every activity of one attempt process shares: settings, store, sandbox, models, functions, compiled graphs."""

from __future__ import annotations

import asyncio
import contextvars
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from temporalio.client import Client

from activities.functions import Functions
from activities.models import Models
from activities.places import Places
from activities.sandbox import Cancel, Sandbox
from activities.settings import Settings
from activities.store import Store
from graph.compiled import CompiledGraph, CompiledNode, read_compiled
from graph.problems import Report
from graph.values import Ref

T = TypeVar("T")

GRAPHS_KEPT = 64
"""Compiled graphs that a process keeps to use again."""


class Tools:
    """Made once per process. ``registered`` are the names of the activities that this worker offers."""

    def __init__(self, settings: Settings, client: Client, registered: frozenset[str] = frozenset()) -> None:
        """Open everything that the settings name.

        Raises:
            LoadError: some of it can't be had; all problems at once.
        """
        self.settings = settings
        self.client = client
        self.registered = registered
        report = Report()
        store = report.gather(Store.open, settings.store)
        models = report.gather(Models.open, settings.models)
        functions = report.gather(Functions, settings.functions)
        report.raise_if_any()
        assert store, "what is missing is a problem"
        assert models, "what is missing is a problem"
        assert functions, "what is missing is a problem"
        self.store, self.models, self.functions = store, models, functions
        self.sandbox = Sandbox(cache_folder=settings.cache)
        self._graphs: OrderedDict[str, tuple[CompiledGraph, dict[str, CompiledNode]]] = OrderedDict()
        # A script that waits for a model holds a thread but no place, so there are more threads than slots, and some
        # that scripts never get: expressions are evaluated in between.
        scripts = settings.slots * 4
        self.places = Places(scripts)
        self.bulks = asyncio.Semaphore(1)
        """For items that are attempted many at once: they keep a core busy, so one call after the other."""
        self._threads = ThreadPoolExecutor(scripts + settings.slots, thread_name_prefix="guest")

    async def node(self, graph: Ref, name: str) -> CompiledNode:
        """The compiled node ``name`` of the stored graph. Raises StoreError, LoadError, KeyError."""
        return (await self._graph(graph))[1][name]

    async def graph(self, ref: Ref) -> CompiledGraph:
        """The stored graph. Raises StoreError, and LoadError if it is of another language."""
        return (await self._graph(ref))[0]

    async def _graph(self, ref: Ref) -> tuple[CompiledGraph, dict[str, CompiledNode]]:
        found = self._graphs.get(ref.digest)
        if found is None:
            graph = read_compiled(await self.store.get(ref))
            found = graph, {node.name: node for node in graph.nodes}
            self._graphs[ref.digest] = found
            if len(self._graphs) > GRAPHS_KEPT:
                self._graphs.popitem(last=False)
        self._graphs.move_to_end(ref.digest)
        return found

    async def run_script(self, work: Callable[[Cancel], T]) -> T:
        """`in_guest_thread`, once there is a place for another script."""
        async with self.places.one():
            return await self.in_guest_thread(work)

    async def in_guest_thread(self, work: Callable[[Cancel], T]) -> T:
        """Run blocking sandbox work in a thread; cancelling the awaiting task stops the guest and waits for that."""
        cancel = Cancel()
        context = contextvars.copy_context()
        future = asyncio.get_running_loop().run_in_executor(self._threads, context.run, work, cancel)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            cancel.cancel()
            await asyncio.wait([future])
            if not future.cancelled():
                future.exception()  # seen: whatever the guest ended with, it was cancelled
            raise

    async def close(self) -> None:
        """Let connections and threads go."""
        await self.models.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
