"""A run of a hundred nodes ends as if undisturbed though its worker and its server are killed at random moments.

``CHAOS_KILLS`` is how many kills there are at least, ``CHAOS_SEED`` what they are drawn from; `make chaos` sets more.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowHandle, WorkflowHistory

from chaos.killing import World
from chaos.ledger import Ledger, assert_nothing_concluded_is_called_again
from chaos.shape import LAYERS, asked_for_replies, chaos_graph
from observing import queued, without_times_and_ids
from runs import Runs

TESTS = Path(__file__).parent.parent
KILLS = int(os.environ.get("CHAOS_KILLS", "20"))
SEED = int(os.environ.get("CHAOS_SEED", "1"))
STUB = {"provider": "stub", "reply": {"n": 1}, "delay": "150ms", "usage": {"input_tokens": 7, "output_tokens": 3}}
ENVIRONMENT = {
    "FERRATA_FUNCTIONS": "chaos.work",
    "FERRATA_ACTIVITIES": "chaos.work",
    "FERRATA_MODELS": json.dumps({"stub": STUB}),
    "PYTHONPATH": str(TESTS),
}
SOON = {"limit.historyCount.suggestContinueAsNew": 250}
"""So that the run continues as new a few times on its way."""


async def running(world: World, handle: WorkflowHandle[Any, Any]) -> bool:
    status = (await world.patiently(handle.describe)).status
    return status in (WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.CONTINUED_AS_NEW)


async def something_runs(runs: Runs, handle: WorkflowHandle[Any, Any], seconds: float = 15) -> None:
    """Wait until the run calls something: without this, most kills would hit what is only just starting again."""
    before = len(runs.calls("calls", handle.id))
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while len(runs.calls("calls", handle.id)) == before:
                await asyncio.sleep(0.1)


async def run_to_its_end(world: World, runs: Runs, chance: random.Random | None = None) -> WorkflowHandle[Any, Any]:
    """Start the graph and send its replies; with ``chance``, kill something every few seconds until there were
    enough."""
    handle = await runs.start(chaos_graph())
    unanswered, ticks = asked_for_replies(), 0
    while await running(world, handle):
        if chance is None:
            await asyncio.sleep(0.5)
        elif world.kills.total() < KILLS:
            if chance.random() < 0.6:
                await something_runs(runs, handle)
            await asyncio.sleep(chance.uniform(0, 1.5))
            for _ in range(chance.choice((1, 1, 1, 2))):
                world.kill(chance)
            await asyncio.sleep(chance.uniform(0.3, 0.8))
        else:
            await asyncio.sleep(0.5)
        await world.mend()
        ticks += 1
        if unanswered and ticks % 4 == 0:
            reply = {"node": unanswered.pop(0), "value": {"n": 5}}
            await world.patiently(lambda reply=reply: handle.signal("reply", reply))
    return handle


async def histories(world: World, runs: Runs, id: str) -> list[WorkflowHistory]:
    """All histories of a run, the last one first. Each of them replays."""
    found, run_id = [], None
    while run_id != "":
        handle = world.client.get_workflow_handle(id, run_id=run_id)
        found.append(await world.patiently(lambda handle=handle: runs.replays(handle)))
        run_id = found[-1].events[0].workflow_execution_started_event_attributes.continued_execution_run_id
    return found


@pytest.mark.slow
@pytest.mark.timeout(180 + 15 * KILLS)
async def test_a_run_whose_worker_and_server_are_killed_again_and_again_ends_as_if_undisturbed(tmp_path: Path) -> None:
    async with World(tmp_path, ENVIRONMENT, SOON) as world:
        runs = Runs(world.client, world.worker.task_queue, tmp_path)
        undisturbed = await run_to_its_end(world, runs)
        wanted = await undisturbed.result()
        state = without_times_and_ids(await undisturbed.query("state"))
        seed = SEED
        while world.kills.total() < KILLS:
            before = world.kills.copy()
            handle = await run_to_its_end(world, runs, random.Random(seed))
            result = await world.patiently(handle.result)
            assert result == wanted
            shown = without_times_and_ids(await world.patiently(lambda handle=handle: handle.query("state")))
            for name, node in shown["nodes"].items():
                assert node == state["nodes"][name], name
            assert shown == state
            calls = runs.calls("calls", handle.id)
            ledger = Ledger()
            long = await histories(world, runs, handle.id)
            for history in long:
                ledger.read(history)
            for child in {call["run"] for call in calls} - {handle.id}:
                for history in await histories(world, runs, child):
                    ledger.read(history)
            ledger.assert_each_request_concluded_once()
            repeats = assert_nothing_concluded_is_called_again(ledger, calls)
            assert len(await queued(runs, handle.id)) == LAYERS
            kills = ", ".join(f"{count} {kind}" for kind, count in sorted((world.kills - before).items()))
            print(
                f"seed {seed}: killed {kills}; {len(long)} histories, {len(ledger.concluded)} activities, "
                f"{ledger.losses} losses, {repeats} repeated calls"
            )
            seed += 1
        await histories(world, runs, "escalations")
