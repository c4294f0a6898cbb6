"""The queue of escalations: draining marks and never deletes, and no signal, however malformed, can harm it."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowHandle, WorkflowQueryFailedError
from temporalio.common import RawValue, WorkflowIDConflictPolicy
from temporalio.contrib.pydantic import pydantic_data_converter

from cli.server import DevServer
from graph.values import JSON
from runs import Runs, assert_no_task_failed
from worker_process import WorkerProcess
from workflows import replayer

Queue = WorkflowHandle[Any, Any]


def entry(id: str, **more: JSON) -> dict[str, JSON]:
    """An entry as a run sends it."""
    return {
        "id": id,
        "run": "run-1",
        "node": "work",
        "code": "rejected",
        "reason": "no",
        "attempts": 1,
        "at": 5,
        **more,
    }


@pytest.fixture
async def queue(runs: Runs) -> AsyncIterator[Queue]:
    """A queue of this test's own, empty; its history replays at the end."""
    handle = await runs.client.start_workflow(
        "EscalationQueue",
        id=f"queue-{uuid.uuid4().hex[:8]}",
        task_queue=runs.task_queue,
        id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
    )
    yield handle
    await runs.replays(handle)
    await handle.terminate()


async def ids(queue: Queue, query: str) -> list[str]:
    answer = await queue.query(query)
    assert answer["total"] == len(answer["entries"])
    return [entry["id"] for entry in answer["entries"]]


async def test_the_queue_takes_entries_and_draining_marks_them_but_deletes_none(queue: Queue) -> None:
    for number in range(3):
        await queue.signal("enqueue", entry(f"e{number}"))
    assert await ids(queue, "outstanding") == ["e0", "e1", "e2"]
    await queue.signal("drain", {"ids": ["e1"], "action": "accept", "value": {"x": 1}, "note": "fine", "by": "ann"})
    assert await ids(queue, "outstanding") == ["e0", "e2"]
    assert await ids(queue, "all") == ["e0", "e1", "e2"]
    drained = (await queue.query("all"))["entries"][1]
    assert drained["drained_at"] > 0
    assert {key: drained["resolution"][key] for key in ("action", "value", "note", "by")} == {
        "action": "accept",
        "value": {"x": 1},
        "note": "fine",
        "by": "ann",
    }
    assert drained["resolution"]["at"] == drained["drained_at"]


async def test_a_repeated_enqueue_or_drain_changes_nothing(queue: Queue) -> None:
    await queue.signal("enqueue", entry("e0"))
    await queue.signal("drain", {"ids": ["e0"], "action": "accept", "by": "ann"})
    before = (await queue.query("all"))["entries"]
    for _ in range(3):
        await queue.signal("enqueue", entry("e0", reason="another"))
        await queue.signal("drain", {"ids": ["e0", "e0"], "action": "reject", "by": "bob"})
    assert (await queue.query("all"))["entries"] == before
    assert await ids(queue, "outstanding") == []


async def test_two_drains_at_once_never_both_hand_out_an_entry(queue: Queue) -> None:
    everything = [f"e{number}" for number in range(20)]
    await asyncio.gather(*(queue.signal("enqueue", entry(id)) for id in everything))
    await asyncio.gather(*(queue.signal("drain", {"ids": everything, "by": who}) for who in ("ann", "bob")))
    by = {e["resolution"]["by"] for e in (await queue.query("all"))["entries"]}
    assert len(by) == 1
    assert (await queue.query("all"))["ignored"] == {"drain": 20}


async def test_a_large_queue_is_read_in_pages(queue: Queue) -> None:
    reason = "r" * 2000
    everything = [f"e{number:04}" for number in range(700)]
    for start in range(0, 700, 50):
        await asyncio.gather(
            *(queue.signal("enqueue", entry(id, reason=reason)) for id in everything[start : start + 50])
        )
    seen: list[str] = []
    cursor = None
    while True:
        answer = await queue.query("all", cursor) if cursor is not None else await queue.query("all")
        assert answer["total"] == 700
        seen += [e["id"] for e in answer["entries"]]
        cursor = answer["next"]
        if cursor is None:
            break
        assert len(seen) < 700
    assert sorted(seen) == everything


def raw(data: bytes, encoding: bytes | None = b"json/plain") -> RawValue:
    return RawValue(Payload(metadata={} if encoding is None else {"encoding": encoding}, data=data))


NOT_READABLE = {
    "nothing-in-it": raw(b""),
    "not-json": raw(b"{ids: [e0]}"),
    "half": raw(b'{"ids": ["e0"'),
    "binary": raw(b"\xff\xfe\x00", b"binary/plain"),
    "no-encoding": raw(b"{}", None),
    "other-encoding": raw(b"x", b"binary/encrypted"),
    "not-utf8": raw(b'{"ids": ["\xff"]}'),
    "surrogate": raw(b'{"ids": ["\\ud800"], "note": "\\ud800"}'),
    "deep": raw(b"[" * 100_000 + b"]" * 100_000),
    "null": raw(b"null"),
    "text": raw(b'"e0"'),
    "list": raw(b'["e0"]'),
    "number": raw(b"1e999"),
    "empty": raw(b"{}"),
    "ids-text": raw(b'{"ids": "e0"}'),
    "ids-object": raw(b'{"ids": {"e0": true}}'),
    "ids-odd": raw(b'{"ids": [null, 1, ["e0"], {"id": "e0"}]}'),
    "unknown-id": raw(b'{"ids": ["nobody"]}'),
}


@pytest.mark.parametrize("payload", NOT_READABLE.values(), ids=NOT_READABLE)
async def test_a_malformed_or_unknown_signal_is_counted_and_changes_nothing(queue: Queue, payload: RawValue) -> None:
    await queue.signal("enqueue", entry("e0"))
    before = await queue.query("all")
    for signal in ("drain", "enqueue"):
        await queue.signal(signal, payload)
    after = await queue.query("all")
    assert after["entries"] == before["entries"]
    assert after["ignored"]["drain"] >= 1
    assert after["ignored"]["enqueue"] == 1
    # It goes on.
    await queue.signal("drain", {"ids": ["e0"]})
    assert await ids(queue, "outstanding") == []


UNTOLD = "x" * 20_000

TOLD: dict[str, tuple[str, JSON, str]] = {
    "unknown": ("drain", {"ids": ["e00"]}, "unknown: e00"),
    "drained": ("drain", {"ids": ["done"]}, "drained already: done"),
    "both": ("drain", {"ids": ["done", "e1", None, 5, [1]]}, "unknown: e1, null, 5 and 1 more; drained already: done"),
    "no-ids": ("drain", {"id": "e0"}, 'it must be an object with a list of ids: {"ids": ["ID"]}'),
    "large": ("drain", {"ids": ["e0"], "note": UNTOLD}, "have 20048 bytes; at most 16384"),
    "malformed": ("drain", raw(b"{ids: [e0]}"), "it isn't JSON"),
    "no-entry": ("enqueue", {"id": "e2"}, "it is no entry: run: Field required"),
    "large-entry": ("enqueue", entry("e2", reason=UNTOLD), "more than 16384 bytes"),
}


@pytest.mark.parametrize(("signal", "word", "reason"), TOLD.values(), ids=TOLD)
async def test_why_a_signal_was_ignored_is_told(queue: Queue, signal: str, word: JSON, reason: str) -> None:
    await queue.signal("enqueue", entry("e0"))
    await queue.signal("enqueue", entry("done"))
    await queue.signal("drain", {"ids": ["done"]})
    await queue.signal(signal, word)
    answer = await queue.query("all")
    [told] = answer["last_ignored"]
    assert (told["signal"], told["at"] > 0) == (signal, True)
    assert reason in told["reason"]
    assert len(told["reason"].encode()) <= 200
    assert await ids(queue, "outstanding") == ["e0"]


async def test_a_misspelt_signal_is_told_with_what_was_meant(queue: Queue) -> None:
    await queue.signal("enqueue", entry("e0"))
    for args in ([], [{"ids": ["e0"]}], [1, 2]):
        await queue.signal("drian", args=args)
    await queue.signal("é" * 400)
    answer = await queue.query("all")
    assert answer["ignored"] == {"unknown": 4}
    reasons = [told["reason"] for told in answer["last_ignored"]]
    assert reasons[:3] == ["a queue has no signal `drian`; did you mean `drain`?"] * 3
    assert "known: `drain`, `enqueue`" in reasons[3]
    assert await ids(queue, "outstanding") == ["e0"]


async def test_only_the_last_ten_ignored_signals_are_told(queue: Queue) -> None:
    for number in range(12):
        await queue.signal("drain", {"ids": [f"nobody-{number}"]})
    answer = await queue.query("all")
    assert answer["ignored"] == {"drain": 12}
    assert [told["reason"] for told in answer["last_ignored"]] == [f"unknown: nobody-{n}" for n in range(2, 12)]


@pytest.mark.parametrize(
    ("carried", "ignored", "told"),
    [
        ({"entries": [entry("e0")], "ignored": {"drain": 2}}, {"drain": 2}, []),
        ({"entries": 5}, {"start": 1}, ["what it was started with is no state of a queue: entries: Input should be"]),
    ],
    ids=["of-an-older-worker", "by-hand"],
)
async def test_a_queue_starts_from_what_it_is_given(runs: Runs, carried: JSON, ignored: JSON, told: list[str]) -> None:
    name = f"queue-{uuid.uuid4().hex[:8]}"
    handle = await runs.client.start_workflow("EscalationQueue", carried, id=name, task_queue=runs.task_queue)
    answer = await handle.query("all")
    assert answer["total"] == len(answer["entries"]) == (0 if told else 1)
    assert answer["ignored"] == ignored
    assert all(t["reason"].startswith(start) for t, start in zip(answer["last_ignored"], told, strict=True))
    await handle.terminate()
    await runs.replays(handle)


@pytest.mark.parametrize("value", [b"NaN", b"Infinity", b"-Infinity", b'"\\ud800"', b"9" * 5000], ids=repr)
async def test_a_value_that_is_no_json_never_gets_into_the_queue(queue: Queue, value: bytes) -> None:
    await queue.signal("enqueue", entry("e0"))
    await queue.signal("drain", raw(b'{"ids": ["e0"], "action": "accept", "value": %b}' % value))
    bad = json.dumps(entry("e1", input={"inline": "HERE", "size": 3})).encode().replace(b'"HERE"', value)
    await queue.signal("enqueue", raw(bad))
    answer = await queue.query("all")
    assert [(e["id"], e["drained_at"]) for e in answer["entries"]] == [("e0", None)]
    assert answer["ignored"] == {"drain": 1, "enqueue": 1}


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": None},
        {"id": ""},
        {"run": 5},
        {"attempts": "many"},
        {"reason": "r" * 400_000},
        {"input": {"inline": "x" * 400_000, "size": 400_002}},
        {"ref": {"digest": 1}},
        {"resolution": "accept"},
    ],
    ids=["id", "empty-id", "run", "attempts", "reason", "input", "ref", "resolution"],
)
async def test_an_entry_that_is_none_is_counted(queue: Queue, wrong: dict[str, JSON]) -> None:
    await queue.signal("enqueue", {**entry("e0"), **wrong})
    answer = await queue.query("all")
    assert (answer["entries"], answer["ignored"]) == ([], {"enqueue": 1})


async def test_a_drain_with_a_value_beyond_all_measure_is_counted(queue: Queue) -> None:
    await queue.signal("enqueue", entry("e0"))
    await queue.signal("drain", {"ids": ["e0"], "value": "x" * 1_200_000})
    answer = await queue.query("all")
    assert (answer["entries"][0]["drained_at"], answer["ignored"]) == (None, {"drain": 1})


async def test_signals_with_too_many_or_no_arguments_or_an_unknown_name_break_nothing(queue: Queue) -> None:
    await queue.signal("enqueue", entry("e0"))
    for signal in ("enqueue", "drain", "no_such_signal"):
        await queue.signal(signal, args=[])
        await queue.signal(signal, args=[entry("e1"), {"ids": ["e0"]}, 5])
    assert await ids(queue, "outstanding") == ["e0"]
    await queue.signal("drain", {"ids": ["e0"]})
    assert await ids(queue, "outstanding") == []


@pytest.mark.parametrize("cursor", ["next", -1, 1.5, True, [0], {"next": 0}], ids=repr)
async def test_a_cursor_that_is_none_is_refused_and_the_queue_goes_on(queue: Queue, cursor: JSON) -> None:
    await queue.signal("enqueue", entry("e0"))
    with pytest.raises(WorkflowQueryFailedError, match="`next`"):
        await queue.query("outstanding", cursor)
    assert (await queue.query("outstanding", 1))["entries"] == []
    assert await ids(queue, "outstanding") == ["e0"]


async def test_a_thousand_useless_signals_change_nothing(queue: Queue) -> None:
    await queue.signal("enqueue", entry("e0"))
    for _ in range(20):
        await asyncio.gather(*(queue.signal("drain", {"ids": ["nobody"]}) for _ in range(50)))
    answer = await queue.query("all")
    assert [(e["id"], e["drained_at"]) for e in answer["entries"]] == [("e0", None)]
    assert answer["ignored"] == {"drain": 1000}


async def test_a_signal_that_a_run_does_not_know_never_fails_it(runs: Runs) -> None:
    node = {"infer": {"model": "unhurried", "prompt": "${run.id}"}}
    handle = await runs.start({"nodes": {"work": node}})
    for name in ("drain", "resolve", "enqueue", "nonsense"):
        await handle.signal(name, {"ids": ["x"]})
        await handle.signal(name, raw(b"{not json"))
    envelope = await handle.result()
    assert envelope["result"] == "at last"
    await runs.replays(handle)


async def test_signals_sent_all_through_continue_as_new_are_neither_lost_nor_applied_twice(tmp_path: Path) -> None:
    settings = {"limit.historyCount.suggestContinueAsNew": 60}
    async with DevServer(dynamic_config=settings) as server, WorkerProcess(server, tmp_path) as worker:
        client = await Client.connect(server.address, data_converter=pydantic_data_converter)
        queue = await client.start_workflow("EscalationQueue", id="escalations", task_queue=worker.task_queue)
        first_run = queue.first_execution_run_id
        everything = [f"e{number:03}" for number in range(300)]
        for start in range(0, 300, 10):
            batch = everything[start : start + 10]
            # Each entry and each drain twice: what was carried over must know them again.
            sent = [queue_of(client).signal("enqueue", entry(id)) for id in batch * 2]
            await asyncio.gather(*sent)
            await queue_of(client).signal("drain", {"ids": batch[::2], "by": "ann"})
            await queue_of(client).signal("drain", {"ids": batch[::2], "by": "bob"})
            await queue_of(client).signal("drain", {"ids": ["nobody"]})
        answer = await queue_of(client).query("all")
        assert sorted(e["id"] for e in answer["entries"]) == everything
        assert answer["total"] == 300
        drained = {e["id"]: e["resolution"]["by"] for e in answer["entries"] if e["drained_at"] is not None}
        assert drained == dict.fromkeys(everything[::2], "ann")
        assert answer["ignored"] == {"drain": 150 + 30}
        assert len(answer["last_ignored"]) == 10
        # It did continue as new, several times, and every one of its histories replays.
        described = await queue_of(client).describe()
        assert described.run_id != first_run
        run_ids = [first_run]
        while run_ids[-1] != described.run_id:
            history = await client.get_workflow_handle("escalations", run_id=run_ids[-1]).fetch_history()
            assert_no_task_failed(history)
            await replayer().replay_workflow(history)
            last = history.events[-1].workflow_execution_continued_as_new_event_attributes
            run_ids.append(last.new_execution_run_id)
        assert len(run_ids) >= 4


def queue_of(client: Client) -> Queue:
    """The default queue, whichever run of it is the current one."""
    return client.get_workflow_handle("escalations")
