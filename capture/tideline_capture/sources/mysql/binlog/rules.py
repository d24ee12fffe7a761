"""The rules of the log reader, and its handling of a gap.

A gap is a change that the log does not describe. There are two ways to handle it, and they are
decided here for all gaps: a stop with an error that names it, or a dump of all that it may concern.
A gap is never passed over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tideline.contract.errors import TidelineError
from tideline.contract.position import MysqlPosition
from tideline.contract.schema import TableId
from tideline_capture.core.events import GapSeen
from tideline_capture.sources.mysql.binlog.log_state import LogState
from tideline_capture.sources.mysql.binlog.stream import BinlogStream


@dataclass(frozen=True, slots=True)
class LogRules:
    """The rules of the reader.

    ``goes_on``: after a gap everything it may concern is dumped again; otherwise it is a stop.
    ``holds_xa``: prepared transactions wait for their end; otherwise the first one is a stop.
    ``open_replay`` reads the log once more from a place in it. ``children_of`` are the tables that
    changes of one are carried over to, unlogged. ``images``: of which tables rows come with the row
    before. ``derives``: whether a table has columns that are generated from others, and ``refuses``
    whether there is a reason not to capture one yet, by the catalog, which may be newer than the
    log. ``folds``: the server writes names of tables in small letters, whatever a statement has.
    """

    goes_on: bool
    holds_xa: bool
    captures: Callable[[str], bool]
    open_replay: Callable[[MysqlPosition], BinlogStream]
    children_of: Callable[[TableId], frozenset[str]]
    images: Callable[[TableId], bool] = lambda table: False
    derives: Callable[[TableId], bool] = lambda table: True
    refuses: Callable[[TableId], bool] = lambda table: False
    folds: bool = False

    def gap(
        self,
        error: TidelineError,
        state: LogState,
        *,
        tables: tuple[str, ...] | None = None,
        where: str = "at",
    ) -> GapSeen:
        """Stop with ``error``, or have ``tables`` (None: all of them) dumped again because of it.
        The error says ``where`` the gap is, as seen from the log's position."""
        if self.goes_on:
            return GapSeen(error.message, tables)
        raise type(error)(
            f"{error.message}, {where} {state.position}",
            hint=f'{error.hint or "look at the server"}; then set source.on_gap = "dump" to go'
            " on with dumps of what it may concern",
        )
