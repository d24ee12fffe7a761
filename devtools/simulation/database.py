"""The simulated source server: transactions, a log, and what snapshots see.

A commit has two steps. First it is *in the log*, for readers of the log to see; later it is
*visible* to new snapshots. On PostgreSQL transactions become visible in any order, some much later
(a standby is waited for); on MySQL in the order of the log, unless `order_commits` is off. Locks
are held until a transaction is visible: so changes of one key have one order everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from devtools.simulation.columns import Alteration, altered, carried, logged_steps
from devtools.simulation.history import LedgerEntry, LedgerTransaction
from devtools.simulation.log import (
    Aborted,
    DatabaseKind,
    LogEntry,
    LoggedChange,
    LoggedStatement,
    SessionWork,
    SimulatedWatermark,
    Xa,
)
from devtools.simulation.scheduler import Process, Signal, World
from devtools.simulation.tables import (
    ACCOUNTS,
    TABLES,
    Form,
    Key,
    Row,
    SimulatedTable,
    digest_of,
    first_form,
)
from tideline_capture.core.facts import Snapshot

EPOCH_S = 1_700_000_000
"""The start of a run, by a correct clock."""


class Database:
    """The server. ``lags`` draws how long a commit takes to become visible."""

    def __init__(self, world: World, kind: DatabaseKind, lags: Callable[[], float]) -> None:
        self.world = world
        self.kind = kind
        self.up = True
        self.order_commits = True
        self.slot: int | None = None
        """The position that the worker confirmed; PostgreSQL keeps its log from there on."""
        self.began_at: int | None = None
        """The position at which capture began: the log has what came later."""
        self.lost: str | None = None
        """The reason why the worker's position in the log is gone for good, if it is."""
        self.log: list[LogEntry] = []
        self.tables = {
            name: SimulatedTable(
                name, first_form(name, at + 1, numbered=kind is DatabaseKind.POSTGRES)
            )
            for at, name in enumerate(TABLES)
        }
        self.transactions: list[LedgerTransaction] = []
        self.rolled_back: list[LedgerEntry] = []
        self.visible = Signal()
        self.logged = Signal()
        self.resets = 0
        """The number of resets. Connections that were made before the last one are dead."""
        self.stalled_until = 0.0
        self.clock_offset_s = 0.0
        self.clock_was_ahead = False
        self._lags = lags
        self._xid = 100
        self._completed = 100
        self._running: dict[int, bool] = {}
        self._in_flight: dict[int, Callable[[], None]] = {}
        self._last_visible_at = 0.0
        self._open: list[SessionWork] = []
        self._watermarks: dict[int, Signal] = {}
        self.committing_xa = 0
        self.memberships = 0
        self.passed: set[tuple[str, int]] = set()
        """The tables, with positions, whose rows a reader has left out: they were not captured."""
        self.positions: dict[int, int] = {}
        """The position in the log of the end of each transaction."""
        self.chunk_of = ACCOUNTS
        self.chunk_read = Signal()
        """Given when a chunk (of the table ``chunk_of``) was read."""
        self.unlogged: list[tuple[str, int]] = []
        """The log's end when rows of a table changed without an entry in it."""
        self.readers: list[Process] = []
        """Processes that have read the log."""

    # -- sessions ------------------------------------------------------------------------------

    @property
    def clock_us(self) -> int:
        return int((EPOCH_S + self.world.now + self.clock_offset_s) * 1e6)

    def move_clock(self, seconds: float) -> None:
        self.clock_offset_s += seconds
        self.clock_was_ahead |= self.clock_offset_s > 0

    @property
    def end(self) -> int:
        """The position behind the log's last entry."""
        return len(self.log)

    @property
    def settled(self) -> bool:
        """Say whether everything that was begun has ended and is visible."""
        return not self._open and not self._in_flight

    def begin(self) -> SessionWork:
        work = SessionWork(self._next_xid())
        self._open.append(work)
        return work

    def snapshot(self) -> Snapshot:
        """Return a snapshot as PostgreSQL has it.

        ``xmax`` is behind the last transaction that ended, so some that run lie above it and are
        not listed.
        """
        xmax = self._completed + 1
        running = tuple(sorted(xid for xid in self._running if xid < xmax))
        return Snapshot(min([*self._running, xmax]), xmax, running)

    def fresh_xid(self) -> int:
        """Return `pg_current_xact_id()` in a transaction that ends at once."""
        xid = self._next_xid()
        self._ended(xid)
        return xid

    # -- a transaction's steps -----------------------------------------------------------------

    def write(self, work: SessionWork, table: str, op: str, key: Key, row: Row | None) -> None:
        """Insert, update or delete the row of ``key``; its lock is ours (`lock`)."""
        ver = self._count(work, table, key)
        before = self.current(work, table, key)
        now = None if row is None else {**row, "ver": ver}
        work.rows[table, key] = now
        form = self.tables[table].form
        work.changes.append(
            LoggedChange(table, op, key, form, now, None, self._unsupplied(before, now, op))
        )
        digest = None if now is None else digest_of(now)
        work.entries.append(LedgerEntry(table, key, ver, op, digest, self._is_logged(form)))

    def move(self, work: SessionWork, table: str, key: Key, to: Key, row: Row) -> None:
        """Change the row's key; both locks are ours."""
        gone, ver = self._count(work, table, key), self._count(work, table, to)
        before = self.current(work, table, key)
        names = self.tables[table].form.schema.key
        now = {**row, **dict(zip(names, to, strict=True)), "ver": ver}
        work.rows[table, key] = None
        work.rows[table, to] = now
        form = self.tables[table].form
        work.changes.append(
            LoggedChange(table, "u", to, form, now, key, self._unsupplied(before, now, "u"))
        )
        logged = self._is_logged(form)
        work.entries.append(LedgerEntry(table, key, gone, "d", None, logged))
        work.entries.append(LedgerEntry(table, to, ver, "c", digest_of(now), logged))

    def truncate(self, work: SessionWork, table: str) -> None:
        """Truncate the table, which is ours alone (`lock_table`).

        The ledger has a truncate that the log does not show as deletes of every row.
        """
        form, logged = self.tables[table].form, self._is_logged(self.tables[table].form)
        gone = {key for one, key in work.rows if one == table} | set(self.tables[table].rows)
        for key in sorted(gone, key=repr):
            if not logged and self.current(work, table, key) is not None:
                ver = self._count(work, table, key)
                work.entries.append(LedgerEntry(table, key, ver, "d", None, logged))
            work.rows[table, key] = None
        work.changes.append(LoggedChange(table, "t", (), form))
        if logged:
            ver = self._count(work, table, ())
            work.entries.append(LedgerEntry(table, (), ver, "t", None, logged))

    def current(self, work: SessionWork, table: str, key: Key) -> Row | None:
        """Return the row as the transaction sees it."""
        if (table, key) in work.rows:
            return work.rows[table, key]
        return self.tables[table].rows.get(key)

    def lock(self, work: SessionWork, table: str, key: Key) -> bool:
        """Take the row's lock; False when another has it, or all of the table."""
        if (table, key) in work.locks:
            return True
        held = self.tables[table]
        if key in held.locked or (held.exclusive and table not in work.tables):
            return False
        held.locked.add(key)
        work.locks.append((table, key))
        return True

    def lock_table(self, work: SessionWork, table: str) -> bool:
        """Lock all of the table; False when another session holds anything of it."""
        held = self.tables[table]
        ours = {key for name, key in work.locks if name == table}
        if held.exclusive or held.locked - ours:
            return False
        held.exclusive = True
        work.tables.append(table)
        return True

    def savepoint(self, work: SessionWork) -> SessionWork:
        """Return a copy of the transaction, to go back to."""
        return replace(
            work,
            changes=list(work.changes),
            entries=list(work.entries),
            rows=dict(work.rows),
            locks=list(work.locks),
            tables=list(work.tables),
            vers=dict(work.vers),
        )

    def roll_back_to(self, work: SessionWork, savepoint: SessionWork) -> None:
        """Undo what came since; its locks stay."""
        self.rolled_back += work.entries[len(savepoint.entries) :]
        work.undone = work.undone or len(work.changes) > len(savepoint.changes)
        work.changes, work.entries = savepoint.changes, savepoint.entries
        work.rows, work.vers = savepoint.rows, savepoint.vers

    def roll_back(self, work: SessionWork) -> None:
        self.rolled_back += work.entries
        self._release(work)
        self._open.remove(work)
        self._ended(work.xid)

    def commit(self, work: SessionWork) -> Signal:
        """Put the transaction into the log; the signal is given when it is visible."""
        if work.aborted:
            raise Aborted
        self._open.remove(work)
        self.transactions.append(LedgerTransaction(work.xid, tuple(work.entries)))
        changes = tuple(one for one in work.changes if self._is_logged(one.form))
        self.unlogged += [
            (table, self.end)
            for table in sorted(
                {one.table for one in work.changes if not self._is_logged(one.form)}
            )
        ]
        self._append(work.xid, changes=changes, packed=work.packed, savepoint=work.undone)
        return self._show_later(work.xid, lambda: self._apply(work))

    def prepare_xa(self, work: SessionWork, xa_id: str) -> None:
        """Run `XA PREPARE`: the rows are in the log, and the transaction may yet be rolled back."""
        self._open.remove(work)
        changes = tuple(one for one in work.changes if self._is_logged(one.form))
        self._append(work.xid, changes=changes, xa=Xa.PREPARE, xa_id=xa_id)

    def end_xa(self, work: SessionWork, xa_id: str, *, commit: bool) -> None:
        self._append(work.xid, xa=Xa.COMMIT if commit else Xa.ROLLBACK, xa_id=xa_id)
        if not commit:
            self.rolled_back += work.entries
            self._release(work)
            self._ended(work.xid)
            return
        self.transactions.append(LedgerTransaction(work.xid, tuple(work.entries)))
        self.committing_xa += 1

        def shown() -> None:
            self.committing_xa -= 1
            self._apply(work)

        self._show_later(work.xid, shown)

    def write_watermark(self, watermark: SimulatedWatermark, *, takes_s: float = 0.0) -> Signal:
        """Write a watermark in a separate transaction.

        It has its id at once, and is in the log after ``takes_s``. The signal is given when its
        writer learns of it, or the session ended.
        """
        xid, reported = self._next_xid(), Signal()
        self._watermarks[xid] = reported

        def commit() -> None:
            if self._watermarks.pop(xid, None) is not None:
                self._append(xid, watermark=watermark)
                self._show_later(xid, lambda: None, lag=0.0, shown=reported)

        if takes_s:
            self.world.later(takes_s, commit)
        else:
            commit()
        return reported

    def polled_watermark(self, watermark: SimulatedWatermark) -> None:
        """Log a low watermark that is only the log's position when it was requested.

        A reader finds it there, while transactions before it may not be visible yet.
        """
        self._append(0, watermark=watermark)

    def make(self, table: str) -> None:
        """Run `CREATE TABLE`, in the log of a MySQL."""
        self.tables[table] = SimulatedTable(
            table, first_form(table, len(self.tables) + 1, numbered=False)
        )
        self._append(0, statement=LoggedStatement(table, f"CREATE TABLE {table}", True, made=True))

    def state(self, table: str, text: str, *, neutral: bool) -> None:
        """Run a DDL statement: PostgreSQL's log has none."""
        if self.kind is DatabaseKind.MYSQL:
            self._append(0, statement=LoggedStatement(table, text, neutral))

    def alter(self, held: SimulatedTable, what: Alteration, *, understood: bool = True) -> None:
        """Change the columns of a table that no session has a lock on.

        PostgreSQL's log has no entry for it; in that of a MySQL is the statement (``understood``: a
        reader knows what it does).
        """
        held.form = altered(held.form, what)
        held.rows = {key: carried(row, what, held.form) for key, row in held.rows.items()}
        if self.kind is DatabaseKind.MYSQL:
            steps = logged_steps(what, held.form) if understood else None
            text = f"ALTER TABLE {held.name} {what.words}"
            self._append(0, statement=LoggedStatement(held.name, text, understood, steps))

    def note_gap(self, reason: str) -> None:
        """Log that the log lacks rows."""
        self._append(0, gap=reason)

    def change_unlogged(self, table: str, rows: dict[Key, Row]) -> None:
        """Exchange all rows, without a row event."""
        held = self.tables[table]
        self.unlogged.append((table, self.end))
        entries = []
        for key in sorted({*held.rows, *rows}, key=repr):
            ver = held.vers.get(key, 0) + 1
            row = rows.get(key)
            now = None if row is None else {**row, "ver": ver}
            if now is None and key not in held.rows:
                continue
            op = "d" if now is None else ("u" if key in held.rows else "c")
            digest = None if now is None else digest_of(now)
            entries.append(LedgerEntry(table, key, ver, op, digest, logged=False))
            held.vers[key] = ver
            if now is None:
                del held.rows[key]
            else:
                held.rows[key] = now
        self.transactions.append(LedgerTransaction(self._next_xid_ended(), tuple(entries)))

    def unpublish(self) -> None:
        """Drop the publication: the worker makes another."""
        self.resets += 1
        for table in self.tables.values():
            table.form = replace(table.form, membership="")

    # -- trouble -------------------------------------------------------------------------------

    def reset(self) -> None:
        """Break every connection; open transactions are rolled back."""
        self.resets += 1
        for work in list(self._open):
            work.aborted = True
            self.roll_back(work)
        for xid, reported in list(self._watermarks.items()):
            del self._watermarks[xid]
            self._ended(xid)
            self.world.give(reported)
        self.world.give(self.logged)

    def restart(self, down_s: float) -> None:
        """Restart the server; what is in the log is visible afterwards."""
        self.reset()
        self.up = False
        for show in list(self._in_flight.values()):
            show()

        def back() -> None:
            self.up = True

        self.world.later(down_s, back)

    # -- inside --------------------------------------------------------------------------------

    def _next_xid(self) -> int:
        self._xid += 1
        self._running[self._xid] = True
        return self._xid

    def _next_xid_ended(self) -> int:
        xid = self._next_xid()
        self._ended(xid)
        return xid

    def _ended(self, xid: int) -> None:
        self._running.pop(xid, None)
        self._completed = max(self._completed, xid)
        self.world.give(self.visible)

    def _is_logged(self, form: Form) -> bool:
        return self.kind is DatabaseKind.MYSQL or bool(form.membership)

    def _unsupplied(self, before: Row | None, now: Row | None, op: str) -> tuple[str, ...]:
        if self.kind is DatabaseKind.MYSQL or op != "u" or before is None or now is None:
            return ()
        same = before.get("big") is not None and before.get("big") == now.get("big")
        return ("big",) if same else ()

    def _count(self, work: SessionWork, table: str, key: Key) -> int:
        ver = work.vers.get((table, key), self.tables[table].vers.get(key, 0)) + 1
        work.vers[table, key] = ver
        return ver

    def _append(self, xid: int, **fields: object) -> None:
        self.positions[xid] = self.end + 1
        entry = LogEntry(self.end + 1, xid, self.world.now, **fields)  # type: ignore[arg-type]
        self.log.append(entry)
        self.world.give(self.logged, after_s=0.002)
        for process in self.readers:
            self.world.give(process.stirred, after_s=0.002)

    def _show_later(
        self,
        xid: int,
        apply: Callable[[], None],
        *,
        lag: float | None = None,
        shown: Signal | None = None,
    ) -> Signal:
        """Make a logged transaction visible after a while; ``shown`` is given then."""
        shown = shown or Signal()
        moment = self.world.now + (self._lags() if lag is None else lag)
        if self.kind is DatabaseKind.MYSQL and self.order_commits:
            moment = max(moment, self._last_visible_at)
        self._last_visible_at = max(self._last_visible_at, moment)

        def show() -> None:
            if self._in_flight.pop(xid, None) is None:
                return
            apply()
            self._ended(xid)
            self.world.give(shown)

        self._in_flight[xid] = show
        self.world.later(moment - self.world.now, show)
        return shown

    def _apply(self, work: SessionWork) -> None:
        for (table, key), row in work.rows.items():
            if row is None:
                self.tables[table].rows.pop(key, None)
            else:
                self.tables[table].rows[key] = row
        for (table, key), ver in work.vers.items():
            self.tables[table].vers[key] = ver
        for change in work.changes:
            if change.op == "t":
                held = self.tables[change.table]
                held.form = replace(held.form, storage=held.form.storage + 1)
        self._release(work)

    def _release(self, work: SessionWork) -> None:
        for table, key in work.locks:
            self.tables[table].locked.discard(key)
        for table in work.tables:
            self.tables[table].exclusive = False


def bank_total(rows: dict[Key, Row]) -> int:
    """Return the sum over `ACCOUNTS`, which transfers leave as it is."""
    return sum(int(row["balance"]) for row in rows.values())
