"""A new server in the place of the one that a golden was captured from.

It has the rows that the other one had where the chain ends, and its log goes on from there. A
MariaDB or MySQL has the same position by GTID, as a replica that was promoted. PostgreSQL has no
such thing across servers: the new cluster is given the identity and the counters of the old one
(`cluster.prepare`), the same statements make tables with the same oids, and the slot is moved to
the LSN at which the chain ends. No transaction ends there in the new log; the server sends what
comes after that LSN all the same.
"""

from __future__ import annotations

import uuid
from typing import Protocol

import pytest

from devtools.services.binlog_server import BinlogServer
from devtools.services.postgres import PostgresServer, binaries
from devtools.services.process import unprivileged_account
from tests.fixtures.mysql_servers import Flavour, MysqlDatabase, ServerFactory
from tests.fixtures.services import Database
from tests.release_before import cluster
from tests.release_before.golden import Golden, inserts
from tideline.contract.manifest import Manifest
from tideline.contract.position import MysqlPosition, PostgresPosition, format_lsn

Stand = Database | MysqlDatabase
FLAVOURS: dict[str, Flavour] = {"mariadb": "mariadb", "mysql": "mysql8"}
"""The server that stands in for one of each kind."""


class StandIn(Protocol):
    """``stand_in(golden, tail)``."""

    def __call__(self, golden: Golden, tail: Manifest) -> Stand: ...


@pytest.fixture
def stand_in(request: pytest.FixtureRequest) -> StandIn:
    """A factory of servers that stand in for a golden's."""

    def make(golden: Golden, tail: Manifest) -> Stand:
        if golden.kind == "postgres":
            server: PostgresServer = request.getfixturevalue("own_postgres")
            return _postgres(server, golden, tail)
        start: ServerFactory = request.getfixturevalue("start_server")
        flavour = FLAVOURS[golden.kind]
        return _replica(start(flavour), flavour, golden, tail)

    return make


def _postgres(server: PostgresServer, golden: Golden, tail: Manifest) -> Database:
    assert isinstance(tail.position, PostgresPosition)
    server.stop()
    cluster.prepare(server.data, binaries(unprivileged_account()))
    server.start()
    assert str(cluster.SYSTEM_ID) == tail.identity.system_id
    Database("postgres", server.dsn()).run("CREATE DATABASE shop")
    database = Database("shop", server.dsn("shop"))
    database.run(*golden.source["ddl"], *inserts(golden.source["rows"]))
    slot, end = golden.sections["source"]["slot"], format_lsn(tail.position.end_lsn)
    database.run(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")
    passed = f"SELECT pg_current_wal_flush_lsn() > '{end}'"
    assert database.rows(passed) == [(False,)], "the golden's log must be far ahead"
    while database.rows(passed) == [(False,)]:
        database.run("SELECT pg_logical_emit_message(false, 'x', 'x')", "SELECT pg_switch_wal()")
        database.run("SELECT pg_logical_emit_message(true, 'x', 'x')")
    database.run(f"SELECT pg_replication_slot_advance('{slot}', '{end}')")
    return database


def _replica(
    server: BinlogServer, flavour: Flavour, golden: Golden, tail: Manifest
) -> MysqlDatabase:
    assert isinstance(tail.position, MysqlPosition)
    marks = golden.source["marks"]
    position = "gtid_binlog_state" if flavour == "mariadb" else "gtid_purged"
    user, password = "golden", uuid.uuid4().hex
    _unlogged(
        server,
        "CREATE DATABASE shop",
        "CREATE DATABASE tideline",
        "USE tideline",
        marks["ddl"],
        *inserts({"watermark": marks["rows"]}),
        "USE shop",
        *golden.source["ddl"],
        *inserts(golden.source["rows"]),
        f"CREATE USER '{user}'@'127.0.0.1' IDENTIFIED BY '{password}'",
        f"GRANT ALL PRIVILEGES ON *.* TO '{user}'@'127.0.0.1'",
        "RESET MASTER",
        f"SET GLOBAL {position} = '{tail.position.gtids}'",
    )
    return MysqlDatabase("shop", flavour, server, user, password)


def _unlogged(server: BinlogServer, *statements: str) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        for statement in ("SET SESSION sql_log_bin = 0", *statements):
            cursor.execute(statement)
