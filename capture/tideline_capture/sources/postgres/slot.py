"""The replication slot: made for an empty chain, and checked against the chain's end after that.

A server that was restored from a copy of its disk has the same name, timeline and slot as before,
and a log that continues differently from where the copy was made. Once that log is longer than the
chain knows, positions prove nothing. But the slot of the copy stands further back, and it sends
other transactions up to the chain's position: none ends there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg2
import psycopg2.extensions
import structlog

from tideline.contract.errors import Misconfigured, SourceLost, TidelineError, Unavailable
from tideline.contract.position import PostgresPosition, SourcePosition, format_lsn, parse_lsn
from tideline_capture.sources.finding import START_OVER
from tideline_capture.sources.postgres.connect import replication_failed
from tideline_capture.sources.postgres.names import quoted
from tideline_capture.sources.postgres.snapshot.fence import blocker

BEGIN = PostgresPosition(0)
"""The position before everything."""
_MAKING = PostgresPosition(1)
"""The chain's position before the slot is made. No log begins there."""
_PATIENCE_S = 1.0
_TERMINATE_S = 10.0
_FREE_NAME = "set source.slot to a name that is free"
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
_ENDS = """
SELECT count(*) > 0 FROM pg_catalog.pg_logical_slot_peek_binary_changes(
  %s, %s::pg_lsn, NULL, 'proto_version', '1', 'publication_names', %s, 'messages', 'true')
WHERE get_byte(data, 0) = 67 AND substring(data FROM 11 FOR 8) = %s
"""
"""pgoutput's Commit: 'C', flags, the commit's LSN and, big-endian, the transaction's end."""

log = structlog.get_logger("tideline.postgres")


class ReplicationSlot:
    """The slot ``name``, read through ``publication``; ``connect`` opens a connection for a role.

    Only the worker that owns the chain may resume from it: another session that holds it is ended.
    """

    def __init__(self, name: str, publication: str, connect: Callable[[str], Any]) -> None:
        self._name = name
        self._publication = publication
        self._connect = connect

    def resume(
        self,
        cursor: Any,
        position: PostgresPosition,
        written: int,
        on_waiting: Callable[[str], None],
    ) -> PostgresPosition:
        """See `Preflight.resume`. The chain ends at ``position``, the server's log at ``written``.

        The chain announces that a slot is going to be made (`_MAKING`) before it is: only then a
        slot that is already there can be ours, left by a worker that died in between.
        """
        if position == BEGIN:
            return self._unmade_position(cursor)
        if position == _MAKING:
            return self._make(cursor, on_waiting)
        slot = self._read(cursor)
        if slot is None:
            raise SourceLost(
                f"replication slot {self._name!r} is gone; changes after {position} are lost",
                hint=START_OVER,
            )
        _, _, pid, wal_status, confirmed = slot
        self._check(cursor, slot)
        if wal_status == "lost":
            raise SourceLost(
                f"the server dropped log that slot {self._name!r} needs, after {position}",
                hint=f"raise max_slot_wal_keep_size, then {START_OVER}",
            )
        if parse_lsn(confirmed) > position.end_lsn or written < position.end_lsn:
            raise SourceLost(
                f"slot {self._name!r} stands at {confirmed}, the log ends at"
                f" {format_lsn(written)}, and the chain at {position}: not the log it was",
                hint=f"{_RESTORED} {START_OVER}",
            )
        if pid is not None:
            self._end_holder(cursor, pid)
        if parse_lsn(confirmed) < position.end_lsn:
            self.check_same_log(position, on_waiting)
        return position

    def check_same_log(self, position: PostgresPosition, on_waiting: Callable[[str], None]) -> None:
        """Raise SourceLost where the chain's ``position`` is not one of the server's log.

        The slot, which must be free, has not confirmed that position, as it keeps the last
        transaction. It may have a lot to decode: nothing limits how long that takes, and
        ``on_waiting`` is called in the meantime. Nothing is consumed.
        """
        end = position.end_lsn.to_bytes(8, "big")
        found = (self._name, format_lsn(position.end_lsn), quoted(self._publication), end)
        with closing(self._connect("look")) as connection, connection.cursor() as cursor:
            try:
                _patiently(
                    cursor,
                    lambda: cursor.execute(_ENDS, found),
                    lambda: f"the server looks through its log up to {position}",
                    on_waiting,
                )
            except psycopg2.Error as error:
                raise replication_failed(error) from None
            same = cursor.fetchone()[0]
        if not same:
            raise SourceLost(
                f"no transaction of the server's log ends at {position}, where the chain does: it"
                " is not the log that it was",
                hint=f"{_RESTORED} {START_OVER}",
            )

    def _unmade_position(self, cursor: Any) -> PostgresPosition:
        """Return the position before the slot is made. The chain is empty, so a slot by our name
        belongs to another one, or was left over: raises Misconfigured."""
        if self._read(cursor) is not None:
            raise Misconfigured(
                f"there is a replication slot {self._name!r} already, but the chain of this"
                " pipeline is empty: another store may hold what was read from it",
                hint="correct store.url; or, if no one needs the slot any more, run SELECT"
                f" pg_drop_replication_slot('{self._name}')",
            )
        return _MAKING

    def _make(self, cursor: Any, on_waiting: Callable[[str], None]) -> PostgresPosition:
        slot = self._read(cursor)
        if slot is not None:
            self._check(cursor, slot)
            if slot[2] is not None:
                raise Misconfigured(
                    f"replication slot {self._name!r} is read by process {slot[2]}, which is not"
                    " a worker of this chain",
                    hint=_FREE_NAME,
                )
            cursor.execute("SELECT pg_catalog.pg_drop_replication_slot(%s)", (self._name,))
        log.info(
            "making the replication slot; this waits for transactions that are running now",
            slot=self._name,
        )
        patient = cursor.connection.cursor(cursor_factory=psycopg2.extensions.cursor)
        try:
            _patiently(
                patient,
                lambda: patient.execute(_MAKE_SLOT, (self._name,)),
                self._holder,
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

    def _holder(self) -> str:
        with closing(self._connect("slot")) as connection:
            return f"the replication slot waits for {blocker(connection.cursor())}"

    def _check(self, cursor: Any, slot: tuple[Any, ...]) -> None:
        plugin, database = slot[:2]
        cursor.execute("SELECT pg_catalog.current_database()")
        if plugin != "pgoutput" or database != str(cursor.fetchone()[0]):
            raise Misconfigured(
                f"replication slot {self._name!r} is of {plugin} on database {database!r}",
                hint=_FREE_NAME,
            )

    def _end_holder(self, cursor: Any, pid: int) -> None:
        """End the session that holds the slot: we own the chain, so it is a dead worker's."""
        cursor.execute("SELECT pg_catalog.pg_terminate_backend(%s)", (pid,))
        deadline = time.monotonic() + _TERMINATE_S
        while time.monotonic() < deadline:
            slot = self._read(cursor)
            if slot is None or slot[2] is None:
                return
            time.sleep(0.05)
        raise Unavailable(f"replication slot {self._name!r} is still held by process {pid}")

    def _read(self, cursor: Any) -> tuple[Any, ...] | None:
        cursor.execute(_SLOT, (self._name,))
        row: tuple[Any, ...] | None = cursor.fetchone()
        return row


def postgres_position(position: SourcePosition) -> PostgresPosition:
    """Return ``position``; raise SourceLost where it is another source's."""
    if not isinstance(position, PostgresPosition):
        raise SourceLost(f"{position} is no position of PostgreSQL", hint=START_OVER)
    return position


def _patiently(
    cursor: Any,
    execute: Callable[[], object],
    why: Callable[[], str],
    on_waiting: Callable[[str], None],
) -> None:
    """Run ``execute``, a statement of ``cursor``, however long it takes; report ``why`` while it
    waits. An exception of ``on_waiting`` ends the statement."""
    failures: list[psycopg2.Error] = []

    def run() -> None:
        try:
            execute()
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
