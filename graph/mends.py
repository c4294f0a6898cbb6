"""What people write by mistake, and what to write instead: the mends for keys of other tools and other places.

Only words for messages. The models that they are about are in :mod:`graph.spec`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final


def _same(mend: str, *keys: str) -> Iterable[tuple[str, str]]:
    return ((key, mend) for key in keys)


RETRY: Final = "further attempts are a rung: `on_fail: [{retry: 2}]`"
REROUTE: Final = "another way to do it is a rung: `on_fail: [{reroute: {value: ...}}]`"
INFER: Final = "it belongs inside `infer: {model: ..., prompt: ...}`"
SCRIPT: Final = "write `script: |`, and below it `def run(input):`"
REPEAT: Final = "it belongs inside `repeat: {until: ..., max_rounds: ...}`"

NODE: Final[dict[str, str]] = {
    **dict(_same("to check the output, use `output_schema`; to reshape it, add a `value` node", "output", "outputs")),
    **dict(_same("use `output_schema`", "schema", "returns")),
    "input_schema": "a graph has `input_schema`, a node `output_schema`",
    **dict(_same("use `input`", "inputs", "args", "arguments", "params", "parameters", "with")),
    **dict(_same("use `when`", "if", "condition", "unless")),
    "else": "give the other branch a node of its own, with the opposite `when`",
    **dict(_same("use `over`", "foreach", "for_each", "for", "map", "items", "with_items")),
    **dict(_same("use `repeat: {until: ..., max_rounds: ...}`", "loop", "while")),
    **dict(_same(REPEAT, "until", "max_rounds")),
    **dict(
        _same("use `after`; references order nodes by themselves", "depends_on", "needs", "dependencies", "requires")
    ),
    **dict(_same(RETRY, "retry", "retries", "max_retries", "attempts", "max_attempts", "retry_policy")),
    **dict(_same(REROUTE, "fallback", "reroute", "alternative")),
    "escalate": "it is a rung: `on_fail: [escalate]`",
    **dict(
        _same("use `on_fail: [{reroute: {value: ...}}]`, or a node with `after: {NAME: failed}`", "catch", "on_error")
    ),
    "stretch": "it belongs to the graph, beside `nodes`",
    "on_failure": "it belongs to the graph; a node's failure is met with `on_fail` or `optional: true`",
    **dict(_same(INFER, "model", "prompt", "messages", "system", "max_tokens", "temperature", "llm")),
    **dict(_same("it belongs inside `activity: {name: ..., task_queue: ...}`", "task_queue", "queue")),
    **dict(_same("it belongs inside `grants: {...}`", "read", "models")),
    **dict(_same(SCRIPT, "code", "python", "source", "inline")),
    **dict(_same("no commands are run: use `script` or `function`", "command", "cmd", "shell", "bash")),
    **dict(_same("to wait is a node of its own: `wait: {for: 5m}`", "sleep", "pause", "timer", "wait_for")),
    "delay": "to wait is a node of its own, `wait: {for: 5m}`; between attempts it is `- retry: {times: 2, delay: 5s}`",
    "wait_until": "to wait is a node of its own: `wait: {until: 2030-01-31T08:00:00Z}`",
    **dict(
        _same(
            "a person's answer is what `wait: {reply: SCHEMA}` waits for",
            *("approval", "approve", "human", "ask", "signal", "reply", "wait_for_reply"),
        )
    ),
    "file": "a script is `script: {file: NAME.py}`, a child graph `graph: NAME.yaml`",
    **dict(
        _same(
            "the kind is a key itself: `script`, `function`, `infer`, `activity`, `graph`, `wait` or `value`",
            "type",
            "kind",
        )
    ),
    **dict(_same("a node's name is the key that it stands under", "name", "id")),
}
"""Keys that people give a node."""

KIND_LIKE: Final = frozenset(
    {
        *("model", "prompt", "messages", "llm", "code", "python", "source", "inline", "run", "command", "cmd", "shell"),
        *("bash", "file", "type", "kind"),
        *("sleep", "pause", "timer", "delay", "wait_for", "wait_until", "wait_for_reply"),
        *("approval", "approve", "human", "ask", "signal", "reply"),
    }
)
"""Of these, the ones that stand for a kind: nothing more is said about its absence."""

GRAPH: Final[dict[str, str]] = {
    **dict(_same("write `nodes`", "steps", "tasks", "jobs", "stages")),
    "inputs": "write `input_schema`",
    "input": "describe the run's input with `input_schema`",
    "outputs": "write `output`",
    "output_schema": "`output_schema` belongs to a node",
    "on_fail": "it belongs to a node; for the graph there is `on_failure: stop | continue`",
    "timeout": "use `deadline`",
    "version": "use `x-version`",
}
"""Keys that people give a graph."""

RUNG: Final[dict[str, str]] = {
    **dict(
        _same(
            "it belongs inside: `- retry: {times: 2, delay: 5s}`",
            *("times", "delay", "backoff", "max_delay", "fuel", "memory", "wait", "sleep"),
        )
    ),
    **dict(_same("it belongs inside: `- retry: {times: 2, feedback: true}`", "feedback", "on")),
    **dict(_same("it belongs inside: `- reroute: {...}`", "model", "script", "function", "value", "infer")),
    **dict(_same("write `- retry: 2`", "retries", "attempts", "max_retries")),
    **dict(_same("write `- reroute: {...}`", "fallback")),
}
"""Keys that people give a rung."""


def looks_like_code(key: Any) -> bool:
    """Whether a key is a line of Python: a script's text that isn't indented."""
    return isinstance(key, str) and key.startswith(("def ", "async def ", "class ", "for ", "if ", "while ", "with "))


CODE: Final = "it is a line of a script: indent the lines below `script: |`"


def quoted(text: str) -> str:
    """A text as YAML and JSON take it, however it is written."""
    return f'"{text}"' if '"' not in text and "\\" not in text else "'" + text.replace("'", "''") + "'"
