"""Models: the stub, any server that speaks the OpenAI protocol (a real HTTP server here), and the models file."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from activities.models import ModelRequest, Models, OpenAISettings, StubSettings, read_models
from activities.models.stub import calls_in
from graph.errors import Failure, LoadError
from graph.state import Usage

ROOT = Path(__file__).parent.parent
KEY = "key-that-nobody-may-see"


def ask(prompt: str = "hello", **options: Any) -> ModelRequest:
    return ModelRequest.build(prompt=prompt, **options)


async def fails(models: Models, name: str = "big", request: ModelRequest | None = None) -> Failure:
    with pytest.raises(Failure) as caught:
        await models.complete(name, request or ask())
    assert caught.value.failure_class == "model_error"
    assert KEY not in caught.value.message
    assert KEY not in json.dumps(caught.value.details)
    return caught.value


# Requests


def test_a_system_text_comes_first_and_is_merged_with_a_system_message() -> None:
    request = ModelRequest.build(
        system="Be brief.",
        messages=[{"role": "system", "content": "Be kind."}, {"role": "user", "content": {"a": "ü"}}],
        stop="END",
    )
    assert [(m.role, m.content) for m in request.messages] == [
        ("system", "Be brief.\n\nBe kind."),
        ("user", '{"a":"ü"}'),
    ]
    assert request.stop == ["END"]
    assert [m.role for m in ask(system="Be brief.").messages] == ["system", "user"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "either `prompt` or `messages`"),
        ({"prompt": "a", "messages": []}, "either `prompt` or `messages`"),
        ({"messages": []}, "at least one message"),
        ({"messages": "hello"}, "`messages`: Input should be a valid list"),
        ({"messages": [{"role": "robot", "content": "x"}]}, re.escape("`messages[0].role`")),
        ({"messages": [{"role": "user"}]}, re.escape("`messages[0].content`: Field required")),
        ({"prompt": "a", "max_tokens": 0}, "`max_tokens`: it must be 1 or more"),
        ({"prompt": "a", "temprature": 1}, "`temprature`: no such option"),
    ],
    ids=str,
)
def test_a_malformed_request_is_an_invalid_input(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(Failure, match=says) as caught:
        ModelRequest.build(**arguments)
    assert caught.value.failure_class == "invalid_input"


# The stub


async def test_a_stub_answers_what_it_is_told() -> None:
    models = Models(
        {
            "text": StubSettings(reply="hello"),
            "object": StubSettings(reply={"from": "small", "n": [1, None]}),
            "echo": StubSettings(echo=True),
        }
    )
    assert models.names() == ["text", "object", "echo"]
    assert (await models.complete("text", ask())).text == "hello"
    assert json.loads((await models.complete("object", ask())).text) == {"from": "small", "n": [1, None]}
    assert (await models.complete("echo", ask("grüße"))).text == "grüße"


async def test_a_stub_counts_usage_and_cost() -> None:
    told = StubSettings.model_validate(
        {"reply": "x", "usage": {"input_tokens": 1000, "output_tokens": 10}, "cost": {"input": 1.0, "output": 100}}
    )
    models = Models({"told": told, "estimated": StubSettings(reply="12345")})
    assert (await models.complete("told", ask())).usage == Usage(1000, 10, 1010, 0.002)
    assert (await models.complete("estimated", ask("12345678"))).usage == Usage(2, 2, 4, 0.0)


async def test_a_stub_fails_as_told(tmp_path: Path) -> None:
    scripted = StubSettings(
        replies=[{"fail": "BUSY", "message": "come back"}, {"fail": False}, "done"], counter=tmp_path / "n"
    )
    failing = StubSettings.model_validate({"fail": {"code": "BROKEN", "message": "on purpose"}})
    models = Models({"scripted": scripted, "failing": failing})
    for _ in range(2):
        error = await fails(models, "failing")
        assert (error.code, error.message) == ("BROKEN", "on purpose")
    error = await fails(models, "scripted")
    assert (error.code, error.message) == ("BUSY", "come back")
    answers = [(await models.complete("scripted", ask())).text for _ in range(3)]
    assert answers == ['{"fail":false}', "done", "done"]


async def test_stubs_that_share_a_log_count_apart(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    models = Models({name: StubSettings(replies=[1, 2], log=log) for name in ("a", "b")})
    answers = [(await models.complete(name, ask())).text for name in ("a", "b", "a", "b")]
    assert answers == ["1", "1", "2", "2"]
    assert [call["model"] for call in calls_in(log)] == ["a", "b", "a", "b"]


CALLER = """
import asyncio, sys
from activities.models import ModelRequest, Models

async def main(source):
    models = Models.open(source)
    for _ in range(20):
        print((await models.complete("small", ModelRequest.build(prompt="x" * 5000))).text)

asyncio.run(main(sys.argv[1]))
"""


def test_scripted_replies_and_the_log_are_shared_by_processes(tmp_path: Path) -> None:
    file = tmp_path / "models.yaml"
    file.write_text(json.dumps({"small": {"provider": "stub", "replies": list(range(50)), "log": "logs/calls.jsonl"}}))
    command = [sys.executable, "-c", CALLER, str(file)]
    processes = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) for _ in range(3)]
    answers = [int(line) for process in processes for line in process.communicate(timeout=60)[0].split()]
    assert sorted(answers) == sorted([*range(50), *[49] * 10])
    calls = calls_in(tmp_path / "logs" / "calls.jsonl")
    assert len(calls) == 60
    assert {(call["model"], call["messages"][0]["content"]) for call in calls} == {("small", "x" * 5000)}
    assert abs(calls[0]["time"] / 1000 - time.time()) < 60


async def test_a_stub_waits_and_a_cancelled_call_was_a_call(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    models = Models({"slow": StubSettings.model_validate({"reply": 1, "delay": "20s", "log": log})})
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(models.complete("slow", ask()), 0.1)
    assert time.monotonic() - started < 5
    assert len(calls_in(log)) == 1
    assert calls_in(tmp_path / "none") == []


async def test_a_stub_that_cannot_write_its_log_fails_naming_the_file(tmp_path: Path) -> None:
    error = await fails(Models({"small": StubSettings(reply=1, log=tmp_path)}), "small")
    assert str(tmp_path) in error.message


async def test_an_unknown_model_is_named_with_the_nearest_one() -> None:
    models = Models({"small": StubSettings(reply=1)})
    error = await fails(models, "smal")
    assert error.code == "unknown_model"
    assert "did you mean `small`?" in error.message
    assert error.details == {"models": ["small"]}
    assert "served are: none" in (await fails(Models({}), "x")).message


# Any server that speaks the OpenAI protocol


def completion(content: str | None = "hi", **changes: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1000, "completion_tokens": 200, "total_tokens": 1200}
    answer = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
    return {**answer, **changes}


def choice(**changes: Any) -> dict[str, Any]:
    return {"choices": [{**completion()["choices"][0], **changes}]}


Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """A model server whose answer each test chooses."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[Any] = []
        self.asked = asyncio.Event()
        self.gone = asyncio.Event()
        self.url = ""
        self.answer: Answer = self.json(completion())

    def json(self, data: Any, status: int = 200) -> Answer:
        return self.text(json.dumps(data), status, "application/json")

    def text(self, text: str, status: int = 200, kind: str = "text/html") -> Answer:
        async def answer(_: web.Request) -> web.StreamResponse:
            return web.Response(text=text, status=status, content_type=kind)

        return answer

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.json())
        self.headers.append(request.headers)
        self.asked.set()
        try:
            return await self.answer(request)
        except asyncio.CancelledError:
            self.gone.set()
            raise

    def models(self, **settings: Any) -> Models:
        entry = {"model": "gpt-x", "base_url": f"{self.url}/v1", "api_key_env": "BIG_API_KEY", **settings}
        return Models({"big": OpenAISettings.model_validate(entry)}, {"BIG_API_KEY": KEY + "\n"})


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    monkeypatch.setenv("OPENAI_API_KEY", "somebody-else's")
    server = Server()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", server.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield server
    await runner.cleanup()


async def test_an_answer_comes_with_usage_and_cost(server: Server) -> None:
    models = server.models(cost={"input": 0.15, "output": 0.6})
    reply = await models.complete("big", ask("grüße", system="Be brief."))
    assert (reply.text, reply.model) == ("hi", "m")
    assert reply.usage == Usage(1000, 200, 1200, pytest.approx(0.00027))
    assert server.bodies == [
        {
            "model": "gpt-x",
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "grüße"}],
        }
    ]
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    await models.close()


async def test_options_reach_the_server(server: Server) -> None:
    models = server.models(extra={"seed": 7}, token_limit="max_completion_tokens")
    await models.complete("big", ask(max_tokens=5, temperature=0.0, stop=["END"], format="json"))
    body = server.bodies[0]
    assert (body["max_completion_tokens"], body["temperature"], body["stop"], body["seed"]) == (5, 0.0, ["END"], 7)
    assert body["response_format"] == {"type": "json_object"}
    assert "max_tokens" not in body
    await models.close()


async def test_without_a_key_none_of_the_environment_is_sent(server: Server) -> None:
    models = server.models(api_key_env=None)
    await models.complete("big", ask())
    assert server.headers[0]["Authorization"] == "Bearer not-needed"
    server.answer = server.json({"error": {"message": "who are you?"}}, 401)
    assert "set `api_key_env`" in (await fails(models)).message
    await models.close()


@pytest.mark.parametrize("told", [None, 5, "", {"id": "m"}])
async def test_a_server_that_does_not_say_which_model_answered_is_no_error(told: Any, server: Server) -> None:
    server.answer = server.json(completion(model=told))
    models = server.models()
    assert (await models.complete("big", ask())).model is None
    await models.close()


async def test_a_model_that_names_itself_at_length_or_by_the_key_is_cut(server: Server) -> None:
    server.answer = server.json(completion(model=f"{KEY} {'m' * 1000}"))
    models = server.models()
    model = (await models.complete("big", ask())).model or ""
    assert len(model) <= 100
    assert KEY not in model
    await models.close()


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": None}], ids=str)
async def test_a_server_that_reports_no_usage_is_answered_with_none(usage: Any, server: Server) -> None:
    server.answer = server.json(completion(usage=usage))
    models = server.models()
    assert (await models.complete("big", ask())).usage == Usage()
    await models.close()


@pytest.mark.parametrize(
    ("status", "error", "says", "retryable"),
    [
        (400, {"message": "max_tokens is too large"}, "a parameter may not suit this model", False),
        (401, {"message": f"Incorrect API key: {KEY}"}, "refused the key in BIG_API_KEY", False),
        (403, {"message": "no"}, "refused the key in BIG_API_KEY", False),
        (404, {"message": "no such model"}, "doesn't know the model `gpt-x`", False),
        (429, {"message": "slow down"}, "put a `delay` on the retry", True),
        (429, {"message": "pay", "code": "insufficient_quota"}, "quota is used up", False),
        (500, {"message": "oops"}, "the server's own fault", True),
        (503, {"message": "loading"}, "the server's own fault", True),
    ],
    ids=str,
)
async def test_a_refusal_says_what_to_do(
    status: int, error: dict[str, str], says: str, retryable: bool, server: Server
) -> None:
    server.answer = server.json({"error": error}, status)
    models = server.models()
    failure = await fails(models)
    assert failure.code == "model_error"
    assert failure.message.startswith(f"the model `big` at {server.url}/v1 ")
    assert says in failure.message
    assert f"HTTP {status}" in failure.message
    assert error["message"].replace(KEY, "***") in failure.message
    assert failure.details["status"] == status
    assert failure.details["retryable"] is retryable
    assert len(server.bodies) == 1, "the ladder tries again, not the client"
    await models.close()


async def test_a_key_is_hidden_before_a_long_answer_is_cut(server: Server) -> None:
    models = server.models()
    for before in (440, 490, 2000):
        server.answer = server.text("x" * before + KEY + "y" * 5000, 500)
        failure = await fails(models)
        assert KEY[:8] not in failure.message + str(failure.details)
        assert len(failure.message.encode()) <= 2048
        assert len(failure.details["body"]) <= 500
    await models.close()


@pytest.mark.parametrize(
    "text",
    ["<html>welcome</html>", "", "[]", "null", "{}", '{"choices": {}}', '{"choices": [{}]}', '{"choices": [1'],
)
async def test_an_answer_that_is_no_completion_is_quoted(text: str, server: Server) -> None:
    server.answer = server.text(text)
    models = server.models()
    failure = await fails(models)
    assert "no chat completion" in failure.message
    assert "`base_url`" in failure.message
    assert failure.details == {"status": 200, "retryable": True, "body": text}
    await models.close()


@pytest.mark.parametrize(
    ("changes", "options", "says"),
    [
        ({"choices": []}, {}, "answered without a choice"),
        (choice(finish_reason="content_filter"), {}, "content filter"),
        (choice(message={"content": None, "refusal": "I won't"}), {}, "refused to answer: I won't"),
        (choice(message={"content": None}), {}, "answered without text (finish reason `stop`)"),
        (choice(finish_reason="length"), {"format": "json", "max_tokens": 5}, "(max_tokens is 5); raise `max_tokens`"),
        (choice(finish_reason="length", message={"content": ""}), {}, "ran out of tokens"),
    ],
    ids=str,
)
async def test_an_answer_without_use_fails_and_its_tokens_are_told(
    changes: dict[str, Any], options: dict[str, Any], says: str, server: Server
) -> None:
    server.answer = server.json(completion(**changes))
    models = server.models()
    failure = await fails(models, request=ask(**options))
    assert says in failure.message
    assert failure.details["usage"] == {"input_tokens": 1000, "output_tokens": 200, "total_tokens": 1200}
    await models.close()


async def test_a_text_that_reached_its_bound_is_an_answer(server: Server) -> None:
    server.answer = server.json(completion(**choice(finish_reason="length")))
    models = server.models()
    assert (await models.complete("big", ask(max_tokens=1))).text == "hi"
    await models.close()


async def test_a_server_that_is_away_is_named(server: Server) -> None:
    models = server.models(base_url="http://127.0.0.1:1/v1")
    failure = await fails(models)
    assert failure.message.startswith("the model `big` at http://127.0.0.1:1/v1 can't be reached (")
    assert failure.details == {"status": None, "retryable": True}
    await models.close()


async def test_a_server_that_hangs_up_is_an_error(server: Server) -> None:
    async def hang_up(_: web.Request) -> web.StreamResponse:
        raise ConnectionResetError

    server.answer = hang_up
    models = server.models()
    assert (await fails(models)).details["retryable"] is True
    await models.close()


@pytest.mark.parametrize("drip", [False, True], ids=["silent", "dripping"])
async def test_a_slow_server_is_left_after_the_timeout(drip: bool, server: Server) -> None:
    async def slow(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        while drip:
            await response.prepare(request)
            await response.write(b" ")
            await asyncio.sleep(0.05)
        await asyncio.sleep(60)
        return response

    server.answer = slow
    models = server.models(timeout="300ms")
    started = time.monotonic()
    failure = await fails(models)
    assert time.monotonic() - started < 3
    assert "gave no answer within 0.3 s; raise the model's `timeout`" in failure.message
    assert failure.details == {"status": None, "retryable": True}
    await models.close()


async def test_cancelling_a_call_ends_the_request(server: Server) -> None:
    async def slow(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(60)
        return web.Response()

    server.answer = slow
    models = server.models()
    call = asyncio.create_task(models.complete("big", ask()))
    await server.asked.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.wait_for(server.gone.wait(), 5)
    await models.close()


# The models file


def test_the_documented_models_file_is_read(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "models.md").read_text()
    examples = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert len(examples) >= 2
    for number, example in enumerate(examples):
        file = tmp_path / f"models{number}.yaml"
        file.write_text(example)
        assert read_models(str(file))


def test_every_option_is_documented() -> None:
    text = (ROOT / "docs" / "models.md").read_text()
    for field in [*StubSettings.model_fields, *OpenAISettings.model_fields]:
        assert f"| `{field}` |" in text, field


def test_models_are_read_from_a_file_or_from_json(tmp_path: Path) -> None:
    file = tmp_path / "models.yaml"
    file.write_text(
        "small: {provider: stub, reply: {from: small, on: NO}, delay: 1m30s, log: calls.jsonl}\n"
        "big:\n"
        "  provider: openai\n"
        "  model: gpt-x\n"
        "  base_url: http://127.0.0.1:8080/v1\n"
        "  api_key_env: BIG_API_KEY\n"
        "  cost: {input: 0.15, output: 0.6}\n"
    )
    models = read_models(str(file))
    small, big = models["small"], models["big"]
    assert isinstance(small, StubSettings)
    assert (small.reply, small.delay, small.log) == ({"from": "small", "on": "NO"}, 90_000, tmp_path / "calls.jsonl")
    assert isinstance(big, OpenAISettings)
    assert (big.cost.input, big.timeout) == (0.15, 120_000)
    inline = read_models('{"small": {"provider": "stub", "replies": [1], "counter": "n"}}', tmp_path)["small"]
    assert isinstance(inline, StubSettings)
    assert inline.counter == tmp_path / "n"
    assert read_models(None) == {}


def test_all_problems_of_a_models_file_are_reported_with_places(tmp_path: Path) -> None:
    file = tmp_path / "models.yaml"
    file.write_text(
        "a: {provider: stub}\n"
        "b: {provider: stub, reply: 1, echo: true}\n"
        "c: {provider: opnai}\n"
        "d: {model: x}\n"
        "e: 5\n"
        "f: {provider: openai, model: x, base_url: 'ftp://x', cost: {inpt: 1}, timeout: 5}\n"
        "g h: {provider: stub, replies: [1]}\n"
        "i: {provider: openai, base_url: 'http://user:hidden@x/v1', api_key_env: sk-hidden}\n"
    )
    with pytest.raises(LoadError) as caught:
        read_models(str(file))
    problems = caught.value.problems
    assert {problem.code for problem in problems} == {"bad_models"}
    assert {problem.file for problem in problems} == {str(file)}
    assert [problem.line for problem in problems] == [1, 2, 3, 4, 5, 6, 6, 6, 7, 7, 8, 8, 8]
    text = str(caught.value)
    for says in (
        "it has none",
        "it has `reply` and `echo`",
        "model `c`: unknown provider `opnai` -> did you mean `openai`?",
        "model `d` has no `provider`",
        "model `e` must be an object",
        "model `f`, `base_url`: it must be a URL that begins with http://",
        "model `f`: unknown key `cost.inpt` -> did you mean `input`?",
        "model `f`, `timeout`: `5` has no unit",
        "`g h` can't be a model's name",
        "`replies` counts the calls in a file",
        "model `i` needs `model`",
        "model `i`, `base_url`: a key or password",
        "model `i`, `api_key_env`: it must be the name of an environment variable",
    ):
        assert says in text
    assert "hidden" not in text


def test_a_models_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"a: \xfc")
    (tmp_path / "list.yaml").write_text("- a")
    for name, says in [
        ("none.yaml", "No such file"),
        (".", "Is a directory"),
        ("latin.yaml", "isn't UTF-8"),
        ("list.yaml", "must map names to models"),
    ]:
        with pytest.raises(LoadError, match=says):
            read_models(str(tmp_path / name))


@pytest.mark.parametrize(
    ("key", "says"), [("", "isn't set"), ("kéy", "holds characters"), ("a\nb", "holds characters")]
)
def test_a_key_that_is_missing_or_malformed_is_refused_at_start(key: str, says: str) -> None:
    settings = OpenAISettings(model="x", base_url="http://127.0.0.1:1/v1", api_key_env="BIG_API_KEY")
    with pytest.raises(LoadError, match=f"model `big` takes its key from BIG_API_KEY, which {says}") as caught:
        Models({"big": settings}, {"BIG_API_KEY": key})
    assert not key or key not in str(caught.value)
