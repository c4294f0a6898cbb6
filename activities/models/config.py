"""The models file: which models a worker serves, by whom, at what price. Reading it calls nobody."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from graph.durations import parse_duration
from graph.errors import LoadError, Problem
from graph.nearest import suggest
from graph.source import Source, read_source
from graph.state import Usage
from graph.values import JSON

Duration: TypeAlias = Annotated[int, BeforeValidator(parse_duration)]
"""Written as `90s` or `2m`, kept as milliseconds."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Cost(_Part):
    """Prices per million tokens, in whatever currency the budgets are in."""

    input: float = Field(0.0, ge=0)
    output: float = Field(0.0, ge=0)

    def usage(self, input_tokens: int, output_tokens: int) -> Usage:
        """The usage of one call with these tokens."""
        cost = (input_tokens * self.input + output_tokens * self.output) / 1e6
        return Usage(input_tokens, output_tokens, input_tokens + output_tokens, cost)


class StubUsage(_Part):
    """Tokens that a stub claims for every call."""

    input_tokens: int = Field(0, ge=0)
    output_tokens: int = Field(0, ge=0)


class StubFailure(_Part):
    """A failure that a stub answers with."""

    code: str = Field(min_length=1)
    message: str = "the stub was told to fail"


class StubSettings(_Part):
    """A model that answers what it is told, for tests and dry runs. Exactly one of ``reply``, ``replies``,
    ``echo`` and ``fail`` is given."""

    provider: Literal["stub"] = "stub"
    reply: JSON = None
    """The answer: a string as it is, anything else as its JSON text."""
    replies: list[JSON] = []
    """Answers in turn, the last one for ever; ``{fail: CODE, message: ...}`` is a failure."""
    echo: bool = False
    """Answer with the last user message."""
    fail: StubFailure | None = None
    delay: Duration = 0
    log: Path | None = None
    """A file that gets one JSON line for each call: time (milliseconds since the epoch), model, messages."""
    counter: Path | None = None
    """The file that counts the calls for ``replies``, for all processes; default: see `counter_of`."""
    usage: StubUsage | None = None
    """None: estimated at four characters a token."""
    cost: Cost = Cost()

    @model_validator(mode="after")
    def _one_way(self) -> StubSettings:
        ways = [way for way in ("reply", "replies", "echo", "fail") if way in self.model_fields_set]
        if len(ways) != 1:
            given = f"it has {' and '.join(f'`{way}`' for way in ways)}" if ways else "it has none"
            raise ValueError(f"a stub takes one of `reply`, `replies`, `echo: true` and `fail`; {given}")
        if ways == ["echo"] and not self.echo:
            raise ValueError("a stub takes one of `reply`, `replies`, `echo: true` and `fail`; `echo` is false")
        if ways == ["replies"]:
            if not self.replies:
                raise ValueError("`replies` is empty: give at least one")
            if self.counter is None and self.log is None:
                raise ValueError("`replies` counts the calls in a file: name it by `counter`, or give a `log`")
        return self

    def counter_of(self, name: str) -> Path | None:
        """Where the calls of the model ``name`` are counted: several may share a log, but not a counter."""
        if self.counter is not None or self.log is None:
            return self.counter
        return self.log.with_name(f"{self.log.name}.{name}.counter")

    def under(self, folder: Path) -> StubSettings:
        """The same with relative files taken from ``folder``."""
        return self.model_copy(
            update={
                "log": None if self.log is None else folder / self.log,
                "counter": None if self.counter is None else folder / self.counter,
            }
        )


class OpenAISettings(_Part):
    """A model behind any server that speaks the OpenAI chat completions protocol."""

    provider: Literal["openai"] = "openai"
    model: str = Field(min_length=1)
    """What the server calls the model."""
    base_url: str
    """As far as before `/chat/completions`; mostly it ends in `/v1`."""
    api_key_env: str | None = Field(None, min_length=1)
    """The environment variable that holds the key; None: the server wants none."""
    timeout: Duration = Field(120_000, gt=0)
    """For one call, from connecting to the last byte."""
    token_limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """What the server calls the bound on the answer's tokens."""
    extra: dict[str, JSON] = {}
    """Further fields of the request's body, such as `seed` or `top_p`."""
    cost: Cost = Cost()

    @field_validator("base_url")
    @classmethod
    def _http(cls, value: str) -> str:
        url = urlsplit(value)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError("it must be a URL that begins with http:// or https://")
        _ = url.port  # raises ValueError if it is none
        if "@" in url.netloc:
            raise ValueError("a key or password doesn't belong into the URL: put it in a variable, see `api_key_env`")
        return value

    @field_validator("api_key_env")
    @classmethod
    def _variable(cls, value: str | None) -> str | None:
        # Not quoted in the message: whoever gets this wrong has mostly written the key itself here.
        if value is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
            raise ValueError("it must be the name of an environment variable, not the key itself")
        return value


ModelSettings: TypeAlias = StubSettings | OpenAISettings

_PROVIDERS: Final[dict[str, type[StubSettings | OpenAISettings]]] = {
    "stub": StubSettings,
    "openai": OpenAISettings,
}


def read_models(source: str | None, folder: Path | None = None) -> dict[str, ModelSettings]:
    """The models named in ``source``: JSON text if it begins with `{`, else the path of a YAML or JSON file.
    None is no models. Relative paths within are taken from the file's folder, for JSON text from ``folder``
    (default: the working folder).

    Raises:
        LoadError: code ``bad_setting`` if there is no such file, else ``bad_models`` or those of the YAML reader,
            all problems at once.
    """
    if not source:
        return {}
    folder = folder or Path.cwd()
    if source.lstrip().startswith("{"):
        return _check(read_source(source, "FERRATA_MODELS"), folder)
    path = folder / source
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it isn't UTF-8 text"
        problem = Problem(
            code="bad_setting",
            message=f"the models file can't be read: {reason}",
            file=str(path),
            hint="set FERRATA_MODELS to a YAML or JSON file, or to JSON that begins with `{`",
        )
        raise LoadError([problem]) from error
    return _check(read_source(text, str(path)), path.parent)


def _check(source: Source, folder: Path) -> dict[str, ModelSettings]:
    if not isinstance(source.data, dict):
        raise LoadError(
            [_problem(source, (), "the models file must map names to models", "as in `small: {provider: stub, ...}`")]
        )
    models: dict[str, ModelSettings] = {}
    problems: list[Problem] = []
    for name, entry in source.data.items():
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
            problems.append(
                _problem(
                    source,
                    (name,),
                    f"`{name}` can't be a model's name",
                    "use letters, digits, `.`, `_` and `-`",
                    key=True,
                )
            )
        kind = entry.get("provider") if isinstance(entry, dict) else None
        shape = _PROVIDERS.get(kind) if isinstance(kind, str) else None
        if shape is None:
            problems.append(_no_provider(source, name, entry))
            continue
        try:
            model = shape.model_validate(entry)
        except ValidationError as error:
            problems += [_translated(source, name, shape, detail) for detail in error.errors()]
        else:
            models[name] = model.under(folder) if isinstance(model, StubSettings) else model
    if problems:
        raise LoadError(sorted(problems, key=lambda problem: (problem.line or 0, problem.column or 0)))
    return models


def _no_provider(source: Source, name: str, entry: JSON) -> Problem:
    known = " or ".join(f"`{kind}`" for kind in _PROVIDERS)
    if not isinstance(entry, dict):
        return _problem(source, (name,), f"model `{name}` must be an object", "as in `{provider: stub, reply: hello}`")
    if "provider" not in entry:
        return _problem(source, (name,), f"model `{name}` has no `provider`", f"it is {known}")
    kind = entry["provider"]
    hint = suggest(kind, _PROVIDERS) if isinstance(kind, str) else f"it is {known}"
    return _problem(source, (name, "provider"), f"model `{name}`: unknown provider `{kind}`", hint)


def _translated(source: Source, name: str, shape: type[BaseModel], detail: Any) -> Problem:
    """A problem in our words for one of pydantic's."""
    path: tuple[str | int, ...] = (name, *detail["loc"])
    field = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "missing":
        return _problem(source, path[:-1], f"model `{name}` needs `{field}`", "add it; see docs/models.md")
    if detail["type"] == "extra_forbidden":
        # A key is known or not within its own part: the nearest is sought there.
        part = shape
        for step in detail["loc"][:-1]:
            inner = part.model_fields[step].annotation if isinstance(step, str) else None
            part = _inner(inner) or part
        fields = part.model_fields
        hint = suggest(str(path[-1]), fields) or f"known: {', '.join(f'`{name}`' for name in fields)}"
        return _problem(source, path, f"model `{name}`: unknown key `{field}`", hint, key=True)
    wrong = str(detail["msg"]).removeprefix("Value error, ")
    wrong = wrong if detail["type"] == "value_error" else wrong[:1].lower() + wrong[1:]
    return _problem(source, path, f"model `{name}`{f', `{field}`' if field else ''}: {wrong}", "see docs/models.md")


def _inner(annotation: Any) -> type[BaseModel] | None:
    """The model within ``X`` or ``X | None``."""
    for candidate in (annotation, *getattr(annotation, "__args__", ())):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def _problem(source: Source, path: tuple[str | int, ...], message: str, hint: str, key: bool = False) -> Problem:
    line, column = source.place(path, key=key) or (None, None)
    return Problem(code="bad_models", message=message, file=source.file, line=line, column=column, hint=hint)
