"""The guest's entry points, as sandbox.wit declares them. componentize-py compiles this file, CPython and what
prelude imports into one component.
"""

from __future__ import annotations

import ast
import functools
import sys
import types
from typing import Any, NoReturn

import wit_world  # type: ignore[import-not-found]  # generated during the build
from componentize_py_types import Err  # type: ignore[import-not-found]  # likewise

from . import checking, prelude
from . import expressions as expression_language
from .json_text import NotJSON, dumps, encode, loads

OUTPUT = prelude.install(wit_world.log)
MESSAGE_LIMIT = 2000
DETAILS_LIMIT = 64 * 1024
FRAMES = 10
"""Innermost and outermost frames that a traceback shows."""

_reserve: list[bytes] = [bytes(512 * 1024)]
"""Freed when memory runs out, so that saying so has room."""


class Fail(Exception):
    """Raised by ``fail``."""

    def __init__(self, code: str, message: str, details: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details


class Failure(Exception):
    """The host couldn't do what the script asked; ``code`` and ``failure_class`` say why. May be caught."""

    def __init__(self, failure_class: str, code: str, message: str, details: Any) -> None:
        super().__init__(message)
        self.failure_class = failure_class
        self.code = code
        self.message = message
        self.details = details


def fail(code: str, message: str, details: Any = None) -> NoReturn:
    """End the script with a failure of the author's own: ``code`` is what `on:` and the run's state name."""
    if not isinstance(code, str) or not code or len(code) > 100:
        raise TypeError("fail(code, message, details=None): code must be a text of 1 to 100 characters")
    text = encode({} if details is None else details, "details")
    if len(text) > DETAILS_LIMIT:
        text = dumps({"trimmed": f"the details were {len(text)} characters, at most {DETAILS_LIMIT} are kept"})
    elif not text.startswith("{"):
        text = '{"details":' + text + "}"
    raise Fail(code, str(message), text)


def infer(
    prompt: str | None = None,
    *,
    messages: list[dict[str, Any]] | None = None,
    system: str | None = None,
    max_tokens: int | None = None,
    temperature: float | None = None,
    model: str | None = None,
    format: str = "text",
) -> Any:
    """Ask a model that the node was granted: text, or parsed JSON with ``format="json"``."""
    if (prompt is None) == (messages is None):
        raise TypeError("infer needs either a prompt or messages")
    if format not in ("text", "json"):
        raise ValueError('infer: format is "text" or "json"')
    asked = {
        "prompt": prompt,
        "messages": messages,
        "system": system,
        "max_tokens": max_tokens,
        "temperature": temperature,
        "model": model,
        "format": format,
    }
    payload = encode({key: value for key, value in asked.items() if value is not None}, "infer's arguments")
    try:
        reply = wit_world.call("infer", payload)
    except Err as error:
        data = loads(error.value)
        if data["class"] == "denied":
            raise prelude.Denied(data["message"]) from None
        raise Failure(data["class"], data["code"], data["message"], data["details"]) from None
    return loads(reply)["output"]


class WitWorld(wit_world.WitWorld):  # type: ignore[misc]
    """The exports."""

    def run(self, source: str, filename: str, first_line: int, input: str, feedback: str, output_bytes: int) -> str:
        try:
            return _bounded(_run(source, filename, first_line, loads(input), loads(feedback)), output_bytes)
        except Err:
            raise
        except NotJSON as error:
            raise _error("invalid_output", str(error), {"file": filename}) from None
        except BaseException as error:
            raise _script_error(error, filename) from None
        finally:
            OUTPUT.finish()

    def run_many(self, source: str, filename: str, first_line: int, inputs: str, output_bytes: int) -> str:
        answers = []
        for value in loads(inputs):
            try:
                text = _run(source, filename, first_line, value, None)
                answers.append(f"[{_bounded(text, output_bytes)}]")
            except BaseException:  # the host runs it again by itself, and is told then
                answers.append("0")
        return "[" + ",".join(answers) + "]"

    def evaluate_many(self, expressions: str, shared: str, scopes: str, output_bytes: int) -> str:
        answers = []
        texts, base = loads(expressions), loads(shared)
        for own in loads(scopes):
            try:
                names = expression_language.make_scope({**base, **own})
                values = [encode(expression_language.evaluate(text, names), "the value") for text in texts]
                answers.append(_bounded("[" + ",".join(values) + "]", output_bytes))
            except BaseException:  # likewise
                answers.append("0")
        return "[" + ",".join(answers) + "]"

    def evaluate(self, expressions: str, scope: str, output_bytes: int) -> str:
        try:
            names = expression_language.make_scope(loads(scope))
            outcomes = [_outcome(text, names) for text in loads(expressions)]
            return _bounded("[" + ",".join(outcomes) + "]", output_bytes)
        except MemoryError:
            raise _out_of_memory("the expressions") from None

    def check(self, source: str, filename: str, first_line: int) -> str:
        try:
            tree = _compile(source, filename, first_line, ast.PyCF_ONLY_AST)
        except SyntaxError as error:
            message = f"the script doesn't parse: {error.msg}"
            return dumps([{"message": message, "line": error.lineno or first_line, "column": error.offset or 1}])
        except (ValueError, RecursionError, MemoryError) as error:
            return dumps(
                [{"message": f"the script doesn't parse: {_describe(error)}", "line": first_line, "column": 1}]
            )
        return dumps(checking.findings(tree, first_line))

    def modules(self) -> str:
        return dumps(sorted(name for name in prelude.MODULES if name in sys.modules))


def _run(source: str, filename: str, first_line: int, input: Any, feedback: Any) -> str:
    """What a script's `run` gives, as JSON, called in a namespace of its own."""
    OUTPUT.begin()
    module = types.ModuleType("script")
    module.__dict__.update(fail=fail, infer=infer, Failure=Failure, __file__=filename)
    sys.modules["script"] = module
    exec(_code(source, filename, first_line), module.__dict__)
    function = module.__dict__.get("run")
    if not callable(function):
        raise _error("script_error", f"{filename} defines no run(input)", {"file": filename})
    more = {"feedback": feedback} if _takes_feedback(function) else {}
    return encode(function(input, **more), "the output")


def _takes_feedback(function: Any) -> bool:
    """Whether a plain function has, beside its input, a parameter ``feedback``; other callables never have."""
    code = getattr(function, "__code__", None)
    if not isinstance(code, types.CodeType):
        return False
    beside = max(code.co_posonlyargcount, min(1, code.co_argcount))
    return "feedback" in code.co_varnames[beside : code.co_argcount + code.co_kwonlyargcount]


@functools.lru_cache(maxsize=2)
def _code(source: str, filename: str, first_line: int) -> Any:
    """A script's code, kept for the next call: an instance may run one script on many items."""
    return _compile(source, filename, first_line)


def _compile(source: str, filename: str, first_line: int, flags: int = 0) -> Any:
    return compile("\n" * (first_line - 1) + source, filename, "exec", flags, dont_inherit=True)


def _outcome(text: str, scope: dict[str, Any]) -> str:
    """One expression's result as JSON: ["ok", value] or [class, message]."""
    try:
        return '["ok",' + encode(expression_language.evaluate(text, scope), "the value") + "]"
    except NotJSON as error:
        failure_class, message = "invalid_output", str(error)
    except expression_language.BadExpression as error:
        failure_class, message = "invalid_input", str(error)
    except MemoryError:
        raise
    except Exception as error:
        failure_class, message = "invalid_input", _describe(error)
    return dumps([failure_class, _clean(message)])


def _bounded(text: str, limit: int) -> str:
    size = len(text) if text.isascii() else len(text.encode())
    if size > limit:
        message = f"the output is {size} bytes of JSON, at most {limit} are allowed (`output_bytes`)"
        raise _error("too_large", message, {"size": size, "limit": limit})
    return text


def _script_error(error: BaseException, filename: str) -> Err:
    """Turn what a script raised into a failure: class, message with place, the script's own frames."""
    if isinstance(error, MemoryError):
        error.__traceback__ = None  # its frames hold what filled the memory
        return _out_of_memory(filename)
    frames = _frames(error, filename)
    place = f" at {filename}:{frames[-1][0]}" if frames else ""
    details: dict[str, Any] = {"file": filename}
    if frames:
        details |= {"line": frames[-1][0], "traceback": _render(frames, filename) + "\n" + _describe(error)}
    if isinstance(error, Fail):
        return _error("script_error", error.message, loads(error.details), error.code)
    if isinstance(error, Failure):
        return _error(error.failure_class, error.message, {**(error.details or {}), **details}, error.code)
    if isinstance(error, prelude.Denied):
        return _error("denied", _placed(_describe(error, named=False), place), details)
    if isinstance(error, prelude.Unsupported):
        return _error("unsupported", _placed(_describe(error, named=False), place), details)
    return _error("script_error", _describe(error) + place, details)


def _placed(message: str, place: str) -> str:
    """``open at script.py:3: reading files needs ...``: the place belongs to what happened, not to the advice."""
    what, colon, advice = message.partition(": ")
    return what + place + colon + advice


def _out_of_memory(who: str) -> Err:
    _reserve.clear()
    return _error("out_of_memory", f"{who} needed more than its `memory` limit", {})


def _frames(error: BaseException, filename: str) -> list[tuple[int, str]]:
    """Line and function of the script's own frames, outermost first; a syntax error's place comes last."""
    frames = []
    step = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if code.co_filename == filename:
            frames.append((step.tb_lineno, code.co_qualname))
        step = step.tb_next
    if isinstance(error, SyntaxError) and error.filename == filename and error.lineno:
        frames.append((error.lineno, "<module>"))
    return frames


def _render(frames: list[tuple[int, str]], filename: str) -> str:
    lines = [f'  File "{filename}", line {line}, in {name}' for line, name in frames]
    if len(lines) > 2 * FRAMES:
        lines[FRAMES:-FRAMES] = [f"  ... {len(lines) - 2 * FRAMES} more ..."]
    return "\n".join(["Traceback (most recent call last):", *lines])


def _describe(error: BaseException, named: bool = True) -> str:
    """``ValueError: message``. An author's exception may fail to describe itself."""
    name = type(error).__name__
    try:
        text = error.msg if isinstance(error, SyntaxError) else str(error)
    except Exception:
        text = "<its message can't be shown>"
    if isinstance(error, SystemExit):
        text = f"{text} (use fail(code, message) to fail)"
    return f"{name}: {text}" if named and text else text or name


def _error(failure_class: str, message: str, details: dict[str, Any], code: str | None = None) -> Err:
    data = {"class": failure_class, "code": code or failure_class, "message": _clean(message), "details": details}
    return Err(_clean(dumps(data), limit=None))


def _clean(text: str, limit: int | None = MESSAGE_LIMIT) -> str:
    """Text that can cross: no lone surrogates, and cut when long."""
    if limit is not None and len(text) > limit:
        text = text[: limit - 3] + "..."
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
