"""The hand-written side: Temporal workflows and one activity that do by hand what the graphs do.

The activity runs the same script in the same sandbox. `python -m bench.by_hand ROLE QUEUE` is one process of its
worker: `orchestrator` polls workflow tasks, `attempts` polls activities, `eager` does both with eager dispatch.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from activities.sandbox import Sandbox, SandboxLimits

SCRIPT = 'def run(input):\n    return {"n": input["n"] + 1}\n'
WINDOW = 100
"""Activities in flight, as many as a Ferrata run has."""
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
        workflows=[] if role == "attempts" else [Sequence, FanOut],
        activities=[] if role == "orchestrator" else [script_activity(threads)],
        max_concurrent_activities=SLOTS,
        disable_eager_activity_execution=role != "eager",
    )
    print("ready", flush=True)
    await worker.run()


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
