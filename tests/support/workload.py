"""Traffic for fault tests: seeded transactions over several tables, through server restarts.

Every committed transaction leaves one row in ``ledger``, which is never changed after: what is in
the log twice or not at all shows there. ``ver`` only ever grows for a row.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import psycopg2
import psycopg2.errors

from tests.support.traffic import Traffic

TABLES = ("public.accounts", "public.ledger", "public.orders", "public.pairs")
HOT_KEYS = 8
ORDERS = 1_500
PAIRS = 300
_MOVE = 10_000_000

SCHEMA = (
    "CREATE TABLE accounts (id int PRIMARY KEY, ver bigint NOT NULL, balance numeric(14,2),"
    " note text)",
    "CREATE TABLE ledger (id bigint PRIMARY KEY, ver bigint NOT NULL, at timestamptz NOT NULL)",
    "CREATE TABLE orders (id bigint PRIMARY KEY, ver bigint NOT NULL, status text,"
    " amount numeric, at timestamp, doc text)",
    "ALTER TABLE orders ALTER COLUMN doc SET STORAGE EXTERNAL",
    "CREATE TABLE pairs (a int, b text, ver bigint NOT NULL, v text, PRIMARY KEY (b, a))",
    "INSERT INTO accounts SELECT g, 0, g, 'account' FROM generate_series(1, 8) g",
    "INSERT INTO orders SELECT g, 0, 'new', g * 1.5, '2024-01-01'::timestamp + g * interval '1 s',"
    " CASE WHEN g % 4 = 0 THEN repeat(g || '-', 900) END FROM generate_series(1, 1500) g",
    "INSERT INTO pairs SELECT g, 'k' || g % 7, 0, 'v' FROM generate_series(1, 300) g",
)
"""``doc`` lies out of line, so that an update that leaves it alone does not log it."""


class Workload(Traffic):
    """`Traffic` on PostgreSQL."""

    refused = psycopg2.OperationalError
    lost = (psycopg2.OperationalError, psycopg2.InterfaceError)

    def __init__(self, dsn: str, *, seed: int, clients: int = 3, pause_s: float = 0.002) -> None:
        super().__init__(seed=seed, clients=clients, pause_s=pause_s)
        self._dsn = dsn

    def client(self, random_: random.Random, number: int) -> _Client:
        return _Client(random_, number, self.counts)

    def connect(self) -> Any:
        return psycopg2.connect(self._dsn, application_name="traffic")

    def disconnect(self, connection: Any) -> None:
        connection.close()


class _Client:
    """One client's random transactions."""

    def __init__(self, random_: random.Random, number: int, counts: Counter[str]) -> None:
        self._random = random_
        self._base = (number + 1) * 1_000_000
        self._counts = counts
        self._transactions = 0
        self._orders = list(range(1, ORDERS + 1))
        self._pairs = [(a, f"k{a % 7}") for a in range(1, PAIRS + 1)]
        self._operations = (
            [self._pay] * 4
            + [self._insert_order] * 4
            + [self._touch_order] * 4
            + [self._rewrite_doc, self._delete_order, self._move_order]
            + [self._change_pair, self._move_pair]
        )

    def transact(self, connection: Any, cursor: Any) -> None:
        """One transaction; one in ten is rolled back, one in five has work behind a savepoint."""
        self._transactions += 1
        try:
            cursor.execute(
                "INSERT INTO ledger VALUES (%s, 1, clock_timestamp())",
                (self._base * 1000 + self._transactions,),
            )
            for _ in range(self._random.randint(1, 4)):
                self._random.choice(self._operations)(cursor)
            if self._random.random() < 0.2:
                cursor.execute("SAVEPOINT s")
                self._random.choice(self._operations)(cursor)
                cursor.execute("ROLLBACK TO s")
                self._counts["savepoints"] += 1
            if self._random.random() < 0.1:
                connection.rollback()
                self._counts["rollbacks"] += 1
            else:
                connection.commit()
                self._counts["commits"] += 1
        except (psycopg2.extensions.TransactionRollbackError, psycopg2.errors.UniqueViolation):
            connection.rollback()
            self._counts["conflicts"] += 1

    def _pay(self, cursor: Any) -> None:
        cursor.execute(
            "UPDATE accounts SET ver = ver + 1, balance = balance + %s WHERE id = %s",
            (self._random.randint(-500, 500), self._random.randint(1, HOT_KEYS)),
        )

    def _insert_order(self, cursor: Any) -> None:
        key = self._base + self._random.randrange(1_000_000)
        cursor.execute(
            "INSERT INTO orders VALUES (%s, 1, 'new', %s, now()::timestamp, %s)"
            " ON CONFLICT DO NOTHING",
            (key, self._random.random(), self._doc()),
        )
        self._orders.append(key)

    def _touch_order(self, cursor: Any) -> None:
        """An update that leaves ``doc`` alone."""
        cursor.execute(
            "UPDATE orders SET ver = ver + 1, status = %s WHERE id = %s",
            (self._random.choice(("paid", "sent", None)), self._random.choice(self._orders)),
        )

    def _rewrite_doc(self, cursor: Any) -> None:
        cursor.execute(
            "UPDATE orders SET ver = ver + 1, doc = %s WHERE id = %s",
            (self._doc(), self._random.choice(self._orders)),
        )

    def _delete_order(self, cursor: Any) -> None:
        cursor.execute("DELETE FROM orders WHERE id = %s", (self._random.choice(self._orders),))

    def _move_order(self, cursor: Any) -> None:
        """A changed key, back and forth, which leaves ``doc`` alone."""
        key = self._random.choice(self._orders)
        pair = [key, key + _MOVE]
        self._random.shuffle(pair)
        cursor.execute(
            "UPDATE orders SET ver = ver + 1, id = %s WHERE id = %s"
            " AND NOT EXISTS (SELECT FROM orders WHERE id = %s)",
            (pair[0], pair[1], pair[0]),
        )

    def _change_pair(self, cursor: Any) -> None:
        cursor.execute(
            "INSERT INTO pairs VALUES (%s, %s, 1, 'v')"
            " ON CONFLICT (b, a) DO UPDATE SET ver = pairs.ver + 1, v = %s",
            (*self._random.choice(self._pairs), str(self._random.random())),
        )

    def _move_pair(self, cursor: Any) -> None:
        a, b = self._random.choice(self._pairs)
        cursor.execute(
            "UPDATE pairs SET ver = ver + 1, b = b || '+' WHERE (a, b) = (%s, %s)", (a, b)
        )

    def _doc(self) -> str | None:
        if self._random.random() < 0.5:
            return None
        return f"{self._random.random()}-" * 180
