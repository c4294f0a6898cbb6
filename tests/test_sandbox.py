"""The sandbox: scripts and expressions in the real guest, within limits, with nothing to reach."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from wasmtime import wat2wasm

from activities.sandbox import Cancel, Cancelled, Host, Sandbox, SandboxLimits, ScriptResult, cache
from activities.sandbox.builder import ensure_component
from activities.sandbox.engine import load_component
from activities.settings import Settings
from graph.errors import Failure, FerrataError
from graph.expressions import BUILTINS, HELPERS, parse_expression
from graph.resolve import resolve

ROOT = Path(__file__).parents[1]
LIMITS = SandboxLimits(timeout=60)


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    return Sandbox()


def run(sandbox: Sandbox, source: str, data: Any = None, limits: SandboxLimits = LIMITS, **more: Any) -> ScriptResult:
    return sandbox.run_script(source, "classify.py", 1, json.dumps(data), limits, **more)


def failure(
    sandbox: Sandbox, source: str, limits: SandboxLimits = LIMITS, data: Any = None, host: Host | None = None
) -> Failure:
    with pytest.raises(Failure) as caught:
        run(sandbox, source, data, limits, host=host)
    return caught.value


def returning(expression: str) -> str:
    return f"def run(input):\n    return {expression}\n"


# Scripts


def test_a_script_gets_its_input_and_returns_json(sandbox: Sandbox) -> None:
    result = run(sandbox, "def run(input):\n    return {'n': input['n'] + 1, 't': (1, None)}\n", {"n": 1})
    assert result.output == {"n": 2, "t": [1, None]}
    assert result.output_json == '{"n":2,"t":[1,null]}'
    assert result.fuel > 0


def test_multibyte_text_survives_every_boundary(sandbox: Sandbox) -> None:
    text = "naïve 日本語 😀 \u2028 \x00 \u202e"
    source = "import json\ndef run(input):\n    print(input)\n    return [input, '日本', infer('é' + input)]\n"
    seen: list[str] = []

    def host(name: str, payload: str) -> str:
        seen.append(json.loads(payload)["prompt"])
        return json.dumps({"output": "ü😀"}, ensure_ascii=False)

    result = run(sandbox, source, text, host=host)
    assert result.output == [text, "日本", "ü😀"]
    assert seen == ["é" + text]
    assert result.logs == text.split("\n")
    assert failure(sandbox, "def run(input):\n    raise ValueError('日本 \\ud800')\n").message.startswith(
        "ValueError: 日本 ?"
    )


def test_an_error_names_the_scripts_file_and_line_and_only_its_own_frames(sandbox: Sandbox) -> None:
    source = "import json\ndef parse(text):\n    return json.loads(text)\ndef run(input):\n    return parse('{')\n"
    with pytest.raises(Failure) as caught:
        sandbox.run_script(source, "graphs/my.yaml", 11, "null", LIMITS)
    error = caught.value
    assert error.code == error.failure_class == "script_error"
    assert re.match(r"JSONDecodeError: .* at graphs/my\.yaml:13$", error.message)
    assert error.details["line"] == 13
    assert [line.strip() for line in error.details["traceback"].splitlines()[1:3]] == [
        'File "graphs/my.yaml", line 15, in run',
        'File "graphs/my.yaml", line 13, in parse',
    ]
    assert "json/" not in error.details["traceback"]


def test_a_syntax_error_has_its_place(sandbox: Sandbox) -> None:
    error = failure(sandbox, "x = 1\ndef run(input:\n")
    assert error.failure_class == "script_error"
    assert error.message == "SyntaxError: '(' was never closed at classify.py:2"


def test_fail_gives_the_authors_code(sandbox: Sandbox) -> None:
    error = failure(sandbox, "def run(input):\n    print('so far')\n    fail('NO_LICENCE', 'none', {'a': [1]})\n")
    assert (error.failure_class, error.code, error.message) == ("script_error", "NO_LICENCE", "none")
    assert error.details == {"a": [1], "log": ["so far"]}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("float('nan')", "it is nan"),
        ("{'a': [1, {2}]}", "output['a'][1] isn't JSON: it is a set"),
        ("[b'x']", "output[0] isn't JSON: it is a bytes"),
        ("{1: 2}", "the key 1 is no string but an int"),
        ("{'a': {None: 2}}", "the key None is no string but null"),
        ("'\\ud800'", "half of a surrogate pair"),
        ("(lambda a: a.append(a) or a)([])", "contains itself"),
        ("10 ** 5000", "4300 digits"),
        ("len", "call it"),
        ("(x for x in [])", "use list(...)"),
        ("__import__('datetime').date(2000, 1, 1)", "it is a date"),
    ],
)
def test_an_output_that_isnt_json_is_invalid_output(sandbox: Sandbox, value: str, message: str) -> None:
    error = failure(sandbox, returning(value))
    assert error.failure_class == "invalid_output"
    assert message in error.message


def test_what_is_printed_is_logged_and_bounded(sandbox: Sandbox) -> None:
    assert run(sandbox, "def run(input):\n    print('a', 1)\n    print('b', end='')\n").logs == ["a 1", "b"]
    for line in ("'x'", "'x' * 500", "'x' * 10 ** 6"):
        logs = run(sandbox, f"def run(input):\n    for _ in range(1000): print({line})\n").logs
        assert len(logs) <= 200
        assert sum(map(len, logs)) < 20_000
        assert "the log is cut here" in logs[-1]


def test_each_script_gets_a_fresh_sandbox(sandbox: Sandbox) -> None:
    source = "import json\ndef run(input):\n    json.seen = getattr(json, 'seen', 0) + 1\n    return json.seen\n"
    assert [run(sandbox, source).output for _ in range(3)] == [1, 1, 1]


# Limits


@pytest.mark.parametrize(
    ("source", "limits", "expected"),
    [
        ("while True: pass", SandboxLimits(fuel=200_000_000), "out_of_fuel"),
        ("while True: pass", SandboxLimits(timeout=0.3), "timeout"),
        ("x = []\n    while True: x.append('abc' * 100_000)", SandboxLimits(memory=64 << 20), "out_of_memory"),
        ("return [0] * 10 ** 9", LIMITS, "out_of_memory"),
        ("return 'x' * 2_000", SandboxLimits(output_bytes=2_001), "too_large"),
        ("return 'é' * 1_000", SandboxLimits(output_bytes=2_001), "too_large"),
        ("while True: print('x')", SandboxLimits(fuel=200_000_000), "out_of_fuel"),
        ("f = lambda: f()\n    f()", LIMITS, "script_error"),
        ("import json\n    json.loads('[' * 100_000)", LIMITS, "wasm_trap"),
        ("import os\n    os.fork()", LIMITS, "denied"),
        ("import os\n    os.abort()", LIMITS, "denied"),
        ("import sys\n    sys.exit(1)", LIMITS, "script_error"),
        ("import re\n    re.match('(a*)*b', 'a' * 50)", SandboxLimits(fuel=200_000_000), "out_of_fuel"),
    ],
)
def test_a_script_that_goes_wild_ends_in_its_own_class_and_the_next_one_is_served(
    sandbox: Sandbox, source: str, limits: SandboxLimits, expected: str
) -> None:
    error = failure(sandbox, f"def run(input):\n    {source}\n", limits)
    assert error.failure_class == expected, error.message
    assert run(sandbox, returning("input"), 7).output == 7


def test_an_input_larger_than_the_memory_is_out_of_memory(sandbox: Sandbox) -> None:
    with pytest.raises(Failure) as caught:
        run(sandbox, returning("1"), "x" * 40_000_000, SandboxLimits(memory=48 << 20))
    assert caught.value.failure_class == "out_of_memory"
    with pytest.raises(Failure) as caught:
        run(sandbox, returning("1"), 1, SandboxLimits(memory=1 << 20))
    assert caught.value.failure_class == "out_of_memory"


def test_a_script_may_catch_its_memory_error(sandbox: Sandbox) -> None:
    source = "def run(input):\n    try: return [0] * 10 ** 9\n    except MemoryError: return 'smaller'\n"
    assert run(sandbox, source).output == "smaller"


def test_a_spinning_guest_stops_within_a_second_of_cancellation(sandbox: Sandbox) -> None:
    cancel = Cancel()
    cancelled_at: list[float] = []

    def later() -> None:
        cancelled_at.append(time.monotonic())
        cancel.cancel()

    timer = threading.Timer(0.3, later)
    timer.start()
    with pytest.raises(Cancelled):
        run(sandbox, "def run(input):\n    while True: pass\n", cancel=cancel)
    assert time.monotonic() - cancelled_at[0] < 1
    timer.join()


def test_a_cancelled_call_does_not_start(sandbox: Sandbox) -> None:
    cancel = Cancel()
    cancel.cancel()
    with pytest.raises(Cancelled):
        run(sandbox, returning("1"), cancel=cancel)
    with pytest.raises(Cancelled):
        sandbox.evaluate(["1"], "{}", LIMITS, cancel=cancel)


def test_scripts_run_in_several_threads_at_once(sandbox: Sandbox) -> None:
    results: list[Any] = []

    def work(number: int) -> None:
        for _ in range(5):
            results.append(run(sandbox, "def run(input):\n    print(input)\n    return input\n", number))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(result.output for result in results) == sorted(list(range(4)) * 5)
    assert all(result.logs == [str(result.output)] for result in results)
    assert len({(result.output, result.fuel) for result in results}) == 4


def test_output_and_fuel_are_equal_in_every_process() -> None:
    source = (
        "import random, re\ndef run(input):\n    words = set(input) | {'a', 'b', 'c', 'dd'}\n"
        "    objects = {object() for _ in range(50)}\n    x = [[i] for i in range(20_000)]\n"
        "    return [list(words), random.random(), [id(o) for o in objects], len(x), hash('x')]\n"
    )
    program = (
        "import json, sys\nfrom activities.sandbox import Sandbox, SandboxLimits\n"
        f"r = Sandbox().run_script({source!r}, 'a.py', 1, '[\"x\"]', SandboxLimits())\n"
        "print(json.dumps([r.output_json, r.fuel]))\n"
    )
    printed = {
        subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, check=True).stdout
        for _ in range(2)
    }
    assert len(printed) == 1


# Denials

READ, FETCH, ENV = "grants: {read: [", "grants: {fetch: [", "grants: {env: ["
CLOCK, RANDOM, PROCESS = "no clock", "no randomness", "no processes"


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("open('/etc/passwd')", READ),
        ("__import__('io').open('no such file')", READ),
        ("__import__('os').listdir('.')", READ),
        ("__import__('os').stat('../..')", READ),
        ("__import__('pathlib').Path('/etc/passwd').read_text()", READ),
        ("__import__('pathlib').Path('/etc').exists()", READ),
        ("__import__('tempfile')", READ),
        ("__import__('socket')", FETCH),
        ("__import__('urllib.request')", FETCH),
        ("__import__('os').environ['HOME']", ENV),
        ("__import__('os').getenv('HOME')", ENV),
        ("__import__('time').time()", CLOCK),
        ("__import__('time').sleep(1)", CLOCK),
        ("__import__('time').gmtime()", CLOCK),
        ("__import__('datetime').datetime.now()", CLOCK),
        ("__import__('datetime').date.today()", CLOCK),
        ("__import__('os').urandom(8)", RANDOM),
        ("__import__('random').SystemRandom().random()", RANDOM),
        ("__import__('random').Random()", RANDOM),
        ("__import__('uuid').uuid4()", RANDOM),
        ("__import__('secrets')", RANDOM),
        ("__import__('os').system('ls')", PROCESS),
        ("__import__('subprocess')", PROCESS),
        ("infer('hello')", "grants: {models: ["),
    ],
)
def test_what_isnt_granted_is_denied_by_a_message_that_says_what_would_do(
    sandbox: Sandbox, expression: str, names: str
) -> None:
    error = failure(sandbox, returning(expression))
    assert error.failure_class == "denied"
    assert names in error.message
    assert "classify.py:2" in error.message


AROUND = {
    "file by the object graph": "[c for b in object.__subclasses__() if b.__name__ == '_IOBase'"
    " for r in b.__subclasses__() for c in r.__subclasses__() if c.__name__ == 'FileIO'][0]('/etc/passwd')",
    "file by _io": "[c for c in __import__('_io')._RawIOBase.__subclasses__() if c.__name__ == 'FileIO'][0]('/x')",
    "file by descriptor": "[c for c in __import__('_io')._RawIOBase.__subclasses__() if c.__name__ == 'FileIO'][0](0)"
    ".read()",
    "fresh posix": "create('posix').open('/etc/passwd', 0)",
    "fresh posix lists": "create('posix').listdir('/')",
    "fresh posix random": "create('posix').urandom(4).hex()",
    "fresh posix exit": "create('posix')._exit(0)",
    "fresh posix abort": "create('posix').abort()",
    "fresh posix write": "create('posix').write(1, b'x')",
    "fresh time": "create('time').time()",
    "fresh time sleeps": "create('time').sleep(0.01)",
    "fresh time monotonic": "create('time').monotonic()",
    "fresh socket": "create('_socket').socket()",
    "fresh socket name": "create('_socket').gethostbyname('localhost')",
    "fresh thread": "create('_thread').start_new_thread(print, ())",
    "fresh faulthandler": "create('faulthandler')._sigsegv()",
    "seed behind the closure": "[c.cell_contents for c in __import__('random').Random.seed.__closure__][0]"
    "(__import__('random')._inst)",
    "gmtime behind the closure": "[c.cell_contents for c in __import__('time').gmtime.__closure__"
    " if callable(c.cell_contents)][0]()",
    "reload": "__import__('importlib').reload(__import__('time')).time()",
    "ctypes": "__import__('importlib').machinery.BuiltinImporter.find_spec('_ctypes').name",
    "host past infer": "__import__('wit_world').call('read', '{}')",
    "host with rubbish": "__import__('wit_world').call('infer', 'not json')",
    "forged failure": "forge()",
}
HELP = """
def create(name):
    from importlib.machinery import ModuleSpec
    import _imp
    module = _imp.create_builtin(ModuleSpec(name, None, origin='built-in'))
    _imp.exec_builtin(module)
    return module
def forge():
    import sys
    frame = sys._getframe()
    while 'loads' not in frame.f_globals: frame = frame.f_back
    frame.f_globals['_error'] = lambda *a, **k: frame.f_globals['Err']('{"class": "lost"}')
    raise ValueError
"""


@pytest.mark.parametrize("way", AROUND)
def test_ways_around_the_prelude_are_contained_and_end_alike_every_time(sandbox: Sandbox, way: str) -> None:
    source = HELP + returning(AROUND[way])
    first, second = failure(sandbox, source), failure(sandbox, source)
    assert first.failure_class in ("denied", "unsupported", "wasm_trap", "script_error"), first.message
    assert (first.message, first.details) == (second.message, second.details)
    if way.split()[0] in ("file", "gmtime", "seed") or way in ("fresh time", "fresh posix random"):
        assert first.failure_class == "denied", first.message
    assert "root:" not in first.message
    assert run(sandbox, returning("1")).output == 1


def test_a_denial_may_be_caught(sandbox: Sandbox) -> None:
    source = "def run(input):\n    try: open('/etc/passwd')\n    except Exception as e: return type(e).__name__\n"
    assert run(sandbox, source).output == "Denied"


def test_a_missing_module_is_unsupported_and_can_be_done_without(sandbox: Sandbox) -> None:
    error = failure(sandbox, "import numpy\ndef run(input): pass\n")
    assert error.failure_class == "unsupported"
    assert "numpy" in error.message
    assert "docs/scripts.md" in error.message
    source = "try:\n    import numpy\nexcept ImportError:\n    numpy = None\ndef run(input):\n    return numpy\n"
    assert run(sandbox, source).output is None


def test_seeded_randomness_is_allowed(sandbox: Sandbox) -> None:
    source = (
        "import random\ndef run(input):\n    random.seed(3)\n    return [random.random(), random.Random(3).random()]\n"
    )
    first, second = run(sandbox, source).output
    assert first == second


def test_the_documented_modules_are_those_that_are_there(sandbox: Sandbox) -> None:
    text = (ROOT / "docs" / "scripts.md").read_text()
    listed = re.search(r"<!-- modules -->\n(.*?)\n<!-- end -->", text, re.DOTALL)
    assert listed is not None
    documented = re.findall(r"`([\w.]+)`", listed[1])
    assert sorted(documented) == sandbox.modules()
    imports = "".join(f"import {name}\n" for name in documented)
    assert run(sandbox, imports + returning("1")).output == 1


def test_the_documented_examples_run(sandbox: Sandbox) -> None:
    text = (ROOT / "docs" / "scripts.md").read_text()
    classify, summarise = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert sandbox.check_syntax(classify, "a.py") == sandbox.check_syntax(summarise, "b.py") == []
    assert run(sandbox, classify, {"license": "the mit Licence", "name": "a"}).output == {"spdx": "MIT"}
    assert failure(sandbox, classify, data={"license": " ", "name": "a"}).code == "NO_LICENCE"
    assert run(sandbox, summarise, {"text": "long"}, host=answering("short")).output == "short"


# The standard library inside


def test_the_standard_library_works(sandbox: Sandbox) -> None:
    source = """
import csv, datetime, decimal, dataclasses, enum, hashlib, io, json, re, statistics, tomllib, typing, unicodedata
import urllib.parse, uuid, xml.etree.ElementTree as ET, zlib, base64, string, textwrap, html, difflib, fractions

@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: "typing.ClassVar[int]" = 3

class Colour(enum.StrEnum):
    RED = "red"

def run(input):
    return [
        list(csv.reader(io.StringIO('a,"b,c"'))), str(datetime.date(2024, 2, 28) + datetime.timedelta(2)),
        datetime.datetime.strptime("2024-01-02 03:04", "%Y-%m-%d %H:%M").isoformat(),
        datetime.datetime.fromisoformat("2024-01-02T03:04:05+02:00").timestamp(),
        str(decimal.Decimal("0.1") * 3), Point(1).x, Colour.RED, hashlib.sha256(b"a").hexdigest()[:8],
        re.sub(r"(\\w)(\\d)", r"\\2\\1", "a1 b2"), statistics.mean([1, 2]), tomllib.loads("a = 1"),
        unicodedata.normalize("NFC", "e\\u0301"), urllib.parse.quote("é /"), str(uuid.uuid5(uuid.NAMESPACE_DNS, "a")),
        ET.fromstring("<a><b c='d'/></a>")[0].attrib, zlib.decompress(zlib.compress(b"hi")).decode(),
        base64.b64encode(b"hi").decode(), "é".encode("cp1252").decode("latin-1"), html.escape("<"),
        f"{1234.5:,.2f}", str(fractions.Fraction(1, 3)), textwrap.shorten("a b c d", 5, placeholder="+"),
    ]
"""
    output = run(sandbox, source).output
    assert output[:4] == [[["a", "b,c"]], "2024-03-01", "2024-01-02T03:04:00", 1704157445.0]
    assert output[4:9] == ["0.3", 1, "red", "ca978112", "1a 2b"]
    assert output[-5:] == ["é", "&lt;", "1,234.50", "1/3", "a b+"]


# infer


def answering(reply: Any, seen: list[Any] | None = None) -> Host:
    def host(name: str, payload: str) -> str:
        if seen is not None:
            seen.append((name, json.loads(payload)))
        return json.dumps({"output": reply})

    return host


def test_infer_asks_the_host(sandbox: Sandbox) -> None:
    seen: list[Any] = []
    source = returning("infer('hi', system='s', max_tokens=5, model='small', format='json')['a']")
    assert run(sandbox, source, host=answering({"a": 1}, seen)).output == 1
    assert seen == [
        ("infer", {"prompt": "hi", "system": "s", "max_tokens": 5, "model": "small", "format": "json"}),
    ]


def test_a_hosts_failure_can_be_caught_or_survives(sandbox: Sandbox) -> None:
    def host(name: str, payload: str) -> str:
        raise Failure("model_error", "too many", code="RATE_LIMIT", details={"status": 429})

    error = failure(sandbox, returning("infer('hi')"), host=host)
    assert (error.failure_class, error.code, error.message) == ("model_error", "RATE_LIMIT", "too many")
    assert (error.details["status"], error.details["line"]) == (429, 2)
    source = "def run(input):\n    try: infer('hi')\n    except Failure as f: return [f.code, str(f), f.details]\n"
    assert run(sandbox, source, host=host).output == ["RATE_LIMIT", "too many", {"status": 429}]


@pytest.mark.parametrize("error", [Cancelled("stop"), KeyError("a bug")], ids=["cancelled", "bug"])
def test_what_else_the_host_raises_stops_the_script_and_comes_out_unchanged(sandbox: Sandbox, error: Exception) -> None:
    def host(name: str, payload: str) -> str:
        raise error

    source = "def run(input):\n    try: infer('hi')\n    except BaseException: return 'caught'\n"
    with pytest.raises(type(error)) as caught:
        run(sandbox, source, host=host)
    assert caught.value is error


def test_a_host_may_use_the_sandbox_itself_and_block_without_holding_others_up(sandbox: Sandbox) -> None:
    other_done = threading.Event()

    def host(name: str, payload: str) -> str:
        assert other_done.wait(30)
        return json.dumps({"output": run(sandbox, returning("'inner'")).output})

    def other() -> None:
        run(sandbox, returning("1"))
        other_done.set()

    thread = threading.Thread(target=other)
    thread.start()
    assert run(sandbox, returning("infer('hi') + '!'"), host=host).output == "inner!"
    thread.join()


# Expressions

SCOPE: dict[str, Any] = {
    "input": {
        "xs": [1, 2.5, 3],
        "tenths": [0.1] * 10,
        "name": "日本",
        "none": None,
        "items": [{"a": 1, "b": {"c": "x"}}, {"a": None, "b": {"c": "y"}}, {"a": True, "b": {"c": "x"}}],
        "odd": {"x-y": 1, "values": 5, "a.b": 2},
        "dotted": [{"a.b": 1, "a": {"b": 2}}],
        "huge": [1e308, 1e308],
        "words": ["a", "b"],
    },
    "classify": {"values": [{"spdx": "MIT"}], "escalated": 0},
}


def evaluate(sandbox: Sandbox, *expressions: str, scope: dict[str, Any] = SCOPE) -> list[Any]:
    """Each expression's value, or its error as text."""
    outcomes = sandbox.evaluate(expressions, json.dumps(scope), LIMITS)
    return [o.value if o.error is None else f"{o.error.failure_class}: {o.error.message}" for o in outcomes]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("input.xs[0] + 1", 2),
        ("input['odd']['x-y']", 1),
        ("classify.values[0].spdx", "MIT"),
        ("input.odd.values", 5),
        ("list(classify.keys())", ["values", "escalated"]),
        ("[x * 2 for x in input.xs if x > 1]", [5, 6]),
        ("any(i.a for i in input['items'])", True),
        ("f'{input.name!r:>6} {len(input.name)}'", "  '日本' 2"),
        ("', '.join(sorted(input.words, reverse=true))", "b, a"),
        ("true and null is None and not false", True),
        ("input.xs[::-1]", [3, 2.5, 1]),
        ("sum(input.tenths)", 0.9999999999999999),
        ("sum([[1], [2]], [])", [1, 2]),
        ("first(x for x in input.xs if x > 2)", 2.5),
        ("first([], 'none')", "none"),
        ("{**input.odd, 'y': (1, 2)}['y']", [1, 2]),
        ("dict(zip(input.words, range(2)))", {"a": 0, "b": 1}),
        ("count_by(input['items'], 'a')", {"1": 1, "null": 1, "true": 1}),
        ("1 if input.none is None else 2", 1),
        (" input.xs[0] ", 1),
    ],
)
def test_an_expression_yields(sandbox: Sandbox, expression: str, value: Any) -> None:
    assert evaluate(sandbox, expression) == [value]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("classify.valus", "invalid_input: `classify` has no key 'valus': did you mean 'values'?"),
        ("input.none.x", "invalid_input: `input.none` is null: it has no 'x'"),
        ("input.xs[9]", "invalid_input: `input.xs` has 3 items: there is no [9]"),
        ("input.xs['a']", "invalid_input: `input.xs` is a list: it can't be read by ['a']"),
        ("input.xs.append(4)", "invalid_input: `input.xs` is a list: it has no 'append'"),
        ("1 / 0", "invalid_input: ZeroDivisionError: division by zero"),
        ("float('nan')", "invalid_output: the value isn't JSON: it is nan"),
        ("{1, 2}", "invalid_output: the value isn't JSON: it is a set: use sorted(...) or list(...)"),
        ("'{0.x}'.format(1)", "invalid_input: `'{0.x}'.format` isn't offered: use an f-string"),
        ("().__class__", "invalid_input: '__class__' isn't allowed: names with two underscores are Python's own"),
        ("(x for x in ()).gi_frame", "invalid_input: `(x for x in ())` is a generator: it has no 'gi_frame'"),
        ("(lambda: 1)()", "invalid_input: lambda isn't allowed: use a comprehension"),
        ("count_by(input['items'], 'zz')", "invalid_input: count_by: `item 0` has no key 'zz': it has a, b"),
        ("open('x')", "invalid_input: NameError: name 'open' is not defined"),
    ],
)
def test_an_expressions_error_says_what_is_wrong(sandbox: Sandbox, expression: str, message: str) -> None:
    assert evaluate(sandbox, expression, "1") == [message, 1]


@pytest.mark.parametrize(
    "expression",
    [
        *(
            "input",
            "classify.values",
            "classify.values[0].spdx",
            "input.odd['x-y']",
            "input.odd.values",
            "input.name[1]",
        ),
        *(
            "input.xs[-1]",
            "input.xs[3]",
            "input.none",
            "input.none.a",
            "input.missing",
            "input.xs.a",
            "input.name.upper",
        ),
        *("input.odd.keys", "input.odd[0]", "input['xs']['a']", "input.odd['a.b']"),
        *("len(input.xs)", "len(input.name)", "len(input.odd)", "len(input.none)", "len(input)"),
        *(
            "sum(input.xs)",
            "sum(input.tenths)",
            "sum(input.words)",
            "sum(input.none)",
            "sum(input.huge)",
            "sum(input.odd)",
        ),
        *("first(input.xs)", "first(input.xs, 3)", "first(input.name)", "first(input.odd)", "first(input.none)"),
        *("pluck(input.items, 'b.c')", "pluck(input.items, 'b')", "pluck(input.items, 'zz')", "pluck(input.xs, 'a')"),
        *("count_by(input.items, 'a')", "count_by(input.items, 'b')", "group_by(input.items, 'b.c')"),
        *("pluck(input.dotted, 'a.b')", "count_by(input.odd, 'a')", "group_by(input.items, 'a.b')"),
    ],
)
def test_host_and_sandbox_agree(sandbox: Sandbox, expression: str) -> None:
    plan = parse_expression(expression).host
    assert plan is not None, "the host doesn't resolve this"
    (outcome,) = sandbox.evaluate([expression], json.dumps(SCOPE), LIMITS)
    try:
        resolved = resolve(plan, SCOPE)
    except Failure:
        assert outcome.error is not None
    else:
        assert outcome.error is None, outcome.error
        assert json.dumps(outcome.value) == json.dumps(resolved)


def test_the_names_that_load_allows_are_the_names_that_are_there(sandbox: Sandbox) -> None:
    names = sorted({*BUILTINS, *HELPERS})
    assert evaluate(sandbox, *(f"{name} is null" for name in names)) == [False] * len(names)


def test_nothing_an_expression_does_outlives_it(sandbox: Sandbox) -> None:
    assert evaluate(sandbox, "input.xs", scope={"input": {"xs": [1]}}) == [[1]]
    assert evaluate(sandbox, "1", scope={}) == [1]
    assert "not defined" in evaluate(sandbox, "input", scope={})[0]
    assert evaluate(sandbox, "len(list)", scope={"list": [1, 2]}) == [2]
    assert evaluate(sandbox, "list((1,))", scope={}) == [[1]]


@pytest.mark.parametrize(
    ("expression", "limits", "expected"),
    [
        ("sum(x for x in range(10 ** 9))", SandboxLimits(fuel=100_000_000), "out_of_fuel"),
        ("sum(x for x in range(10 ** 9))", SandboxLimits(timeout=0.2), "timeout"),
        ("list(range(10 ** 9))", SandboxLimits(memory=64 << 20), "out_of_memory"),
        ("'x' * 1000", SandboxLimits(output_bytes=500), "too_large"),
    ],
)
def test_an_expression_beyond_its_limits_fails_and_the_next_one_is_served(
    sandbox: Sandbox, expression: str, limits: SandboxLimits, expected: str
) -> None:
    with pytest.raises(Failure) as caught:
        sandbox.evaluate([expression], "{}", limits)
    assert caught.value.failure_class == expected
    (outcome,) = sandbox.evaluate(["1 + 1"], "{}", SandboxLimits(memory=limits.memory))
    assert outcome.value == 2


# Checking scripts at load


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("def run(input): return 1", None),
        ("def run(input, *, feedback=1): return 1", None),
        ("def run(*args): return 1", None),
        ("run = len", None),
        ("from operator import neg as run", None),
        ("def run(:", (5, 9)),
        ("x = 1\nasync def run(input): pass", (6, 1)),
        ("\ndef run(): pass", (6, 1)),
        ("def run(a, b): pass", (5, 1)),
        ("def go(input): pass", (5, 1)),
        ("x = " + "[" * 10_000, (5, 1)),
        ("a\x00b", (5, 1)),
        ("import json, numpy\ndef run(input): pass", (5, 1)),
        ("from requests import get\ndef run(input): pass", (5, 1)),
        ("from . import helpers\ndef run(input): pass", (5, 1)),
        ("import urllib.parse, os.path\nfrom collections.abc import Mapping\ndef run(input): pass", None),
        ("try:\n    import numpy\nexcept ImportError:\n    numpy = None\ndef run(input): pass", None),
        ("if typing.TYPE_CHECKING:\n    import numpy\ndef run(input): pass", None),
        ("if __name__ == '__main__':\n    import argparse\ndef run(input): pass", None),
        ("def run(input, _table={}): return 1", None),
        ("def run(input, feedback=None): return 1", None),
    ],
)
def test_a_scripts_syntax_is_checked_without_running_it(
    sandbox: Sandbox, source: str, place: tuple[int, int] | None
) -> None:
    problems = sandbox.check_syntax(source, "my.yaml", 5)
    assert [(p.line, p.column) for p in problems] == ([place] if place else [])
    assert all(p.code == "bad_script" and p.file == "my.yaml" for p in problems)


@pytest.mark.parametrize(
    ("source", "code", "place", "message"),
    [
        ("def run(input, fedback=None): return 1", "pointless", (5, 16), "`fedback` always has its default"),
        ("def run(input, *, more=1): return 1", "pointless", (5, 19), "`more` always has its default"),
        (
            "def run(input):\n    import requests",
            "missing_module",
            (6, 5),
            "this fails if it is reached: import requests: the network needs",
        ),
        (
            "def run(input): pass\n" + "if x: pass\n" + "elif y: pass\n" * 500 + "else:\n    import numpy",
            "missing_module",
            (508, 5),
            "no module 'numpy'",
        ),
    ],
)
def test_what_in_a_script_is_hardly_meant_is_a_warning(
    sandbox: Sandbox, source: str, code: str, place: tuple[int, int], message: str
) -> None:
    (warning,) = sandbox.check_syntax(source, "my.yaml", 5)
    assert (warning.code, warning.line, warning.column) == (code, *place)
    assert message in warning.message


def test_a_denial_names_the_place_before_the_advice(sandbox: Sandbox) -> None:
    error = failure(sandbox, "def run(input):\n    import requests\n")
    assert error.message.startswith("import requests at classify.py:2: the network needs `grants:")


# The cache


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A component that compiles in no time."""
    path = tmp_path / "tiny.wasm"
    path.write_bytes(wat2wasm("(component)"))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def compiled(folder: Path) -> list[Path]:
    return sorted(folder.glob("code-*.cwasm"))


def test_compiled_code_is_private_and_reused(tiny: Path, folder: Path) -> None:
    load_component(tiny, folder)
    (made,) = compiled(folder)
    before = made.stat()
    load_component(tiny, folder)
    assert made.stat().st_ino == before.st_ino
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(before.st_mode) == 0o600


def damage_cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def damage_flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def damage_empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [damage_cut, damage_flip, damage_empty])
def test_a_damaged_cache_file_is_rebuilt(tiny: Path, folder: Path, damage: Callable[[Path], None]) -> None:
    load_component(tiny, folder)
    (made,) = compiled(folder)
    damage(made)
    load_component(tiny, folder)
    assert [cache.find(folder, made.name.rpartition("-")[0], ".cwasm")] == compiled(folder)


def test_a_file_that_wasmtime_refuses_is_rebuilt(tiny: Path, folder: Path) -> None:
    load_component(tiny, folder)
    (made,) = compiled(folder)
    key = made.name.rpartition("-")[0]
    made.unlink()
    foreign = cache.store(folder, key, ".cwasm", b"whole, but not compiled code")
    load_component(tiny, folder)
    assert compiled(folder) == [made]
    assert not foreign.exists()


def test_what_nobody_used_for_a_month_is_removed(tiny: Path, folder: Path) -> None:
    load_component(tiny, folder)
    (made,) = compiled(folder)
    for name in (made.name, ".new-left-by-a-killed-process"):
        (folder / name).touch()
        os.utime(folder / name, (0, 0))
    cache.store(folder, "other", ".wasm", b"")
    assert sorted(path.name[:6] for path in folder.iterdir()) == [".lock", "other-"]


def test_what_isnt_a_component_is_refused_at_load(folder: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.wasm"
    for content in (b"not wasm", wat2wasm("(module)")):
        wrong.write_bytes(content)
        with pytest.raises(FerrataError, match=r"wrong\.wasm isn't a wasm component") as caught:
            load_component(wrong, folder)
        assert caught.value.code == "bad_component"
    with pytest.raises(FerrataError, match="can't be read"):
        load_component(tmp_path / "missing.wasm", folder)


def test_a_cache_open_to_others_is_closed_to_them(tiny: Path, folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    load_component(tiny, folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_an_up_to_date_component_is_not_built_again(sandbox: Sandbox) -> None:
    before = sandbox.component.stat()
    assert ensure_component(cache.default_cache()) == sandbox.component
    assert sandbox.component.stat().st_ino == before.st_ino


def test_many_processes_may_start_at_once(tiny: Path, folder: Path) -> None:
    program = (
        "from pathlib import Path\nfrom activities.sandbox.engine import load_component\n"
        f"load_component(Path({str(tiny)!r}), Path({str(folder)!r}))\n"
    )
    started = [subprocess.Popen([sys.executable, "-c", program], cwd=ROOT) for _ in range(4)]
    assert [process.wait() for process in started] == [0] * 4
    assert len(compiled(folder)) == 1


def test_the_default_cache_can_be_moved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FERRATA_CACHE", str(tmp_path))
    assert cache.default_cache() == tmp_path == Settings.from_env().cache
    monkeypatch.delenv("FERRATA_CACHE")
    assert cache.default_cache() == ROOT / ".ferrata" / "sandbox"


@pytest.fixture(autouse=True, scope="module")
def no_leftovers() -> Iterator[None]:
    """No call leaves a thread behind but the clock."""
    before = set(threading.enumerate())
    yield
    left = {thread.name for thread in set(threading.enumerate()) - before}
    assert left <= {"sandbox-clock"}
