"""PostgreSQL as a source: its connections, and what reads over them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import closing, suppress
from typing import Any

import psycopg2
import psycopg2.extensions
from psycopg2.extras import LogicalReplicationConnection

from tideline.contract.errors import SourceLost
from tideline.contract.manifest import Manifest
from tideline.contract.patterns import matches
from tideline.contract.position import (
    PostgresPosition,
    SourceIdentity,
    SourcePosition,
    parse_lsn,
)
from tideline.contract.schema import TableId, parse_table
from tideline.programs.points import OnPoint, pass_by
from tideline.settings import Settings
from tideline.settings.sources.postgres import PostgresSection
from tideline_capture.sources.base import ChainTail
from tideline_capture.sources.finding import START_OVER, Finding
from tideline_capture.sources.key_configuration import key_configurations_of
from tideline_capture.sources.postgres.catalog.watch import PostgresWatch
from tideline_capture.sources.postgres.checks.preflight import check, check_url
from tideline_capture.sources.postgres.connect import (
    connect,
    querying,
    replication_failed,
)
from tideline_capture.sources.postgres.names import publication_name, quoted, slot_name
from tideline_capture.sources.postgres.publication import ensure_publication
from tideline_capture.sources.postgres.replication.relations import Relations
from tideline_capture.sources.postgres.replication.transactions import TransactionReader
from tideline_capture.sources.postgres.slot import (
    BEGIN,
    ReplicationSlot,
    postgres_position,
)
from tideline_capture.sources.postgres.snapshot.chunks import CopyChunkReader
from tideline_capture.sources.postgres.snapshot.snapshot_copy import PageCopy
from tideline_capture.sources.postgres.types import PINNED
from tideline_capture.sources.sockets import Opened, answered, end
from tideline_capture.sources.streams import Streams
from tideline_capture.sources.watermark_key import WatermarkKey

_STREAM_SETTINGS = {**PINNED, "wal_sender_timeout": "0"}
_WRITER_SETTINGS = {**PINNED, "synchronous_commit": "on"}
_FEEDBACK_S = 5


class PostgresSource:
    """A `Source`. Every object it makes has its own connections."""

    def __init__(self, settings: Settings, *, on_point: OnPoint = pass_by) -> None:
        self._settings = settings
        self._on_point = on_point
        self._key_configurations = key_configurations_of(settings)
        self._streams: Streams[PageCopy] = Streams()
        self._slot = slot_name(settings)
        self._publication = publication_name(settings)
        self._application = f"tideline {settings.pipeline}"
        self._opened = Opened()
        self._answer_s = settings.capture.mark_timeout_s

    def identity(self) -> SourceIdentity:
        """Return the server and database, as the replication protocol names them."""
        identity, _ = self._identify()
        return identity

    def check(self, chain_end: Callable[[], ChainTail]) -> list[Finding]:
        """See `Preflight.check`."""
        return check(self._settings, chain_end)

    def check_url(self) -> list[Finding]:
        """See `Preflight.check_url`."""
        return check_url(self._settings)

    def begin(self) -> PostgresPosition:
        return BEGIN

    def resume(self, tail: Manifest, on_waiting: Callable[[str], None]) -> PostgresPosition:
        """See `Preflight.resume`. Only the worker that owns the chain may call this: another
        session that holds the slot is ended."""
        self._end_opened()
        identity, written = self._identify()
        if identity != tail.identity:
            raise SourceLost(
                f"this is another server, {_name(identity)};"
                f" the chain is of {_name(tail.identity)}",
                hint=f"point source.url at the right server, or {START_OVER}",
            )
        connection = self._asking("prepare")
        with closing(connection), connection.cursor() as cursor, querying():
            ensure_publication(cursor, self._publication)
            position = postgres_position(tail.position)
            slot = ReplicationSlot(self._slot, self._publication, self._connect)
            return slot.resume(cursor, position, written, on_waiting)

    def log_reader(
        self,
        position: SourcePosition,
        key: WatermarkKey,
        captures: Callable[[str], bool],
        prepared: Mapping[str, SourcePosition],
    ) -> TransactionReader:
        """See `Source.log_reader`. Nothing is ever held: prepared transactions are sent once they
        have committed."""
        begin = postgres_position(position)
        connection = connect(
            self._settings.source,
            application_name=self._application,
            settings=_STREAM_SETTINGS,
            factory=LogicalReplicationConnection,
        )
        cursor = connection.cursor()
        try:
            with answered(connection.fileno(), self._answer_s):
                cursor.start_replication(
                    slot_name=self._slot,
                    decode=False,
                    start_lsn=begin.end_lsn,
                    status_interval=_FEEDBACK_S,
                    options={
                        "proto_version": "1",
                        "publication_names": quoted(self._publication),
                        "messages": "true",
                    },
                )
        except psycopg2.Error as error:
            raise replication_failed(error) from None
        catalog = self._asking("types").cursor()
        relations = Relations(catalog, self._publication, self._key_configurations, self._is_chosen)
        return TransactionReader(
            cursor,
            relations,
            key=key,
            captures=captures,
            images=lambda table: self._key_configurations(parse_table(table)).image,
            event_bytes_max=self._settings.capture.event_bytes_max,
            messages=self._settings.source.section(PostgresSection).messages,
        )

    def _is_chosen(self, table: TableId) -> bool:
        """Return whether the settings name the table, whatever else is published."""
        return matches(table, self._settings.source.tables, self._settings.source.exclude)

    def chunk_reader(self, key: WatermarkKey) -> CopyChunkReader:
        """See `Source.chunk_reader`."""
        limits = self._settings.capture
        return CopyChunkReader(
            self._connect("watermarks", _WRITER_SETTINGS),
            self._connect("chunks"),
            key=key,
            publication=self._publication,
            lock_timeout_s=limits.lock_timeout_s,
            fence_timeout_s=limits.fence_timeout_s,
            on_point=self._on_point,
            key_configurations=self._key_configurations,
            copies=self._streams,
            connect=lambda: self._connect("copies"),
        )

    def watch(self, key: WatermarkKey) -> PostgresWatch:
        """See `Source.watch`."""
        timeout = round(self._settings.capture.lock_timeout_s * 1000)
        settings = {**_WRITER_SETTINGS, "lock_timeout": str(timeout)}
        return PostgresWatch(
            self._connect("catalog", settings),
            key=key,
            publication=self._publication,
            slot=self._slot,
            include=self._settings.source.tables,
            exclude=self._settings.source.exclude,
            key_configurations=self._key_configurations,
        )

    def keep_copies(self, tokens: Collection[str]) -> None:
        """See `Source.keep_copies`."""
        self._streams.keep(tokens)

    def _asking(self, role: str) -> Any:
        """Return a connection that the session waits for: nothing else would notice that answers no
        longer come."""
        return self._connect(role, answer_s=self._answer_s)

    def _connect(
        self,
        role: str,
        settings: dict[str, str] | None = None,
        *,
        answer_s: float | None = None,
    ) -> Any:
        connection = connect(
            self._settings.source,
            application_name=f"{self._application} {role}",
            settings=PINNED if settings is None else settings,
            answer_s=answer_s,
        )
        self._opened.add(connection)
        return connection

    def _end_opened(self) -> None:
        """End the connections of the session before: a thread of it may wait there for an answer
        that never comes."""
        for connection in self._opened.take():
            with suppress(psycopg2.Error):  # It has been closed in the meantime.
                end(connection.fileno())

    def _identify(self) -> tuple[SourceIdentity, int]:
        """Return the server's identity and how far its log is written."""
        connection = connect(
            self._settings.source,
            application_name=f"{self._application} identify",
            settings=PINNED,
            factory=LogicalReplicationConnection,
        )
        try:
            with connection.cursor() as cursor, answered(connection.fileno(), self._answer_s):
                cursor.execute("IDENTIFY_SYSTEM")
                system_id, timeline, written, database = cursor.fetchone()
        except psycopg2.Error as error:
            raise replication_failed(error) from None
        finally:
            connection.close()
        identity = SourceIdentity("postgres", str(system_id), int(timeline), str(database))
        return identity, parse_lsn(written)


def _name(identity: SourceIdentity) -> str:
    return f"{identity.system_id}/{identity.timeline}/{identity.database}"
