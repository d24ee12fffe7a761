"""Checks of a PostgreSQL source before capture runs: findings, each with its fix.

Nothing is changed at the source. The rules come from facts that cost others their data: a
publication must exist before the slot does, publish all four operations and be complete; an update
of a published table without replica identity fails in the *application*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from tideline.contract.patterns import matches
from tideline.contract.position import PostgresPosition, format_lsn
from tideline.settings import Settings
from tideline.settings.addresses import is_loopback, split_url
from tideline.settings.sources.postgres import postgres_tls
from tideline_capture.sources.base import ChainTail
from tideline_capture.sources.finding import (
    START_OVER,
    Finding,
    SecuredSession,
    check_clocks,
    check_session,
    error,
    ok,
    warning,
)
from tideline_capture.sources.key_configuration import (
    KeyConfigurations,
    default_key,
    key_configurations_of,
)
from tideline_capture.sources.postgres.catalog.tables import list_tables, read_tables
from tideline_capture.sources.postgres.catalog.type_names import TypeNames
from tideline_capture.sources.postgres.checks.facts import (
    CatalogJudgement,
    PostgresServerFacts,
    PublicationFacts,
    RelationFacts,
    SlotFacts,
    read_publication,
    read_relations,
    read_server,
    read_slot,
)
from tideline_capture.sources.postgres.checks.publication import check_publication
from tideline_capture.sources.postgres.checks.tables import (
    check_images,
    check_tables,
)
from tideline_capture.sources.postgres.connect import connect, querying
from tideline_capture.sources.postgres.names import pasteable, publication_name, quoted, slot_name
from tideline_capture.sources.postgres.watermarks import read_clock

VERSION_NUM_MIN = 140000
_RESTART = " -- then restart the server"


@dataclass(frozen=True, slots=True)
class PreflightNames:
    """The slot's name, and publication and role as SQL identifiers."""

    slot: str
    publication: str
    role: str


def run_preflight(
    connection: Any,
    *,
    tables: Sequence[str],
    exclude: Sequence[str],
    slot: str,
    publication: str,
    chain_lsn: Callable[[], int | None] = lambda: None,
    key_configurations: KeyConfigurations = default_key,
) -> list[Finding]:
    """Return all findings about the server behind ``connection`` (psycopg2, autocommit).

    ``tables`` and ``exclude`` are the settings' patterns; ``chain_lsn`` reads up to which position
    the chain holds the log, 0 before it holds any, None where that cannot be known. It is read
    after the slot: a worker that runs confirms only what is in the chain. Raises Misconfigured for
    an invalid pattern, and psycopg2's error when the connection breaks. ``key_configurations``: the
    key configuration of tables.
    """
    server = read_server(connection)
    every = read_relations(connection)
    roots = [one for one in every if not one.partition]
    chosen = [one for one in roots if matches(one.table, tables, exclude)]
    chosen = _judged(connection, chosen, publication, key_configurations)
    published = read_publication(connection, publication)
    slot_facts = read_slot(connection, slot)
    captured = chain_lsn()
    names = PreflightNames(slot, quoted(publication), quoted(server.role))
    findings = (
        *check_server(server, names),
        *check_capacity(server, slot_facts),
        *check_tables(chosen, every, role=names.role),
        *check_images(chosen, key_configurations),
        *check_publication(published, chosen, server, names.publication),
        *check_slot(slot_facts, published, server, names, chain_lsn=captured),
    )
    return [one if one.fix is None else replace(one, fix=pasteable(one.fix)) for one in findings]


def _judged(
    connection: Any,
    chosen: Sequence[RelationFacts],
    publication: str,
    key_configurations: KeyConfigurations,
) -> list[RelationFacts]:
    """Add the catalog's judgement on tables whose key the settings choose."""
    wanted = {
        one.table for one in chosen if key_configurations(one.table) != default_key(one.table)
    }
    if not wanted:
        return list(chosen)
    with connection.cursor() as cursor:
        listed = list_tables(cursor, ["*.*"], [])
        oids = [oid for oid, table in listed.items() if table in wanted]
        found = read_tables(
            cursor,
            oids,
            publication=publication,
            types=TypeNames(),
            key_configurations=key_configurations,
        )
    reasons = {
        one.table: None if one.facts.problem is None else (one.facts.problem, one.facts.hint)
        for one in found
    }
    return [
        replace(one, judged=CatalogJudgement(reasons[one.table])) if one.table in reasons else one
        for one in chosen
    ]


def check_server(server: PostgresServerFacts, names: PreflightNames) -> Iterator[Finding]:
    """Check version, standby, wal_level, encoding, the role's right to replicate, encryption."""
    if server.version_num < VERSION_NUM_MIN:
        yield error("version", f"PostgreSQL {server.version} is too old", "upgrade to 14 or newer")
    else:
        yield ok("version", f"PostgreSQL {server.version}")
    if server.standby:
        yield error("primary", "the server is a standby", "let source.url name the primary")
    if server.wal_level == "logical":
        yield ok("wal_level", "wal_level is logical")
    else:
        fix = f"ALTER SYSTEM SET wal_level = 'logical';{_RESTART}"
        on_rds = "on RDS: rds.logical_replication = 1 in its parameter group"
        yield error("wal_level", f"wal_level is {server.wal_level}", f"{fix}; {on_rds}")
    yield from _check_encoding(server)
    yield _check_replication(server, names)
    yield from check_session(server.session, mode="sslmode", verifies="verify-full")
    yield ok("synchronous_commit", f"synchronous_commit is {server.synchronous_commit}")


def _check_encoding(server: PostgresServerFacts) -> Iterator[Finding]:
    if server.encoding == "UTF8":
        yield ok("encoding", "the database's encoding is UTF8")
    elif server.encoding == "SQL_ASCII":
        yield error(
            "encoding",
            "the database's encoding is SQL_ASCII: its texts have no known character set",
            "CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0, and move the data there",
        )
    else:
        text = f"the database's encoding is {server.encoding}; texts are converted to UTF8"
        yield warning("encoding", text)


def _check_replication(server: PostgresServerFacts, names: PreflightNames) -> Finding:
    if server.replication or server.superuser:
        return ok("replication", f"the role {names.role} may replicate")
    if server.rds:
        return ok("replication", f"the role {names.role} is a member of rds_replication")
    return error(
        "replication",
        f"the role {names.role} may not replicate",
        f"ALTER ROLE {names.role} REPLICATION; -- on RDS: GRANT rds_replication TO {names.role};",
    )


def check_capacity(server: PostgresServerFacts, slot: SlotFacts | None) -> Iterator[Finding]:
    """Check for a free slot and a free sender, the slot's retention limit, and what slot creation
    would wait for."""
    free = server.slots_max - server.slots_used
    if slot is None and free < 1:
        text = f"all {server.slots_max} replication slots are in use"
        fix = f"ALTER SYSTEM SET max_replication_slots = {server.slots_max + 4};"
        yield error("slots", text, fix + _RESTART)
    else:
        yield ok("slots", f"{free} of {server.slots_max} replication slots are free")
    free = server.senders_max - server.senders_used
    if free < 1 and (slot is None or slot.active_pid is None):
        text = f"all {server.senders_max} WAL senders are in use"
        fix = f"ALTER SYSTEM SET max_wal_senders = {server.senders_max + 4};"
        yield error("senders", text, fix + _RESTART)
    else:
        yield ok("senders", f"{free} of {server.senders_max} WAL senders are free")
    if server.slot_keep_mb < 0:
        yield warning(
            "slot_keep",
            "max_slot_wal_keep_size is unlimited: while no worker runs, the log fills the disk",
            "ALTER SYSTEM SET max_slot_wal_keep_size = '64GB'; SELECT pg_reload_conf();",
        )
    else:
        yield ok("slot_keep", f"max_slot_wal_keep_size is {server.slot_keep_mb} MB")
    if slot is None and server.prepared:
        gid = server.prepared[0].replace("'", "''")
        yield warning(
            "prepared",
            f"{len(server.prepared)} prepared transactions are open: making the slot waits for"
            " their end",
            f"COMMIT PREPARED '{gid}'; -- or ROLLBACK PREPARED '{gid}';",
        )


def check_slot(
    slot: SlotFacts | None,
    publication: PublicationFacts | None,
    server: PostgresServerFacts,
    names: PreflightNames,
    *,
    chain_lsn: int | None,
) -> Iterator[Finding]:
    """Check that the slot is ours, usable, not lost, where the chain is, and younger than the
    publication.

    ``chain_lsn`` is 0 for a chain that is empty, None when that is not known.
    """
    drop = f"SELECT pg_drop_replication_slot('{names.slot}');"
    if slot is None:
        if chain_lsn:
            text = f"the slot {names.slot} is gone: what the log held after {format_lsn(chain_lsn)}"
            yield error("slot", f"{text} is lost", START_OVER)
        else:
            yield ok("slot", f"Tideline will create the slot {names.slot}")
        return
    if slot.slot_type != "logical" or slot.plugin != "pgoutput":
        text = f"the slot {names.slot} is {slot.slot_type}, with plugin {slot.plugin or 'none'}"
        yield error("slot", text, f"{drop} -- or set source.slot to another name")
    elif slot.database != server.database:
        text = f"the slot {names.slot} belongs to the database {slot.database}"
        yield error("slot", text, "set source.slot to another name")
    elif chain_lsn == 0:
        text = f"there is a slot {names.slot}, but the chain of this pipeline is empty: another"
        fix = f"correct store.url; or, if no one needs the slot any more: {drop}"
        yield error("slot", f"{text} store may hold what was read from it", fix)
    elif slot.wal_status == "lost":
        text = f"the slot {names.slot} is lost: the server dropped the log that it needs"
        yield error("slot", text, f"{drop} -- then {START_OVER}" if chain_lsn else drop)
    elif chain_lsn and slot.confirmed_lsn > chain_lsn:
        text = f"the slot {names.slot} stands at {format_lsn(slot.confirmed_lsn)}, the chain at"
        yield error(
            "slot", f"{text} {format_lsn(chain_lsn)}: what is between them is lost", START_OVER
        )
    elif publication is None:
        text = f"the slot {names.slot} is older than its publication and cannot be read with it"
        yield error("slot", text, drop)
    elif slot.wal_status == "unreserved":
        text = f"the slot {names.slot} is about to be lost: {_kept(slot)}"
        yield warning("slot", text, "start the worker now, or raise max_slot_wal_keep_size")
    elif slot.active_pid is not None:
        text = f"the slot {names.slot} is being read by the process {slot.active_pid}"
        yield ok("slot", f"{text}; a second worker waits as passive")
    else:
        yield ok("slot", f"the slot {names.slot} can be read, {_kept(slot)}")


def _kept(slot: SlotFacts) -> str:
    kept = "an unknown amount" if slot.retained_bytes is None else f"{slot.retained_bytes} bytes"
    left = "" if slot.safe_wal_bytes is None else f", {slot.safe_wal_bytes} bytes before its limit"
    return f"{kept} of log kept{left}"


def check(settings: Settings, chain_end: Callable[[], ChainTail]) -> list[Finding]:
    """See `Preflight.check`."""

    def chain_lsn() -> int | None:
        known, tail = chain_end()
        if not known:
            return None
        return tail.position.end_lsn if tail and isinstance(tail.position, PostgresPosition) else 0

    source = settings.source
    name = f"tideline doctor {settings.pipeline}"
    with closing(connect(source, application_name=name)) as connection, querying():
        found = run_preflight(
            connection,
            tables=source.tables,
            exclude=source.exclude,
            slot=slot_name(settings),
            publication=publication_name(settings),
            chain_lsn=chain_lsn,
            key_configurations=key_configurations_of(settings),
        )
        with connection.cursor() as cursor:
            return [*found, check_clocks(read_clock(cursor))]


def check_url(settings: Settings) -> list[Finding]:
    """See `Preflight.check_url`."""
    url = settings.source.url.get_secret_value()
    here = is_loopback(split_url(url).hostname or "localhost")
    mode = postgres_tls(url).mode
    session = SecuredSession(here, mode != "disable", mode == "verify-full")
    return list(check_session(session, mode="sslmode", verifies="verify-full"))
