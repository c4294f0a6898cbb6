"""A compiled graph: what `load` stores and every attempt reads. Everything is resolved; nothing is parsed again
but expressions, whose text is kept and whose parse is cached per process.

The workflow never sees this: it gets the small :mod:`graph.plan` made from it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from graph.language import LANGUAGE_VERSION, check_language
from graph.values import INLINE_LIMIT, JSON, Ref

Kind = Literal["script", "function", "value", "infer", "activity", "graph", "wait"]
AfterStatus = Literal["succeeded", "failed", "any"]


class Model(BaseModel):
    """Base of all compiled parts: unknown keys refused, so an old worker can't half-read a newer graph."""

    model_config = ConfigDict(extra="forbid")


class ScriptSource(Model):
    """The text of a sandboxed script; ``file`` is how errors name it, ``line`` where its text starts there."""

    text: str
    file: str
    line: int = 1


class InferCall(Model):
    """A model call. ``prompt``, ``system`` and the contents of ``messages`` are templates."""

    prompt: JSON = None
    system: JSON = None
    messages: JSON = None
    max_tokens: int | None = None
    temperature: float | None = None
    stop: list[str] | None = None
    format: Literal["text", "json"] = "text"


class ActivityCall(Model):
    """A Temporal activity. ``args`` is a list of templates; None means: the node's input as the one argument."""

    name: str
    task_queue: str | None = None
    args: list[JSON] | None = None


class Wait(Model):
    """What a `wait` node waits for: a time (``time`` is the template of a duration for ``for``, of an RFC 3339 time for
    ``until``), or a reply, whose schema is the node's first check, called ``reply``."""

    what: Literal["for", "until", "reply"]
    time: JSON = None


class Implementation(Model):
    """One way to do a node's work. Number 0 is the node's own; each reroute rung adds one.

    ``id`` is what the state shows: ``script:sha256:...``, ``function:module:name``, ``model:NAME``, ``value``,
    ``activity:NAME``, ``graph:sha256:...``, ``wait:for``, ``wait:until``, ``wait:reply``. ``model`` is the
    one that answers ``infer`` (for `infer`, and for `script` under the ``models`` grant); ``models`` are all those the
    script may ask for.
    """

    kind: Kind
    id: str
    script: ScriptSource | None = None
    function: str | None = None
    value: JSON = None
    infer: InferCall | None = None
    activity: ActivityCall | None = None
    wait: Wait | None = None
    graph: str | None = None
    """Fingerprint of the child graph: a key of `CompiledGraph.graphs`."""
    model: str | None = None
    models: list[str] = []


class SchemaCheck(Model):
    check: Literal["schema"] = "schema"
    name: str
    """How messages name it: ``output_schema``, ``accept[0] schema``, ..."""
    schema_: JSON = Field(alias="schema")
    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class ExprCheck(Model):
    check: Literal["expr"] = "expr"
    name: str
    expr: str


class ScriptCheck(Model):
    """A script's ``run(input)`` gets ``{"output": ..., "input": ...}`` and returns true, false or
    ``{"ok": bool, "reason": str}``."""

    check: Literal["script"] = "script"
    name: str
    script: ScriptSource


class JudgeCheck(Model):
    """A model answers whether the output is acceptable. ``prompt`` is a template with ``output`` in scope."""

    check: Literal["judge"] = "judge"
    name: str
    model: str
    prompt: JSON


Check = Annotated[SchemaCheck | ExprCheck | ScriptCheck | JudgeCheck, Field(discriminator="check")]


class Retry(Model):
    """``times`` further attempts on the current implementation. Delays in milliseconds; ``fuel`` and ``memory``
    multiply the node's limits for these attempts."""

    rung: Literal["retry"] = "retry"
    times: int
    delay: int = 0
    backoff: float = 1.0
    max_delay: int | None = None
    feedback: bool = False
    fuel: float = 1.0
    memory: float = 1.0
    on: list[str] | None = None


class Reroute(Model):
    """Switch to ``implementation`` (an index into the node's list) and attempt at once."""

    rung: Literal["reroute"] = "reroute"
    implementation: int
    feedback: bool = False
    on: list[str] | None = None


class Escalate(Model):
    """Hand over to a person through ``queue``. Terminal: the node fails."""

    rung: Literal["escalate"] = "escalate"
    queue: str = "escalations"


Rung = Annotated[Retry | Reroute | Escalate, Field(discriminator="rung")]


class Repeat(Model):
    """A loop inside one attempt: each output is the next input, until ``until`` holds."""

    until: str
    max_rounds: int


Format = Literal["json", "jsonl", "csv"]


class FileSource(Model):
    """Items in a file. ``path`` is a template; ``read`` are the folders granted, as written. Both are relative to the
    graph file's folder: ``base`` below ``root``, the outermost graph file's (None: a graph without a file).
    ``format`` None: the path's ending tells, once it is known."""

    source: Literal["file"] = "file"
    path: JSON
    format: Format | None = None
    read: list[str]
    base: str = "."
    root: str | None = None


class RefSource(Model):
    """Items in the store: a list, by a template of its reference."""

    source: Literal["ref"] = "ref"
    ref: JSON


Source = Annotated[FileSource | RefSource, Field(discriminator="source")]


class Over(Model):
    """A map. ``items`` is a template yielding the list, unless there is a ``source``; ``guard_per_item`` says ``when``
    names item or index."""

    items: JSON
    source: Source | None = None
    batch: int | None = None
    allow_empty: bool = False
    concurrency: int = 8
    tolerate_failures: int | None = None
    tolerate_percent: float | None = None
    guard_per_item: bool = False
    isolation: Literal["shared", "item"] = "shared"
    """Whether pure items may share an instance of the sandbox, or each has one of its own."""
    apart: bool = False
    """Whether each item is a run of its own, and not worked on inside a chunk."""


class Limits(Model):
    """Times in milliseconds, memory and output in bytes; see docs/graph-reference.md for the defaults."""

    timeout: int
    deadline: int | None = None
    fuel: int
    memory: int
    output_bytes: int


class CompiledNode(Model):
    """One node. ``uses`` are the nodes whose values its expressions name, in file order; ``after`` maps a node to
    the status it must reach (``uses`` without an entry need ``succeeded``)."""

    name: str
    line: int = 0
    column: int = 0
    description: str | None = None
    when: str | None = None
    input: JSON = None
    has_input: bool = False
    over: Over | None = None
    repeat: Repeat | None = None
    implementations: list[Implementation]
    checks: list[Check] = []
    """`output_schema` first, then `accept` in the order written."""
    ladder: list[Rung] = []
    limits: Limits
    uses: list[str] = []
    after: dict[str, AfterStatus] = {}
    optional: bool = False
    inline: int = INLINE_LIMIT
    """Bytes up to which its value travels inline: less in a graph so large that its history couldn't hold them all."""

    @property
    def keeps_rejected(self) -> bool:
        """Whether a rejected output must be stored: some rung shows it to the next attempt or to a person."""
        return any(isinstance(r, Escalate) or r.feedback for r in self.ladder)


class CompiledGraph(Model):
    """A whole graph. ``nodes`` in file order. ``graphs`` holds the compiled child graphs by fingerprint;
    ``refs`` is filled by the load activity once they are stored."""

    language: int = LANGUAGE_VERSION
    name: str
    file: str | None = None
    description: str | None = None
    input_schema: JSON = None
    nodes: list[CompiledNode]
    output: JSON = None
    """A template, or None: then the only sink's value, or an object of all sinks that weren't skipped."""
    output_uses: list[str] = []
    on_failure: Literal["stop", "continue"] = "stop"
    deadline: int | None = None
    stretch: bool = False
    """Whether consecutive pure nodes may run in one activity."""
    fingerprint: str = ""
    graphs: dict[str, CompiledGraph] = {}
    refs: dict[str, Ref] = {}

    def node(self, name: str) -> CompiledNode:
        """The node called ``name``. Raises KeyError."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)


class _Spoken(BaseModel):
    """All that is known of a compiled graph whose language nobody here speaks."""

    language: int


def read_compiled(data: bytes) -> CompiledGraph:
    """The compiled graph in ``data``.

    Raises:
        LoadError: ``unknown_language``, it was compiled from another version of the language.
        ValidationError: it is none.
    """
    try:
        graph = CompiledGraph.model_validate_json(data)
    except ValidationError:
        check_language("the compiled graph is of", _Spoken.model_validate_json(data).language)
        raise
    check_language("the compiled graph is of", graph.language)
    return graph
