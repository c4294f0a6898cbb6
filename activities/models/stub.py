"""A model that answers what it is told: for tests, examples and dry runs. It calls nobody.

Its call counter and log are files, since the attempts of one run happen in several processes.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from activities.models.config import StubSettings
from activities.models.request import ModelReply, ModelRequest
from graph.errors import Failure
from graph.state import Usage
from graph.values import JSON, encode

CHARACTERS_PER_TOKEN = 4
"""What an estimate of usage assumes."""


class StubModel:
    """One stub. ``name`` is what its log lines say."""

    def __init__(self, name: str, settings: StubSettings) -> None:
        self._name = name
        self._settings = settings

    async def complete(self, request: ModelRequest) -> ModelReply:
        """The told answer, after the told delay. The call is logged and counted first, so that one that is
        cancelled or lost half-way counts too.

        Raises:
            Failure: class ``model_error``: the told failure, or a log or counter file that can't be used.
        """
        self._log(request)
        calls = self._count()
        await asyncio.sleep(self._settings.delay / 1000)
        text = self._answer(request, calls)
        return ModelReply(text, self._usage(request, text))

    async def close(self) -> None:
        """Nothing to close."""

    def _answer(self, request: ModelRequest, calls: int) -> str:
        settings = self._settings
        if settings.fail is not None:
            raise Failure("model_error", settings.fail.message, code=settings.fail.code)
        if settings.echo:
            return next((m.content for m in reversed(request.messages) if m.role == "user"), "")
        reply = settings.reply
        if settings.replies:
            reply = settings.replies[min(calls, len(settings.replies) - 1)]
            if isinstance(reply, dict) and isinstance(reply.get("fail"), str) and reply.keys() <= {"fail", "message"}:
                message = reply.get("message", "the stub was told to fail")
                raise Failure("model_error", str(message), code=reply["fail"])
        return reply if isinstance(reply, str) else encode(reply).decode()

    def _usage(self, request: ModelRequest, text: str) -> Usage:
        told = self._settings.usage
        if told is not None:
            return self._settings.cost.usage(told.input_tokens, told.output_tokens)
        asked = sum(len(message.content) for message in request.messages)
        return self._settings.cost.usage(-(-asked // CHARACTERS_PER_TOKEN), -(-len(text) // CHARACTERS_PER_TOKEN))

    def _log(self, request: ModelRequest) -> None:
        if self._settings.log is None:
            return
        line: JSON = {
            "time": time.time_ns() // 1_000_000,
            "model": self._name,
            "messages": [message.model_dump() for message in request.messages],
        }
        with self._locked(self._settings.log) as file:
            os.write(file, encode(line) + b"\n")

    def _count(self) -> int:
        """How many calls there were before this one, over all processes; 0 if nothing needs it."""
        path = self._settings.counter_of(self._name)
        if not self._settings.replies or path is None:
            return 0
        # One byte a call: an append is atomic, so a process killed here can't leave half a number.
        with self._locked(path) as file:
            calls = os.fstat(file).st_size
            os.write(file, b".")
        return calls

    @contextmanager
    def _locked(self, path: Path) -> Iterator[int]:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield file
            finally:
                os.close(file)
        except OSError as error:
            raise Failure("model_error", f"the stub `{self._name}` can't write {path}: {error.strerror}") from error


def calls_in(log: Path) -> list[dict[str, JSON]]:
    """The calls that a stub logged, in order; none if there is no such file yet."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
