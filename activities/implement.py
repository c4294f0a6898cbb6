"""Doing a node's work once: each kind that one activity can do by itself, given its bound input."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from activities.checks import read_json
from activities.evaluate import Environment, sandbox_limits
from activities.models import ModelRequest
from activities.sandbox import Cancel, Cancelled, ScriptResult, SharedInstance
from graph.compiled import CompiledNode, Implementation
from graph.errors import Failure
from graph.nearest import suggest
from graph.planning import is_pure
from graph.state import Usage
from graph.values import JSON, encode


@dataclass(frozen=True)
class Means:
    """What an attempt is done with where it isn't done alone: ``graph`` runs the child graph of a `graph` node on its
    input and gives its output; ``instance`` of the sandbox is shared by pure scripts."""

    graph: Callable[[JSON], Awaitable[JSON]] | None = None
    instance: SharedInstance | None = None


ALONE: Final = Means()


@dataclass
class Meter:
    """What an attempt cost so far, and what ran: kept outside of it, since a failed attempt costs too."""

    usage: Usage = field(default_factory=Usage)
    fuel: int = 0
    ran: str | None = None
    """The implementation as only the worker knows it: with the digest of a function's module, with the model that
    answered."""


@dataclass
class Feedback:
    """What was wrong with the attempt before, with its rejected output if it had one."""

    code: str
    reason: str
    rejected: JSON = None

    def to_json(self) -> dict[str, JSON]:
        return {"code": self.code, "reason": self.reason, "rejected": self.rejected}


@dataclass
class Work:
    """One implementation to run: the node, what its expressions read, its multiplied limits, and the meter."""

    node: CompiledNode
    implementation: Implementation
    env: Environment
    feedback: Feedback | None
    fuel: float
    memory: float
    meter: Meter
    rejected: list[JSON]
    """Takes an answer that can't be used, for whoever is shown what was rejected."""
    means: Means = ALONE

    async def run(self, input: JSON, previous: JSON = None) -> JSON:
        """The output for ``input``; ``previous`` is a loop's output before this one. Raises Failure."""
        implementation = self.implementation
        if implementation.kind == "value":
            return await self.env.bind(implementation.value)
        if implementation.kind == "script":
            return await self._script(input)
        if implementation.kind == "infer":
            return await self._infer(previous)
        if implementation.kind == "function" and implementation.function:
            feedback = self.feedback.to_json() if self.feedback else None
            self.meter.ran = f"function:{self.env.tools.functions.identity(implementation.function)}"
            # A copy, since a function may change what it is given: checks and later attempts see the original.
            return await self.env.tools.functions.call(implementation.function, json.loads(encode(input)), feedback)
        if implementation.kind == "graph" and self.means.graph is not None:
            return await self.means.graph(input)
        raise Failure("unsupported", f"an implementation of kind `{implementation.kind}` can't run in an attempt")

    async def _script(self, input: JSON) -> JSON:
        script = self.implementation.script
        if script is None:
            raise Failure("unsupported", "the script implementation has no script")
        limits = sandbox_limits(self.env.limits, self.fuel, self.memory)
        payload = encode(input)
        loop = asyncio.get_running_loop()

        feedback = encode(self.feedback.to_json()) if self.feedback else b"null"

        shared = self.means.instance if is_pure(self.implementation) else None
        if shared is not None:
            # What fails there is run again by itself, so that what another script left behind can't be why.
            with suppress(Failure):
                result = await self.env.tools.run_script(
                    lambda cancel: shared.run_script(
                        script.text, script.file, script.line, payload, limits, feedback_json=feedback, cancel=cancel
                    )
                )
                self.meter.fuel += result.fuel
                return result.output

        def run(cancel: Cancel) -> ScriptResult:
            def host(name: str, request: str) -> str:
                """Called in the guest's thread: the model is asked on the event loop."""
                future = asyncio.run_coroutine_threadsafe(self._answer(name, request), loop)
                return encode(wait_for(future, cancel)).decode()

            return self.env.tools.sandbox.run_script(
                script.text,
                script.file,
                script.line,
                payload,
                limits,
                feedback_json=feedback,
                host=host if self.implementation.models else None,
                cancel=cancel,
            )

        try:
            result = await self.env.tools.run_script(run)
        except Failure as failure:
            self.meter.fuel += failure.fuel
            raise
        self.meter.fuel += result.fuel
        return result.output

    async def _answer(self, name: str, request: str) -> JSON:
        """A script's call to the host."""
        if name != "infer":
            raise Failure("denied", f"the host offers no `{name}` to scripts")
        options = json.loads(request)
        model = options.pop("model", None) or self.implementation.model
        granted = self.implementation.models
        if model not in granted:
            hint = suggest(str(model), granted)
            raise Failure("denied", f"model `{model}` isn't granted; add it to `grants: {{models: [...]}}` {hint}")
        format_ = options.pop("format", None) or "text"
        question = ModelRequest.build(**options, format=format_)
        async with self.env.tools.places.given_up():
            reply = await self.env.tools.models.ask(model, question, self.meter.usage)
        return {"output": as_format(reply.text, format_)}

    async def _infer(self, previous: JSON) -> JSON:
        call = self.implementation.infer
        model = self.implementation.model
        if call is None or model is None:
            raise Failure("unsupported", "the infer implementation names no model")
        env = self.env.within(output=previous) if self.node.repeat else self.env
        bound = await env.bind({"prompt": call.prompt, "messages": call.messages, "system": call.system})
        messages = bound["messages"] or [{"role": "user", "content": bound["prompt"]}]
        request = ModelRequest.build(
            messages=messages + self._reminder(),
            system=bound["system"],
            max_tokens=call.max_tokens,
            temperature=call.temperature,
            stop=call.stop,
            format=call.format,
        )
        reply = await self.env.tools.models.ask(model, request, self.meter.usage)
        self.meter.ran = f"model:{model}@{reply.model}" if reply.model else None
        try:
            return as_format(reply.text, call.format)
        except Failure:
            self.rejected[:] = [reply.text]
            raise

    def _reminder(self) -> list[JSON]:
        """The rejected answer and why, as turns of the conversation."""
        if self.feedback is None:
            return []
        turns: list[JSON] = []
        if self.feedback.rejected is not None:
            turns.append({"role": "assistant", "content": self.feedback.rejected})
        text = f"That was not accepted: {self.feedback.reason}\nAnswer again, mending this."
        return [*turns, {"role": "user", "content": text}]


def as_format(text: str, format_: str) -> JSON:
    """A model's answer as text, or as the JSON that it should be.

    Raises:
        Failure: ``invalid_output``.
    """
    if format_ != "json":
        return text
    try:
        return read_json(text)
    except ValueError as error:
        # Never the answer itself: reasons stay in history.
        raise Failure("invalid_output", f"the model's answer of {len(text)} characters isn't JSON: {error}") from error


def wait_for(future: Future[JSON], cancel: Cancel) -> JSON:
    """The result of ``future``; gives it up when the guest is cancelled."""
    while True:
        try:
            return future.result(timeout=0.1)
        except TimeoutError:
            if future.done():
                raise
            if cancel.cancelled:
                future.cancel()
                raise Cancelled from None
