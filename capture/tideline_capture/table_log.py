"""Logs for the operator where the capture of a table begins and ends."""

from __future__ import annotations

import structlog

from tideline.contract.clocks import utc
from tideline.contract.open_state import CapturedFrom, OpenState, TableCondition

log = structlog.get_logger("tideline.worker")

_MEANS = {
    TableCondition.QUARANTINED: "a table is quarantined: nothing of it is captured",
    TableCondition.NEEDS_RESNAPSHOT: "a table's rows are in doubt until a dump has read them",
    TableCondition.SCHEMA_BLOCKED: "a table is blocked: its target cannot take the new schema",
}


class TableLog:
    """Compares each durable state with the one before.

    ``state`` is the chain's at the start, of which only the tables in trouble are logged again.
    """

    def __init__(self, state: OpenState) -> None:
        self._begun = _begun(state)
        self._trouble: dict[str, _Trouble] = {}
        self._log_trouble(state)

    def durable(self, state: OpenState, *, initial_dump: bool) -> None:
        """Log what is new in ``state``.

        ``initial_dump``: a table that is new is dumped, although the request may not be durable
        yet.
        """
        begun = _begun(state)
        for table, since in begun.items():
            if self._begun.get(table) != since:
                _log_begun(table, since, dumped=initial_dump or _is_dumped(table, state))
        self._begun = begun
        self._log_trouble(state)

    def _log_trouble(self, state: OpenState) -> None:
        found = _troubles(state)
        for table, trouble in found.items():
            if self._trouble.get(table) != trouble:
                condition, reason, hint = trouble
                log.warning(_MEANS[condition], table=table, reason=reason, hint=hint)
        for table in self._trouble.keys() - found.keys():
            if table in state.tables and not state.tables[table].removed:
                log.info("a table is live again", table=table)
        self._trouble = found


_Trouble = tuple[TableCondition, str | None, str | None]


def _troubles(state: OpenState) -> dict[str, _Trouble]:
    return {
        name: (one.condition, one.reason, one.hint)
        for name, one in state.tables.items()
        if one.condition is not TableCondition.ACTIVE and not one.removed
    }


def _begun(state: OpenState) -> dict[str, CapturedFrom]:
    return {
        name: one.captured_from
        for name, one in state.tables.items()
        if one.captured_from is not None
    }


def _is_dumped(table: str, state: OpenState) -> bool:
    """Return whether a dump of the whole table is in progress."""
    return any(
        dump.table == table and item.request.whole and not item.request.verifies
        for item in state.requests
        for dump in item.dumps
    )


def _log_begun(table: str, begun: CapturedFrom, *, dumped: bool) -> None:
    earlier = "a dump brings them" if dumped else "not captured"
    at = begun.source_time_us
    moment = None if at is None else utc(at)
    log.info(
        "captures a table",
        table=table,
        from_seq=begun.seq,
        source_time=None if moment is None else moment.isoformat(),
        earlier_rows="none: it was created there" if begun.created else earlier,
    )
