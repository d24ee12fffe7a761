"""Reads the log's statements: the effect of each on rows, tables and its transaction.

A log in row form has statements for DDL and for the frames of transactions. A statement that may
have changed rows and has none in the log is a gap; one that is not understood is treated the same,
so that no change is missed.
"""

from __future__ import annotations

import re

from tideline.contract.errors import SourceLost
from tideline.contract.schema import TableId
from tideline_capture.core.events import Begun, Control, StatementSeen, Truncated
from tideline_capture.sources.mysql.binlog.log_events import Query
from tideline_capture.sources.mysql.binlog.log_state import LogState
from tideline_capture.sources.mysql.binlog.rules import LogRules
from tideline_capture.sources.mysql.binlog.table_cache import TableCache
from tideline_capture.sources.mysql.binlog.xa import XaTransactions
from tideline_capture.sources.mysql.ddl.classify import classify
from tideline_capture.sources.mysql.ddl.statement import (
    DdlStatement,
    StatementKind,
    names_begun,
    names_ended,
)
from tideline_capture.sources.mysql.types.charsets import charset_of

_WITHIN = frozenset(
    {
        StatementKind.BEGIN,
        StatementKind.SAVEPOINT,
        StatementKind.ROLLBACK_TO,
        StatementKind.XA_START,
        StatementKind.XA_END,
        StatementKind.XA_PREPARE,
        StatementKind.DML,
        StatementKind.UNKNOWN,
    }
)
"""Statements that never end a transaction."""
_NO_ROWS = _WITHIN | {StatementKind.COMMIT, StatementKind.XA_COMMIT, StatementKind.OTHER}
_EMPTIED = re.compile(rb"DELETE FROM `((?:[^`]|``)+)`\.`((?:[^`]|``)+)`")
"""Old releases of MySQL 8.0 write it, in this very form, when they find a MEMORY table empty after
a restart. Such tables are not captured."""


class LoggedStatements:
    """Reads QUERY events, and moves `LogState` on."""

    def __init__(
        self, state: LogState, tables: TableCache, *, rules: LogRules, xa: XaTransactions
    ) -> None:
        self._state = state
        self._tables = tables
        self._rules = rules
        self._xa = xa

    def read(self, query: Query) -> tuple[Control, ...]:
        """Handle the statement: return the controls for its rows and tables."""
        state = self._state
        statement = read_statement(query, mariadb=state.open is not None and state.open.mariadb)
        kind = statement.kind
        if state.replay is not None:
            return ()  # XA START, XA END: the frame of the rows that are read again.
        if kind is StatementKind.XA_START and statement.xid is not None:
            self._xa.start(str(statement.xid))
            return ()
        if (
            kind is StatementKind.XA_COMMIT
            and statement.xid is not None
            and not statement.one_phase
        ):
            return self._xa.commit(str(statement.xid))
        controls: tuple[Control, ...] = ()
        if kind is StatementKind.XA_ROLLBACK and statement.xid is not None:
            controls = (self._xa.roll_back(str(statement.xid)), *self._rolled_back())
        elif kind in (StatementKind.ROLLBACK, StatementKind.ROLLBACK_TO):
            controls = self._rolled_back()
        elif kind in (StatementKind.DML, StatementKind.UNKNOWN) and not self._is_emptied(query):
            controls = self._unreadable(statement)
        elif kind not in _NO_ROWS:
            controls = self._changed(query, statement)
        if self._ends(query, statement):
            state.end()
        return controls

    def _ends(self, query: Query, statement: DdlStatement) -> bool:
        """Return whether the statement is the last of its transaction. MariaDB says so beforehand;
        of MySQL, all but the frames are, unless rows of CREATE TABLE … SELECT follow."""
        opened = self._state.open
        if opened is not None and opened.standalone:
            return True
        if statement.kind in _WITHIN:
            return False
        if opened is not None and (opened.mariadb or opened.framed):
            return statement.kind in (StatementKind.COMMIT, StatementKind.ROLLBACK)
        return not query.text.rstrip().endswith(b"START TRANSACTION")

    def _changed(self, query: Query, statement: DdlStatement) -> tuple[Control, ...]:
        """Handle DDL on tables. Names are compared without their case: a server may fold it."""
        # A table that is made, and is known already, may have been made in the place of another.
        made = statement.kind is StatementKind.CREATE_TABLE and not statement.replaces
        news = (new for _, new in statement.renames)
        tables = tuple(dict.fromkeys(str(table) for table in (*statement.tables, *news)))
        self._tables.forget(tables)
        if statement.kind is StatementKind.TRUNCATE:
            return (Truncated(tables),)
        text = query.text.decode(errors="backslashreplace")
        neutral = statement.neutral or made
        if statement.steps is not None:
            neutral |= query.strict or not statement.converts
        if statement.recodes:
            neutral &= not any(map(self._rules.derives, statement.tables))
        ended = tuple(str(table) for table in names_ended(statement))
        return (
            StatementSeen(
                text,
                tables,
                neutral,
                statement.schema or None,
                statement.steps,
                self._begun(statement),
                ended,
            ),
        )

    def _begun(self, statement: DdlStatement) -> tuple[Begun, ...]:
        """Return the tables of the settings that have their name by this statement. Whether there
        is a reason not to capture one is for the catalog to say, as far as it still has it."""
        opened = self._state.open
        at_us = 0 if opened is None else opened.ts
        begun = []
        for table, empty in names_begun(statement).items():
            named = (
                TableId(table.schema.lower(), table.name.lower()) if self._rules.folds else table
            )
            if self._tables.is_chosen(named) and not self._rules.refuses(named):
                begun.append(Begun(str(named), empty, at_us))
        return tuple(begun)

    def _is_emptied(self, query: Query) -> bool:
        """Return whether it says that a table that is not captured lost all of its rows."""
        emptied = _EMPTIED.fullmatch(query.text)
        if emptied is None:
            return False
        schema, name = (part.replace(b"``", b"`").decode() for part in emptied.groups())
        return not self._rules.captures(str(TableId(schema, name)))

    def _unreadable(self, statement: DdlStatement) -> tuple[Control, ...]:
        what = f"a statement ({statement.words or 'not understood'}) is in the log, not its rows"
        if statement.kind is StatementKind.UNKNOWN:
            what = f"a statement of the log ({statement.words or 'no words'}) is not understood"
        error = SourceLost(
            what, hint="SET GLOBAL binlog_format = 'ROW', and end sessions that set another"
        )
        return (self._rules.gap(error, self._state),)

    def _rolled_back(self) -> tuple[Control, ...]:
        """Handle rows in the log that are undone. What a transaction lost before it was logged is
        not in the log at all, so this is about tables without transactions."""
        state = self._state
        if not state.wrote and state.preparing is None:
            return ()
        what = "rows of the log were rolled back after they had been logged"
        error = SourceLost(what, hint="keep tables without transactions out of transactions")
        tables = None if state.preparing else tuple(sorted(state.wrote))
        return (self._rules.gap(error, state, tables=tables),)


def read_statement(query: Query, *, mariadb: bool) -> DdlStatement:
    """Classify the statement of ``query`` as its session meant it; ``mariadb`` is whether the log
    is of a MariaDB."""
    collation = query.client_collation
    return classify(
        query.text,
        mariadb=mariadb,
        default_schema=query.schema,
        charset="utf8mb4" if collation is None else charset_of(collation)[0],
        ansi_quotes=query.ansi_quotes,
        no_backslash_escapes=query.no_backslash_escapes,
    )
