"""The hand-written side: Temporal workflows and one activity that do by hand what the graphs do.

The activity runs the same script in the same sandbox. `python -m bench.by_hand ROLE QUEUE` is one process of its
worker: `orchestrator` polls workflow tasks, `attempts` polls activities, `eager` does both with eager dispatch.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from pydantic import BaseModel
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from activities.sandbox import Sandbox, SandboxLimits

SCRIPT = 'def run(input):\n    return {"n": input["n"] + 1}\n'
WINDOW = 100
"""Activities in flight, as many as a Ferrata run has."""
ITEMS_WINDOW = 50
"""Items in flight."""
SLOTS = 16


@workflow.defn
class Sequence:
    """``count`` activities one after another, each fed by the one before."""

    @workflow.run
    async def run(self, count: int) -> Any:
        value: Any = {"n": 0}
        for _ in range(count):
            value = await step(value)
        return value


@workflow.defn
class FanOut:
    """``count`` activities side by side on the same input; the sum of their results."""

    @workflow.run
    async def run(self, count: int) -> int:
        places = asyncio.Semaphore(WINDOW)

        async def one() -> Any:
            async with places:
                return await step({"n": 0})

        results = await asyncio.gather(*(one() for _ in range(count)))
        return sum(result["n"] for result in results)


@workflow.defn
class Items:
    """One activity for each of ``count`` items, 50 at once."""

    @workflow.run
    async def run(self, count: int) -> int:
        places = asyncio.Semaphore(ITEMS_WINDOW)

        async def one(number: int) -> Any:
            async with places:
                return await step({"n": number})

        return len(await asyncio.gather(*(one(number) for number in range(count))))


@workflow.defn
class Three:
    """Three activities one after another: what a small graph does for one item."""

    @workflow.run
    async def run(self, number: int) -> Any:
        value: Any = {"n": number}
        for _ in range(3):
            value = await step(value)
        return value


@workflow.defn
class Children:
    """One child workflow of three activities for each of ``count`` items, 50 at once."""

    @workflow.run
    async def run(self, count: int) -> int:
        places = asyncio.Semaphore(ITEMS_WINDOW)

        async def one(number: int) -> Any:
            async with places:
                return await workflow.execute_child_workflow(Three.run, number)

        return len(await asyncio.gather(*(one(number) for number in range(count))))


class Context(BaseModel):
    """What each step of a `Chain` is told of the run and of what it belongs to: as large as what a graph's are told."""

    run: str
    workflow: str
    started: str
    definition: str
    input: dict[str, int]


class Step(BaseModel):
    """One step of a `Chain`: its name, and the value of the one before."""

    context: Context
    name: str
    before: dict[str, int] | None = None


class Stepped(BaseModel):
    """What a step gave, and the digests of its input and its output."""

    value: dict[str, int]
    input: str
    output: str


@workflow.defn
class Chain:
    """``count`` typed activities one after another, each fed by the one before. Events and payloads are those of a
    graph's nodes."""

    def __init__(self) -> None:
        self.done = 0

    @workflow.run
    async def run(self, count: int) -> dict[str, int]:
        info = workflow.info()
        context = Context(
            run=info.workflow_id,
            workflow=info.workflow_type,
            started=info.workflow_start_time.isoformat(),
            definition=digest("chain"),
            input={"n": 0},
        )
        value: dict[str, int] | None = None
        for number in range(count):
            stepped: Stepped = await workflow.execute_activity(
                "add_one",
                Step(context=context, name=f"n{number}", before=value),
                result_type=Stepped,
                start_to_close_timeout=timedelta(seconds=60),
                heartbeat_timeout=timedelta(seconds=5),
                retry_policy=RetryPolicy(maximum_attempts=11),
                summary=f"n{number}",
            )
            value = stepped.value
            self.done += 1
            workflow.set_current_details(f"{self.done} of {count} steps concluded")
        return value or {}

    @workflow.query
    def progress(self) -> int:
        """How many steps are done."""
        return self.done


@activity.defn
async def add_one(step: Step) -> Stepped:
    """The value of the step before, and one more."""
    value = {"n": (step.before or step.context.input)["n"] + 1}
    return Stepped(value=value, input=digest(step.name), output=digest(json.dumps(value)))


def digest(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


async def step(value: Any) -> Any:
    return await workflow.execute_activity(
        "run_script",
        value,
        start_to_close_timeout=timedelta(seconds=60),
        heartbeat_timeout=timedelta(seconds=5),
    )


def script_activity(threads: ThreadPoolExecutor) -> Any:
    """The activity, with a sandbox of its own."""
    sandbox = Sandbox()

    @activity.defn
    async def run_script(value: Any) -> Any:
        payload = json.dumps(value)
        loop = asyncio.get_running_loop()
        result = await loop.run_in_executor(
            threads, lambda: sandbox.run_script(SCRIPT, "step.py", 1, payload, SandboxLimits())
        )
        return result.output

    return run_script


async def serve(role: str, queue: str) -> None:
    """Poll until the process is ended."""
    client = await Client.connect(os.environ["TEMPORAL_ADDRESS"], data_converter=pydantic_data_converter)
    threads = ThreadPoolExecutor(SLOTS)
    worker = Worker(
        client,
        task_queue=queue,
        workflows=[] if role == "attempts" else [Sequence, FanOut, Items, Three, Children, Chain],
        activities=[] if role == "orchestrator" else [script_activity(threads), add_one],
        max_concurrent_activities=SLOTS,
        disable_eager_activity_execution=role != "eager",
    )
    print("ready", flush=True)
    await worker.run()


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
