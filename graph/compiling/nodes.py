"""One node: its kind, bindings, map or loop, checks, ladder, limits and order."""

from __future__ import annotations

from dataclasses import dataclass, field

from graph.compiled import (
    AfterStatus,
    Check,
    CompiledGraph,
    CompiledNode,
    Implementation,
    Kind,
    Limits,
    Over,
    Repeat,
    Rung,
    Source,
)
from graph.compiling.bindings import ITEM_NAMES, Bindings
from graph.compiling.children import compile_child
from graph.compiling.context import Context
from graph.compiling.implementations import Implementations, model_served
from graph.compiling.ladders import Ladder
from graph.compiling.limits import node_limits
from graph.compiling.outputs import compile_checks
from graph.compiling.sources import compile_items, compile_source, missing_grant, read_grants
from graph.compiling.waits import REPLY, check_wait_options, compile_wait, reply_check
from graph.mends import KIND_LIKE
from graph.nearest import suggest
from graph.planning import fits_chunk
from graph.problems import Path
from graph.spec import KINDS, NodeSpec, OverSpec
from graph.values import JSON
from graph.world import FunctionInfo

LOOP_KINDS = ("script", "function", "infer", "activity", "graph")
MAP_OPTIONS = ("batch", "concurrency", "tolerate", "allow_empty", "isolation")
DEFAULT_CONCURRENCY = 8


@dataclass
class Draft:
    """A node on its way: what could be made of it, and its expressions for the checks across nodes."""

    name: str
    path: Path
    bindings: Bindings
    spec: NodeSpec
    node: CompiledNode | None = None
    uses: list[str] = field(default_factory=list)
    after: dict[str, AfterStatus] = field(default_factory=dict)
    kind: Kind | None = None
    child: CompiledGraph | None = None
    after_list: list[str] | None = None
    """`after` if it is written as a list."""

    def after_path(self, name: str) -> Path:
        """Where `after` names ``name``."""
        step = name if self.after_list is None else self.after_list.index(name)
        return (*self.path, "after", step)


class NodeCompiler:
    """Compiles the node ``name``; ``order`` are the names of all nodes, in file order."""

    def __init__(self, context: Context, name: str, spec: NodeSpec, holder: JSON, order: dict[str, int]) -> None:
        self._context = context
        self._spec = spec
        self._holder = holder if isinstance(holder, dict) else {}
        self._order = order
        self._path: Path = ("nodes", name)
        self._is_map = "over" in self._holder
        self._is_loop = "repeat" in self._holder
        self._item: tuple[str, ...] = ITEM_NAMES if self._is_map else ()
        self.draft = Draft(name, self._path, Bindings(context.place, order, context.outer), spec)

    def compile(self) -> Draft:
        """The node as far as it could be compiled; problems are in the report."""
        self.draft.kind = kind = self._kind()
        self._check_options(kind)
        granted = self._grants()
        checks = self._checks()
        make = self._implementations(checks, granted)
        own = self._own(kind, make) if kind is not None else None
        # A ladder is looked at even if the node's own implementation is wrong: one mistake hides no other.
        stand_in = own or Implementation(kind=kind or "value", id="", models=granted)
        ladder = Ladder(self._context, (*self._path, "on_fail"), make, stand_in)
        rungs = ladder.compile(self._spec.on_fail or [], self._holder.get("on_fail"), checks) if kind else []
        over = self._over()
        self._input(kind)
        repeat = self._repeat()
        self._after()
        self._collect_uses()
        limits = node_limits(self._context, self._spec, self._path, kind)
        if own is not None:
            self.draft.node = self._finish(ladder.implementations, rungs, checks, over, repeat, limits)
        return self.draft

    def _finish(
        self,
        implementations: list[Implementation],
        rungs: list[Rung],
        checks: list[Check],
        over: Over | None,
        repeat: Repeat | None,
        limits: Limits,
    ) -> CompiledNode:
        line, column = self._context.place.line_column(self._path, key=True)
        spec = self._spec
        return CompiledNode(
            name=self.draft.name,
            line=line or 0,
            column=column or 0,
            description=spec.description,
            when=spec.when,
            input=spec.input,
            has_input="input" in spec.model_fields_set,
            over=over,
            repeat=repeat,
            implementations=implementations,
            checks=checks,
            ladder=rungs,
            limits=limits,
            uses=self.draft.uses,
            after=self.draft.after,
            optional=bool(spec.optional),
        )

    def _kind(self) -> Kind | None:
        """The node's kind; None (and a problem, unless one was reported before) if it hasn't exactly one."""
        place = self._context.place
        given = [kind for kind in KINDS if kind in self._holder]
        if not given:
            if not self._context.is_broken(*self._path, "block"):
                broken = [cut[2] for cut in self._context.broken if cut[:2] == self._path and len(cut) == 3]
                if "run" not in self._holder and not any(
                    key in KIND_LIKE or suggest(str(key), KINDS).startswith("did") for key in broken
                ):
                    kinds = ", ".join(f"`{kind}`" for kind in KINDS)
                    message = f"`{self.draft.name}` has no kind: it needs one of {kinds}"
                    place.problem("no_kind", message, self._path, key=True)
            return None
        if len(given) > 1:
            both = " and ".join(f"`{kind}`" for kind in given)
            message = f"`{self.draft.name}` has {len(given)} kinds, {both}: a node has one"
            place.problem("two_kinds", message, (*self._path, given[1]), "make it two nodes", key=True)
            return None
        return given[0] if given[0] in self._spec.model_fields_set else None

    def _check_options(self, kind: str | None) -> None:
        """Options that don't go with the kind, or with each other."""
        place, name = self._context.place, self.draft.name
        if self._is_map and self._is_loop:
            message = f"`{name}` has `over` and `repeat`: a node is a map or a loop"
            place.problem(
                "misplaced_key", message, (*self._path, "repeat"), "put the loop into a child graph", key=True
            )
        for option in MAP_OPTIONS:
            if option in self._holder and not self._is_map:
                message = f"`{option}` belongs to a map, and `{name}` has no `over`"
                place.problem("misplaced_key", message, (*self._path, option), key=True)
        self._check_run(kind)
        if kind is None:
            return
        if kind == "wait":
            check_wait_options(self._context, self._spec, self._path, self._holder)
        if self._is_loop and kind not in LOOP_KINDS:
            message = f"a `{kind}` node can't repeat: it computes nothing new"
            hint = "put it into a child graph, and repeat that" if kind == "wait" else "use a script"
            place.problem("misplaced_key", message, (*self._path, "repeat"), hint, key=True)
        if kind == "value" and "input" in self._holder:
            message = "a `value` node has no `input`: its bindings read what they need"
            place.problem("misplaced_key", message, (*self._path, "input"), "write it inside `value`", key=True)
        self._check_grants(kind)

    def _check_run(self, kind: str | None) -> None:
        """`run: child`, and what people of other tools write so."""
        place, at, given = self._context.place, (*self._path, "run"), self._spec.run
        if given is None:
            return
        if kind != "graph" or not self._is_map:
            message = "`run: child` is for a map over a graph"
            hint = "no commands are run: use `script` or `function`" if given != "child" else "leave it out"
            place.problem("misplaced_key", message, at, hint, key=True)
        elif given != "child":
            place.problem("bad_value", f"`run` must be `child`, not `{given[:100]}`", at)

    def _check_grants(self, kind: str) -> None:
        """Grants that nothing of the node can use."""
        place, at, given = self._context.place, (*self._path, "grants"), self._spec.grants
        if "grants" not in self._holder:
            return
        scripts = kind == "script" or self._reroutes_to_script()
        if not scripts and not self._reads_file():
            message = f"a {kind} node runs no script, so `grants` give it nothing"
            place.problem("misplaced_key", message, at, "leave it out", key=True)
        elif not scripts and given is not None and given.models is not None:
            message = f"a {kind} node runs no script, so `models` gives it nothing"
            place.problem("misplaced_key", message, (*at, "models"), "leave it out", key=True)
        elif given is not None and given.read is not None and not self._reads_file():
            message = "`read` is for `over: {file: PATH}`: in this version, a script itself reads no files"
            place.problem("misplaced_key", message, (*at, "read"), "leave it out", key=True)

    def _reads_file(self) -> bool:
        """Whether the items are in a file, or seem to be meant so."""
        over = self._holder.get("over")
        if isinstance(over, dict):
            return "file" in over or "ref" not in over
        return isinstance(over, str) and "${" not in over

    def _reroutes_to_script(self) -> bool:
        return any(rung.reroute is not None and rung.reroute.script is not None for rung in self._spec.on_fail or [])

    def _grants(self) -> list[str]:
        models = (self._spec.grants.models if self._spec.grants else None) or []
        granted = []
        for number, model in enumerate(models):
            if model_served(self._context, model, (*self._path, "grants", "models", number)) and model not in granted:
                granted.append(model)
        return granted

    def _checks(self) -> list[Check]:
        scope = ("output", *self._item)
        reply = reply_check(self._context, self._spec, self._path)
        checks = compile_checks(self._context, self.draft.bindings, self._spec, self._path, self._holder, scope)
        return checks if reply is None else [reply, *checks]

    def _implementations(self, checks: list[Check], granted: list[str]) -> Implementations:
        schema = next(
            (check.schema_ for check in checks if check.check == "schema" and check.name in (REPLY, "output_schema")),
            None,
        )
        wants_json = schema is not None and not (isinstance(schema, dict) and schema.get("type") == "string")
        prompt_scope = (*self._item, "output") if self._is_loop else self._item
        return Implementations(self._context, self.draft.bindings, self._item, prompt_scope, wants_json, granted)

    def _own(self, kind: str, make: Implementations) -> Implementation | None:
        """The node's own implementation."""
        spec, at = self._spec, (*self._path, kind)
        if spec.script is not None:
            return make.script(spec.script, at, self._holder.get("script"))
        if spec.function is not None:
            made = make.function(spec.function, at)
            if made is not None:
                self._check_arguments(spec.function)
            return made
        if spec.infer is not None:
            return make.infer(spec.infer, at)
        if spec.activity is not None:
            return make.activity(spec.activity, at, self._holder.get("activity"))
        if kind == "graph":
            self.draft.child = child = compile_child(self._context, self.draft.name, spec.graph, at, self._order)
            if child is None:
                return None
            return Implementation(kind="graph", id=f"graph:{child.fingerprint}", graph=child.fingerprint)
        if spec.wait is not None:
            return compile_wait(self._context, self.draft.bindings, spec.wait, at)
        return make.value(spec.value, at)

    def _check_arguments(self, name: str) -> None:
        """A function's arguments, where its input is written out."""
        world = self._context.world
        info = world.function(name) if world.function is not None else None
        given = self._spec.input
        if not isinstance(info, FunctionInfo) or not isinstance(given, dict):
            return
        at = (*self._path, "input")
        for argument in info.required:
            if argument not in given:
                message = f"`{name}` needs the argument `{argument}`"
                self._context.place.problem("missing_input", message, at, f"add `{argument}` to `input`")
        for key in given:
            if info.accepted is not None and key not in info.accepted:
                message = f"`{name}` takes no argument `{key}`"
                hint = suggest(key, info.accepted) or None
                self._context.place.problem("unknown_argument", message, (*at, key), hint, key=True)

    def _over(self) -> Over | None:
        spec = self._spec
        if not self._is_map or spec.over is None:
            return None
        source = self._source(spec.over, (*self._path, "over"))
        failures = spec.tolerate.failures if spec.tolerate else None
        return Over(
            items=spec.over.items,
            source=source,
            batch=spec.batch,
            allow_empty=bool(spec.allow_empty),
            concurrency=spec.concurrency or DEFAULT_CONCURRENCY,
            tolerate_failures=int(failures) if failures and not failures.endswith("%") else None,
            tolerate_percent=float(failures[:-1]) if failures and failures.endswith("%") else None,
            guard_per_item=self._guard(),
            isolation=spec.isolation or "shared",
            apart=self._is_apart(),
        )

    def _is_apart(self) -> bool:
        """Whether each item must be, or is to be, a run of its own."""
        child = self.draft.child
        needs_workflow = "activity" in self._holder or (child is not None and not fits_chunk(child))
        return needs_workflow or self._spec.run == "child"

    def _source(self, over: OverSpec, at: Path) -> Source | None:
        """Where the items come from; None: they are a template's (or wrong)."""
        context, grants = self._context, self._spec.grants
        if not isinstance(self._holder.get("over"), dict):
            compile_items(context, over, at, bool(self._spec.allow_empty))
            self.draft.bindings.template(over.items, at)
            return None
        read = grants.read if grants is not None else None
        if over.file is not None and read is None and not context.is_broken(*self._path, "grants"):
            missing_grant(context, over.file, at)
        granted = read_grants(context, read or [], (*self._path, "grants", "read"))
        return compile_source(context, self.draft.bindings, over, at, granted)

    def _guard(self) -> bool:
        """Whether the guard names the item (checked for names elsewhere)."""
        if self._spec.when is None:
            return False
        probe = Bindings(self._context.place.silent(), self._order)
        probe.bare(self._spec.when, (*self._path, "when"), ITEM_NAMES)
        return probe.names(ITEM_NAMES)

    def _input(self, kind: str | None) -> None:
        spec, bindings = self._spec, self.draft.bindings
        if spec.when is not None:
            bindings.bare(spec.when, (*self._path, "when"), self._item)
        if "input" in spec.model_fields_set and kind != "value":
            bindings.template(spec.input, (*self._path, "input"), self._item)
        if "input" in self._holder or self._is_map:
            return
        if kind == "function" or (kind == "activity" and (spec.activity is None or spec.activity.args is None)):
            message = f"the {kind} of `{self.draft.name}` needs an `input`"
            hint = 'write `input: {NAME: "${input.NAME}"}`, or `input: {}` for none'
            self._context.place.problem("missing_input", message, (*self._path, kind), hint, key=True)

    def _repeat(self) -> Repeat | None:
        repeat = self._spec.repeat
        if repeat is None:
            return None
        self.draft.bindings.bare(repeat.until, (*self._path, "repeat", "until"), ("output",), untyped=("output",))
        return Repeat(until=repeat.until, max_rounds=repeat.max_rounds)

    def _after(self) -> None:
        held = self._holder.get("after")
        self.draft.after_list = held if isinstance(held, list) else None
        for name, status in (self._spec.after or {}).items():
            at = self.draft.after_path(name)
            if name == self.draft.name:
                self._context.place.problem("cycle", f"`{name}` can't come after itself", at, key=True)
            elif name not in self._order:
                message = f"there is no node `{name}`"
                self._context.place.problem("unknown_node", message, at, suggest(name, self._order) or None, key=True)
            else:
                self.draft.after[name] = status

    def _collect_uses(self) -> None:
        bindings = self.draft.bindings
        for reference, use in bindings.referenced():
            if reference.root == self.draft.name:
                message = f"`{reference.root}` refers to itself"
                hint = "in `accept` and `until` its own output is called `output`"
                self._context.place.in_text(use.path, reference.line, reference.column, "cycle", message, hint)
        used = bindings.used_nodes() - {self.draft.name}
        self.draft.uses = sorted(used, key=self._order.__getitem__)
