"""From a graph file to a compiled graph: everything that can be known to be wrong is said here, all at once.

Pure: files come through :class:`graph.files.Files`, what the worker serves through :class:`graph.world.World`.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, replace

from graph.compiled import CompiledGraph, CompiledNode
from graph.compiling.bindings import Bindings
from graph.compiling.children import graph_name
from graph.compiling.context import Context, Included, Session
from graph.compiling.fitting import fit
from graph.compiling.names import check_name
from graph.compiling.nodes import Draft, NodeCompiler
from graph.compiling.order import check_order
from graph.compiling.schemas import load_schema
from graph.compiling.types import check_types
from graph.errors import Problem
from graph.files import FileProblem, Files
from graph.fingerprint import fingerprint_of
from graph.language import MEND, is_unknown, said
from graph.mends import looks_like_code
from graph.planning import plan_of, sinks
from graph.problems import Place, Report, in_file_order
from graph.reading import read_graph
from graph.source import Source
from graph.spec import GraphSpec
from graph.values import ARGUMENTS_LIMIT, JSON
from graph.world import World

__all__ = ["Compilation", "compile_graph"]

MOST_NODES = 2000
"""Nodes of one graph."""
MOST_NODES_IN_ALL = 20_000
"""Nodes of a graph and all graphs within it."""


@dataclass(frozen=True)
class Compilation:
    """A sound graph, and what in it is hardly meant."""

    graph: CompiledGraph
    warnings: list[Problem]


def compile_graph(source: Source, files: Files, world: World | None = None) -> Compilation:
    """Compiles the graph in ``source``.

    ``files`` reads what it names, ``world`` knows what the worker serves (None: nothing is known, nothing checked).

    Raises:
        LoadError: with all problems of the graph and its child graphs, in file order.
    """
    report = Report()
    name = graph_name(source.file or "graph")
    trail = (Included(_identity(source, files), posixpath.basename(source.file or name)),)
    context = Context(Session(world or World(), compile_at, files.folder), Place(source, report), files, trail, name)
    graph = compile_at(context, source.data)
    report.raise_if_any()
    assert graph is not None, "a graph that can't be compiled has problems"
    return Compilation(graph, in_file_order(report.warnings))


def compile_at(context: Context, data: JSON) -> CompiledGraph | None:
    """Compiles one graph, outermost or child. None if it has problems; they are in the report."""
    report = context.place.report
    before = len(report.problems)
    language = data.get("language") if isinstance(data, dict) else None
    if is_unknown(language):  # what else is wrong with it isn't ours to say
        context.place.problem("unknown_language", said("the graph is written in", language), ("language",), MEND)
        return None
    reading = read_graph(data, context.place)
    if reading is None:
        return None
    held: dict[str, JSON] = data["nodes"]
    spec, context = reading.spec, replace(context, broken=reading.broken, kept=reading.kept)
    drafts = _nodes(context, spec, held)
    input_schema = None
    if "input_schema" in spec.model_fields_set:
        input_schema = load_schema(context, spec.input_schema, ("input_schema",))
    output = Bindings(context.place, held, context.outer)
    if "output" in spec.model_fields_set:
        output.template(spec.output, ("output",))
    check_types(context, drafts, output, spec.output, input_schema)
    check_order(context, drafts, output)
    nodes = [draft.node for draft in drafts if draft.node is not None]
    if len(report.problems) > before or len(nodes) < len(held):
        return None
    return _finish(context, spec, nodes, drafts, output, input_schema)


def _identity(source: Source, files: Files) -> str:
    """What the outermost graph file is called when another includes it; its own name if that can't be known."""
    try:
        return files.child(posixpath.basename(source.file)).identity
    except FileProblem:
        return source.file


def _nodes(context: Context, spec: GraphSpec, held: dict[str, JSON]) -> list[Draft]:
    """The nodes, each as far as it could be compiled."""
    place = context.place
    if not held:
        place.problem("no_nodes", "the graph has no nodes", ("nodes",), "give it one", key=True)
    if len(held) > MOST_NODES:
        message = f"a graph has at most {MOST_NODES} nodes, this one has {len(held)}"
        place.problem("too_large", message, ("nodes",), "map over the items, or use child graphs", key=True)
        return []
    order = {name: number for number, name in enumerate(held)}
    drafts = []
    for name in held:
        if not looks_like_code(name):  # reported when it was read
            check_name(name, place, ("nodes", name))
        if name in spec.nodes:
            drafts.append(NodeCompiler(context, name, spec.nodes[name], held[name], order).compile())
    return drafts


def _finish(
    context: Context,
    spec: GraphSpec,
    nodes: list[CompiledNode],
    drafts: list[Draft],
    output: Bindings,
    input_schema: JSON,
) -> CompiledGraph | None:
    children = {draft.child.fingerprint: draft.child for draft in drafts if draft.child is not None}
    order = [node.name for node in nodes]
    has_output = spec.output is not None
    used = output.used_nodes()
    graph = CompiledGraph(
        name=spec.name or context.name,
        file=context.place.source.file if context.place.base == () else None,
        description=spec.description,
        input_schema=input_schema,
        nodes=nodes,
        output=spec.output,
        output_uses=[name for name in order if name in used] if has_output else sinks(nodes),
        on_failure=spec.on_failure,
        deadline=spec.deadline,
        stretch=spec.stretch,
        graphs=children,
    )
    graph.fingerprint = fingerprint_of(graph)
    if _size(graph) > MOST_NODES_IN_ALL:
        message = f"a graph and the graphs within it have at most {MOST_NODES_IN_ALL} nodes in all"
        context.place.problem("too_large", message, ())
        return None
    if len(plan_of(graph).model_dump_json().encode()) > ARGUMENTS_LIMIT:
        message = f"the graph's plan is larger than {ARGUMENTS_LIMIT // 1024} KiB"
        context.place.problem("too_large", message, ("nodes",), "use child graphs, or shorter ladders", key=True)
        return None
    if not fit(context.place, graph):
        return None
    return graph


def _size(graph: CompiledGraph) -> int:
    return len(graph.nodes) + sum(_size(child) for child in graph.graphs.values())
