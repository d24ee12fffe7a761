# ruff: noqa: S608  statements are made of constants
"""Traffic whose transactions write down, in themselves, what they do: the ledger of fault tests.

Every transaction that changes rows inserts a row of ``ledger`` for each change, and commits both
or neither. ``counters`` has a row per key that is never deleted: it is locked before the key is
touched, and counts its versions over all its lives. What is rolled back gives its versions back,
and is noted by the client. Keys are locked in one order, so that clients wait and do not deadlock.

The rows: a bank whose sum never changes, on few hot keys; items that are inserted, updated (with
and without their long text), deleted, born again, moved to other keys and swapped; pairs, the same
under a composite key.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import psycopg2
import psycopg2.errors
import pymysql
from pymysql.constants import ER

from devtools.simulation.history import Key, LedgerEntry
from tests.fixtures.mysql_servers import MysqlDatabase
from tests.fixtures.services import Database
from tests.support.traffic import Traffic

TABLES = ("accounts", "items", "pairs", "ledger")
ACCOUNTS = 8
ITEMS = 700
PAIRS = 60
BALANCE = 1_000
TOTAL = ACCOUNTS * BALANCE
_LIVE_ITEMS = 600
_HUGE_FROM = 1_000_000
_HUGE_TEXT = "v" * 900
INITIAL_TXID = 0


@dataclass(frozen=True, slots=True)
class Held:
    """A key as its counter has it: ``held`` is what the row has besides ``ver`` and ``v``: its
    balance, or the digest of its long text."""

    ver: int
    live: bool
    held: str | None


Slot = tuple[str, str]
"""A table's short name and the text of a key in it."""


def digest_of(table: str, key: str, ver: int, v: str, held: str | None) -> str:
    """Of a row; the servers compute the same for huge transactions."""
    return md5("|".join((table, key, str(ver), v, held or "")))


def key_text(key: Key) -> str:
    return "/".join(str(part) for part in key)


def key_of(text: str) -> Key:
    return tuple(text.split("/"))


def md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _pair(number: int) -> str:
    return f"{number % 20}/{'xyz'[number // 20 % 3]}"


def initial_rows() -> dict[Slot, tuple[str, Held]]:
    """``v`` and counter of every key there is at the start; absent ones have version 0."""
    rows: dict[Slot, tuple[str, Held]] = {}
    for number in range(1, ACCOUNTS + 1):
        rows["accounts", str(number)] = ("old", Held(1, True, str(BALANCE)))
    for number in range(1, ITEMS + 1):
        live = number <= _LIVE_ITEMS
        doc = md5(_doc(number)) if live and number % 3 == 0 else None
        rows["items", str(number)] = ("old", Held(int(live), live, doc))
    for number in range(PAIRS):
        live = number % 2 == 0
        rows["pairs", _pair(number)] = ("old", Held(int(live), live, None))
    for number in range(1, 17):
        rows["items", str(-number)] = ("old", Held(0, False, None))
    return rows


def _doc(number: int) -> str:
    return f"{number}-" * 500


class LedgerWork(Traffic):
    """`Traffic` with a ledger. ``rolled_back``: what was undone, as entries under short names."""

    schema: ClassVar[Sequence[str]]
    conflicts: ClassVar[tuple[type[Exception], ...]]

    def __init__(self, database: Any, *, seed: int, clients: int = 3, pause_s: float = 0.0) -> None:
        super().__init__(seed=seed, clients=clients, pause_s=pause_s)
        self.database = database
        self.rolled_back: list[LedgerEntry] = []
        self._run_id = (int(time.time() * 1000) % 10**9) * 100
        self._huge = 0

    def client(self, random_: random.Random, number: int) -> _Client:
        return _Client(self, random_, self._run_id + number, number)

    def is_conflict(self, error: Exception) -> bool:
        """Whether the transaction was refused for another's sake, and the connection is well."""
        return isinstance(error, self.conflicts)

    def write_huge(self, rows: int = 6_000) -> None:
        """One transaction that inserts that many items and deletes those of the one before."""
        txid = 4 * 10**18 + self._run_id + self._huge
        first = _HUGE_FROM + self._huge * rows
        before = f"id BETWEEN {first - rows} AND {first - 1}"
        key = self.text_of("id")
        digest = f"md5(concat('items|', {key}, '|1|', v, '|'))"
        numbers = self.numbers(first, rows)
        statements = [
            f"INSERT INTO items SELECT n, 1, '{_HUGE_TEXT}', NULL FROM {numbers}",
            f"INSERT INTO ledger SELECT {txid}, id - {first}, 'items', {key}, 1, 'c', {digest}"
            f" FROM items WHERE id >= {first}",
        ]
        if self._huge:
            statements += [
                f"INSERT INTO ledger SELECT {txid}, {rows} + id - {first - rows}, 'items', {key},"
                f" 2, 'd', NULL FROM items WHERE {before}",
                f"DELETE FROM items WHERE {before}",
            ]
        self._huge += 1
        connection = self.connect()
        try:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
            connection.commit()
        finally:
            self.disconnect(connection)
        self.counts["commits"] += 1
        self.counts["huge"] += 1

    def text_of(self, column: str) -> str:
        raise NotImplementedError

    def numbers(self, first: int, count: int) -> str:
        """A table of ``n``, so many numbers from ``first`` on."""
        raise NotImplementedError

    def set_up(self) -> None:
        """Make the tables and their first rows, whose ledger has the transaction `INITIAL_TXID`."""
        self.database.run(*self.schema)
        connection = self.connect()
        try:
            with connection.cursor() as cursor:
                self._fill(cursor)
            connection.commit()
        finally:
            self.disconnect(connection)

    def _fill(self, cursor: Any) -> None:
        values: dict[str, list[tuple[Any, ...]]] = {name: [] for name in (*TABLES, "counters")}
        for (table, key), (v, held) in initial_rows().items():
            values["counters"].append((table, key, held.ver, int(held.live), held.held))
            if held.live:
                values[table].append(_row(table, key, 1, v, held.held, _doc_of(table, key, held)))
                digest = digest_of(table, key, 1, v, held.held)
                order = len(values["ledger"])
                values["ledger"].append((INITIAL_TXID, order, table, key, 1, "c", digest))
        for table, rows in values.items():
            insert_rows(cursor, table, rows)


def _doc_of(table: str, key: str, held: Held) -> str | None:
    return _doc(int(key)) if table == "items" and held.held is not None else None


def _row(
    table: str, key: str, ver: int, v: str, held: str | None, doc: str | None
) -> tuple[Any, ...]:
    if table == "pairs":
        return (*key.split("/"), ver, v)
    return (int(key), ver, v, int(held or 0) if table == "accounts" else doc)


def insert_rows(cursor: Any, table: str, rows: Iterable[Sequence[Any]]) -> None:
    """All of ``rows`` in one statement per few hundred."""
    rows = list(rows)
    for start in range(0, len(rows), 500):
        some = rows[start : start + 500]
        marks = ", ".join(f"({', '.join(['%s'] * len(row))})" for row in some)
        cursor.execute(
            f"INSERT INTO {table} VALUES {marks}", [value for row in some for value in row]
        )


_CREATE = (
    "CREATE TABLE accounts (id int PRIMARY KEY, ver bigint NOT NULL, v varchar(64),"
    " balance bigint NOT NULL)",
    "CREATE TABLE items (id bigint PRIMARY KEY, ver bigint NOT NULL, v varchar(1000), doc text)",
    "CREATE TABLE pairs (a int, b varchar(9), ver bigint NOT NULL, v varchar(64),"
    " PRIMARY KEY (a, b))",
    "CREATE TABLE ledger (txid bigint, ord int, tbl varchar(16) NOT NULL, k varchar(64) NOT NULL,"
    " ver bigint NOT NULL, op varchar(1) NOT NULL, digest varchar(32), PRIMARY KEY (txid, ord))",
    "CREATE TABLE counters (tbl varchar(16), k varchar(64), ver bigint NOT NULL,"
    " live int NOT NULL, held varchar(32), PRIMARY KEY (tbl, k))",
)


class PostgresLedger(LedgerWork):
    """On PostgreSQL, where ``doc`` lies out of line: an update that leaves it alone does not log
    it."""

    refused = psycopg2.OperationalError
    lost = (psycopg2.OperationalError, psycopg2.InterfaceError)
    conflicts = (psycopg2.extensions.TransactionRollbackError, psycopg2.errors.UniqueViolation)
    schema = (*_CREATE, "ALTER TABLE items ALTER COLUMN doc SET STORAGE EXTERNAL")
    database: Database

    def connect(self) -> Any:
        return psycopg2.connect(self.database.dsn, application_name="traffic")

    def disconnect(self, connection: Any) -> None:
        connection.close()

    def text_of(self, column: str) -> str:
        return f"{column}::text"

    def numbers(self, first: int, count: int) -> str:
        return f"generate_series({first}, {first + count - 1}) n"


class MariadbLedger(LedgerWork):
    """On MariaDB."""

    refused = pymysql.OperationalError
    lost = (pymysql.OperationalError, pymysql.InterfaceError)
    conflicts = (pymysql.OperationalError, pymysql.IntegrityError)
    schema = _CREATE
    database: MysqlDatabase

    def connect(self) -> Any:
        return self.database.connect(autocommit=False)

    def disconnect(self, connection: Any) -> None:
        connection._force_close()

    def is_conflict(self, error: Exception) -> bool:
        codes = (ER.LOCK_DEADLOCK, ER.LOCK_WAIT_TIMEOUT, ER.DUP_ENTRY)
        return isinstance(error, self.conflicts) and error.args[0] in codes

    def text_of(self, column: str) -> str:
        return f"CAST({column} AS CHAR)"

    def numbers(self, first: int, count: int) -> str:
        return f"(SELECT {first} - 1 + seq AS n FROM seq_1_to_{count}) numbers"


class _Client:
    """One client's random transactions. ``_slots``: the keys it holds, as they are by now."""

    def __init__(
        self, work: LedgerWork, random_: random.Random, first_txid: int, number: int
    ) -> None:
        self._work = work
        self._random = random_
        self._txid = first_txid * 1_000_000
        self._scratch = ("items", str(-1 - number))
        self._slots: dict[Slot, Held] = {}
        self._entries: list[LedgerEntry] = []

    def transact(self, connection: Any, cursor: Any) -> None:
        """One transaction; one in ten is rolled back, one in five has work behind a savepoint."""
        chosen = [self._choose() for _ in range(self._random.randint(1, 5))]
        self._txid += 1
        self._entries = []
        try:
            self._lock(cursor, {slot for _, slots in chosen for slot in slots})
            savepoint = len(chosen) > 1 and self._random.random() < 0.2
            for operation, slots in chosen[: len(chosen) - savepoint]:
                operation(cursor, *slots)
            if savepoint:
                self._undo_one(cursor, *chosen[-1])
            self._write_down(cursor)
            if self._random.random() < 0.1:
                connection.rollback()
                self._undone(self._entries)
                self._work.counts["rollbacks"] += 1
            else:
                connection.commit()
                self._work.counts["commits"] += bool(self._entries)
                self._work.counts["changes"] += len(self._entries)
        except (*self._work.conflicts,) as error:
            if not self._work.is_conflict(error):
                raise
            connection.rollback()
            self._undone(self._entries)
            self._work.counts["conflicts"] += 1

    def _choose(self) -> tuple[Any, tuple[Slot, ...]]:
        kind = self._random.random()
        if kind < 0.35:
            some = self._random.sample(range(1, ACCOUNTS + 1), 2)
            return self._pay, tuple(("accounts", str(number)) for number in some)
        if kind < 0.75:
            some = self._random.sample(range(1, ITEMS + 1), 2)
            return self._live_on, tuple(("items", str(number)) for number in some)
        if kind < 0.8:
            some = self._random.sample(range(1, ITEMS + 1), 2)
            return self._swap, (*(("items", str(number)) for number in some), self._scratch)
        pairs = self._random.sample(range(PAIRS), 2)
        return self._live_on, tuple(("pairs", _pair(number)) for number in pairs)

    def _lock(self, cursor: Any, slots: set[Slot]) -> None:
        these = " OR ".join(["tbl = %s AND k = %s"] * len(slots))
        cursor.execute(
            f"SELECT tbl, k, ver, live, held FROM counters WHERE {these}"
            " ORDER BY tbl, k FOR UPDATE",
            [part for slot in sorted(slots) for part in slot],
        )
        self._slots = {(t, k): Held(ver, bool(live), h) for t, k, ver, live, h in cursor.fetchall()}

    def _undo_one(self, cursor: Any, operation: Any, slots: tuple[Slot, ...]) -> None:
        kept, before = len(self._entries), dict(self._slots)
        cursor.execute("SAVEPOINT s")
        operation(cursor, *slots)
        self._write_down(cursor)
        cursor.execute("ROLLBACK TO SAVEPOINT s")
        self._undone(self._entries[kept:])
        del self._entries[kept:]
        self._slots = before
        self._work.counts["savepoints"] += 1

    def _write_down(self, cursor: Any) -> None:
        """The ledger's rows of what was done, and the counters of the keys."""
        if not self._entries:
            return
        rows = [
            (self._txid, order, entry.table, key_text(entry.key), entry.ver, entry.op, entry.digest)
            for order, entry in enumerate(self._entries)
        ]
        insert_rows(cursor, "ledger", rows)
        for table, key in {(entry.table, key_text(entry.key)) for entry in self._entries}:
            held = self._slots[table, key]
            cursor.execute(
                "UPDATE counters SET ver = %s, live = %s, held = %s WHERE tbl = %s AND k = %s",
                (held.ver, int(held.live), held.held, table, key),
            )

    def _undone(self, entries: Iterable[LedgerEntry]) -> None:
        self._work.rolled_back.extend(entries)

    # -- operations: each leaves its entries and the slots as they are after it ------------------

    def _pay(self, cursor: Any, one: Slot, other: Slot) -> None:
        amount = self._random.randint(1, 50)
        for slot, change in ((one, -amount), (other, amount)):
            balance = int(self._slots[slot].held or 0) + change
            ver, v = self._note(slot, "u", str(balance))
            cursor.execute(
                "UPDATE accounts SET ver = %s, v = %s, balance = %s WHERE id = %s",
                (ver, v, balance, slot[1]),
            )

    def _live_on(self, cursor: Any, slot: Slot, other: Slot) -> None:
        """The next thing in the life of ``slot``; ``other`` is where it may move to."""
        kind = self._random.random()
        if not self._slots[slot].live:
            self._insert(cursor, slot)
        elif kind < 0.15:
            self._note(slot, "d", None)
            self._execute(cursor, "DELETE FROM {table} WHERE {key}", slot)
        elif kind < 0.3 and not self._slots[other].live:
            self._move(cursor, slot, other)
        elif kind < 0.5 and slot[0] == "items":
            doc = self._new_doc()
            ver, v = self._note(slot, "u", None if doc is None else md5(doc))
            self._execute(
                cursor,
                "UPDATE {table} SET ver = %s, v = %s, doc = %s WHERE {key}",
                slot,
                ver,
                v,
                doc,
            )
        else:
            ver, v = self._note(slot, "u", self._slots[slot].held)
            self._execute(cursor, "UPDATE {table} SET ver = %s, v = %s WHERE {key}", slot, ver, v)

    def _swap(self, cursor: Any, one: Slot, other: Slot, scratch: Slot) -> None:
        """Two rows take each other's key, by way of a third."""
        if self._slots[one].live and self._slots[other].live:
            for source, target in ((one, scratch), (other, one), (scratch, other)):
                self._move(cursor, source, target)

    def _insert(self, cursor: Any, slot: Slot) -> None:
        table, key = slot
        doc = self._new_doc() if table == "items" else None
        held = None if doc is None else md5(doc)
        ver, v = self._note(slot, "c", held)
        insert_rows(cursor, table, [_row(table, key, ver, v, held, doc)])

    def _move(self, cursor: Any, slot: Slot, other: Slot) -> None:
        """A changed key, which leaves the long text alone."""
        held = self._slots[slot].held
        self._note(slot, "d", None)
        ver, v = self._note(other, "c", held)
        if slot[0] == "pairs":
            sql, new = "UPDATE {table} SET a = %s, b = %s, ver = %s, v = %s WHERE {key}", other[1]
            self._execute(cursor, sql, slot, *new.split("/"), ver, v)
        else:
            sql = "UPDATE {table} SET id = %s, ver = %s, v = %s WHERE {key}"
            self._execute(cursor, sql, slot, other[1], ver, v)

    def _note(self, slot: Slot, op: str, held: str | None) -> tuple[int, str]:
        """The key's next version; returns it and a text that no other version has."""
        table, key = slot
        ver = self._slots[slot].ver + 1
        v = f"{self._txid}.{len(self._entries)}.{self._random.randrange(10**6)}"
        self._slots[slot] = Held(ver, op != "d", held)
        digest = None if op == "d" else digest_of(table, key, ver, v, held)
        self._entries.append(LedgerEntry(table, key_of(key), ver, op, digest))
        return ver, v

    def _execute(self, cursor: Any, statement: str, slot: Slot, *values: Any) -> None:
        table, key = slot
        where = "a = %s AND b = %s" if table == "pairs" else "id = %s"
        cursor.execute(
            statement.format(table=table, key=where), (*values, *(part for part in key.split("/")))
        )
        assert cursor.rowcount == 1, f"a row of {table} is not as its counter has it"

    def _new_doc(self) -> str | None:
        if self._random.random() < 0.5:
            return None
        return f"{self._random.random()}-" * 150


def under_full_names(
    entries: Iterable[LedgerEntry], names: Mapping[str, str]
) -> tuple[LedgerEntry, ...]:
    """Entries under the tables' names in the chain."""
    return tuple(replace(entry, table=names[entry.table]) for entry in entries)
