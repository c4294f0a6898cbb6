"""The models that a worker serves, by the names that graphs use."""

from __future__ import annotations

import os
from collections.abc import Mapping

from activities.models.config import ModelSettings, OpenAISettings, StubSettings, read_models
from activities.models.request import Model, ModelReply, ModelRequest
from activities.models.stub import StubModel
from graph.errors import Failure, LoadError, Problem
from graph.nearest import suggest
from graph.state import Usage


class Models:
    """All models of one worker process. Use it on one event loop, and `close` it there."""

    def __init__(self, settings: Mapping[str, ModelSettings], environ: Mapping[str, str] | None = None) -> None:
        """``environ`` (default: the process's) holds the API keys.

        Raises:
            LoadError: code ``bad_models``, one problem for each key that isn't there or can't be one.
        """
        environ = os.environ if environ is None else environ
        keys: dict[str, str | None] = {}
        problems = []
        for name, entry in settings.items():
            variable = entry.api_key_env if isinstance(entry, OpenAISettings) else None
            keys[name] = environ.get(variable, "").strip() or None if variable else None
            if variable and (wrong := _wrong_key(keys[name])):
                problems.append(
                    Problem(
                        code="bad_models",
                        message=f"model `{name}` takes its key from {variable}, which {wrong}",
                        hint=f"set {variable} in the worker's environment, or remove the model",
                    )
                )
        if problems:
            raise LoadError(problems)
        self._models: dict[str, Model] = {name: _model(name, entry, keys[name]) for name, entry in settings.items()}

    @classmethod
    def open(cls, source: str | None, environ: Mapping[str, str] | None = None) -> Models:
        """The models of ``Settings.models``: a file's path, JSON text, or None for no models.

        Raises:
            LoadError: the file can't be read or is wrong (all problems at once), or a key isn't there.
        """
        return cls(read_models(source), environ)

    def names(self) -> list[str]:
        """The models that are served, in the order of the settings."""
        return list(self._models)

    async def complete(self, name: str, request: ModelRequest) -> ModelReply:
        """The answer of the model called ``name``.

        Raises:
            Failure: class ``model_error``; code ``unknown_model`` if nobody serves it here.
        """
        model = self._models.get(name)
        if model is None:
            mend = suggest(name, self._models) or f"served are: {', '.join(self._models) or 'none'}"
            raise Failure(
                "model_error",
                f"no model `{name}` is served here (FERRATA_MODELS): {mend}",
                code="unknown_model",
                details={"models": self.names()},
            )
        return await model.complete(request)

    async def ask(self, name: str, request: ModelRequest, usage: Usage) -> ModelReply:
        """As `complete`; ``usage`` takes what it cost, even if the answer can't be used."""
        try:
            reply = await self.complete(name, request)
        except Failure as failure:
            usage.add(Usage.from_json(failure.details.get("usage")))
            raise
        usage.add(reply.usage)
        return reply

    async def close(self) -> None:
        """Close all connections."""
        for model in self._models.values():
            await model.close()


def _wrong_key(key: str | None) -> str | None:
    if key is None:
        return "isn't set"
    # It goes into an HTTP header; what can't be there would fail at every call, with an error that shows it.
    return None if key.isascii() and key.isprintable() else "holds characters that no key has"


def _model(name: str, settings: ModelSettings, key: str | None) -> Model:
    if isinstance(settings, StubSettings):
        return StubModel(name, settings)
    # Imported when needed: the client costs a second or so that workers without such models needn't spend.
    from activities.models.compatible import CompatibleModel

    return CompatibleModel(name, settings, key)
