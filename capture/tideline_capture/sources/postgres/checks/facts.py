"""The facts that preflight reads on a PostgreSQL server, over one SQL connection.

Reading and judging are apart: `tideline_capture.sources.postgres.checks.preflight` judges these
values and can be tested without a server. Every query works for a role that has nothing but LOGIN.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tideline.contract.schema import TableId
from tideline_capture.sources.finding import SecuredSession
from tideline_capture.sources.postgres.names import qualified
from tideline_capture.sources.sockets import stays_here


@dataclass(frozen=True, slots=True)
class PostgresServerFacts:
    """The server, the database and the role that is logged in.

    ``prepared`` names prepared transactions that are older than seconds.
    """

    session: SecuredSession
    version_num: int
    version: str
    wal_level: str
    standby: bool
    encoding: str
    database: str
    role: str
    replication: bool
    superuser: bool
    rds: bool
    may_create: bool
    slots_max: int
    slots_used: int
    senders_max: int
    senders_used: int
    slot_keep_mb: int
    synchronous_commit: str
    prepared: Sequence[str]


@dataclass(frozen=True, slots=True)
class CatalogJudgement:
    """The catalog's judgement on a table whose key the settings choose: the reason why it cannot be
    captured, and a remedy; None when it can."""

    reason: tuple[str, str | None] | None


@dataclass(frozen=True, slots=True)
class RelationFacts:
    """One relation that the patterns match. ``relkind`` and the like are pg_class's letters.

    ``key`` are the columns of the replica identity's index, or of the primary key when the identity
    is ``d`` or ``f``. ``leaf_identities`` are those of a partitioned table's leaves, ``other`` for
    one that is not by the key of the whole table. ``owned``: the role owns it (or is a member of
    its owner). ``rows_hidden``: row-level security applies to the role. ``unique_index`` could
    serve as replica identity. ``judged``: of a table whose key the settings choose.
    """

    table: TableId
    kind: str
    persistence: str
    identity: str
    partition: bool
    owned: bool
    readable: bool
    rows_hidden: bool
    schema_usable: bool
    unique_index: str | None
    key: tuple[str, ...]
    columns: tuple[str, ...]
    generated: tuple[str, ...]
    leaf_identities: tuple[str, ...]
    judged: CatalogJudgement | None = None

    @property
    def sql(self) -> str:
        """The name as SQL."""
        return qualified(self.table)


@dataclass(frozen=True, slots=True)
class PublicationFacts:
    """A publication; ``published`` maps a table to whether a filter or column list narrows it."""

    operations: frozenset[str]
    via_root: bool
    all_tables: bool
    owned: bool
    published: dict[TableId, bool]


@dataclass(frozen=True, slots=True)
class SlotFacts:
    """A replication slot; ``safe_wal_bytes`` is None without max_slot_wal_keep_size."""

    plugin: str | None
    slot_type: str
    database: str | None
    active_pid: int | None
    wal_status: str | None
    safe_wal_bytes: int | None
    retained_bytes: int | None
    confirmed_lsn: int


def read_server(connection: Any) -> PostgresServerFacts:
    session = SecuredSession(
        here=stays_here(connection.fileno()),
        encrypted=connection.info.ssl_in_use,
        verified=connection.info.dsn_parameters.get("sslmode") in _VERIFIED,
    )
    return PostgresServerFacts(session, *_rows(connection, _SERVER)[0])


def read_relations(connection: Any) -> list[RelationFacts]:
    """Return every table of the database, partitioned and foreign ones too, by schema and name."""
    return [
        RelationFacts(TableId(schema, name), *plain, *map(tuple, lists))
        for schema, name, *plain, lists in _split(_rows(connection, _RELATIONS))
    ]


def read_publication(connection: Any, name: str) -> PublicationFacts | None:
    found = _rows(connection, _PUBLICATION, name)
    if not found:
        return None
    operations, via_root, all_tables, owned = found[0]
    narrowed = _NARROWED if connection.server_version >= 150000 else "false"
    published = _rows(connection, _PUBLISHED.format(narrowed=narrowed), name)
    tables = {TableId(schema, table): bool(narrow) for schema, table, narrow in published}
    return PublicationFacts(frozenset(operations), via_root, all_tables, owned, tables)


def read_slot(connection: Any, name: str) -> SlotFacts | None:
    found = _rows(connection, _SLOT, name)
    return SlotFacts(*found[0]) if found else None


def _split(rows: list[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Yield rows of `_RELATIONS` with their trailing arrays as one item."""
    for row in rows:
        yield (*row[:-4], row[-4:])


def _rows(connection: Any, query: str, *values: object) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query, values or None)
        return list(cursor.fetchall())


_VERIFIED = ("verify-ca", "verify-full")
_SERVER = """
SELECT current_setting('server_version_num')::int, current_setting('server_version'),
       current_setting('wal_level'), pg_is_in_recovery(), current_setting('server_encoding'),
       current_database()::text, session_user::text, r.rolreplication, r.rolsuper,
       coalesce((SELECT pg_has_role(session_user, o.oid, 'member') FROM pg_roles o
                 WHERE o.rolname = 'rds_replication'), false),
       has_database_privilege(current_database(), 'CREATE'),
       current_setting('max_replication_slots')::int,
       (SELECT count(*) FROM pg_replication_slots)::int,
       current_setting('max_wal_senders')::int,
       (SELECT count(*) FROM pg_stat_replication)::int,
       (SELECT setting::int FROM pg_settings WHERE name = 'max_slot_wal_keep_size'),
       current_setting('synchronous_commit'),
       ARRAY(SELECT gid FROM pg_prepared_xacts WHERE database = current_database()
             AND prepared < now() - interval '10 s' ORDER BY gid)
FROM pg_roles r WHERE r.rolname = session_user
"""

_RELATIONS = """
SELECT n.nspname::text, c.relname::text, c.relkind::text, c.relpersistence::text,
       c.relreplident::text, c.relispartition, pg_has_role(c.relowner, 'USAGE'),
       has_table_privilege(c.oid, 'SELECT'), row_security_active(c.oid),
       has_schema_privilege(n.oid, 'USAGE'),
       (SELECT x.relname::text FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
        WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indimmediate
          AND i.indpred IS NULL AND i.indexprs IS NULL
          AND NOT EXISTS (SELECT 1 FROM pg_attribute a WHERE a.attrelid = c.oid
                          AND a.attnum = ANY (i.indkey::int2[]) AND NOT a.attnotnull)
        ORDER BY 1 LIMIT 1),
       ARRAY(SELECT a.attname::text FROM pg_index i
             CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY k(attnum, place)
             JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
             WHERE i.indrelid = c.oid AND i.indisvalid AND k.place <= i.indnkeyatts
               AND CASE WHEN c.relreplident = 'i' THEN i.indisreplident ELSE i.indisprimary END
             ORDER BY k.place),
       ARRAY(SELECT a.attname::text FROM pg_attribute a
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum),
       ARRAY(SELECT a.attname::text FROM pg_attribute a
             WHERE a.attrelid = c.oid AND a.attgenerated <> '' AND NOT a.attisdropped
             ORDER BY a.attnum),
       ARRAY(SELECT DISTINCT CASE WHEN l.relreplident IN ('f', 'n') OR EXISTS (
               SELECT FROM pg_index i JOIN pg_index r
               ON r.indexrelid = pg_partition_root(i.indexrelid) AND r.indrelid = c.oid
               WHERE i.indrelid = l.oid
                 AND CASE l.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END
                 AND CASE c.relreplident WHEN 'i' THEN r.indisreplident ELSE r.indisprimary END)
             THEN l.relreplident::text ELSE 'other' END FROM pg_partition_tree(c.oid) t
             JOIN pg_class l ON l.oid = t.relid WHERE t.isleaf AND t.relid <> c.oid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'f') AND n.nspname !~ '^pg_toast'
ORDER BY 1, 2
"""

_PUBLICATION = """
SELECT array_remove(ARRAY[CASE WHEN pubinsert THEN 'insert' END,
                          CASE WHEN pubupdate THEN 'update' END,
                          CASE WHEN pubdelete THEN 'delete' END,
                          CASE WHEN pubtruncate THEN 'truncate' END], NULL),
       pubviaroot, puballtables, pg_has_role(pubowner, 'USAGE')
FROM pg_publication WHERE pubname = %s
"""

_PUBLISHED = """
SELECT t.schemaname::text, t.tablename::text, {narrowed}
FROM pg_publication_tables t WHERE t.pubname = %s
"""

_NARROWED = """
(t.rowfilter IS NOT NULL OR EXISTS (
   SELECT 1 FROM pg_publication p JOIN pg_publication_rel r ON r.prpubid = p.oid
   JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace
   WHERE p.pubname = t.pubname AND n.nspname = t.schemaname AND c.relname = t.tablename
     AND r.prattrs IS NOT NULL))
"""

_SLOT = """
SELECT plugin::text, slot_type, database::text, active_pid, wal_status, safe_wal_size,
       CASE WHEN pg_is_in_recovery() THEN NULL
            ELSE pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint END,
       coalesce(confirmed_flush_lsn - '0/0'::pg_lsn, 0)::bigint
FROM pg_replication_slots WHERE slot_name = %s
"""
