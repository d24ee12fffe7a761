"""One connection of the shop's traffic: whole transactions, counted by what they changed.

Rows are divided among workers by id, so that workers never wait for one another's locks and never
deadlock, while their transactions still interleave in the source's log. Counts come from the
server's row counts; what is rolled back, whole or to a savepoint, is counted apart.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from devtools.demo.databases.choose import of_url

RECENT_ORDERS_MAX = 500


@dataclass(slots=True)
class Tally:
    """Changes by kind and by table; ``undone`` changes were made and rolled back."""

    transactions: int = 0
    rolled_back: int = 0
    savepoints_undone: int = 0
    undone: int = 0
    changed_keys: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    tables: Counter[str] = field(default_factory=Counter)

    @property
    def changes(self) -> int:
        """Committed inserts, updates and deletes of rows."""
        return self.kinds.total()

    def add(self, other: Tally) -> None:
        self.transactions += other.transactions
        self.rolled_back += other.rolled_back
        self.savepoints_undone += other.savepoints_undone
        self.undone += other.undone
        self.changed_keys += other.changed_keys
        self.kinds.update(other.kinds)
        self.tables.update(other.tables)


class Undo(Exception):
    """Raised inside ``ShopWorker.transaction`` or ``ShopWorker.savepoint`` to roll its work
    back."""


class ShopWorker:
    """A connection that owns the rows whose id is ``number`` modulo ``workers``.

    ``tally`` grows only when a transaction has ended. Errors of the database pass through.
    """

    def __init__(self, dsn: str, number: int, *, workers: int, seed: int) -> None:
        self.number = number
        self.workers = workers
        self.tally = Tally()
        database = of_url(dsn)
        self.words = database.words
        self._connection = database.connect(dsn, f"shop traffic {number}")
        self._cursor = self._connection.cursor()
        self._open: list[Tally] = []
        self.customers = self._owned("customers")
        self.products = self._owned("products")
        self.next_id = self._first_free_id()
        self.random = random.Random(f"{seed}/{number}/{self.next_id}")
        self.old_orders = self._owned("orders")
        self.recent_orders: list[int] = []
        self.joined: list[int] = []
        codes = self._column("SELECT code FROM coupons ORDER BY code")
        self.coupons = [code for at, code in enumerate(codes) if at % workers == number]

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run one transaction: committed at the end, rolled back on Undo."""
        self._open = [Tally()]
        self._cursor.execute("BEGIN")
        try:
            yield
        except Undo:
            self._cursor.execute("ROLLBACK")
            undone = self._open.pop()
            self.tally.rolled_back += 1
            self.tally.undone += undone.changes + undone.undone
            return
        self._cursor.execute("COMMIT")
        self.tally.add(self._open.pop())
        self.tally.transactions += 1

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Run a subtransaction of the open one: kept at the end, rolled back on Undo."""
        name = f"s{len(self._open)}"
        self._cursor.execute(f"SAVEPOINT {name}")
        self._open.append(Tally())
        try:
            yield
        except Undo:
            self._cursor.execute(f"ROLLBACK TO SAVEPOINT {name}")
            undone = self._open.pop()
            self._open[-1].savepoints_undone += 1
            self._open[-1].undone += undone.changes + undone.undone
            return
        self._cursor.execute(f"RELEASE SAVEPOINT {name}")
        kept = self._open.pop()
        self._open[-1].add(kept)

    def change(self, statement: str, values: tuple[Any, ...], *, moves_key: bool = False) -> int:
        """Run one INSERT, UPDATE or DELETE and count its rows; returns how many.

        ``moves_key``: the statement changes the key of every row that it touches.
        """
        self._cursor.execute(statement, values)
        rows: int = self._cursor.rowcount
        words = statement.split(None, 3)
        kind = words[0].upper()
        table = words[1] if kind == "UPDATE" else words[2]
        tally = self._open[-1]
        tally.kinds[kind] += rows
        tally.tables[table] += rows
        tally.changed_keys += rows if moves_key else 0
        return rows

    def new_id(self) -> int:
        """Return an unused id of this worker, for any table that the workers add rows to."""
        taken = self.next_id
        self.next_id += self.workers
        return taken

    def remember(self, order_id: int) -> None:
        """Keep an order for later payments and shipping; the oldest are forgotten."""
        self.recent_orders.append(order_id)
        if len(self.recent_orders) > RECENT_ORDERS_MAX:
            del self.recent_orders[0]

    def _owned(self, table: str) -> list[int]:
        return [
            int(found)
            for found in self._column(
                f"SELECT id FROM {table} WHERE id %% %s = %s ORDER BY id",  # noqa: S608
                (self.workers, self.number),
            )
        ]

    def _first_free_id(self) -> int:
        (largest,) = self._column(
            "SELECT greatest((SELECT coalesce(max(id), 0) FROM orders),"
            " (SELECT coalesce(max(id), 0) FROM customers),"
            " (SELECT coalesce(max(id), 0) FROM stock_movements))"
        )
        first = int(largest) + 1
        return first + (self.number - first) % self.workers

    def _column(self, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
        self._cursor.execute(query, values or None)
        return [row[0] for row in self._cursor.fetchall()]
