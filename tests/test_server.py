"""The development server: starts, says why if it can't, and never stays behind."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client

from cli.server import SEARCH_ATTRIBUTES, DevServer, ServerError, port_is_free, temporal_binary
from worker_process import assert_gone

ROOT = Path(__file__).resolve().parent.parent


async def registered(client: Client, namespace: str) -> set[str]:
    answer = await client.operator_service.list_search_attributes(
        ListSearchAttributesRequest(namespace=namespace), timeout=timedelta(seconds=5)
    )
    return set(answer.custom_attributes)


async def test_a_started_server_answers_and_knows_the_search_attributes(server: DevServer, client: Client) -> None:
    assert await registered(client, "default") >= set(SEARCH_ATTRIBUTES)


async def test_it_runs_in_a_session_of_its_own_so_a_terminals_interrupt_does_not_reach_it(server: DevServer) -> None:
    assert server.pid is not None
    assert os.getsid(server.pid) == server.pid


async def test_a_port_in_use_is_named_before_anything_starts() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(
            ServerError, match=f"port {port} on 127.0.0.1 is in use -> another .* may be running .* another --port"
        ):
            await DevServer(port=port).start()
        with pytest.raises(ServerError, match="another --ui-port"):
            await DevServer(ui=True, ui_port=port).start()


async def test_a_server_that_ends_at_once_is_quoted(tmp_path: Path) -> None:
    broken = tmp_path / "broken.db"
    broken.write_bytes(b"no database " * 100)
    with pytest.raises(ServerError, match=r"(?s)ended at once with exit code 1:.*file is not a database"):
        await DevServer(db=broken).start()


async def test_a_database_in_no_folder_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ServerError, match=f"no database can be kept in {tmp_path}/file"):
        await DevServer(db=tmp_path / "file" / "dev.db").start()


async def test_state_in_a_file_survives_a_restart_on_the_same_port(tmp_path: Path) -> None:
    db = tmp_path / "deep" / "dev.db"
    async with DevServer(db=db, ui=True) as first:
        assert first.ui_url is not None
        client = await Client.connect(first.address)
        await client.start_workflow("NobodyServesIt", id="kept", task_queue="nobody")
        pid = first.pid
    assert pid is not None
    assert_gone([pid], 0)
    assert port_is_free(first.port)
    async with DevServer(db=db, port=first.port) as second:
        client = await Client.connect(second.address)
        assert (await client.get_workflow_handle("kept").describe()).workflow_type == "NobodyServesIt"


async def test_a_database_is_one_servers_at_a_time(tmp_path: Path) -> None:
    db = tmp_path / "dev.db"
    (tmp_path / "link.db").symlink_to(db)
    async with DevServer(db=db):
        for name in (db, tmp_path / "link.db"):
            with pytest.raises(ServerError) as caught:
                await DevServer(db=name).start()
            assert f"another development server (process {os.getpid()}) keeps its state in {db}" in str(caught.value)
            assert "--db" in (caught.value.hint or "")
    async with DevServer(db=db):
        pass


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux ties a foreign program to its parent")
async def test_a_database_is_let_go_by_a_process_that_is_killed(tmp_path: Path) -> None:
    script = """
        import sys, time
        from cli.server import DevServer
        with DevServer(db=sys.argv[1]):
            print("up", flush=True)
            time.sleep(60)
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "dev.db")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"up\n"
        with pytest.raises(ServerError, match=f"process {holder.pid}"):
            await DevServer(db=tmp_path / "dev.db").start()
        holder.kill()
    deadline = time.monotonic() + 5
    while True:  # until its server has ended too
        try:
            async with DevServer(db=tmp_path / "dev.db"):
                return
        except ServerError:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)


async def test_a_cancelled_start_leaves_nothing_behind() -> None:
    server = DevServer()
    start = asyncio.create_task(server.start())
    while server.pid is None:
        await asyncio.sleep(0.001)
    pid = server.pid
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert_gone([pid], 0)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux ties a foreign program to its parent")
def test_it_dies_with_a_parent_that_is_killed() -> None:
    script = """
        import time
        from cli.server import DevServer
        with DevServer() as server:
            print(server.pid, flush=True)
            time.sleep(60)
    """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], cwd=ROOT, stdout=subprocess.PIPE)
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        os.kill(pid, 0)
        parent.send_signal(signal.SIGKILL)
    assert_gone([pid])


def test_settings_for_another_cluster_do_not_reach_it(monkeypatch: pytest.MonkeyPatch, server: DevServer) -> None:
    monkeypatch.setenv("TEMPORAL_API_KEY", "secret")
    monkeypatch.setenv("TEMPORAL_PROFILE", "production")
    found = {name: value for name, value in server.environment.items() if name.startswith("TEMPORAL_")}
    assert found == {
        "TEMPORAL_ADDRESS": server.address,
        "TEMPORAL_NAMESPACE": "default",
        "TEMPORAL_CONFIG_FILE": os.devnull,
    }


@pytest.mark.slow
async def test_the_set_up_script_of_a_cluster_makes_a_namespace_ready_and_may_be_repeated(
    server: DevServer, client: Client
) -> None:
    path = f"{temporal_binary().parent}{os.pathsep}{os.environ['PATH']}"
    env = server.environment | {"TEMPORAL_NAMESPACE": "from-script", "PATH": path}
    for _ in range(2):
        script = await asyncio.create_subprocess_exec("sh", str(ROOT / "deploy" / "setup-namespace.sh"), env=env)
        assert await script.wait() == 0
    assert await registered(client, "from-script") == set(SEARCH_ATTRIBUTES)
