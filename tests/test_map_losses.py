"""A map's chunk that loses its worker goes on from what had concluded."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from activities.results import Results
from activities.store import Store, StoreError
from observing import until
from runs import Runs
from worker_process import WorkerProcess

StartWorker = Callable[..., Awaitable[WorkerProcess]]

ITEMS = 60
KILLS = int(os.environ.get("MAP_KILLS", "3"))
"""How often a worker is killed again and again; `make chaos` sets more."""
GRAPH = {
    "nodes": {
        "work": {
            "over": "${[number for number in range(input.count)]}",
            "function": "functions_for_tests:slow",
            "input": {"run": "${run.id}", "key": "${str(item)}", "seconds": "${input.seconds}", "value": "${item}"},
            "concurrency": 4,
        },
        "total": {"value": "${sum(work.values)}"},
    },
    "output": {"sum": "${total}", "indexes": "${work.indexes}"},
}


@pytest.fixture
async def restarting(start_worker: StartWorker, client: Client, tmp_path: Path) -> tuple[Runs, Callable[[], Any]]:
    """Runs on a queue of their own, and what starts another worker there."""
    queue = f"losses-{os.getpid()}-{tmp_path.name}"

    async def another() -> WorkerProcess:
        here = str(Path(__file__).parent)
        env = {"FERRATA_FUNCTIONS": "functions_for_tests", "PYTHONPATH": here, "TEST_LOG": str(tmp_path)}
        return await start_worker(queue, **env)

    return Runs(client, queue, tmp_path), another


def events(log: Path) -> Counter[tuple[str, str]]:
    """How often each item was begun, and ended, by key and event."""
    lines = (log / "slow.jsonl").read_text().splitlines() if (log / "slow.jsonl").exists() else []
    return Counter((line["key"], line["event"]) for line in map(json.loads, lines))


async def until_ended(log: Path, least: int) -> None:
    """Wait until so many items ended."""

    async def holds() -> bool:
        return ended(log) >= least

    await until(holds, 60)


def ended(log: Path) -> int:
    return sum(count for (_, event), count in events(log).items() if event == "end")


async def test_what_could_not_be_saved_is_saved_the_next_time(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path / "store"))
    results = Results()
    results.succeeded(0, b"1")
    first = await results.save(store)
    results.succeeded(1, b"2")
    (tmp_path / "store" / "sha256").rename(tmp_path / "away")
    (tmp_path / "store" / "sha256").write_text("in the way")
    with pytest.raises(StoreError):
        await results.save(store)
    (tmp_path / "store" / "sha256").unlink()
    (tmp_path / "away").rename(tmp_path / "store" / "sha256")
    results.skipped(2)
    second = await results.save(store)
    assert await results.save(store) is None
    restored = Results()
    for saved in (first, second):
        assert saved is not None
        restored.restore(await store.get_json(saved))
    assert restored.concluded == {0, 1, 2}
    assert restored.counts == {"succeeded": 2, "skipped": 1}


@pytest.mark.timeout(180)
async def test_killed_mid_map_every_item_concludes_once_and_concluded_ones_are_not_called_again(
    restarting: tuple[Runs, Callable[[], Any]], tmp_path: Path
) -> None:
    runs, another = restarting
    worker = await another()
    handle = await runs.start(GRAPH, {"count": ITEMS, "seconds": 0.2})
    await until_ended(tmp_path, 30)
    await asyncio.sleep(1.2)  # those 30 are saved: that is every 0.8 s
    before = {key for (key, event), _ in events(tmp_path).items() if event == "end"}
    sure = set(sorted(before, key=int)[:30])
    worker.kill("attempts-1")
    result = (await handle.result())["result"]
    assert result == {"sum": sum(range(ITEMS)), "indexes": list(range(ITEMS))}
    calls = Counter(key for key, event in events(tmp_path).elements() if event == "start")
    assert set(calls) == {str(number) for number in range(ITEMS)}
    assert {key for key in sure if calls[key] > 1} == set()
    again = sum(calls.values()) - ITEMS
    assert 1 <= again <= 4 + 2 * 20  # what was in flight, and what concluded in the last second or so
    await runs.replays(handle)


@pytest.mark.timeout(180)
async def test_a_worker_that_is_stopped_mid_map_hands_on_what_is_not_done(
    restarting: tuple[Runs, Callable[[], Any]], tmp_path: Path
) -> None:
    runs, another = restarting
    worker = await another()
    handle = await runs.start(GRAPH, {"count": ITEMS, "seconds": 0.2})
    await until_ended(tmp_path, 8)
    stopping = asyncio.create_task(worker.stop())
    await another()
    result = (await handle.result())["result"]
    assert result == {"sum": sum(range(ITEMS)), "indexes": list(range(ITEMS))}
    calls = Counter(key for key, event in events(tmp_path).elements() if event == "end")
    assert calls == Counter({str(number): 1 for number in range(ITEMS)})  # those in flight ended first
    assert await stopping == 0
    await runs.replays(handle)


@pytest.mark.timeout(120 + 30 * KILLS)
async def test_a_worker_killed_again_and_again_mid_map(
    restarting: tuple[Runs, Callable[[], Any]], tmp_path: Path
) -> None:
    runs, another = restarting
    worker = await another()
    count = 14 * KILLS
    handle = await runs.start(GRAPH, {"count": count, "seconds": 0.5})
    for _ in range(KILLS):
        await until_ended(tmp_path, ended(tmp_path) + 8)
        os.kill(worker.pids()["attempts-1"], signal.SIGKILL)
    result = (await handle.result())["result"]
    assert result == {"sum": sum(range(count)), "indexes": list(range(count))}
    calls = Counter(key for key, event in events(tmp_path).elements() if event == "start")
    print(f"killed {KILLS} times: {count} items, {sum(calls.values())} calls")
    assert sum(calls.values()) - count <= KILLS * (4 + 2 * 8)
    await runs.replays(handle)


@pytest.mark.timeout(180)
async def test_killed_within_items_graphs_their_concluded_nodes_are_not_called_again(
    restarting: tuple[Runs, Callable[[], Any]], tmp_path: Path
) -> None:
    def node(name: str, seconds: float, value: str) -> dict[str, Any]:
        call = {"run": "${input.run}", "key": f"{name} ${{input.n}}", "seconds": seconds, "value": value}
        return {"function": "functions_for_tests:slow", "input": call}

    nodes = {"begun": node("begun", 0, "${input.n}"), "ended": node("ended", 3, "${begun + 1}")}
    work = {
        "over": "${[{'run': run.id, 'n': n} for n in range(4)]}",
        "graph": {"nodes": nodes, "output": "${[begun, ended]}"},
        "concurrency": 4,
    }
    runs, another = restarting
    worker = await another()
    handle = await runs.start({"nodes": {"work": work}, "output": "${work.values}"})
    await until_ended(tmp_path, 4)
    await asyncio.sleep(1.2)  # where they stand is saved: that is every 0.8 s
    worker.kill("attempts-1")
    assert (await handle.result())["result"] == [[n, n + 1] for n in range(4)]
    begun = Counter(key for key, event in events(tmp_path).elements() if event == "start")
    assert begun == {**{f"begun {n}": 1 for n in range(4)}, **{f"ended {n}": 2 for n in range(4)}}
    await runs.replays(handle)
