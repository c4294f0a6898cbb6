"""Users' own trusted functions: found on the worker's list of modules, called with checked arguments.

A function is plain Python, sync or async. It fails with a code of its own by raising Temporal's
``ApplicationError(message, type="CODE")``.
"""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import inspect
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from temporalio.exceptions import ApplicationError

from graph.errors import Failure, LoadError, Problem
from graph.nearest import nearest, suggest
from graph.values import CODE_LIMIT, JSON, digest, trim
from graph.world import FunctionInfo

FEEDBACK = "feedback"
"""A parameter of this name gets what was wrong with the attempt before, or None."""


class Functions:
    """The functions of the modules in ``FERRATA_FUNCTIONS``, by ``module:name``."""

    def __init__(self, modules: tuple[str, ...]) -> None:
        """Import all ``modules``.

        Raises:
            LoadError: ``bad_setting``, one problem for each module that can't be imported.
        """
        self._modules: dict[str, Any] = {}
        self._digests: dict[str, str] = {}
        problems = []
        for name in modules:
            try:
                self._modules[name] = importlib.import_module(name)
                self._digests[name] = source_digest(self._modules[name])
            except Exception as error:  # a user's module may raise anything
                message = f"FERRATA_FUNCTIONS names `{name}`, which can't be imported: {type(error).__name__}: {error}"
                problems.append(Problem(code="bad_setting", message=message, hint="check the name and PYTHONPATH"))
        if problems:
            raise LoadError(problems)
        self._signatures: dict[str, type[BaseModel]] = {}

    def problem(self, function: str) -> str | None:
        """Why ``module:name`` can't be called here; None if it can."""
        module_name, _, name = function.partition(":")
        module = self._modules.get(module_name)
        if module is None:
            served = ", ".join(f"`{known}`" for known in self._modules) or "none"
            text = f"module `{module_name}` isn't on the worker's list FERRATA_FUNCTIONS (served: {served})"
            near = nearest(module_name, self._modules)
            if near is not None:
                return f"{text} -> did you mean `{near}`?"
            return f"{text} -> set FERRATA_FUNCTIONS={','.join([*self._modules, module_name])} and restart the worker"
        found = getattr(module, name, None)
        if name.startswith("_") or not inspect.isroutine(found):
            names = [key for key, value in vars(module).items() if inspect.isroutine(value) and not key.startswith("_")]
            hint = suggest(name, names)
            return f"module `{module_name}` has no function `{name}`" + (f" -> {hint}" if hint else "")
        return None

    def identity(self, function: str) -> str:
        """``module:name@sha256:...``, with the digest of the source of the module as it was imported (not of what that
        imports); without, if it has no source."""
        found = self._digests.get(function.partition(":")[0])
        return f"{function}@{found}" if found else function

    def describe(self, function: str) -> FunctionInfo | str:
        """The arguments of ``module:name``, or why it can't be called."""
        problem = self.problem(function)
        if problem is not None:
            return problem
        try:
            parameters = inspect.signature(self._target(function)).parameters.values()
            self._signature(function)
        except Exception as error:  # a type hint may be any expression
            return f"the signature and type hints of `{function}` can't be read: {type(error).__name__}: {error}"
        named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        return FunctionInfo(
            required=tuple(p.name for p in named if p.default is p.empty and p.name != FEEDBACK),
            accepted=None
            if any(p.kind is p.VAR_KEYWORD for p in parameters)
            else tuple(p.name for p in named if p.name != FEEDBACK),
        )

    def _signature(self, function: str) -> type[BaseModel]:
        model = self._signatures.get(function)
        if model is None:
            model = self._signatures[function] = signature_model(function, self._target(function))
        return model

    def _target(self, function: str) -> Callable[..., Any]:
        module, _, name = function.partition(":")
        target: Callable[..., Any] = getattr(self._modules[module], name)
        return target

    async def call(self, function: str, input: JSON, feedback: JSON) -> JSON:
        """Call ``module:name``: an object becomes keyword arguments, anything else the only argument.

        Raises:
            Failure: ``unsupported`` (not served), ``invalid_input`` (arguments don't fit), ``function_error``.
        """
        problem = self.problem(function)
        if problem is not None:
            raise Failure("unsupported", problem, code="unknown_function")
        target = self._target(function)
        args, kwargs = self._arguments(function, target, input, feedback)
        try:
            if inspect.iscoroutinefunction(target):
                return await target(*args, **kwargs)
            return await in_own_thread(lambda: target(*args, **kwargs))
        except ApplicationError as error:
            details = {"details": list(error.details)} if error.details else {}
            code = trim(error.type, CODE_LIMIT) if error.type else None
            raise Failure("function_error", trim(error.message), code=code, details=details) from error
        except Failure:
            raise
        except (Exception, SystemExit, KeyboardInterrupt, asyncio.CancelledError) as error:
            # A user's function may raise anything; only being cancelled from outside is no failure of its own.
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            frames: dict[str, Any] = {"type": type(error).__name__, "traceback": own_frames(error)}
            raise Failure("function_error", trim(f"{type(error).__name__}: {error}"), details=frames) from error

    def _arguments(
        self, function: str, target: Callable[..., Any], input: JSON, feedback: JSON
    ) -> tuple[list[Any], dict[str, Any]]:
        parameters = inspect.signature(target).parameters
        named = dict(input) if isinstance(input, dict) else None
        if named is None:
            first = next((key for key in parameters if key != FEEDBACK), None)
            if first is None:
                raise Failure("invalid_input", f"`{function}` takes no argument; it was given {str(input)[:60]!r}")
            named = {first: input}
        if FEEDBACK in parameters and FEEDBACK not in named:
            named[FEEDBACK] = feedback
        try:
            checked = self._signature(function).model_validate(named)
        except ValidationError as error:
            wrong = [
                {"path": "/".join(str(part) for part in item["loc"]), "message": item["msg"]}
                for item in error.errors(include_url=False, include_input=False, include_context=False)
            ]
            text = "; ".join(f"`{item['path']}`: {item['message']}" for item in wrong)
            raise Failure("invalid_input", trim(f"`{function}`: {text}"), details={"violations": wrong}) from error
        values = {key: getattr(checked, key) for key in checked.model_fields_set}
        positional = [
            values.pop(key)
            for key, parameter in parameters.items()
            if parameter.kind is inspect.Parameter.POSITIONAL_ONLY and key in values
        ]
        return positional, values


def source_digest(module: ModuleType) -> str:
    """The digest of a module's source; empty if it has none."""
    try:
        return digest(Path(module.__file__ or "").read_bytes())
    except OSError:
        return ""


def signature_model(function: str, target: Callable[..., Any]) -> type[BaseModel]:
    """A model of a function's parameters, from its type hints."""
    hints = get_type_hints(target)
    fields: dict[str, Any] = {}
    extra = False
    for key, parameter in inspect.signature(target).parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            extra = True
        elif parameter.kind is not inspect.Parameter.VAR_POSITIONAL:
            default = ... if parameter.default is inspect.Parameter.empty else parameter.default
            fields[key] = (hints.get(key, Any), default)
    config = ConfigDict(extra="allow" if extra else "forbid", arbitrary_types_allowed=True, protected_namespaces=())
    return create_model(function, __config__=config, **fields)


async def in_own_thread(work: Callable[[], Any]) -> Any:
    """Run blocking ``work`` in a thread of its own.

    Python can't stop a thread: when the attempt is cancelled or timed out, it is left behind and its result dropped.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: Any, error: BaseException | None) -> None:
        if not future.done():
            future.set_exception(error) if error else future.set_result(result)

    def run() -> None:
        try:
            outcome, error = context.run(work), None
        except BaseException as caught:  # handed to the awaiting task, whatever it is
            outcome, error = None, caught
            if isinstance(caught, StopIteration) or not isinstance(caught, Exception):  # a future can't carry these
                error = RuntimeError(f"the function raised {type(caught).__name__}: {caught}")
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, outcome, error)

    threading.Thread(target=run, daemon=True, name="function").start()
    return await future


def own_frames(error: BaseException) -> list[str]:
    """The last few frames of a traceback, as ``file:line in name``."""
    frames = traceback.extract_tb(error.__traceback__)[-5:]
    return [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames]
