"""Says in the worker's log from where on the changes of tables are captured."""

from __future__ import annotations

import structlog

from tideline.contract.clocks import utc
from tideline.contract.manifest import CapturedFrom, OpenState

log = structlog.get_logger("tideline.worker")


class BeginningsLog:
    """What was said already: all that ``state``, the chain's at the start, has."""

    def __init__(self, state: OpenState) -> None:
        self._said = _of(state)

    def durable(self, state: OpenState, *, initial_dump: bool) -> None:
        """``state`` is durable: say what is news in it. ``initial_dump``: a table that is new is
        dumped, although the request may not be durable yet."""
        found = _of(state)
        for table, begun in found.items():
            if self._said.get(table) != begun:
                _say(table, begun, dumped=initial_dump or _is_dumped(table, state))
        self._said = found


def _of(state: OpenState) -> dict[str, CapturedFrom]:
    return {
        name: one.captured_from
        for name, one in state.tables.items()
        if one.captured_from is not None
    }


def _is_dumped(table: str, state: OpenState) -> bool:
    """Whether a dump of the whole table is under way."""
    return any(
        dump.table == table and item.request.whole and not item.request.verifies
        for item in state.requests
        for dump in item.dumps
    )


def _say(table: str, begun: CapturedFrom, *, dumped: bool) -> None:
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
