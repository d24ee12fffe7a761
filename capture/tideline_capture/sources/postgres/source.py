"""PostgreSQL as a source: connections, slot and resume position."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import closing, suppress
from functools import partial
from typing import Any, TypeVar

import psycopg2
import psycopg2.extensions
import structlog
from psycopg2.extras import LogicalReplicationConnection

from tideline.contract.errors import Misconfigured, SourceLost, TidelineError, Unavailable
from tideline.contract.manifest import Manifest
from tideline.contract.patterns import matches
from tideline.contract.position import (
    PostgresPosition,
    SourceIdentity,
    SourcePosition,
    format_lsn,
    parse_lsn,
)
from tideline.contract.schema import TableId, parse_table
from tideline.settings import Settings
from tideline_capture.points import OnPoint, pass_by
from tideline_capture.sources.base import ChainTail
from tideline_capture.sources.choices import choices_of
from tideline_capture.sources.finding import Finding
from tideline_capture.sources.mark_key import MarkKey
from tideline_capture.sources.postgres.catalog.watch import PostgresWatch
from tideline_capture.sources.postgres.check import check, check_url
from tideline_capture.sources.postgres.connect import connect, query_failed, replication_failed
from tideline_capture.sources.postgres.names import publication_name, quoted, slot_name
from tideline_capture.sources.postgres.publication import ensure_publication
from tideline_capture.sources.postgres.replication.relations import Relations
from tideline_capture.sources.postgres.replication.same_log import a_transaction_ends_at
from tideline_capture.sources.postgres.replication.transactions import TransactionReader
from tideline_capture.sources.postgres.snapshot.chunks import CopyChunkReader
from tideline_capture.sources.postgres.snapshot.fence import blocker
from tideline_capture.sources.postgres.snapshot.snapshot_copy import PageCopy
from tideline_capture.sources.postgres.types import PINNED
from tideline_capture.sources.sockets import Opened, answered, end
from tideline_capture.sources.streams import Streams

_STREAM_SETTINGS = {**PINNED, "wal_sender_timeout": "0"}
_WRITER_SETTINGS = {**PINNED, "synchronous_commit": "on"}
_MAKING = PostgresPosition(1)
"""The chain's position before the slot is made. No log begins there."""
_FEEDBACK_S = 5
_PATIENCE_S = 1.0
_TERMINATE_S = 10.0
_FREE_NAME = "set source.slot to a name that is free"
_ANEW = "start the pipeline anew under another name, which dumps every table (docs/RESTORE.md)"
_RESTORED = (
    "was the store or the source restored from a backup? What came between is in one of them only:"
)

_SLOT = """
SELECT plugin, database, active_pid, wal_status, confirmed_flush_lsn::text
FROM pg_catalog.pg_replication_slots WHERE slot_name = %s
"""
_MAKE_SLOT = """
SELECT lsn::text FROM pg_catalog.pg_create_logical_replication_slot(%s, 'pgoutput')
"""

_T = TypeVar("_T")

log = structlog.get_logger("tideline.postgres")


class PostgresSource:
    """A `Source`. Every object it makes has its own connections."""

    def __init__(self, settings: Settings, *, on_point: OnPoint = pass_by) -> None:
        self._settings = settings
        self._on_point = on_point
        self._choices = choices_of(settings)
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
        return PostgresPosition(0)

    def resume(self, tail: Manifest, on_waiting: Callable[[str], None]) -> PostgresPosition:
        """See `Preflight.resume`. Only the worker that owns the chain may call this: another
        session that holds the slot is ended.

        The chain announces that a slot is going to be made (`_MAKING`) before it is: only then a
        slot that is already there can be ours, left by a worker that died in between.
        """
        self._end_opened()
        identity, written = self._identify()
        if identity != tail.identity:
            raise SourceLost(
                f"this is another server, {_name(identity)};"
                f" the chain is of {_name(tail.identity)}",
                hint=f"point source.url at the right server, or {_ANEW}",
            )
        with closing(self._asking("prepare")) as connection, connection.cursor() as cursor:
            try:
                ensure_publication(cursor, self._publication)
                if tail.position == self.begin():
                    return self._announce_slot(cursor)
                if tail.position == _MAKING:
                    return self._make_slot(cursor, on_waiting)
                return self._resume(cursor, _postgres(tail.position), written, on_waiting)
            except psycopg2.Error as error:
                raise query_failed(error) from None

    def log_reader(
        self,
        position: SourcePosition,
        key: MarkKey,
        captures: Callable[[str], bool],
        held: Mapping[str, SourcePosition],
    ) -> TransactionReader:
        """See `Source.log_reader`. Nothing is ever held: prepared transactions are sent once they
        have committed."""
        begin = _postgres(position)
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
        relations = Relations(catalog, self._publication, self._choices, self._is_chosen)
        return TransactionReader(
            cursor,
            relations,
            key=key,
            captures=captures,
            images=lambda table: self._choices(parse_table(table)).image,
            event_bytes_max=self._settings.capture.event_bytes_max,
        )

    def _is_chosen(self, table: TableId) -> bool:
        """Return whether the settings name the table, whatever else is published."""
        return matches(table, self._settings.source.tables, self._settings.source.exclude)

    def chunk_reader(self, key: MarkKey) -> CopyChunkReader:
        """See `Source.chunk_reader`."""
        limits = self._settings.capture
        return CopyChunkReader(
            self._connect("marks", _WRITER_SETTINGS),
            self._connect("chunks"),
            key=key,
            publication=self._publication,
            lock_timeout_s=limits.lock_timeout_s,
            fence_timeout_s=limits.fence_timeout_s,
            on_point=self._on_point,
            choices=self._choices,
            copies=self._streams,
            connect=lambda: self._connect("copies"),
        )

    def watch(self, key: MarkKey) -> PostgresWatch:
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
            choices=self._choices,
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

    def _resume(
        self,
        cursor: Any,
        position: PostgresPosition,
        written: int,
        on_waiting: Callable[[str], None],
    ) -> PostgresPosition:
        slot = self._read_slot(cursor)
        if slot is None:
            raise SourceLost(
                f"replication slot {self._slot!r} is gone; changes after {position} are lost",
                hint=_ANEW,
            )
        _, _, pid, wal_status, confirmed = slot
        self._check_slot(cursor, slot)
        if wal_status == "lost":
            raise SourceLost(
                f"the server dropped log that slot {self._slot!r} needs, after {position}",
                hint=f"raise max_slot_wal_keep_size, then {_ANEW}",
            )
        if parse_lsn(confirmed) > position.end_lsn or written < position.end_lsn:
            raise SourceLost(
                f"slot {self._slot!r} stands at {confirmed}, the log ends at"
                f" {format_lsn(written)}, and the chain at {position}: not the log it was",
                hint=f"{_RESTORED} {_ANEW}",
            )
        if pid is not None:
            self._end_holder(cursor, pid)
        if parse_lsn(confirmed) < position.end_lsn:
            self._check_same_log(position, on_waiting)
        return position

    def _check_same_log(
        self, position: PostgresPosition, on_waiting: Callable[[str], None]
    ) -> None:
        """Raise SourceLost where the chain's ``position`` is not one of the server's log.

        The slot has not confirmed that position, as it keeps the last transaction. It may have a
        lot to decode: nothing limits how long that takes, and ``on_waiting`` is called in the
        meantime.
        """
        with closing(self._connect("look")) as connection, connection.cursor() as cursor:
            try:
                same = self._patiently(
                    cursor,
                    partial(
                        a_transaction_ends_at,
                        cursor,
                        self._slot,
                        self._publication,
                        position.end_lsn,
                    ),
                    lambda: f"the server looks through its log up to {position}",
                    on_waiting,
                )
            except psycopg2.Error as error:
                raise replication_failed(error) from None
        if not same:
            raise SourceLost(
                f"no transaction of the server's log ends at {position}, where the chain does: it"
                " is not the log that it was",
                hint=f"{_RESTORED} {_ANEW}",
            )

    def _announce_slot(self, cursor: Any) -> PostgresPosition:
        """Return the position before the slot is made. The chain is empty, so a slot by our name
        belongs to another one, or was left over: raises Misconfigured."""
        if self._read_slot(cursor) is not None:
            raise Misconfigured(
                f"there is a replication slot {self._slot!r} already, but the chain of this"
                " pipeline is empty: another store may hold what was read from it",
                hint="correct store.url; or, if nobody needs the slot any more, run SELECT"
                f" pg_drop_replication_slot('{self._slot}')",
            )
        return _MAKING

    def _make_slot(self, cursor: Any, on_waiting: Callable[[str], None]) -> PostgresPosition:
        slot = self._read_slot(cursor)
        if slot is not None:
            self._check_slot(cursor, slot)
            if slot[2] is not None:
                raise Misconfigured(
                    f"replication slot {self._slot!r} is read by process {slot[2]}, which is not"
                    " a worker of this chain",
                    hint=_FREE_NAME,
                )
            cursor.execute("SELECT pg_catalog.pg_drop_replication_slot(%s)", (self._slot,))
        log.info(
            "making the replication slot; this waits for transactions that are running now",
            slot=self._slot,
        )
        patient = cursor.connection.cursor(cursor_factory=psycopg2.extensions.cursor)
        try:
            self._patiently(
                patient,
                lambda: patient.execute(_MAKE_SLOT, (self._slot,)),
                self._holder_of_slot,
                on_waiting,
            )
        except (
            psycopg2.errors.ObjectNotInPrerequisiteState,
            psycopg2.errors.ConfigurationLimitExceeded,
        ) as error:
            raise Misconfigured(
                f"the server cannot make a replication slot: {error.diag.message_primary}",
                hint="set wal_level = logical and a max_replication_slots that leaves one free, and"
                " restart the server; `tideline doctor` shows what is set",
            ) from None
        return PostgresPosition(parse_lsn(patient.fetchone()[0]))

    def _holder_of_slot(self) -> str:
        with closing(self._connect("slot")) as connection:
            return f"the replication slot waits for {blocker(connection.cursor())}"

    def _patiently(
        self,
        cursor: Any,
        ask: Callable[[], _T],
        why: Callable[[], str],
        on_waiting: Callable[[str], None],
    ) -> _T:
        """Return the result of ``ask``, which waits for ``cursor``, however long; report ``why``
        while it waits. An exception of ``on_waiting`` ends the statement."""
        done: list[_T] = []
        failures: list[psycopg2.Error] = []

        def run() -> None:
            try:
                done.append(ask())
            except psycopg2.Error as error:
                failures.append(error)

        running = threading.Thread(target=run, name="slot", daemon=True)
        running.start()
        running.join(_PATIENCE_S)
        while running.is_alive():
            try:
                on_waiting(why())
            except TidelineError:
                cursor.connection.cancel()
                running.join(_TERMINATE_S)
                raise
            running.join(_PATIENCE_S)
        if failures:
            raise failures[0]
        return done[0]

    def _check_slot(self, cursor: Any, slot: tuple[Any, ...]) -> None:
        plugin, database = slot[:2]
        if plugin != "pgoutput" or database != self._database(cursor):
            raise Misconfigured(
                f"replication slot {self._slot!r} is of {plugin} on database {database!r}",
                hint=_FREE_NAME,
            )

    def _end_holder(self, cursor: Any, pid: int) -> None:
        """End the session that holds the slot: we own the chain, so it is a dead worker's."""
        cursor.execute("SELECT pg_catalog.pg_terminate_backend(%s)", (pid,))
        deadline = time.monotonic() + _TERMINATE_S
        while time.monotonic() < deadline:
            slot = self._read_slot(cursor)
            if slot is None or slot[2] is None:
                return
            time.sleep(0.05)
        raise Unavailable(f"replication slot {self._slot!r} is still held by process {pid}")

    def _read_slot(self, cursor: Any) -> tuple[Any, ...] | None:
        cursor.execute(_SLOT, (self._slot,))
        row: tuple[Any, ...] | None = cursor.fetchone()
        return row

    def _database(self, cursor: Any) -> str:
        cursor.execute("SELECT pg_catalog.current_database()")
        return str(cursor.fetchone()[0])


def _postgres(position: SourcePosition) -> PostgresPosition:
    if not isinstance(position, PostgresPosition):
        raise SourceLost(f"{position} is no position of PostgreSQL", hint=_ANEW)
    return position


def _name(identity: SourceIdentity) -> str:
    return f"{identity.system_id}/{identity.timeline}/{identity.database}"
