"""Models behind any server that speaks the OpenAI chat completions protocol.

One request for each call and no retries: the ladder is what tries again, so that every try is seen and counted.
Whatever goes wrong becomes a `model_error` whose message says what to do. The key appears in none of them.
"""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn, cast

import openai
from openai.types.chat import ChatCompletionMessageParam
from pydantic import BaseModel, ValidationError

from activities.models.config import OpenAISettings
from activities.models.request import ModelReply, ModelRequest
from graph.errors import Failure
from graph.state import Usage
from graph.values import CODE_LIMIT, JSON, trim

BODY_LIMIT = 500
"""Bytes of a server's answer that an error's message and details quote."""


class CompatibleModel:
    """One model of one server. Use it on one event loop; connections are kept between calls."""

    def __init__(self, name: str, settings: OpenAISettings, key: str | None = None) -> None:
        self._name = name
        self._settings = settings
        self._key = key
        self._client = openai.AsyncOpenAI(
            base_url=settings.base_url,
            # The client insists on one; given explicitly, so that no other key in the environment is sent.
            api_key=key or "not-needed",
            max_retries=0,
            timeout=settings.timeout / 1000,
        )

    async def complete(self, request: ModelRequest) -> ModelReply:
        """The server's answer.

        Raises:
            Failure: class ``model_error``, with details ``status`` (HTTP; None if there was no answer), ``body``
                (its beginning), ``retryable`` (whether the same call may succeed later), and the ``usage`` that the
                server charged, if it said so.
        """
        try:
            # The client's own timeout is for each read; this one is for the whole call.
            async with asyncio.timeout(self._settings.timeout / 1000):
                answer = await self._client.chat.completions.with_raw_response.create(
                    model=self._settings.model,
                    messages=cast("list[ChatCompletionMessageParam]", [m.model_dump() for m in request.messages]),
                    extra_body=self._options(request),
                )
        except (TimeoutError, openai.APITimeoutError) as error:
            seconds = self._settings.timeout / 1000
            raise self._failure(
                f"gave no answer within {seconds:g} s; raise the model's `timeout`, or ask for less",
                retryable=True,
            ) from error
        except openai.APIStatusError as error:
            self._refused(error)
        except openai.APIConnectionError as error:
            cause = self._without_key(str(error.__cause__ or error))
            raise self._failure(
                f"can't be reached ({cause}); is the server running, and is `base_url` right?", retryable=True
            ) from error
        return self._read(request, answer.status_code, answer.content)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    def _options(self, request: ModelRequest) -> dict[str, JSON]:
        options: dict[str, JSON] = {
            self._settings.token_limit: request.max_tokens,
            "temperature": request.temperature,
            "stop": request.stop,
            "response_format": {"type": "json_object"} if request.format == "json" else None,
        }
        return {**self._settings.extra, **{key: value for key, value in options.items() if value is not None}}

    def _read(self, request: ModelRequest, status: int, content: bytes) -> ModelReply:
        body = self._without_key(content.decode(errors="replace"))
        try:
            answer = _Answer.model_validate_json(content)
        except ValidationError as error:
            raise self._failure(
                "answered with something that is no chat completion; does `base_url` end where `/chat/completions`"
                f" begins (mostly in `/v1`)? It said: {trim(body, BODY_LIMIT)}",
                status=status,
                body=body,
                retryable=True,
            ) from error
        usage = self._usage(answer)

        def failure(wrong: str, retryable: bool = False) -> Failure:
            return self._failure(wrong, status=status, body=body, retryable=retryable, usage=usage)

        if not answer.choices:
            raise failure("answered without a choice", retryable=True)
        choice = answer.choices[0]
        text = choice.message.content
        if choice.finish_reason == "content_filter":
            raise failure("withheld its answer: the server's content filter stopped it; change the prompt")
        if choice.message.refusal:
            raise failure(f"refused to answer: {trim(self._without_key(choice.message.refusal), BODY_LIMIT)}")
        if choice.finish_reason == "length" and (request.format == "json" or not text):
            bound = f"max_tokens is {request.max_tokens}" if request.max_tokens else "the server's own limit"
            raise failure(f"ran out of tokens before its answer was whole ({bound}); raise `max_tokens`")
        if text is None:
            raise failure(f"answered without text (finish reason `{choice.finish_reason}`)", retryable=True)
        told = answer.model if isinstance(answer.model, str) else ""
        return ModelReply(text, usage, trim(self._without_key(told), CODE_LIMIT) or None)

    def _usage(self, answer: _Answer) -> Usage:
        told = answer.usage
        if told is None:
            return Usage()
        usage = self._settings.cost.usage(told.prompt_tokens or 0, told.completion_tokens or 0)
        usage.total_tokens = told.total_tokens or usage.total_tokens
        return usage

    def _refused(self, error: openai.APIStatusError) -> NoReturn:
        status = error.status_code
        body = self._without_key(error.response.text)
        said = f" It said: {trim(body, BODY_LIMIT)}" if body.strip() else ""
        source = f"the key in {self._settings.api_key_env}" if self._key else "a call without a key: set `api_key_env`"
        retryable = status in (408, 409, 425, 429) or status >= 500
        match status:
            case 401 | 403:
                wrong = f"refused {source} (HTTP {status})."
            case 404:
                wrong = (
                    f"wasn't found (HTTP 404): the server doesn't know the model `{self._settings.model}`, or"
                    " `base_url` is wrong (mostly it ends in `/v1`)."
                )
            case 429 if error.code == "insufficient_quota":
                wrong, retryable = "refused the call: the account's quota is used up (HTTP 429).", False
            case 429:
                wrong = "is asked too often (HTTP 429): put a `delay` on the retry, or ask for fewer at once."
            case _ if status >= 500:
                wrong = f"failed (HTTP {status}): the server's own fault, a later try may succeed."
            case _:
                wrong = f"refused the request (HTTP {status}): a parameter may not suit this model."
        raise self._failure(wrong + said, status=status, body=body, retryable=retryable) from None

    def _failure(
        self,
        wrong: str,
        *,
        retryable: bool,
        status: int | None = None,
        body: str | None = None,
        usage: Usage | None = None,
    ) -> Failure:
        details: dict[str, Any] = {"status": status, "retryable": retryable}
        if body is not None:
            details["body"] = trim(body, BODY_LIMIT)
        if usage is not None and usage.total_tokens:
            details["usage"] = usage.to_json()
        message = f"the model `{self._name}` at {self._settings.base_url} {wrong}"
        return Failure("model_error", trim(message), details=details)

    def _without_key(self, text: str) -> str:
        # Some servers quote the key that they refuse. Before any trimming, which could leave half of it.
        return text.replace(self._key, "***") if self._key else text


class _Turn(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Turn
    finish_reason: str | None = None


class _Tokens(BaseModel):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None


class _Answer(BaseModel):
    """What is read of a chat completion. Not the client's own type, which accepts any JSON whatsoever."""

    choices: list[_Choice]
    usage: _Tokens | None = None
    model: Any = None
