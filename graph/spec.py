"""The graph file as its author writes it: every key, its type and its meaning.

One model per object of the file. :mod:`graph.reading` turns what doesn't fit into problems with places;
:mod:`graph.schema` makes the JSON Schema for editors from the same models. What depends on other parts of the
graph (names, references, types) is :mod:`graph.compile`'s.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import BeforeValidator, Field
from pydantic.json_schema import SkipJsonSchema

from graph.compiled import Format, Kind
from graph.language import LANGUAGE_VERSION
from graph.mends import GRAPH, NODE, RUNG
from graph.scalars import Duration, Expr, Factor, Size, Text, Tolerance, WaitFor, WaitUntil
from graph.shapes import checks_as_list, function_as_text, nodes_by_name, rungs_as_list, short, wait_as_object
from graph.spec_errors import Finding, refuse, wrong_type
from graph.spec_object import Spec
from graph.values import JSON

KINDS: tuple[Kind, ...] = ("script", "function", "infer", "activity", "graph", "wait", "value")
LATER = "isn't available in this version"

SchemaOrFile: TypeAlias = Annotated[
    Any, Field(json_schema_extra={"type": ["object", "boolean"], "description": "A JSON Schema, or {file: PATH}."})
]


class ScriptSpec(Spec):
    """A sandboxed Python script: `file`, relative to the graph file, or its text `inline`. It defines `run(input)`."""

    about = "a script"
    mends: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("path", "name"), "write `file`"),
        **dict.fromkeys(("text", "source", "code"), "write `inline`"),
    }
    example = "script: {file: NAME.py}"
    file: Text | None = Field(None, description="Path of the script, relative to the graph file.")
    inline: Text | None = Field(None, description="The text of the script.")


def _script(data: Any) -> Any:
    if not isinstance(data, str):
        return data
    text = data.strip()
    if not text:
        raise refuse(Finding("bad_value", "the script is empty", "indent the lines below `|`"))
    if "\n" not in text and (text.endswith(".py") or "def " not in text):
        mend = f"write `script: {{file: {text}}}`" if text.endswith(".py") else "write `script: {file: NAME.py}`"
        raise refuse(Finding("script_is_path", f"`{short(text)}` is taken as the text of the script itself", mend))
    return {"inline": data}


Script: TypeAlias = Annotated[ScriptSpec, BeforeValidator(_script, json_schema_input_type=str | ScriptSpec)]


Function: TypeAlias = Annotated[Text, BeforeValidator(function_as_text)]


class MessageSpec(Spec):
    """One message of a conversation with a model."""

    about = "a message"
    role: Literal["system", "user", "assistant"]
    content: Text = Field(description="A template.")


class InferSpec(Spec):
    """A model call."""

    about = "`infer`"
    example = "infer: {model: NAME, prompt: TEXT}"
    mends: ClassVar[dict[str, str]] = {
        "schema": "use `output_schema` on the node",
        "output_schema": "`output_schema` belongs to the node, beside `infer`",
        "timeout": "`timeout` belongs to the node, beside `infer`",
    }
    model: Text = Field(description="Name of a model that the worker serves; never computed.")
    prompt: Text | None = Field(None, description="A template: the user's message. Either `prompt` or `messages`.")
    messages: list[MessageSpec] | None = Field(None, description="The whole conversation, contents as templates.")
    system: Text | None = Field(None, description="A template: the system message.")
    max_tokens: int | None = Field(None, ge=1, le=1_000_000, description="Most tokens of the answer.")
    temperature: float | None = Field(None, ge=0, le=2)
    stop: list[Text] | None = Field(None, description="Texts that end the answer.")
    format: Literal["text", "json"] | None = Field(
        None, description="How the answer is read. Default `json` with an `output_schema` that isn't a string's."
    )


class ActivitySpec(Spec):
    """A Temporal activity, in any language."""

    about = "`activity`"
    mends: ClassVar[dict[str, str]] = {"input": "`input` belongs to the node; here are `args`"}
    name: Text = Field(description="The activity's registered name.")
    task_queue: Text | None = Field(None, description="Where it is served. Default: Ferrata's own task queue.")
    args: list[JSON] | None = Field(None, description="Its arguments, as templates. Default: the node's input alone.")


def _activity(data: Any) -> Any:
    return {"name": data} if isinstance(data, str) else data


Activity: TypeAlias = Annotated[ActivitySpec, BeforeValidator(_activity, json_schema_input_type=str | ActivitySpec)]


class JudgeSpec(Spec):
    """A model that says whether the output is acceptable."""

    about = "`judge`"
    example = "judge: {model: NAME, prompt: TEXT}"
    model: Text = Field(description="Name of a model that the worker serves.")
    prompt: Text = Field(description="A template, with `output` in scope.")


class AcceptSpec(Spec):
    """One check of the output: exactly one of the keys."""

    about = "an `accept` entry"
    schema_: SchemaOrFile = Field(None, alias="schema")
    expr: Expr | None = Field(None, description="A bare expression over `output`, yielding true or false.")
    script: Script | None = Field(
        None, description="`run(input)` gets {output, input}, returns a boolean or {ok, reason}."
    )
    judge: JudgeSpec | None = None


def _accept(data: Any) -> Any:
    if isinstance(data, str):
        raise refuse(Finding("wrong_type", f"a check names its kind: `{short(data)}`", f"write `- expr: {data}`"))
    return data


Accept: TypeAlias = Annotated[AcceptSpec, BeforeValidator(_accept, json_schema_input_type=AcceptSpec)]
Accepts: TypeAlias = Annotated[list[Accept], BeforeValidator(checks_as_list)]


class RetrySpec(Spec):
    """Further attempts on the current implementation."""

    about = "`retry`"
    example = "retry: 2"
    mends: ClassVar[dict[str, str]] = {"count": "write `times`", "max": "write `times`", "attempts": "write `times`"}
    times: int = Field(ge=1, le=1000, description="How many further attempts.")
    delay: Duration = Field(0, description="Before the first of them.")
    backoff: float = Field(1.0, ge=1, le=100, description="Multiplies the delay from one retry to the next.")
    max_delay: Duration | None = Field(None, description="No delay is longer.")
    feedback: bool = Field(False, description="Give the next attempt the rejected output and the reason.")
    fuel: Factor = Field(1.0, description="Multiplies the node's fuel for these attempts, as `4x`.")
    memory: Factor = Field(1.0, description="Multiplies the node's memory for these attempts, as `2x`.")
    on: list[Text] | None = Field(None, description="Only after failures of these classes or codes.")


def _retry(data: Any) -> Any:
    return {"times": data} if isinstance(data, int) and not isinstance(data, bool) else data


Retry: TypeAlias = Annotated[
    RetrySpec, BeforeValidator(_retry, json_schema_input_type=Annotated[int, Field(ge=1, le=1000)] | RetrySpec)
]


class RerouteSpec(Spec):
    """Another implementation: exactly one of `model`, `script`, `function`, `value`, `infer`."""

    about = "`reroute`"
    example = "reroute: {model: NAME}"
    later: ClassVar[dict[str, str]] = {"block": "", "activity": "", "graph": ""}
    nullable = frozenset({"value"})
    model: Text | None = Field(None, description="The same model call (or script) on another model.")
    script: Script | None = None
    function: Function | None = None
    value: JSON = None
    infer: InferSpec | None = None
    feedback: bool = Field(False, description="Give it the rejected output and the reason.")
    on: list[Text] | None = Field(None, description="Only after failures of these classes or codes.")


class EscalateSpec(Spec):
    """Hand over to a person."""

    about = "`escalate`"
    example = "escalate: {queue: NAME}"
    later: ClassVar[dict[str, str]] = {"wait": "an escalation is terminal: the node fails once it is recorded"}
    queue: Text = Field("escalations", description="Name of the escalation queue.")


class RungSpec(Spec):
    """One rung of a ladder: exactly one key."""

    about = "a rung"
    mends = RUNG
    retry: Retry | None = None
    reroute: RerouteSpec | None = None
    escalate: EscalateSpec | None = None


def _rung(data: Any) -> Any:
    if data == "escalate":
        return {"escalate": {}}
    if isinstance(data, str):
        word, _, rest = data.partition(" ")
        mend = {"retry": f"write `- retry: {rest or 1}`", "reroute": "write `- reroute: {model: NAME}`"}
        raise refuse(
            Finding("bad_rung", f"`{short(data)}` isn't a rung", mend.get(word.rstrip(":"), "write `- escalate`"))
        )
    if isinstance(data, dict) and "retry" in data and data["retry"] is None and "times" in data:
        raise refuse(Finding("bad_rung", "the options of `retry` stand beside it, not inside it", RUNG["times"]))
    if isinstance(data, dict) and "escalate" in data and data["escalate"] is None:
        return {**data, "escalate": {}}
    return data


Rung: TypeAlias = Annotated[RungSpec, BeforeValidator(_rung, json_schema_input_type=Literal["escalate"] | RungSpec)]


Rungs: TypeAlias = Annotated[list[Rung], BeforeValidator(rungs_as_list)]


class RepeatSpec(Spec):
    """A loop inside one attempt: each output is the next input."""

    about = "`repeat`"
    example = "repeat: {until: EXPRESSION, max_rounds: 10}"
    mends: ClassVar[dict[str, str]] = {"max": "write `max_rounds`", "times": "write `max_rounds`"}
    until: Expr = Field(description="A bare expression over `output`; the loop ends when it is true.")
    max_rounds: int = Field(ge=1, le=10_000, description="Reaching it is a rejection.")


class OverSpec(Spec):
    """Where the items of a map come from: a template that yields the list, or a file, or a reference into the store."""

    about = "`over`"
    example = 'over: "${node.list}"'
    mends: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("path", "files", "csv", "jsonl"), "write `file: PATH`"),
        **dict.fromkeys(("type", "kind"), "write `format: json`, `jsonl` or `csv`"),
        **dict.fromkeys(("items", "list"), 'write the list itself: `over: "${node.list}"`'),
        **dict.fromkeys(("url", "uri"), "URLs aren't available in this version: fetch it in a function"),
    }
    items: SkipJsonSchema[JSON] = None
    """What isn't written as an object: the template of the list."""
    file: Text | None = Field(
        None,
        description="A template: the path of a JSON, JSONL or CSV file, maybe gzipped, in a folder granted to `read`.",
    )
    format: Format | None = Field(None, description="Default: what the file's ending says.")
    ref: JSON = Field(None, description="A template: the reference of a list in the store.")

    @classmethod
    def written(cls) -> list[str]:
        """All but what isn't written as an object."""
        return ["file", "format", "ref"]


def _over(data: Any) -> Any:
    return data if isinstance(data, dict) else OverSpec.model_construct(items=data)


Over: TypeAlias = Annotated[OverSpec, BeforeValidator(_over, json_schema_input_type=str | list[Any] | OverSpec)]


class WaitSpec(Spec):
    """What is waited for: exactly one of `for`, `until`, `reply`."""

    about = "`wait`"
    example = "wait: {for: 5m}"
    mends: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("duration", "delay", "sleep", "time"), "write `for: 5m`"),
        **dict.fromkeys(("date", "at"), "write `until: 2030-01-31T08:00:00Z`"),
        **dict.fromkeys(("schema", "type", "signal", "event", "approval"), "write `reply: SCHEMA`"),
        **dict.fromkeys(
            ("timeout", "deadline", "on_fail", "output_schema", "accept"), "it belongs to the node, beside `wait`"
        ),
    }
    for_: WaitFor | None = Field(None, alias="for", description="A duration, or a template of one; at most 365d.")
    until: WaitUntil | None = Field(None, description="An RFC 3339 time with its offset, or a template of one.")
    reply: SchemaOrFile = None


Wait: TypeAlias = Annotated[WaitSpec, BeforeValidator(wait_as_object, json_schema_input_type=WaitSpec)]


class TolerateSpec(Spec):
    """How many items of a map may fail or be escalated."""

    about = "`tolerate`"
    failures: Tolerance = Field(description="A number of items, or a share as `5%`.")


def _tolerate(data: Any) -> Any:
    if isinstance(data, int | str) and not isinstance(data, bool):
        raise refuse(
            Finding("wrong_type", "`tolerate` is an object", f"write `tolerate: {{failures: {short(str(data))}}}`")
        )
    return data


Tolerate: TypeAlias = Annotated[TolerateSpec, BeforeValidator(_tolerate, json_schema_input_type=TolerateSpec)]


class GrantsSpec(Spec):
    """What the node may reach; nothing by default."""

    about = "`grants`"
    example = "grants: {models: [NAME]}"
    later: ClassVar[dict[str, str]] = {"fetch": "", "env": ""}
    models: list[Text] | None = Field(None, min_length=1, description="Models a script may ask with `infer(...)`.")
    read: list[Text] | None = Field(
        None,
        min_length=1,
        description="Folders, relative to the graph file or absolute, that `over: {file: ...}` may read.",
    )


AfterStatus: TypeAlias = Literal["succeeded", "failed", "any"]


def _after(data: Any) -> Any:
    if isinstance(data, str):
        raise refuse(Finding("wrong_type", "`after` is a list or an object", f"write `after: [{data}]`"))
    if isinstance(data, list) and all(isinstance(name, str) for name in data):
        return dict.fromkeys(data, "succeeded")
    if not isinstance(data, dict):
        raise wrong_type("`after`", "a list of nodes, or an object such as `{n: failed}`", data)
    return data


After: TypeAlias = Annotated[
    dict[str, AfterStatus], BeforeValidator(_after, json_schema_input_type=list[str] | dict[str, AfterStatus])
]


class NodeSpec(Spec):
    """A node: exactly one kind (`script`, `function`, `infer`, `activity`, `graph`, `wait`, `value`), and options."""

    about = "a node"
    nullable = frozenset({"value", "input"})
    later: ClassVar[dict[str, str]] = {
        "block": "use `script` or `function`",
    }
    mends = NODE
    example = "NAME: {script: {file: NAME.py}}"
    overview = (
        "a node has a kind (`script`, `function`, `infer`, `activity`, `graph`, `wait` or `value`) and options, such "
        "as `input`, `when`, `after`, `over`, `accept`, `on_fail`, `timeout`: docs/graph-reference.md has them all"
    )
    description: Text | None = Field(None, description="For people; never part of the fingerprint.")
    script: Script | None = Field(None, description="Sandboxed Python: inline text, or {file: PATH}.")
    function: Function | None = Field(None, description="Trusted Python of the worker, as `module:name`.")
    infer: InferSpec | None = Field(None, description="A model call.")
    activity: Activity | None = Field(None, description="A Temporal activity.")
    graph: Any = Field(
        None, description="A child graph: a path or {nodes, output}.", json_schema_extra={"type": ["string", "object"]}
    )
    wait: Wait | None = Field(None, description="A time or a reply: {for: DURATION}, {until: TIME}, {reply: SCHEMA}.")
    value: JSON = Field(None, description="Bindings only: a template.")
    input: JSON = Field(None, description="A template. Default: the run's input; in a map, the item.")
    when: Expr | None = Field(None, description="A bare expression; when it is false, the node is skipped.")
    after: After | None = Field(None, description="Nodes that come first: [n], or {n: succeeded | failed | any}.")
    over: Over | None = Field(
        None, description="Makes the node a map: a template that yields the items, {file: PATH}, or {ref: ...}."
    )
    batch: int | None = Field(None, ge=1, le=100_000, description="Each item is a list of up to so many.")
    concurrency: int | None = Field(None, ge=1, le=1000, description="Items at once, at most. Default 8.")
    tolerate: Tolerate | None = Field(None, description="Fail the map beyond so many failures.")
    allow_empty: bool | None = Field(None, description="Accept an empty list of items.")
    isolation: Literal["shared", "item"] | None = Field(
        None, description="`item`: a fresh sandbox for each item, though they are pure. Default `shared`."
    )
    run: Text | None = Field(
        None,
        description="`child`: each item of a map over a graph is a child run, though it could do without.",
        json_schema_extra={"enum": ["child"]},
    )
    repeat: RepeatSpec | None = Field(None, description="Makes the node a loop.")
    output_schema: SchemaOrFile = None
    accept: Accepts | None = Field(None, description="Further checks of the output, in order.")
    on_fail: Rungs | None = Field(None, description="The ladder. Default: a single attempt.")
    grants: GrantsSpec | None = Field(None, description="What a script or `over: {file: ...}` may reach.")
    timeout: Duration | None = Field(None, description="One attempt, checks included.")
    deadline: Duration | None = Field(None, description="The whole node, delays and losses included.")
    fuel: int | None = Field(None, ge=1, description="Sandbox instructions of one attempt.")
    memory: Size | None = Field(None, description="Sandbox memory, as `64MiB`.")
    output_bytes: Size | None = Field(None, description="Largest output, as `1MiB`.")
    optional: bool | None = Field(None, description="Its failure doesn't fail the run.")


class GraphSpec(Spec):
    """A graph."""

    about = "a graph"
    free_prefix = "x-"
    nullable = frozenset({"output"})
    mends = GRAPH
    name: Text | None = Field(None, description="Default: the file's name.")
    description: Text | None = Field(None, description="For people; never part of the fingerprint.")
    language: int = Field(
        LANGUAGE_VERSION,
        ge=LANGUAGE_VERSION,
        le=LANGUAGE_VERSION,
        description="The version of the language that the file is written in.",
    )
    input_schema: SchemaOrFile = None
    nodes: Annotated[dict[str, NodeSpec], BeforeValidator(nodes_by_name)] = Field(
        description="The nodes by name, in the order in which people read them."
    )
    output: JSON = Field(None, description="A template. Default: the only sink's value, or an object of all sinks.")
    on_failure: Literal["stop", "continue"] = Field("stop", description="`continue`: let independent nodes finish.")
    deadline: Duration | None = Field(None, description="The whole run.")
    stretch: bool = Field(False, description="Run consecutive pure nodes in one activity: fewer round trips.")
