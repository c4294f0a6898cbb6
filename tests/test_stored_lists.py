"""What lies in the store in pages reads as the plain value does: the same results, the same failures, no more read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities import stored as in_pages
from activities.attempt import AttemptActivities
from activities.evaluate import Environment, stored_list
from activities.lists import ListWriter, dense, get_list, put_list, put_map, read_list
from activities.outputs import OUTPUT_LIMITS, OutputActivities
from activities.settings import Settings
from activities.store import Store
from activities.stored import StoredList, StoredMap, load_value, recognise, resolve_stored
from activities.tools import Tools
from graph.compile import compile_graph
from graph.errors import Failure
from graph.expressions import parse_expression
from graph.files import NoFiles
from graph.lists import Index, MapOutput
from graph.resolve import resolve
from graph.source import from_object
from graph.values import ANSWER_LIMIT, JSON, Ref, Value, digest, encode
from graph.wire import CheckRequest, EvaluateRequest, RunInfo, Scope
from runs import Runs
from test_cli import ferrata

SLOW = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)


class Counting(Store):
    """A store that notes which blobs were read."""

    read: list[str]

    async def get(self, ref: Ref) -> bytes:
        """As the store does."""
        self.read.append(ref.digest)
        return await super().get(ref)


@pytest.fixture
def store(tmp_path: Path) -> Counting:
    opened = Counting.open(str(tmp_path / "store"))
    assert isinstance(opened, Counting)
    opened.read = []
    return opened


async def listed(store: Store, items: Sequence[JSON], numbers: Sequence[int], cuts: Sequence[int] = ()) -> Index:
    """A stored list, a new page beginning at each of ``cuts``."""
    writer = ListWriter(store)
    for place, (number, item) in enumerate(zip(numbers, items, strict=True)):
        if place in cuts:
            await writer.flush()
        await writer.add(number, encode(item))
    return await writer.close()


async def mapped(
    store: Store, values: Sequence[JSON], numbers: Sequence[int] | None = None, cuts: Sequence[int] = ()
) -> tuple[MapOutput, dict[str, JSON]]:
    """A map's output as the store has it, and as its author sees it. Items that have no value have failed."""
    numbers = range(len(values)) if numbers is None else numbers
    lost = sorted(set(range(max(numbers, default=-1) + 1)) - set(numbers))
    failures = [{"index": index, "item": None, "code": "rejected", "reason": "no"} for index in lost]
    counts = {"succeeded": len(values), "failed": len(failures), "escalated": 0, "skipped": 0}
    output = MapOutput(
        values=await listed(store, values, numbers, cuts), failures=await listed(store, failures, lost), **counts
    )
    return output, {"values": list(values), "indexes": list(numbers), "failures": failures, **counts}


def outcome(found: Any) -> tuple[str, Any]:
    """A value as JSON text, or all that a failure says."""
    if isinstance(found, Failure):
        return found.failure_class, (found.code, found.message, found.details)
    return "value", encode(found)


def plainly(text: str, whole: JSON) -> tuple[str, Any]:
    plan = parse_expression(text).host
    assert plan is not None
    try:
        return outcome(resolve(plan, {"m": whole}))
    except Failure as failure:
        return outcome(failure)


async def from_store(text: str, stored: StoredList | StoredMap) -> tuple[str, Any]:
    plan = parse_expression(text).host
    assert plan is not None
    try:
        return outcome(await resolve_stored(plan, stored))
    except Failure as failure:
        return outcome(failure)


PATHS = [
    *("m", "m.values", "m.indexes", "m.failures", "m.succeeded", "m.failed", "m.skipped", "m.value", "m[0]"),
    *("m.values.a", "m.values[0]", "m.values[-1]", "m.values[2]", "m.values[-3]", "m.values[9]", "m.values[0].a"),
    *("m.values[1].a.b", "m.indexes[0]", "m.indexes[-1]", "m.indexes[4]", "m.indexes[0].x", "m.failures[0].code"),
    *("m.failures[0].cod", "m.succeeded.x", "m.failed[0]", "m.values[-1].b"),
]
CALLS = [
    *("len({})", "sum({})", "first({})", "first({}, 'none')", "pluck({}, 'a')", "pluck({}, 'a.b')"),
    *("count_by({}, 'a')", "count_by({}, 'code')", "group_by({}, 'a')", "group_by({}, 'aa')"),
]
EXPRESSIONS = [*PATHS, *(call.format(path) for call in CALLS for path in PATHS)]

figures = st.integers(-3, 3) | st.floats(allow_nan=False, allow_infinity=False)
leaves = st.none() | st.booleans() | figures | st.sampled_from(["x", "é", ""])
objects = st.fixed_dictionaries({}, optional={"a": leaves | st.fixed_dictionaries({"b": leaves}), "b": leaves})
alike = st.lists(st.fixed_dictionaries({"a": leaves}), max_size=8) | st.lists(figures, max_size=8)
items = alike | st.lists(objects | leaves, max_size=8)


@SLOW
@given(data=st.data(), values=items)
def test_every_expression_gives_what_it_gives_of_the_plain_value(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, values: list[JSON]
) -> None:
    numbers = sorted(data.draw(st.sets(st.integers(0, 20), min_size=len(values), max_size=len(values))))
    cuts = data.draw(st.sets(st.integers(0, 8)))
    store = Store.open(str(tmp_path_factory.mktemp("store")))

    async def compare() -> None:
        output, whole = await mapped(store, values, numbers, sorted(cuts))
        plain = StoredList(store, output.values)
        for text in EXPRESSIONS:
            assert await from_store(text, StoredMap(store, output)) == plainly(text, whole), text
            if "m." not in text:  # the list by itself
                assert await from_store(text, plain) == plainly(text, values), text
        for text in ("m[0]", "m[-1].a", "m.a", "count_by(m, 'a')", "sum(m)", "first(m)", "m[7]"):
            assert await from_store(text, plain) == plainly(text, values), text

    asyncio.run(compare())


@SLOW
@given(data=st.data(), values=items)
def test_the_parts_of_a_stored_value_are_its_json_text(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, values: list[JSON]
) -> None:
    cuts = data.draw(st.sets(st.integers(0, 8)))
    store = Store.open(str(tmp_path_factory.mktemp("store")))

    async def compare() -> None:
        output, whole = await mapped(store, values, range(3, 3 + len(values)), sorted(cuts))
        kept = StoredMap(store, output)
        assert b"".join([part async for part in kept.texts()]) == encode(whole)
        assert kept.size >= len(encode(whole))
        for key in ("values", "indexes", "failures"):
            text = b"".join([part async for part in kept.texts([key])])
            assert text == encode({key: whole[key]})
            assert kept.size_of([key]) >= len(text)

    asyncio.run(compare())


async def test_no_more_is_read_than_an_expression_needs(store: Counting) -> None:
    output, whole = await mapped(store, [{"a": n} for n in range(40)], [*range(35), *range(40, 45)], [10, 20, 30])
    pages = [page.items.digest for page in output.values.pages]
    numbers = output.values.pages[-1].numbers
    assert len(pages) == 4
    assert numbers is not None
    expected = {
        "len(m.values)": [],
        "m.succeeded": [],
        "len(m.indexes)": [],
        "m.indexes[12]": [],
        "m.indexes[-1]": [numbers.digest],
        "m.values[10].a": pages[1:2],
        "m.values[-1].a": pages[3:],
        "first(m.values)": pages[:1],
        "count_by(m.values, 'a')": pages,
        "m.values": pages,
    }
    for text, blobs in expected.items():
        store.read.clear()
        assert await from_store(text, StoredMap(store, output)) == plainly(text, whole)
        assert store.read == blobs, text


async def test_what_cannot_be_held_is_refused_with_its_size_and_what_streams(
    store: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, whole = await mapped(store, [{"a": 1, "long": "x" * 90} for _ in range(100)], cuts=range(0, 100, 10))
    monkeypatch.setattr(in_pages, "WHOLE_LIMIT", 5000)
    kept = StoredMap(store, output)
    for text in ("m", "m.values", "group_by(m.values, 'a')", "pluck(m.values, 'long')"):
        kind, (code, message, details) = await from_store(text, kept)
        assert (kind, code) == ("too_large", "too_large")
        assert details["size"] > details["limit"] == 5000
        assert str(details["size"]) in message
        assert "`count_by`" in message
    for text in (
        "m.values[99].a",
        "len(m.values)",
        "sum(m.indexes)",
        "count_by(m.values, 'a')",
        "pluck(m.values, 'a')",
    ):
        assert await from_store(text, kept) == plainly(text, whole)


async def test_a_list_with_holes_in_its_numbers_becomes_one_without_and_keeps_its_pages(store: Counting) -> None:
    index = await listed(store, list("abcde"), [0, 3, 4, 9, 12], [2, 4])
    closed = dense(index)
    assert [page.items for page in closed.pages] == [page.items for page in index.pages]
    assert [tuple(found) async for found in read_list(store, closed)] == list(enumerate("abcde"))
    assert [tuple(found) async for found in read_list(store, closed, 3)] == [(3, "d"), (4, "e")]
    assert dense(Index()) == Index()


async def test_a_blob_says_itself_that_it_stands_for_a_list_or_a_map(store: Counting) -> None:
    output, _ = await mapped(store, [1, 2], [0, 2])
    found = await recognise(store, await store.find((await put_map(store, output)).digest))
    assert found == StoredMap(store, output)
    assert await recognise(store, await put_list(store, Index())) == StoredList(store, Index())
    plains: list[JSON] = [[], {}, "x", {"ferrata": "lists"}, {"ferrata": "list", "pages": 3}]
    for plain in [*plains, {"ferrata": "list", "mine": 1}]:
        assert await recognise(store, await store.put_json(plain)) is None


# Expressions


@pytest.fixture(scope="module")
def tools(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Tools:
    """An attempt process's tools, in this one."""
    return Tools(Settings(store=str(tmp_path_factory.mktemp("store"))), client)


async def scope_of(store: Store, graph: dict[str, JSON], **nodes: Value) -> Scope:
    """A graph stored as the load activity does it, and what its nodes may read."""
    compiled = compile_graph(from_object(graph, "graph"), NoFiles()).graph
    ref = await store.put(compiled.model_dump_json(by_alias=True).encode())
    return Scope(graph=ref, run=RunInfo(id="r", graph="graph", started=""), input=Value(), nodes=dict(nodes))


async def environment(tools: Tools, **nodes: Value) -> Environment:
    scope = await scope_of(tools.store, {"nodes": {"a": {"value": 1}}}, **nodes)
    return Environment(tools, scope, OUTPUT_LIMITS)


async def map_value(store: Store, output: MapOutput) -> Value:
    return Value(ref=await put_map(store, output), size=output.size)


@pytest.mark.parametrize(
    "text",
    [
        "[v.a for v in m.values]",
        "m.succeeded + len(m.failures)",
        "sorted(m.keys())",
        "[m[key] for key in ['indexes', 'failed']]",
        "dict(zip([str(i) for i in m.indexes], m.values))",
        "m",
        "count_by(m.values, 'a')",
        "[item, len(m.values)]",
    ],
)
async def test_the_sandbox_and_the_host_see_a_stored_map_as_its_author_does(tools: Tools, text: str) -> None:
    output, whole = await mapped(tools.store, [{"a": n % 3} for n in range(9)], range(1, 10), [4])
    expression = parse_expression(text)
    kept = (await environment(tools, m=await map_value(tools.store, output))).within(item=1)
    plain = (await environment(tools, m=await tools.store.as_value(whole))).within(item=1)
    assert await kept.evaluate([expression]) == await plain.evaluate([expression])


async def test_the_sandbox_gets_only_what_an_expression_names(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    output, _ = await mapped(tools.store, ["x" * 100] * 50, cuts=[25])
    env = await environment(tools, m=await map_value(tools.store, output))
    text = await env.scope_text([parse_expression("m.failed + len(m.indexes)"), parse_expression("m.failures == []")])
    assert json.loads(text) == {"m": {"indexes": list(range(50)), "failures": [], "failed": 0}}
    monkeypatch.setattr(in_pages, "WHOLE_LIMIT", 2000)
    assert await env.bind("${m.succeeded + 1}") == 51
    with pytest.raises(Failure, match=r"`m.values` is \d+ bytes of JSON, too large to be held") as caught:
        await env.bind("${[v for v in m.values]}")
    assert caught.value.failure_class == "too_large"


async def test_a_value_that_many_items_read_is_fetched_and_encoded_once(
    tmp_path: Path, client: Client, store: Counting
) -> None:
    tools = Tools(Settings(store=str(tmp_path / "store")), client)
    tools.store = store
    output, _ = await mapped(store, [1, 2, 3], cuts=[1])
    env = await environment(tools, m=await map_value(store, output), n=Value(inline=[5], size=3))
    store.read.clear()
    expressions = [parse_expression("item + max(m.values) + n[0]"), parse_expression("sum(m.values)")]
    each = [env.within(item=number).evaluate(expressions) for number in range(10)]
    assert [sorted(found.values()) for found in await asyncio.gather(*each)] == [[6, n + 8] for n in range(10)]
    pages = [page.items.digest for page in output.values.pages]
    assert sorted(store.read) == sorted([*pages, *pages, (await put_map(store, output)).digest])


async def test_a_page_that_is_gone_fails_as_invalid_input_and_names_the_node(client: Client, tmp_path: Path) -> None:
    tools = Tools(Settings(store=str(tmp_path / "store")), client)
    elsewhere = Store.open(str(tmp_path / "store"))
    output, _ = await mapped(elsewhere, [1, 2, 3])
    env = await environment(tools, m=await map_value(elsewhere, output))
    text = output.values.pages[0].items.digest.removeprefix("sha256:")
    (tmp_path / "store" / "sha256" / text[:2] / text[2:]).unlink()
    assert await env.bind("${len(m.values)}") == 3
    for template in ("${m.values[0]}", "${m.values}", "${[v for v in m.values]}"):
        with pytest.raises(Failure, match=r"`m`: the blob .* is not in the store") as caught:
            await env.bind(template)
        assert (caught.value.failure_class, caught.value.code) == ("invalid_input", "blob_missing")


async def test_a_path_to_a_stored_list_gives_its_index_without_reading_it(
    client: Client, tmp_path: Path, store: Counting
) -> None:
    tools = Tools(Settings(store=str(tmp_path / "store")), client)
    tools.store = store
    output, _ = await mapped(store, ["a", "b", "c"], [0, 2, 5], [1])
    env = await environment(tools, m=await map_value(store, output), n=Value(inline=[1], size=3))
    store.read.clear()
    assert await stored_list(env, "${m.values}") == dense(output.values)
    assert await stored_list(env, "${m.failures}") == dense(output.failures)
    for other in ("${m}", "${m.indexes}", "${m.failed}", "${pluck(m.values, 'a')}", "x ${m.values}", "${n}", [1], None):
        assert await stored_list(env, other) is None, other
    assert not {page.items.digest for page in output.values.pages} & set(store.read)
    with pytest.raises(Failure, match="has no key `valeus`; did you mean `values`"):
        await stored_list(env, "${m.valeus}")


# A run's output


async def output_of(tools: Tools, graph: dict[str, JSON], limit: int, **nodes: Value) -> Value:
    scope = await scope_of(tools.store, graph, **nodes)
    request = EvaluateRequest(scope=scope, limit=limit)
    found: Value = await ActivityEnvironment().run(OutputActivities(tools).evaluate, request)
    return found


MAP: dict[str, JSON] = {"over": [1], "value": "${item}"}


@pytest.mark.parametrize("output", ["${m}", None])
async def test_a_map_as_the_runs_output_is_plain_json_inline_or_in_a_blob(tools: Tools, output: str | None) -> None:
    graph: dict[str, JSON] = {"nodes": {"m": MAP}} | ({"output": output} if output else {})
    kept, whole = await mapped(tools.store, ["é" * 100] * 50, [*range(49), 60], [7, 30])
    value = await map_value(tools.store, kept)
    size = len(encode(whole))
    assert await output_of(tools, graph, size, m=value) == Value(inline=whole, size=size)
    stored = await output_of(tools, graph, size - 1, m=value)
    assert stored.ref is not None
    assert (stored.ref.form, stored.ref.size, stored.size) == (None, size, size)
    assert await tools.store.get(stored.ref) == encode(whole)


async def test_a_list_as_the_runs_output_is_plain_and_to_a_parent_run_stays_in_pages(tools: Tools) -> None:
    graph: dict[str, JSON] = {"nodes": {"m": MAP}, "output": "${m.values}"}
    kept, whole = await mapped(tools.store, list(range(200)), range(5, 205), [50])
    value = await map_value(tools.store, kept)
    stored = await output_of(tools, graph, 100, m=value)
    assert stored.ref == await tools.store.put_json(whole["values"])
    handed = await output_of(tools, graph, 0, m=value)
    assert handed.ref is not None
    assert await get_list(tools.store, handed.ref) == dense(kept.values)
    assert await load_value(tools.store, handed) == whole["values"]


async def test_other_outputs_hold_a_map_whole(tools: Tools) -> None:
    kept, whole = await mapped(tools.store, [1, 2])
    value = await map_value(tools.store, kept)
    two: dict[str, JSON] = {"nodes": {"m": MAP, "n": {"value": 1}}}
    found = await output_of(tools, two, ANSWER_LIMIT, m=value, n=Value(inline=1, size=1))
    assert found.inline == {"m": whole, "n": 1}
    told: dict[str, JSON] = {**two, "output": {"text": "all: ${m.values}", "n": "${m.values[1]}"}}
    assert (await output_of(tools, told, ANSWER_LIMIT, m=value)).inline == {"text": "all: [1,2]", "n": 2}


# What a child run gave


@pytest.mark.parametrize("schema", [None, {"type": "object", "required": ["values"]}])
async def test_a_map_that_a_child_run_gave_is_checked_as_plain_and_stays_in_pages(tools: Tools, schema: JSON) -> None:
    below: dict[str, JSON] = {"graph": {"nodes": {"m": MAP}}, "input": {}} | (
        {"output_schema": schema} if schema else {}
    )
    kept, whole = await mapped(tools.store, [1, 2, 3], cuts=[1])
    value = await map_value(tools.store, kept)
    scope = await scope_of(tools.store, {"nodes": {"below": below}})
    request = CheckRequest(scope=scope, node="below", output=value)
    found = await ActivityEnvironment().run(AttemptActivities(tools).check, request)
    assert found.output == value
    assert found.digest == digest(encode(whole))


async def test_a_map_that_a_child_run_gave_may_be_rejected(tools: Tools) -> None:
    below: dict[str, JSON] = {"graph": {"nodes": {"m": MAP}}, "input": {}, "accept": [{"expr": "output.failed > 0"}]}
    kept, _ = await mapped(tools.store, [1, 2, 3])
    scope = await scope_of(tools.store, {"nodes": {"below": below}})
    request = CheckRequest(scope=scope, node="below", output=await map_value(tools.store, kept))
    with pytest.raises(ApplicationError) as caught:
        await ActivityEnvironment().run(AttemptActivities(tools).check, request)
    assert caught.value.type == "rejected"


# Runs


def shared_store(runs: Runs) -> Store:
    """The store of the worker that all tests share."""
    return Store.open(str(runs.log / "store"))


async def test_a_run_whose_output_is_a_stored_map_gives_plain_json(runs: Runs) -> None:
    store = shared_store(runs)
    graph = {"nodes": {"m": {"over": [0], "value": "${item}"}}, "output": "${m}"}
    first = await runs.complete(graph)
    for size in (10, ANSWER_LIMIT):
        output, whole = await mapped(store, ["x" * size, 7], [1, 3])
        snapshot = await runs.query(first["id"], "snapshot")
        snapshot["values"]["m"] = (await map_value(store, output)).model_dump(mode="json")
        handle = await runs.start_raw({"resume": snapshot})
        envelope = await handle.result()
        await runs.replays(handle)
        if size == 10:
            assert envelope["result"] == whole
        else:
            assert envelope["result"] is None
            assert await store.get(Ref(**envelope["result_ref"])) == encode(whole)


async def test_a_map_runs_over_a_stored_list_given_by_its_reference_or_digest(runs: Runs) -> None:
    store = shared_store(runs)
    ref = await put_list(store, await listed(store, list("abcdef"), [0, 1, 4, 5, 7, 9], [2, 5]))
    graph = {"nodes": {"work": {"over": {"ref": "${input}"}, "value": "${item}"}}, "output": "${work.values}"}
    for input in (ref.model_dump(), ref.digest, {"ref": ref.model_dump()}):
        assert (await runs.complete(graph, input))["result"] == list("abcdef")
    output, _ = await mapped(store, [1])
    failed = await runs.fail(graph, (await put_map(store, output)).digest)
    assert failed.code == "bad_ref"
    assert "it is a map's output, not a list" in failed.message


# Shown to people


@pytest.fixture
def shown(tmp_path: Path) -> Store:
    """The store that `ferrata show` reads in this folder."""
    return Store.open(str(tmp_path / ".ferrata" / "store"))


async def test_ferrata_show_prints_the_plain_value_of_what_lies_in_pages(tmp_path: Path, shown: Store) -> None:
    output, whole = await mapped(shown, ["日本", {"b": None}, 3], [0, 2, 3], [1])
    of_map, of_list = await put_map(shown, output), await put_list(shown, output.values)
    for ref, plain in ((of_map, whole), (of_list, whole["values"])):
        printed = ferrata(tmp_path, "show", ref.digest)
        assert (printed.returncode, printed.stderr) == (0, "")
        assert printed.stdout == json.dumps(plain, ensure_ascii=False, indent=2) + "\n"
        assert ferrata(tmp_path, "show", ref.digest, "--lines").stdout == '"日本"\n{"b":null}\n3\n'
