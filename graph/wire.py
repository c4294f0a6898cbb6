"""What workflows and activities say to each other: activity names, requests and results.

Requests hold references and names, never a graph or a list of items, so histories stay small.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import BaseModel

from graph.plan import Plan
from graph.values import JSON, Compact, Ref, Value

LOAD: Final = "load"
ATTEMPT: Final = "attempt"
REROUTE: Final = "reroute"
BIND: Final = "bind"
CHECK: Final = "check"
PIN: Final = "pin"
CHUNK: Final = "chunk"
REROUTE_CHUNK: Final = "reroute_chunk"
FOLD: Final = "fold"
GATHER: Final = "gather"
COLLECT: Final = "collect"
EVALUATE: Final = "evaluate"
ESCALATE: Final = "escalate"
PACK: Final = "pack"
STRETCH: Final = "stretch"
RESTORE: Final = "restore"
SAVE: Final = "save"

WORKER_SHUTDOWN: Final = "ferrata.worker_shutdown"
"""Type of the error by which an activity says: this worker stops, schedule me again; nothing is lost or counted. It
comes without details, while a failed attempt, whatever its author's code, has its record there."""

RUN_GRAPH: Final = "RunGraph"
RUN_MAP: Final = "RunMap"
ESCALATION_QUEUE: Final = "EscalationQueue"
DEFAULT_QUEUE: Final = "escalations"


class RunInfo(Compact):
    """What expressions read as ``run``: workflow id, graph name, start as RFC 3339."""

    id: str
    graph: str
    started: str


class ItemAt(Compact):
    """One item of a pinned list."""

    items: Ref
    number: int


class Scope(Compact):
    """What a node's expressions may read. ``graph`` is the compiled graph. ``nodes`` maps the nodes it uses to
    their values (None: it has none). ``packs`` are stored objects ``{node: value}`` that complete ``nodes``. ``item``
    is the one that a run of its own is for."""

    graph: Ref
    run: RunInfo
    input: Value
    nodes: dict[str, Value | None] = {}
    packs: list[Ref] = []
    item: ItemAt | None = None


class Apart(Compact):
    """One item of a map, to be a run of its own: the map's node, and what its expressions may read."""

    scope: Scope
    node: str


class Continued(Compact):
    """A run that goes on in a fresh history: its snapshot's pages, and whether it is another run's child."""

    pages: list[Ref]
    child: bool = False


class LoadRequest(Compact):
    """Resolve, compile and store a graph. A child run gives ``compiled`` and ``value`` instead of graph and input; the
    run of a map's item says which with ``apart``."""

    graph: JSON = None
    input: JSON = None
    compiled: Ref | None = None
    value: Value | None = None
    resume: JSON = None
    redrive: bool = False
    language: int | None = None
    continued: Continued | None = None
    apart: Apart | None = None


class Loaded(Compact):
    """The plan, where the compiled graph lies, the run's input with defaults filled in. ``pages`` are those of the
    snapshot that the run starts from, in the store."""

    plan: Plan
    graph: Ref
    input: Value
    search_attributes: list[str] = []
    warnings: list[str] = []
    pages: list[Ref] = []


class Page(Compact):
    """One page of a stored snapshot."""

    page: dict[str, Any]


class Feedback(Compact):
    """What the next attempt may know of the one before: why it failed, and what it gave (in the store)."""

    code: str
    reason: str
    rejected: Ref | None = None


class AttemptRequest(Compact):
    """One attempt of ``node`` with implementation number ``implementation``; ``fuel`` and ``memory`` multiply its
    limits."""

    scope: Scope
    node: str
    implementation: int = 0
    feedback: Feedback | None = None
    fuel: float = 1.0
    memory: float = 1.0


class AttemptResult(Compact):
    """An accepted output, or ``skipped``: the guard was false. ``input`` and ``digest`` are digests of the input
    and of the output; ``usage`` as in :class:`graph.state.Usage`. ``ran`` names the implementation more closely than
    the plan could: a function with the digest of its module, a model with the one that answered."""

    output: Value | None = None
    skipped: bool = False
    usage: dict[str, Any] | None = None
    fuel: int | None = None
    ran: str | None = None
    input: str | None = None
    digest: str | None = None
    done: bool = True
    """False: a loop's condition doesn't hold yet; call again with `output` as the next input."""


class FailureRecord(Compact):
    """The details of a failed attempt's ApplicationError (whose type is the code). Never a value: a rejected
    output is in the store, and only when some rung needs it. ``ran`` as in `AttemptResult`."""

    failure_class: str
    message: str
    details: dict[str, Any] = {}
    usage: dict[str, Any] | None = None
    fuel: int | None = None
    ran: str | None = None
    input: str | None = None
    check: str | None = None
    rejected: Ref | None = None


class StretchRequest(Compact):
    """Run ``nodes`` one after the other, each once; ``scope`` has what those before them gave."""

    scope: Scope
    nodes: list[str]


class Attempted(Compact):
    """How the first attempt of ``node`` ended: its ``result``, or its ``failure`` with ``code``."""

    node: str
    result: AttemptResult | None = None
    failure: FailureRecord | None = None
    code: str = ""


class Stretched(Compact):
    """The attempts of a stretch, in order. It ends with a failure, or when it has taken long or much."""

    attempts: list[Attempted]


class Bound(Compact):
    """What a called activity (``args``) or a child run (``value``) is given; for a `wait`, how many milliseconds it
    takes (``duration``), or when it is over (``until``, milliseconds since the epoch)."""

    skipped: bool = False
    args: list[Value] = []
    value: Value | None = None
    input: str | None = None
    duration: int | None = None
    until: int | None = None


class CheckRequest(AttemptRequest):
    """Check what a called activity or a child run gave back. ``input`` is the digest of what it was given;
    ``round`` counts a loop's outputs from 1. ``early``: a reply that came before its node waits; only its schemas can
    be checked."""

    output: Value
    input: str | None = None
    usage: dict[str, Any] | None = None
    round: int = 1
    early: bool = False


class Pinned(Compact):
    """A map's items, fixed before the first one runs: a stored list, its count, and the digest of its JSON text."""

    skipped: bool = False
    items: Ref | None = None
    count: int = 0
    digest: str | None = None


class ChunkRequest(Compact):
    """Items ``start`` to ``start + count`` of the pinned list; or, coming back for another rung, the stored lists
    ``pending`` of items with where each stands on its ladder. ``concurrency`` of them at once (None: as many as the
    map may have). No further item is begun once ``time`` milliseconds are over and ``least`` items were begun."""

    scope: Scope
    node: str
    items: Ref
    start: int = 0
    count: int = 0
    pending: list[Ref] = []
    concurrency: int | None = None
    time: int | None = None
    least: int = 0


class PendingItems(Compact):
    """Items that climb on outside the chunk: on another implementation, or after ``delay`` milliseconds; or that were
    not done when it ended."""

    rung: Literal["retry", "reroute"]
    ref: Ref
    count: int
    delay: int = 0


class ChunkResult(Compact):
    """``results`` is what concluded, in the store; ``counts`` are those items by status. ``rest`` is the first item of
    the range that was not begun (None: all were). ``ran`` are the implementations that items were attempted on, as in
    `AttemptResult` or by their names in the plan."""

    results: Ref
    counts: dict[str, int] = {}
    pending: list[PendingItems] = []
    rest: int | None = None
    usage: dict[str, Any] | None = None
    fuel: int | None = None
    ran: list[str] = []


class Back(Compact):
    """Items that wait for another chunk, which may begin at ``due`` (milliseconds since the epoch)."""

    items: PendingItems
    due: int


class MapProgress(Compact):
    """Where a map stands: ranges of items not begun (start and count), items that come back, what chunks gave
    (``results``, and ``folded`` stored lists of such), what it came to, and when it had ``begun`` (milliseconds since
    the epoch)."""

    ranges: list[tuple[int, int]] = []
    back: list[Back] = []
    results: list[Ref] = []
    folded: list[Ref] = []
    counts: dict[str, int] = {}
    usage: dict[str, Any] = {}
    fuel: int = 0
    ran: list[str] = []
    begun: int = 0


class MapRequest(Compact):
    """Work through the items of ``node``, from where ``progress`` stands. Its parent is told how far it is."""

    scope: Scope
    node: str
    items: Ref
    count: int
    concurrency: int
    progress: MapProgress
    apart: bool = False
    """Whether each item is a run of its own."""


class ItemsTold(Compact):
    """How far a map is, for its run: items by status."""

    node: str
    counts: dict[str, Any]


class ItemDone(Compact):
    """How an item's own run ended: with ``output``, with an ``error`` (the state's), or neither: its guard was false.
    ``escalated``: it was handed over to people."""

    number: int
    output: Value | None = None
    error: dict[str, Any] | None = None
    escalated: bool = False
    attempts: int = 0


class GatherRequest(Compact):
    """Store how the runs of some ``items`` ended as the results of a chunk."""

    items: Ref
    done: list[ItemDone]


class FoldRequest(Compact):
    """Store a list of references, since it grows long."""

    refs: list[Ref]


class CollectRequest(Compact):
    """Make a map's output of its chunks' results; ``folded`` are stored lists of such."""

    scope: Scope
    node: str
    items: Ref
    results: list[Ref]
    folded: list[Ref] = []


class Collected(Compact):
    """A map's output. ``error`` is set when the map failed; ``escalated`` lists escalated items in the store, by
    queue, and ``samples`` holds the first few of each: index, code, reason, and the item if it is small. ``passed``, of
    items that pass through a graph, is the stored list of what its nodes came to for each."""

    output: Value
    counts: dict[str, int]
    digest: str
    error: dict[str, Any] | None = None
    escalated: dict[str, Ref] = {}
    samples: dict[str, list[dict[str, JSON]]] = {}
    passed: Ref | None = None


class EvaluateRequest(Compact):
    """The run's output: its template over ``scope``, or an object of the nodes in ``scope``. ``limit`` in bytes:
    a value above it comes back as a reference."""

    scope: Scope
    limit: int


class PackRequest(Compact):
    """Store ``nodes`` as one object, since together they are too large for an activity's arguments."""

    nodes: dict[str, Value]


class Entry(BaseModel):
    """One escalation: a node's, or (with ``count``) a map's batch whose items are the stored list ``ref``, and the
    first few of them ``sample``."""

    id: str
    run: str
    node: str
    code: str
    reason: str
    item: int | None = None
    check: str | None = None
    rejected: Ref | None = None
    input: Value | None = None
    ref: Ref | None = None
    count: int | None = None
    sample: list[dict[str, JSON]] | None = None
    resolved: int | None = None
    attempts: int
    at: int
    drained_at: int | None = None
    resolution: dict[str, Any] | None = None

    def to_json(self) -> dict[str, JSON]:
        """As people see it: a small input stands as it is, a large one as ``input_ref``."""
        data = self.model_dump(mode="json", exclude={"input"})
        if self.ref is None:
            for key in ("ref", "count", "sample", "resolved"):
                del data[key]
            if self.input is not None and self.input.ref is not None:
                data["input_ref"] = self.input.ref.model_dump(mode="json")
                data["input"] = None
            else:
                data["input"] = self.input.inline if self.input else None
        return data


class EscalateRequest(Compact):
    """Complete ``entry`` with the node's input and hand it to ``queue``."""

    scope: Scope
    entry: Entry
    queue: str
    task_queue: str
