"""The graph of the chaos run: layers of nodes of every kind, each layer waiting for the one before."""

from __future__ import annotations

from typing import Any

from graph.values import JSON

LAYERS = 9
ITEMS = 24

DOUBLE = "def run(input):\n    return {'n': input['n'] * 2}\n"
HALVE = "def run(input):\n    return {'n': input['n'] // 2}\n"
REPLY = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
LATER = {"on_fail": [{"retry": {"times": 2, "delay": "400ms", "feedback": True}}]}
AT_ONCE = {"on_fail": [{"retry": {"times": 2, "feedback": True}}]}


def called(key: str, value: JSON, *, fails: JSON = 0, seconds: float = 0.1, **more: JSON) -> dict[str, Any]:
    """A node that calls `work`."""
    given = {"key": key, "value": value, "fails": fails, "seconds": seconds}
    return {"function": "chaos.work:work", "input": given, **more}


def below(key: str) -> dict[str, Any]:
    """A child graph of five nodes."""
    nodes = {
        "opening": called(f"{key} opening", "${input.n}", seconds=0.2),
        "doubled": {"script": DOUBLE, "input": {"n": "${opening}"}},
        "delayed": called(f"{key} delayed", "${opening}", fails=1, **LATER),
        "pause": {"wait": {"for": "300ms"}, "after": ["opening"]},
        "closing": called(f"{key} closing", "${doubled.n + delayed}", seconds=0.2, after=["pause"]),
    }
    return {"nodes": nodes, "output": "${closing}"}


def layer(number: int) -> dict[str, Any]:
    """The nodes of one layer. All begin once that before has its sum; the last one adds them up."""
    n = f"${{sum_{number - 1}}}" if number else 1
    after: dict[str, Any] = {"after": [f"sum_{number - 1}"]} if number else {}
    parts: dict[str, Any] = {
        "plain": called(f"plain {number}", n),
        "long": called(f"long {number}", n, seconds=1.2),
        "delayed": called(f"delayed {number}", n, fails=1, **LATER),
        "stubborn": called(f"stubborn {number}", n, fails=2, **AT_ONCE),
        "foreign": {"activity": {"name": "foreign", "args": [f"foreign {number}", n, 0.3]}},
        "below": {"graph": below(f"below {number}"), "input": {"n": n}},
        "doubled": {"script": DOUBLE, "input": {"n": n}},
        "halved": {
            "script": DOUBLE,
            "input": {"n": n},
            "accept": [{"expr": f"output.n <= sum_{number - 1}" if number else "output.n <= 1"}],
            "on_fail": [{"reroute": {"script": HALVE}}],
        },
        "asked": {"infer": {"model": "stub", "prompt": f"{number}: {n}"}, "output_schema": REPLY},
        "told": {"wait": {"reply": REPLY}, **after},
    }
    if number % 3 != 0:
        del parts["below"]
    if number % 3 != 1:
        del parts["told"]
    nodes = {f"{name}_{number}": node for name, node in parts.items()}
    objects = ("doubled", "halved", "asked", "told")
    summands = [f"{name}_{number}.n" if name in objects else f"{name}_{number}" for name in parts]
    if number % 3 == 2:
        fails = "${1 if index % 7 == 3 else 0}"
        item = called(f"mapped {number} ${{index}}", "${item + 1}", fails=fails, **LATER, **after)
        nodes[f"mapped_{number}"] = {"over": f"${{list(range({ITEMS}))}}", "concurrency": 4, **item}
        summands.append(f"len(mapped_{number}.values)")
    nodes[f"pause_{number}"] = {"wait": {"for": "700ms"}, **after}
    nodes[f"forgiven_{number}"] = called(f"forgiven {number}", n, fails=1, optional=True, on_fail=["escalate"])
    nodes[f"sum_{number}"] = {
        "value": f"${{({' + '.join(summands)}) % 1000}}",
        "after": {f"pause_{number}": "any", f"forgiven_{number}": "any"},
    }
    return nodes


def chaos_graph() -> dict[str, Any]:
    """All layers. The result is the last sum."""
    nodes: dict[str, Any] = {}
    for number in range(LAYERS):
        nodes |= layer(number)
    return {"name": "chaos", "nodes": nodes, "output": f"${{sum_{LAYERS - 1}}}"}


def asked_for_replies() -> list[str]:
    """The nodes that wait for a reply."""
    return [f"told_{number}" for number in range(1, LAYERS, 3)]
