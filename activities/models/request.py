"""What a model is asked and what it answers, whoever serves it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from graph.errors import Failure
from graph.state import Usage
from graph.values import JSON, encode


class Message(BaseModel):
    """One turn of a conversation. A ``content`` that is no string is given to the model as its JSON text."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: Literal["system", "user", "assistant"]
    content: str

    @field_validator("content", mode="before")
    @classmethod
    def _text(cls, value: JSON) -> str:
        return value if isinstance(value, str) else encode(value).decode()


class ModelRequest(BaseModel):
    """One model call. ``messages`` holds at least one turn; a system message comes first.

    ``max_tokens`` bounds the answer; ``format`` ``json`` asks the server to answer with JSON text only.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    messages: list[Message]
    max_tokens: int | None = None
    temperature: float | None = None
    stop: list[str] | None = None
    format: Literal["text", "json"] = "text"

    @field_validator("messages")
    @classmethod
    def _some(cls, value: list[Message]) -> list[Message]:
        if not value:
            raise ValueError("there must be at least one message")
        return value

    @field_validator("max_tokens")
    @classmethod
    def _positive(cls, value: int | None) -> int | None:
        if value is not None and value < 1:
            raise ValueError("it must be 1 or more")
        return value

    @field_validator("stop", mode="before")
    @classmethod
    def _list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @classmethod
    def build(
        cls, /, *, prompt: JSON = None, messages: JSON = None, system: JSON = None, **options: Any
    ) -> ModelRequest:
        """A request from what a graph or a script gives: a ``prompt``, or a list of ``messages`` as
        ``{"role", "content"}``, and perhaps a ``system`` text, which goes before a system message that is there.

        Raises:
            Failure: class ``invalid_input``, naming every part that is wrong.
        """
        if (prompt is None) == (messages is None):
            raise Failure("invalid_input", "a model call takes either `prompt` or `messages`, one of the two")
        turns = messages if prompt is None else [{"role": "user", "content": prompt}]
        try:
            request = cls(messages=turns, **options)
            if system is None:
                return request
            first = Message(role="system", content=system)
            rest = request.messages
            if rest[0].role == "system":
                first = Message(role="system", content=f"{first.content}\n\n{rest[0].content}")
                rest = rest[1:]
            return request.model_copy(update={"messages": [first, *rest]})
        except ValidationError as error:
            wrong = "; ".join(f"`{_where(e['loc'])}`: {_what(e)}" for e in error.errors())
            raise Failure("invalid_input", f"the model call is malformed: {wrong}") from error


@dataclass(frozen=True)
class ModelReply:
    """A model's answer. ``text`` is JSON text if the request's format was ``json``, as far as the model obeyed;
    ``model`` is what the server says that answered, if it says so."""

    text: str
    usage: Usage
    model: str | None = None


class Model(Protocol):
    """Who answers requests. Cancelling the task that awaits `complete` ends the call."""

    async def complete(self, request: ModelRequest) -> ModelReply:
        """The model's answer.

        Raises:
            Failure: class ``model_error``.
        """
        ...

    async def close(self) -> None:
        """Let connections go."""
        ...


def _where(place: tuple[int | str, ...]) -> str:
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or "messages"


def _what(error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return "no such option"
    return str(error["msg"]).removeprefix("Value error, ")
