"""Is an output acceptable? ``output_schema`` and ``accept``, in the order written; the first that fails rejects."""

from __future__ import annotations

import asyncio
import json

from activities.evaluate import Environment, sandbox_limits
from activities.models import Message, ModelRequest
from activities.schemas import compiled
from graph.compiled import Check, CompiledNode, ExprCheck, JudgeCheck, SchemaCheck, ScriptCheck
from graph.errors import Failure
from graph.state import Usage
from graph.values import JSON, KIB, encode, trim

QUICK = 64 * KIB
"""Bytes of an output whose validation takes no time to speak of. A larger one may take seconds, in which this process
couldn't beat, so that all its activities would count as lost."""
MOST_VIOLATIONS = 50
"""Violations listed in a failure's details."""

JUDGE_SYSTEM = (
    "You judge whether an output is acceptable. Answer with one JSON object and nothing else: "
    '{"accept": true or false, "reason": "one sentence"}.'
)


async def run_checks(node: CompiledNode, env: Environment, input: JSON, output: JSON, usage: Usage) -> None:
    """Check ``output``. ``usage`` takes what judges cost.

    Raises:
        Failure: ``rejected`` (naming the check; ``details.violations`` for a schema), or ``unusable``.
    """
    for check in node.checks:
        try:
            if isinstance(check, SchemaCheck):
                if len(encode(output)) <= QUICK:
                    check_schema(check, output)
                else:
                    await asyncio.to_thread(check_schema, check, output)
            elif isinstance(check, ExprCheck):
                await check_expr(check, env.within(output=output))
            elif isinstance(check, ScriptCheck):
                await check_script(check, env, input, output)
            else:
                await check_judge(check, env.within(output=output), output, usage)
        except Failure as failure:
            raise as_rejection(check, failure) from failure


def as_rejection(check: Check, failure: Failure) -> Failure:
    """An error while checking means that the check rejects, with that error as reason."""
    if failure.failure_class == "unusable":
        return failure
    details = {"check": check.name, **failure.details}
    if failure.failure_class != "rejected":
        details["error"] = {"class": failure.failure_class, "code": failure.code}
    return Failure("rejected", trim(f"{check.name} rejected the output: {failure.message}"), details=details)


def check_schema(check: SchemaCheck, output: JSON) -> None:
    """All violations of a schema, each with its path."""
    schema = compiled(check.schema_)
    if schema.is_valid(output):
        return
    violations = [{"path": path, "message": message} for path, message in schema.violations(output)]
    shown = "; ".join(f"{item['path']}: {item['message']}" for item in violations[:5])
    more = f" (and {len(violations) - 5} more)" if len(violations) > 5 else ""
    raise Failure("rejected", shown + more, details={"violations": violations[:MOST_VIOLATIONS]})


async def check_expr(check: ExprCheck, env: Environment) -> None:
    if not await env.condition(check.expr, check.name):
        raise Failure("rejected", f"`{check.expr}` is false")


async def check_script(check: ScriptCheck, env: Environment, input: JSON, output: JSON) -> None:
    payload = encode({"output": output, "input": input})
    script, limits = check.script, sandbox_limits(env.limits)
    result = await env.tools.run_script(
        lambda cancel: env.tools.sandbox.run_script(
            script.text, script.file, script.line, payload, limits, host=None, cancel=cancel
        )
    )
    verdict = result.output
    if isinstance(verdict, bool):
        verdict = {"ok": verdict}
    if not isinstance(verdict, dict) or not isinstance(verdict.get("ok"), bool):
        raise Failure("rejected", 'the check script must return true, false or {"ok": bool, "reason": str}')
    if not verdict["ok"]:
        raise Failure("rejected", str(verdict.get("reason") or "it returned false"))


async def check_judge(check: JudgeCheck, env: Environment, output: JSON, usage: Usage) -> None:
    prompt = await env.bind(check.prompt)
    text = prompt if isinstance(prompt, str) else encode(prompt).decode()
    request = ModelRequest(
        messages=[
            Message(role="system", content=JUDGE_SYSTEM),
            Message(role="user", content=f"{text}\n\nThe output:\n{encode(output).decode()}"),
        ],
        format="json",
    )
    reply = await env.tools.models.ask(check.model, request, usage)
    try:
        verdict = read_json(reply.text)
    except ValueError:
        verdict = None
    if not isinstance(verdict, dict) or not isinstance(verdict.get("accept"), bool):
        message = f"judge `{check.model}` gave no verdict that can be read: {reply.text[:200]!r}"
        raise Failure("unusable", message, details={"check": check.name})
    if not verdict["accept"]:
        raise Failure("rejected", str(verdict.get("reason") or "the judge gave no reason"))


def read_json(text: str) -> JSON:
    """The JSON in a model's answer, with or without a code fence around it.

    Raises:
        ValueError: there is none.
    """
    stripped = text.strip()
    if stripped.startswith("```"):
        stripped = stripped.removeprefix("```json").removeprefix("```").removesuffix("```").strip()
    try:
        return json.loads(stripped, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it nests too deeply") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} isn't JSON")
