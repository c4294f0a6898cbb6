"""Ways to do a node's work: its own, and what a reroute switches to."""

from __future__ import annotations

import re

from graph.compiled import ActivityCall, Implementation, InferCall
from graph.compiling.bindings import Bindings
from graph.compiling.context import Context
from graph.compiling.scripts import load_script
from graph.nearest import suggest
from graph.problems import Path
from graph.spec import ActivitySpec, InferSpec, RerouteSpec, ScriptSpec
from graph.values import JSON, canonical, digest

LONGEST_NAME = 1000
"""Bytes; Temporal refuses longer ones, and only when the activity is called."""
_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


class Implementations:
    """Makes the implementations of one node.

    ``scope`` are the names its templates may use beside the run's and the nodes; ``json_by_default`` says whether
    model answers are JSON unless the author chose; ``granted`` are the models its scripts may ask.
    """

    def __init__(
        self,
        context: Context,
        bindings: Bindings,
        scope: tuple[str, ...],
        prompt_scope: tuple[str, ...],
        json_by_default: bool,
        granted: list[str],
    ) -> None:
        self._context = context
        self._bindings = bindings
        self._scope = scope
        self._prompt_scope = prompt_scope
        self._json = json_by_default
        self._granted = granted

    def script(self, spec: ScriptSpec, path: Path, holder: JSON) -> Implementation | None:
        """A sandboxed script; ``holder`` is what the file has at ``path``: the text itself, or an object."""
        inline = path if isinstance(holder, str) else (*path, "inline")
        source = load_script(self._context, spec, path, inline)
        if source is None:
            return None
        return Implementation(
            kind="script",
            id=f"script:{digest(source.text.encode())}",
            script=source,
            model=self._granted[0] if self._granted else None,
            models=self._granted,
        )

    def function(self, name: str, path: Path) -> Implementation | None:
        """A trusted function of the worker."""
        if _FUNCTION.fullmatch(name) is None:
            hint = "write `module:name`, as `examples.licenses.functions:list_distributions`"
            self._context.place.problem("bad_function", f"`{name[:100]}` doesn't name a function", path, hint)
            return None
        if self._context.world.function is not None:
            found = self._context.world.function(name)
            if isinstance(found, str):
                message, _, mend = found.partition(" -> ")
                self._context.place.problem("unknown_function", message, path, mend or None)
                return None
        return Implementation(kind="function", id=f"function:{name}", function=name)

    def value(self, tree: JSON, path: Path) -> Implementation:
        """Bindings only."""
        self._bindings.template(tree, path, self._scope)
        return Implementation(kind="value", id="value", value=tree)

    def infer(self, spec: InferSpec, path: Path) -> Implementation | None:
        """A model call."""
        place = self._context.place
        if (spec.prompt is None) == (spec.messages is None):
            if not self._context.is_broken(*path):
                place.problem("bad_value", "`infer` takes `prompt` or `messages`, one of them", path)
            return None
        messages = None if spec.messages is None else [m.model_dump() for m in spec.messages]
        for key, tree in (("prompt", spec.prompt), ("system", spec.system), ("messages", messages)):
            if tree is not None:
                self._bindings.template(tree, (*path, key), self._prompt_scope)
        model_served(self._context, spec.model, (*path, "model"))
        call = InferCall(
            prompt=spec.prompt,
            system=spec.system,
            messages=messages,
            max_tokens=spec.max_tokens,
            temperature=spec.temperature,
            stop=spec.stop,
            format=spec.format or ("json" if self._json else "text"),
        )
        return Implementation(kind="infer", id=f"model:{spec.model}", infer=call, model=spec.model)

    def activity(self, spec: ActivitySpec, path: Path, holder: JSON) -> Implementation | None:
        """A Temporal activity."""
        if spec.args is not None:
            self._bindings.template(spec.args, (*path, "args"), self._scope)
        if "${" in spec.name:
            at = path if isinstance(holder, str) else (*path, "name")
            self._context.place.problem("bad_value", "an activity is named, never computed", at, "use two nodes")
            return None
        if any(len(name.encode()) > LONGEST_NAME for name in (spec.name, spec.task_queue or "")):
            message = f"names of activities and task queues have at most {LONGEST_NAME} bytes"
            self._context.place.problem("bad_value", message, path)
            return None
        served = self._context.world.activities
        if spec.task_queue is None and served is not None and spec.name not in served:
            at = path if isinstance(holder, str) else (*path, "name")
            hint = suggest(spec.name, served) or "name the `task_queue` that serves it, or add it to FERRATA_ACTIVITIES"
            self._context.place.problem("unknown_activity", f"the worker has no activity `{spec.name}`", at, hint)
            return None
        call = ActivityCall(name=spec.name, task_queue=spec.task_queue, args=spec.args)
        return Implementation(kind="activity", id=f"activity:{spec.name}", activity=call)

    def reroute(self, spec: RerouteSpec, path: Path, holder: JSON, current: Implementation) -> Implementation | None:
        """What a reroute at ``path`` switches to, from ``current``. None (and a problem) if it can't be had."""
        place = self._context.place
        given = [k for k in ("model", "script", "function", "value", "infer") if k in spec.model_fields_set]
        if len(given) != 1:
            if not self._context.is_broken(*path):
                message = "a reroute names one implementation: `model`, `script`, `function`, `value` or `infer`"
                place.problem("bad_rung", message, path)
            return None
        at = (*path, given[0])
        if spec.model is not None:
            made = self._other_model(spec.model, at, current)
        elif spec.script is not None:
            made = self.script(spec.script, at, holder.get("script"))
        elif spec.function is not None:
            made = self.function(spec.function, at)
        elif spec.infer is not None:
            made = self.infer(spec.infer, at)
        else:
            made = self.value(spec.value, at)
        if made is not None and _same(made, current):
            place.problem(
                "bad_rung", f"this reroutes to the same thing: `{made.id}`", at, "name another, or use `retry`"
            )
            return None
        return made

    def _other_model(self, model: str, path: Path, current: Implementation) -> Implementation | None:
        place = self._context.place
        if current.kind == "infer":
            model_served(self._context, model, path)
            return current.model_copy(update={"model": model, "id": f"model:{model}"})
        if current.kind == "script" and current.models:
            if model not in current.models:
                hint = suggest(model, current.models) or "add it to `grants: {models: [...]}`"
                place.problem("unknown_model", f"`{model}` isn't among the models granted to the script", path, hint)
                return None
            return current.model_copy(update={"model": model, "id": f"{current.id.split(' ')[0]} model:{model}"})
        hint = "write `reroute: {infer: {model: ..., prompt: ...}}`"
        if current.kind == "script":
            hint = "grant the script its models: `grants: {models: [...]}`"
        place.problem("bad_rung", f"a {current.kind} node asks no model that could be switched", path, hint)
        return None


def model_served(context: Context, model: str, path: Path) -> bool:
    """Whether ``model`` is a name, and one that the worker serves; a problem if not."""
    if "${" in model:
        context.place.problem("bad_value", "a model is named, never computed", path, "use a reroute, or two nodes")
        return False
    known = context.world.models
    if known is not None and model not in known:
        hint = suggest(model, known) or "models are configured by FERRATA_MODELS"
        context.place.problem("unknown_model", f"the worker serves no model `{model}`", path, hint)
        return False
    return True


def _same(one: Implementation, other: Implementation) -> bool:
    def what(implementation: Implementation) -> bytes:
        return canonical(implementation.model_dump(exclude={"id": True, "script": {"file", "line"}}))

    return what(one) == what(other)
