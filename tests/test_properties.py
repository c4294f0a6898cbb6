"""Rules that hold for every graph and every ladder, tried on many: hypothesis makes them up, and a model written from
the design's words says what may happen."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowFailureError, WorkflowHistory

from graph.compile import compile_graph
from graph.compiled import Escalate, Reroute, Retry, Rung
from graph.errors import LoadError
from graph.files import NoFiles
from graph.ladder import LONGEST_DELAY, Attempt, Climb, Escalation, Exhausted
from graph.plan import NodePlan
from graph.readiness import decide
from graph.source import from_object
from runs import Runs

Need = Literal["succeeded", "failed", "any"]
NEEDS: list[Need] = ["succeeded", "failed", "any"]
STATUSES = ["idle", "succeeded", "failed", "skipped", "cancelled"]


def handles(needs: Mapping[str, Need], statuses: Mapping[str, str], handlers: set[str]) -> bool:
    """Whether a node waits on a failure: by `failed` or `any`, or on what came of such a node."""
    return any(
        (need != "succeeded" and statuses[source] == "failed") or (need != "failed" and source in handlers)
        for source, need in needs.items()
    )


def may_do(
    needs: Mapping[str, Need], statuses: Mapping[str, str], optional: set[str], handlers: set[str], failing: bool
) -> set[str]:
    """What the design allows a node to do once all its sources are settled: ``start``, ``skip`` or ``never``."""
    skip = never = False
    for source, need in needs.items():
        status = statuses[source]
        if need == "succeeded" and status != "succeeded":
            forgiven = status == "skipped" or (status == "failed" and source in optional)
            skip, never = skip or forgiven, never or not forgiven
        elif need == "failed" and status != "failed":
            not_failed = status in ("succeeded", "skipped")
            skip, never = skip or not_failed, never or not not_failed
    if skip or never:
        return {word for word, allowed in (("skip", skip), ("never", never)) if allowed}
    return {"never"} if failing and not handles(needs, statuses, handlers) else {"start"}


# Readiness and ladders as pure rules.

quick = settings(max_examples=500, derandomize=True, deadline=None, database=None)


@quick
@given(
    st.lists(st.tuples(st.sampled_from(NEEDS), st.sampled_from(STATUSES), st.booleans(), st.booleans()), max_size=6),
    st.booleans(),
)
def test_a_node_starts_is_skipped_or_never_starts_as_the_design_says(
    sources: list[tuple[Need, str, bool, bool]], failing: bool
) -> None:
    names = [f"s{i}" for i in range(len(sources))]
    needs = {name: source[0] for name, source in zip(names, sources, strict=True)}
    statuses: dict[str, Any] = {name: source[1] for name, source in zip(names, sources, strict=True)}
    optional = {name for name, source in zip(names, sources, strict=True) if source[2]}
    handlers = {name for name, source in zip(names, sources, strict=True) if source[3]}
    plan = NodePlan(name="n", kinds=["value"], implementations=["value"], after=needs, timeout=1)
    decision = decide(plan, statuses, frozenset(optional), frozenset(handlers), failing)
    assert decision.action in may_do(needs, statuses, optional, handlers, failing)
    if decision.action == "start":
        assert decision.handles == handles(needs, statuses, handlers)
    else:
        assert decision.reason


WORDS = ["rejected", "timeout", "invalid_input", "TOLD"]
filters = st.none() | st.lists(st.sampled_from(WORDS), min_size=1, max_size=2)
retries = st.builds(
    Retry,
    times=st.integers(1, 4),
    delay=st.sampled_from([0, 100, 1000]),
    backoff=st.sampled_from([1.0, 2.0, 1e300]),
    max_delay=st.none() | st.integers(0, 5000),
    feedback=st.booleans(),
    fuel=st.sampled_from([1.0, 4.0]),
    on=filters,
)
reroutes = st.builds(Reroute, implementation=st.integers(1, 3), feedback=st.booleans(), on=filters)


@st.composite
def ladders(draw: st.DrawFn) -> list[Rung]:
    rungs: list[Rung] = draw(st.lists(retries | reroutes, max_size=5))
    return rungs + draw(st.sampled_from([[], [Escalate()], [Escalate(queue="people")]]))


def steps_of(ladder: list[Rung]) -> list[tuple[Rung, int]]:
    """The ladder as single steps: a retry of three is three steps, numbered."""
    return [(rung, n) for rung in ladder for n in range(rung.times if isinstance(rung, Retry) else 1)]


@quick
@given(ladders(), st.lists(st.sampled_from(WORDS), max_size=24))
def test_a_ladder_is_climbed_step_by_step_and_never_down(ladder: list[Rung], failures: list[str]) -> None:
    climb, left, implementation = Climb(ladder), steps_of(ladder), 0
    for code in failures:
        failure_class = "function_error" if code == "TOLD" else code
        step = climb.next(failure_class, code)
        while left:
            rung = left[0][0]
            if isinstance(rung, Escalate):
                break
            if code != "invalid_input" and (rung.on is None or {code, failure_class} & set(rung.on)):
                break
            left.pop(0)
        if not left:
            assert step == Exhausted()
            continue
        rung, number = left.pop(0)
        if isinstance(rung, Escalate):
            assert step == Escalation(rung.queue)
        elif isinstance(rung, Reroute):
            implementation = rung.implementation
            assert step == Attempt("reroute", implementation, feedback=rung.feedback)
        else:
            assert isinstance(step, Attempt)
            assert (step.rung, step.implementation, step.fuel) == ("retry", implementation, rung.fuel)
            most = LONGEST_DELAY if rung.max_delay is None else rung.max_delay
            wanted = rung.delay * rung.backoff**number if number < 2 else None
            assert 0 <= step.delay <= most
            assert wanted is None or step.delay == min(int(wanted), most)
        # An item of a map goes away in the middle of its ladder and comes back.
        climb = Climb.from_json(ladder, json.loads(json.dumps(climb.to_json())))


@quick
@given(ladders())
def test_when_time_is_up_only_a_person_is_left(ladder: list[Rung]) -> None:
    climb = Climb(ladder)
    last = ladder[-1] if ladder else None
    assert climb.give_up() == (Escalation(last.queue) if isinstance(last, Escalate) else Exhausted())
    assert climb.give_up() == Exhausted()
    assert climb.next("rejected", "rejected") == Exhausted() or not isinstance(last, Escalate)


# Whole graphs on the server.


@dataclass
class Made:
    """A made-up graph. ``outcomes``: what each node does when it starts; ``fails`` is how often in a row."""

    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    needs: dict[str, dict[str, Need]] = field(default_factory=dict)
    go: dict[str, bool] = field(default_factory=dict)
    fails: dict[str, int] = field(default_factory=dict)
    on_failure: str = "stop"

    @property
    def graph(self) -> dict[str, Any]:
        output = {name: f"${{{name}}}" for name in self.nodes}
        return {"name": "made", "nodes": self.nodes, "on_failure": self.on_failure, "output": output}

    @property
    def optional(self) -> set[str]:
        return {name for name, node in self.nodes.items() if node.get("optional")}

    def compiles(self) -> bool:
        try:
            compile_graph(from_object(self.graph, "made"), NoFiles())
        except LoadError:
            return False
        return True


@st.composite
def graphs(draw: st.DrawFn) -> Made:
    made = Made(on_failure=draw(st.sampled_from(["stop", "stop", "continue"])))
    for number in range(draw(st.integers(4, 28))):
        name = f"n{number}"
        sources = draw(st.lists(st.sampled_from(list(made.nodes)), max_size=3, unique=True)) if made.nodes else []
        needs: dict[str, Need] = {
            source: draw(st.sampled_from(["succeeded", "succeeded", "failed", "any"])) for source in sources
        }
        add(draw, made, name, needs)
        if not made.compiles():  # it can never run: some other node excludes it
            del made.nodes[name]
    assume(made.nodes)
    return made


def add(draw: st.DrawFn, made: Made, name: str, needs: dict[str, Need]) -> None:
    """Add one node: of any of three kinds, that succeeds, fails, fails once under a retry, or has a guard."""
    kind = draw(st.sampled_from(["function", "function", "script", "value"]))
    read = [source for source, need in needs.items() if need == "succeeded" and draw(st.booleans())]
    sources = [f"${{{source}.key}}" for source in read]
    node: dict[str, Any] = {"after": {source: need for source, need in needs.items() if source not in read}}
    fails = draw(st.sampled_from([0, 0, 0, 0, 1, 2]))
    if kind == "function":
        node["function"] = "functions_for_tests:step"
        node["input"] = {"run": "${run.id}", "key": name, "fails": fails, "sources": sources}
        if fails:
            node["on_fail"] = [{"retry": 1}]
    elif kind == "script":
        fails = min(fails, 1) * 2
        body = "fail('TOLD', 'told to fail')" if fails else "return input"
        node["script"] = f"def run(input):\n    {body}\n"
        node["input"] = {"key": name, "sources": sources}
    else:
        fails = 0
        node["value"] = {"key": name, "sources": sources}
    made.go[name] = draw(st.sampled_from([True, True, True, False]))
    if draw(st.booleans()):
        node["when"] = f"input.go.{name}"
    else:
        made.go[name] = True
    if draw(st.sampled_from([False, False, True])):
        node["optional"] = True
    made.nodes[name], made.needs[name], made.fails[name] = node, needs, fails


@dataclass
class Seen:
    """What a history says of one node: event ids of its attempts, and in which workflow task its end was seen."""

    scheduled: list[int] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    failed: bool = False
    task: int = 0


def read_history(history: WorkflowHistory) -> dict[str, Seen]:
    """Every node's attempts, by node."""
    seen: dict[str, Seen] = {}
    by_event: dict[int, Seen] = {}
    task = 0
    for event in history.events:
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED:
            task += 1
        elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            attributes = event.activity_task_scheduled_event_attributes
            if attributes.activity_type.name == "attempt":
                name = json.loads(attributes.input.payloads[0].data)["node"]
                by_event[event.event_id] = seen.setdefault(name, Seen())
                by_event[event.event_id].scheduled.append(event.event_id)
        else:
            completed = event.activity_task_completed_event_attributes.scheduled_event_id
            failed = event.activity_task_failed_event_attributes.scheduled_event_id
            if (completed or failed) in by_event:
                one = by_event[completed or failed]
                one.closed.append(event.event_id)
                one.failed, one.task = bool(failed), task + 1
    return seen


async def run(runs: Runs, made: Made) -> tuple[str, dict[str, Any]]:
    """Run a made-up graph to its end; its id and envelope."""
    handle = await runs.start(made.graph, {"go": made.go})
    try:
        return handle.id, await handle.result()
    except WorkflowFailureError as error:
        cause: Any = error.cause
        return handle.id, cause.details[0]


@settings(
    max_examples=24,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(graphs())
async def test_any_graph_runs_as_the_design_says(runs: Runs, made: Made) -> None:
    id, envelope = await run(runs, made)
    seen = read_history(await runs.replays(runs.client.get_workflow_handle(id)))
    statuses: dict[str, str] = envelope["nodes"]
    state = await runs.query(id, "state")
    assert {name: node["status"] for name, node in state["nodes"].items()} == statuses
    check_calls(runs, made, id, seen, statuses)
    check_order(made, seen)
    check_statuses(made, seen, statuses)
    check_end(made, seen, statuses, envelope)


def check_calls(runs: Runs, made: Made, id: str, seen: dict[str, Seen], statuses: dict[str, str]) -> None:
    """Each started function was called once for each attempt, and no other was."""
    started = Counter(call["key"] for call in runs.calls("step_start", id))
    ended = Counter(call["key"] for call in runs.calls("step_end", id))
    assert started == ended
    for name, node in made.nodes.items():
        attempts = len(seen[name].scheduled) if name in seen else 0
        assert attempts <= (2 if "on_fail" in node else 1)
        assert attempts or statuses[name] in ("idle", "skipped"), name
        if "function" in node:
            assert started[name] == (attempts if made.go[name] else 0), name
        if statuses[name] == "succeeded" and "function" in node:
            assert attempts == made.fails[name] + 1


def check_order(made: Made, seen: dict[str, Seen]) -> None:
    """Nothing started before all its sources had ended."""
    for name, one in seen.items():
        for source in made.needs[name]:
            if source in seen:
                assert one.scheduled[0] > seen[source].closed[-1], (source, name)


def check_statuses(made: Made, seen: dict[str, Seen], statuses: dict[str, str]) -> None:
    """Every node did what its sources' statuses and the moment of the run's failure allow."""
    never = 10**9
    first = min((seen[n].task for n in seen if made.on_failure == "stop" and fatal(made, n, statuses)), default=never)
    settled: dict[str, int] = {}
    handlers: set[str] = set()
    for name in made.nodes:
        needs = made.needs[name]
        ready = max((settled[source] for source in needs), default=0)
        settled[name] = seen[name].task if name in seen else ready
        # Ends seen in the same workflow task as the run's failure: both orders are right.
        failing = {False} if ready < first else {True} if ready > first else {False, True}
        allowed = {a for f in failing for a in may_do(needs, statuses, made.optional, handlers, f)}
        did = "start" if name in seen else {"skipped": "skip", "idle": "never", "cancelled": "never"}[statuses[name]]
        assert did in allowed, (name, needs, statuses, did, allowed)
        if did == "start":
            if True in failing and handles(needs, statuses, handlers):
                handlers.add(name)
            expect = outcome(made, name, stopped=settled[name] >= first and name not in handlers)
            assert statuses[name] in expect, (name, statuses[name], expect)


def fatal(made: Made, name: str, statuses: dict[str, str]) -> bool:
    return statuses[name] == "failed" and name not in made.optional


def outcome(made: Made, name: str, *, stopped: bool) -> set[str]:
    """What becomes of a node that starts. A failing run ends its ladder, after an attempt or between two."""
    if not made.go[name]:
        return {"skipped"}
    end = "succeeded" if made.fails[name] < 2 else "failed"
    return {end, "failed", "cancelled"} if stopped and made.fails[name] else {end}


def check_end(made: Made, seen: dict[str, Seen], statuses: dict[str, str], envelope: dict[str, Any]) -> None:
    """The run fails exactly if a node that isn't optional failed, with the first in history order; else it has all
    values."""
    failed = [name for name in made.nodes if fatal(made, name, statuses)]
    assert (envelope["status"] == "failed") == bool(failed)
    if failed:
        assert envelope["error"]["node"] == min(failed, key=lambda name: seen[name].closed[-1])
        assert envelope["error"]["code"] == "TOLD"
        assert sorted(envelope["failed"]) == sorted(failed)
        return
    for name, value in envelope["result"].items():
        if statuses[name] == "succeeded":
            assert value["key"] == name
            assert all(source in made.needs[name] for source in value["sources"])
        else:
            assert value is None
