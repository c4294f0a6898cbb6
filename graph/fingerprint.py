"""The fingerprint of a graph: equal for graphs that do the same, whatever the order of keys and nodes.

It covers all that can change an outcome, scripts, schemas and child graphs included, and nothing else: no places, no
file names, no descriptions, nor whether nodes run in stretches.
"""

from __future__ import annotations

from graph.compiled import CompiledGraph, CompiledNode
from graph.values import JSON, canonical, digest


def fingerprint_of(graph: CompiledGraph) -> str:
    """``sha256:<hex>`` over the compiled ``graph``. Child graphs count by their own fingerprint."""
    return digest(canonical(_outcome(graph)))


def differences(before: CompiledGraph, after: CompiledGraph) -> list[str]:
    """What differs between two graphs, as people would name it: ``node `a`: ladder``, ``output``. Empty if the
    fingerprints are equal."""
    old, new = _outcome(before), _outcome(after)
    found = [key for key in old if key != "nodes" and old[key] != new[key]]
    for name in dict.fromkeys([*old["nodes"], *new["nodes"]]):
        if name not in new["nodes"]:
            found.append(f"node `{name}` is gone")
        elif name not in old["nodes"]:
            found.append(f"node `{name}` is new")
        else:
            one, other = old["nodes"][name], new["nodes"][name]
            found += [f"node `{name}`: {key}" for key in one if one[key] != other[key]]
    return found


def _outcome(graph: CompiledGraph) -> dict[str, JSON]:
    left_out = {"nodes", "file", "description", "fingerprint", "graphs", "refs", "stretch"}
    data = graph.model_dump(by_alias=True, exclude=left_out)
    data["output_uses"] = sorted(data["output_uses"])
    data["nodes"] = {node.name: _node(node) for node in graph.nodes}
    return data


def _node(node: CompiledNode) -> dict[str, JSON]:
    data = node.model_dump(by_alias=True, exclude={"name", "line", "column", "description", "inline"})
    data["uses"] = sorted(data["uses"])
    if data["over"]:
        del data["over"]["isolation"], data["over"]["apart"]  # they change no outcome
        source = data["over"].pop("source")
        if source:  # where its folder lies may differ from machine to machine
            data["over"]["source"] = {key: value for key, value in source.items() if key != "root"}
    for implementation in data["implementations"]:
        if implementation["wait"] is None:  # a part of the language that came later changes no older fingerprint
            del implementation["wait"]
    for holder in (*data["implementations"], *data["checks"]):
        if holder.get("script"):
            holder["script"] = holder["script"]["text"]
    return data
