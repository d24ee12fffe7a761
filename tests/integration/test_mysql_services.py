# ruff: noqa: S608  statements are made of constants and our own names
"""The embedded MariaDB and MySQL servers: settings, accounts, crash, freeze, replication."""

from __future__ import annotations

import os
import pwd
import socket
import threading
from pathlib import Path

import pymysql
import pytest

from devtools.services.binlog_server import NOT_DURABLE, BinlogServer
from devtools.services.mariadb import MariadbServer
from devtools.services.ports import LOOPBACK
from tests.fixtures.mysql_servers import (
    Flavour,
    MysqlDatabase,
    ServerFactory,
    catch_up,
    follow,
    promote,
)
from tideline.contract.errors import Misconfigured


def variables(server: BinlogServer, *names: str) -> dict[str, str]:
    return {name: str(server.rows(f"SELECT @@global.{name}")[0][0]) for name in names}


def test_the_log_is_complete(flavour: Flavour, mysql_server: BinlogServer) -> None:
    shown = variables(
        mysql_server,
        "log_bin",
        "binlog_format",
        "binlog_row_image",
        "binlog_row_metadata",
        "server_id",
        "bind_address",
    )
    assert shown == {
        "log_bin": "1",
        "binlog_format": "ROW",
        "binlog_row_image": "FULL",
        "binlog_row_metadata": "FULL",
        "server_id": str(mysql_server.server_id),
        "bind_address": LOOPBACK,
    }
    gtid = "gtid_strict_mode" if flavour == "mariadb" else "gtid_mode"
    assert variables(mysql_server, gtid)[gtid] in ("1", "ON")


def test_a_port_that_somebody_took_meanwhile(tmp_path: Path) -> None:
    """Even by one that accepts connections and says nothing: another port, in bounded time."""
    server = MariadbServer(tmp_path / "own", settings=NOT_DURABLE)
    with socket.create_server((LOOPBACK, 0)) as taken:
        server.port = taken.getsockname()[1]
        with server:
            assert server.port != taken.getsockname()[1]
            assert tuple(server.rows("SELECT 1")) == ((1,),)


def test_it_never_runs_as_root(mysql_server: BinlogServer) -> None:
    owner = Path(f"/proc/{mysql_server.pid}").stat().st_uid
    expected = pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else os.geteuid()
    assert owner == expected


def test_every_account_asks_for_a_password(mysql_server: BinlogServer) -> None:
    for user in ("root", "", "nobody"):
        with pytest.raises(pymysql.err.OperationalError, match="Access denied"):
            pymysql.connect(host=LOOPBACK, port=mysql_server.port, user=user, password="")


def test_the_least_privileged_user_can_read_the_log_and_no_more(
    mysql_database: MysqlDatabase,
) -> None:
    mysql_database.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    with mysql_database.cdc_connect() as connection, connection.cursor() as cursor:
        cursor.execute("SHOW BINARY LOGS")
        assert cursor.fetchall()
        cursor.execute(f"SELECT id FROM {mysql_database.name}.t")
        assert cursor.fetchall() == ((1,),)
        for refused in (
            f"DELETE FROM {mysql_database.name}.t",
            f"DROP TABLE {mysql_database.name}.t",
            "SELECT * FROM mysql.user",
            "SET GLOBAL binlog_format = 'STATEMENT'",
        ):
            with pytest.raises(pymysql.err.MySQLError, match="denied"):
                cursor.execute(refused)


def test_what_was_committed_survives_a_kill(flavour: Flavour, start_server: ServerFactory) -> None:
    server = start_server(flavour)
    server.run("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
    server.run("INSERT INTO d.t VALUES (1), (2)")
    before = server.port, server.server_id, server.password
    server.kill()
    assert not server.running
    server.start()
    assert server.rows("SELECT id FROM d.t ORDER BY id") == [(1,), (2,)]
    server.restart({"binlog_format": "STATEMENT"})
    assert variables(server, "binlog_format") == {"binlog_format": "STATEMENT"}
    assert before == (server.port, server.server_id, server.password)


def test_a_frozen_server_answers_when_it_is_thawed(
    flavour: Flavour, start_server: ServerFactory
) -> None:
    server = start_server(flavour)
    answers: list[object] = []
    with server.connect() as connection:
        server.freeze()
        asking = threading.Thread(target=lambda: answers.append(connection.query("SELECT 1")))
        asking.start()
        asking.join(0.5)
        assert asking.is_alive()
        server.thaw()
        asking.join(90)
    assert answers == [1]
    server.freeze()  # a frozen server can be stopped too


def test_one_server_replicates_from_another(flavour: Flavour, start_server: ServerFactory) -> None:
    primary, replica = start_server(flavour), start_server(flavour)
    assert primary.server_id != replica.server_id
    primary.run("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
    follow(replica, primary)
    primary.run("INSERT INTO d.t VALUES (1)")
    catch_up(replica, primary)
    assert replica.rows("SELECT id FROM d.t") == [(1,)]
    position = "gtid_binlog_pos" if flavour == "mariadb" else "gtid_executed"
    assert variables(primary, position) == variables(replica, position)
    promote(replica)
    replica.run("INSERT INTO d.t VALUES (2)")


def test_a_taken_port_is_named(mysql_server: BinlogServer, tmp_path: Path) -> None:
    other = MariadbServer(tmp_path / "other", port=mysql_server.port)
    with pytest.raises(Misconfigured, match=str(mysql_server.port)):
        other.start()
    other.remove()


def test_a_folder_with_a_long_path_serves_too(tmp_path: Path) -> None:
    with MariadbServer(tmp_path / ("long-" * 20)) as server:
        assert len(str(server.socket)) < 107
        assert server.rows("SELECT 1") == [(1,)]
        socket = server.socket
    assert not socket.exists()
    assert not server.data.exists()
