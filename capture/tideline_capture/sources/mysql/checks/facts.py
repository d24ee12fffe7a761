"""The facts that preflight reads on a MySQL or MariaDB server, over one SQL connection.

Reading and judging are apart: `tideline_capture.sources.mysql.checks.preflight` judges these values
and can be tested without a server.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tideline.contract.position import MysqlPosition
from tideline.contract.schema import TableId
from tideline_capture.sources.finding import SecuredSession
from tideline_capture.sources.key_configuration import KeyConfigurations, default_key
from tideline_capture.sources.mysql.catalog.problems import Policy
from tideline_capture.sources.mysql.catalog.tables import Flavour, list_tables, read_tables
from tideline_capture.sources.mysql.checks.probes import may, rows_if_allowed
from tideline_capture.sources.mysql.connect import flavour, version_of
from tideline_capture.sources.mysql.names import qualified
from tideline_capture.sources.mysql.snapshot.prepared import listed
from tideline_capture.sources.mysql.watermarks import COLUMNS, CREATE_TABLE
from tideline_capture.sources.sockets import stays_here

VARIABLES = (
    "binlog_expire_logs_auto_purge",
    "binlog_checksum",
    "binlog_expire_logs_seconds",
    "binlog_format",
    "binlog_order_commits",
    "binlog_row_image",
    "binlog_row_metadata",
    "binlog_row_value_options",
    "binlog_storage_engine",
    "enforce_gtid_consistency",
    "expire_logs_days",
    "gtid_mode",
    "gtid_strict_mode",
    "hostname",
    "log_bin",
    "log_replica_updates",
    "log_slave_updates",
    "max_binlog_total_size",
    "port",
    "read_only",
    "replica_parallel_workers",
    "replica_preserve_commit_order",
    "server_id",
    "server_uid",
    "server_uuid",
    "slave_parallel_workers",
    "slave_preserve_commit_order",
)
"""Global variables that are judged; a server has only some of them."""

_MASTER_STATUS_UNTIL = (8, 2, 0)
_PROBE_LOCK_WAIT_S = 2
_GTIDS = """
SELECT GTID_SUBSET(@@GLOBAL.gtid_purged, %s), GTID_SUBSET(%s, @@GLOBAL.gtid_executed)
"""
_READ = "SELECT * FROM {table}"
_WRITE = """
INSERT INTO {table} (incarnation, kind, token, clock_us) VALUES ('', '', '', 0)
ON DUPLICATE KEY UPDATE kind = VALUES(kind), token = VALUES(token), clock_us = VALUES(clock_us)
"""
"""The statement needs SELECT as well, because of VALUES()."""
_ALL_DATABASES = re.compile(r"GRANT (.+) ON \*\.\* TO ")


@dataclass(frozen=True, slots=True)
class MysqlServerFacts:
    """The server and the user that is logged in.

    ``variables`` are the global `VARIABLES` that it has. ``user`` is SQL. ``do_db`` and
    ``ignore_db``: databases that alone, or never, are logged. ``prepared``: XA transactions that
    wait for their end; None when the user may not see them.
    """

    flavour: Flavour
    version: tuple[int, ...]
    version_text: str
    variables: Mapping[str, str]
    user: str
    session: SecuredSession
    replica: bool
    may_stream: bool
    may_see_log: bool
    do_db: tuple[str, ...] = ()
    ignore_db: tuple[str, ...] = ()
    prepared: int | None = None

    @property
    def system_id(self) -> str:
        """The server's own name, as in the chain's `SourceIdentity`."""
        found = self.variables
        if self.flavour == "mysql" or "server_uid" in found:
            return found.get("server_uuid" if self.flavour == "mysql" else "server_uid", "")
        return f"{found.get('hostname')}:{found.get('port')}/{found.get('server_id')}"

    def on(self, variable: str) -> bool:
        """Return whether the server has the variable, and it is on."""
        return self.variables.get(variable, "").upper() in ("ON", "1")


@dataclass(frozen=True, slots=True)
class WatermarkTableFacts:
    """Our table of watermarks. ``sound``: its columns and its key are those that we make."""

    table: TableId
    exists: bool
    sound: bool
    may_create: bool
    may_write: bool


@dataclass(frozen=True, slots=True)
class PositionFacts:
    """A position in the server's log: whether the log after it is still ``held``, and whether the
    server itself has (``known``) all that is before it. None: unknown."""

    held: bool | None
    known: bool | None


@dataclass(frozen=True, slots=True)
class TableReport:
    """A table that the patterns name: the reason why it is left out, if any, and whether we may
    read it."""

    table: TableId
    engine: str
    readable: bool
    problem: str | None = None
    hint: str | None = None
    cascades_from: tuple[TableId, ...] = ()

    @property
    def sql(self) -> str:
        """The name as SQL."""
        return qualified(self.table)


def read_server(connection: Any) -> MysqlServerFacts:
    """Return the facts of the server behind ``connection``; needs no grant."""
    kind = _flavour(connection)
    with connection.cursor() as cursor:
        cursor.execute("SELECT VERSION()")
        text = cursor.fetchone()[0]
        version = version_of(text)
        variables = _variables(cursor)
        status = _status(cursor, version, kind)
        return MysqlServerFacts(
            flavour=kind,
            version=version,
            version_text=text,
            variables=variables,
            user=_user(cursor),
            session=_session(connection),
            replica=_is_replica(cursor, kind, version),
            may_stream=_may_stream(cursor, kind),
            may_see_log=status is not None,
            do_db=_names(status, 2),
            ignore_db=_names(status, 3),
            prepared=_prepared(cursor),
        )


def _session(connection: Any) -> SecuredSession:
    tls = connection._sock if isinstance(connection._sock, ssl.SSLSocket) else None
    return SecuredSession(
        here=stays_here(connection._sock.fileno()),
        encrypted=tls is not None,
        verified=tls is not None and tls.context.verify_mode is ssl.CERT_REQUIRED,
    )


def read_watermark_table(connection: Any, table: TableId) -> WatermarkTableFacts:
    """Return the state of our table, and what the user may do with it."""
    with connection.cursor() as cursor:
        found = read_tables(cursor, [table], flavour=_flavour(connection))
        sound = False
        if found:
            one = found[0].table
            sound = {c.name for c in one.columns} == set(COLUMNS) and one.key == COLUMNS[:1]
        return WatermarkTableFacts(
            table=table,
            exists=bool(found),
            sound=sound,
            may_create=may(cursor, CREATE_TABLE.format(table=qualified(table))),
            may_write=all(
                may(cursor, one.format(table=qualified(table))) for one in (_READ, _WRITE)
            ),
        )


def read_reports(
    connection: Any,
    tables: Sequence[TableId],
    *,
    cascades: Policy,
    key_configurations: KeyConfigurations = default_key,
) -> list[TableReport]:
    """Return the findings about ``tables``, in the order of their names."""
    with connection.cursor() as cursor:
        found = read_tables(
            cursor,
            tables,
            flavour=_flavour(connection),
            cascades=cascades,
            key_configurations=key_configurations,
        )
        cursor.execute(f"SET SESSION lock_wait_timeout = {_PROBE_LOCK_WAIT_S}")
        reports = [
            TableReport(
                table=one.table.table,
                engine=one.engine,
                readable=may(cursor, _READ.format(table=qualified(one.table.table))),
                problem=one.facts.problem,
                hint=one.facts.hint,
                cascades_from=one.cascades_from,
            )
            for one in found
        ]
        cursor.execute("SET SESSION lock_wait_timeout = DEFAULT")
        return reports


def read_names(
    connection: Any, include: Sequence[str], exclude: Sequence[str], ours: Collection[TableId]
) -> list[TableId]:
    """Return `list_tables` on a separate cursor."""
    with connection.cursor() as cursor:
        return list_tables(cursor, include, exclude, ours=ours)


def read_position_facts(
    connection: Any, position: MysqlPosition, *, same_server: bool
) -> PositionFacts:
    """Return where ``position`` is in the server's log. ``same_server``: the position was read from
    it.

    MySQL is asked by GTID. Elsewhere the file must be there, which proves nothing on another
    server.
    """
    with connection.cursor() as cursor:
        if position.gtids and _flavour(connection) == "mysql":
            cursor.execute(_GTIDS, (position.gtids, position.gtids))
            held, known = cursor.fetchone()
            return PositionFacts(held=bool(held), known=bool(known))
        rows = rows_if_allowed(cursor, "SHOW BINARY LOGS")
    if not same_server or not rows:
        return PositionFacts(held=None, known=None)
    return PositionFacts(held=position.file in {row[0] for row in rows}, known=None)


def _flavour(connection: Any) -> Flavour:
    return "mariadb" if flavour(connection) == "mariadb" else "mysql"


def _variables(cursor: Any) -> dict[str, str]:
    cursor.execute("SHOW GLOBAL VARIABLES WHERE Variable_name IN %s", [VARIABLES])
    return {name.lower(): value for name, value in cursor.fetchall()}


def _user(cursor: Any) -> str:
    cursor.execute("SELECT CURRENT_USER()")
    name, _, host = cursor.fetchone()[0].rpartition("@")
    return "@".join("'" + part.replace("'", "''") + "'" for part in (name, host))


def _value(cursor: Any, query: str) -> str:
    cursor.execute(query)
    row = cursor.fetchone()
    return "" if row is None else str(row[1])


def _status(cursor: Any, version: tuple[int, ...], kind: Flavour) -> tuple[Any, ...] | None:
    """Return file, offset, logged and ignored databases; None without the right to see it."""
    old = kind == "mariadb" or version < _MASTER_STATUS_UNTIL
    rows = rows_if_allowed(cursor, "SHOW MASTER STATUS" if old else "SHOW BINARY LOG STATUS")
    if rows is None:
        return None
    return rows[0] if rows else ("", 0, "", "")


def _names(status: tuple[Any, ...] | None, place: int) -> tuple[str, ...]:
    return tuple(filter(None, str(status[place]).split(","))) if status else ()


def _is_replica(cursor: Any, kind: Flavour, version: tuple[int, ...]) -> bool:
    """Return whether the server is a replica. MariaDB answers without a grant, but only while
    replication runs."""
    if kind == "mariadb":
        return int(_value(cursor, "SHOW GLOBAL STATUS LIKE 'Slaves\\_running'") or 0) > 0
    old = version < (8, 0, 22)
    return bool(rows_if_allowed(cursor, f"SHOW {'SLAVE' if old else 'REPLICA'} STATUS"))


def _may_stream(cursor: Any, kind: Flavour) -> bool:
    """Return whether the user has REPLICATION SLAVE.

    MySQL asks for it before it shows events. MariaDB asks for it nowhere but at the stream itself;
    there it is in the list of grants, which has those of the role in force, too.
    """
    if kind == "mysql":
        return rows_if_allowed(cursor, "SHOW BINLOG EVENTS LIMIT 1") is not None
    cursor.execute("SHOW GRANTS")
    found = [_ALL_DATABASES.match(row[0]) for row in cursor.fetchall()]
    grants = {grant for one in found if one for grant in one[1].split(", ")}
    return not grants.isdisjoint({"REPLICATION SLAVE", "ALL PRIVILEGES"})


def _prepared(cursor: Any) -> int | None:
    found = listed(cursor)
    return None if found is None else len(found)
