"""XA transactions in the log: prepared, kept, and read when they commit.

Rows of an XA transaction are in the log when it is prepared, before it is known whether it will
commit. They are passed over then, and their place is remembered. When the commit comes they are
read once more from there, or from memory if they are few; a rollback costs nothing. So no row is
returned before its transaction has committed, and then in the commit's place.
"""

from __future__ import annotations

from collections.abc import Mapping

from tideline.contract.errors import CorruptData, Misconfigured, SourceLost
from tideline.contract.position import MysqlPosition, SourcePosition
from tideline_capture.core.events import Control, GapSeen, PreparedSeen
from tideline_capture.sources.mysql.binlog.bulk import (
    OPERATIONS,
    EventColumns,
    read_transaction_starts,
)
from tideline_capture.sources.mysql.binlog.event_codes import EventCode
from tideline_capture.sources.mysql.binlog.gtid_events import parse_mariadb_gtid
from tideline_capture.sources.mysql.binlog.log_events import parse_xa_prepare
from tideline_capture.sources.mysql.binlog.log_state import LogState
from tideline_capture.sources.mysql.binlog.rules import LogRules
from tideline_capture.sources.mysql.binlog.xa_buffer import BufferedTransactions

PREPARED_MAX = 1_000


class XaTransactions:
    """Follows them through `LogState`. ``prepared`` is where prepared transactions are in the
    log."""

    def __init__(
        self, state: LogState, rules: LogRules, *, prepared: Mapping[str, SourcePosition]
    ) -> None:
        self._state = state
        self._rules = rules
        self._prepared = prepared
        self._buffered = BufferedTransactions()

    def start(self, xid: str) -> None:
        """Begin the XA transaction ``xid``, which is the open one: its rows are left for its
        commit."""
        self._state.preparing = xid
        self._buffered.begin()

    def begin(self, event: EventColumns) -> tuple[Control, ...]:
        """Handle MariaDB's beginning of an XA transaction that is prepared only; in a replay it is
        the one whose commit is being read."""
        gtid = parse_mariadb_gtid(event.body(0))
        if self._state.replay is None:
            self._state.pass_over(event, read_transaction_starts(event), -1)
            self.start(str(gtid.xid))
        return ()

    def keep(self, packets: bytes) -> None:
        """Keep events of the XA transaction that is being prepared: only those that `replays`
        accepts."""
        self._buffered.add(packets)

    def prepare(self, body: bytes) -> tuple[Control, ...]:
        """Handle XA_PREPARE: the end of its events, also of those that are read again."""
        state, prepared = self._state, parse_xa_prepare(body)
        if state.replay is not None:
            state.replay.close()
            state.replay = None
            state.end()
            return ()
        opened, state.preparing = state.open, None
        if opened is None:
            raise CorruptData("the binlog prepares a transaction that it did not begin")
        xid = str(prepared.xid)
        self._buffered.end(xid, state.source.checksum_bytes)
        if prepared.one_phase:
            state.replay = self._buffered.open(xid, opened.start, self._rules.open_replay)
            return ()
        if not self._rules.holds_xa:
            raise Misconfigured(
                f"an XA transaction was prepared, before {state.position}",
                hint='source.xa = "hold" reads its rows once it commits',
            )
        if len(self._prepared) >= PREPARED_MAX:
            raise Misconfigured(
                f"more than {PREPARED_MAX} XA transactions are prepared and not ended",
                hint="XA RECOVER lists them; XA COMMIT or XA ROLLBACK those that were forgotten",
            )
        state.end()
        return (PreparedSeen(xid, opened.start),)

    def commit(self, xid: str) -> tuple[Control, ...]:
        """Read the events of ``xid`` next, in the place of its commit."""
        position = self._prepared.get(xid)
        if not isinstance(position, MysqlPosition):
            # Prepared before we began to read: its rows are in no part, and in no dump so far.
            self._state.end()
            return (GapSeen("an XA transaction committed that was prepared before the start"),)
        try:
            self._state.replay = self._buffered.open(xid, position, self._rules.open_replay)
        except SourceLost as error:
            self._state.end()
            return (PreparedSeen(xid, None), self._rules.gap(error, self._state))
        return (PreparedSeen(xid, None),)

    def roll_back(self, xid: str) -> PreparedSeen:
        """Forget ``xid``: it is no longer needed."""
        self._buffered.drop(xid)
        return PreparedSeen(xid, None)


def replays(code: int) -> bool:
    """Return whether an event of a prepared transaction matters when it is read again."""
    return bool(OPERATIONS[code]) or code in (EventCode.TABLE_MAP, EventCode.XA_PREPARE)
