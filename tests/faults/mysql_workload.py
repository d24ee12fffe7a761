"""Traffic for fault tests on MySQL and MariaDB: seeded transactions, through server restarts.

As `tests.support.workload`: every committed transaction leaves one row in ``ledger``, which is
never changed after, and ``ver`` only ever grows for a row.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pymysql
from pymysql.constants import ER

from tests.fixtures.capture import Pipeline
from tests.fixtures.mysql_servers import MysqlDatabase
from tests.support.checks import Captured, check_equal, check_history, compare, source_rows
from tests.support.traffic import Traffic

_ISAM = "isam"
NAMES = ("accounts", "ledger", "orders", "pairs", _ISAM)
VERSIONED = ("accounts", "orders", "pairs")
HOT_KEYS = 8
ORDERS = 600
PAIRS = 200
_MOVE = 10_000_000
_CONFLICTS = (ER.LOCK_DEADLOCK, ER.LOCK_WAIT_TIMEOUT, ER.DUP_ENTRY)


def _filled(table: str, rows: list[str]) -> str:
    return f"INSERT INTO {table} VALUES {', '.join(rows)}"  # noqa: S608


SCHEMA = (
    "CREATE TABLE accounts (id INT PRIMARY KEY, ver BIGINT NOT NULL, balance DECIMAL(14,2),"
    " note TEXT)",
    "CREATE TABLE ledger (id BIGINT PRIMARY KEY, ver BIGINT NOT NULL, at TIMESTAMP(6) NOT NULL"
    " DEFAULT CURRENT_TIMESTAMP(6))",
    "CREATE TABLE orders (id BIGINT PRIMARY KEY, ver BIGINT NOT NULL, status VARCHAR(9),"
    " amount DOUBLE, doc TEXT, KEY (status))",
    "CREATE TABLE pairs (a INT, b VARCHAR(99) COLLATE utf8mb4_general_ci, ver BIGINT NOT NULL,"
    " v TEXT, PRIMARY KEY (b, a))",
    "CREATE TABLE isam (id BIGINT PRIMARY KEY, v TEXT) ENGINE = MyISAM",
    _filled("accounts", [f"({n}, 0, {n}, 'account')" for n in range(1, HOT_KEYS + 1)]),
    _filled("orders", [f"({n}, 0, 'new', {n} * 1.5, NULL)" for n in range(1, ORDERS + 1)]),
    _filled("pairs", [f"({n}, 'k{n % 7}', 0, 'v')" for n in range(1, PAIRS + 1)]),
)


class MysqlWorkload(Traffic):
    """`Traffic` on MySQL and MariaDB.

    ``large``: some transactions change many rows. A MariaDB that is killed while it writes such a
    one leaves half of it in its log, which is a stop.
    """

    refused = pymysql.OperationalError
    lost = (pymysql.OperationalError, pymysql.InterfaceError)

    def __init__(
        self,
        database: MysqlDatabase,
        *,
        seed: int,
        clients: int = 2,
        pause_s: float = 0.004,
        large: bool = True,
    ) -> None:
        super().__init__(seed=seed, clients=clients, pause_s=pause_s)
        self._database = database
        self._large = large

    def client(self, random_: random.Random, number: int) -> _Client:
        return _Client(random_, number, self.counts, large=self._large)

    def connect(self) -> Any:
        return self._database.connect(autocommit=False)

    def disconnect(self, connection: Any) -> None:
        connection._force_close()


class _Client:
    """One client's random transactions."""

    def __init__(
        self, random_: random.Random, number: int, counts: Counter[str], *, large: bool
    ) -> None:
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
            + [self._touch_many] * large
            + [self._delete_order, self._move_order]
            + [self._change_pair, self._recase_pair, self._move_pair]
        )

    def transact(self, connection: Any, cursor: Any) -> None:
        """One transaction; one in ten is rolled back, one in five has work behind a savepoint."""
        self._transactions += 1
        try:
            if self._random.random() < 0.05:
                self._write_isam(connection, cursor)
            cursor.execute(
                "INSERT INTO ledger (id, ver) VALUES (%s, 1)",
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
        except pymysql.MySQLError as error:
            if error.args[0] not in _CONFLICTS:
                raise
            connection.rollback()
            self._counts["conflicts"] += 1

    def _write_isam(self, connection: Any, cursor: Any) -> None:
        connection.rollback()
        cursor.execute("INSERT INTO isam VALUES (%s, 'x')", (self._base + self._transactions,))
        connection.commit()

    def _pay(self, cursor: Any) -> None:
        cursor.execute(
            "UPDATE accounts SET ver = ver + 1, balance = balance + %s WHERE id = %s",
            (self._random.randint(-500, 500), self._random.randint(1, HOT_KEYS)),
        )

    def _insert_order(self, cursor: Any) -> None:
        key = self._base + self._random.randrange(1_000_000)
        cursor.execute(
            "INSERT IGNORE INTO orders VALUES (%s, 1, 'new', %s, %s)",
            (key, self._random.random(), self._doc()),
        )
        self._orders.append(key)

    def _touch_order(self, cursor: Any) -> None:
        cursor.execute(
            "UPDATE orders SET ver = ver + 1, status = %s WHERE id = %s",
            (self._random.choice(("paid", "sent", None)), self._random.choice(self._orders)),
        )

    def _touch_many(self, cursor: Any) -> None:
        first = self._random.choice(self._orders)
        cursor.execute(
            "UPDATE orders SET ver = ver + 1, doc = %s WHERE id BETWEEN %s AND %s",
            (self._doc(), first, first + 150),
        )

    def _delete_order(self, cursor: Any) -> None:
        cursor.execute("DELETE FROM orders WHERE id = %s", (self._random.choice(self._orders),))

    def _move_order(self, cursor: Any) -> None:
        """A changed key, back and forth."""
        key = self._random.choice(self._orders)
        pair = [key, key + _MOVE]
        self._random.shuffle(pair)
        cursor.execute("UPDATE IGNORE orders SET ver = ver + 1, id = %s WHERE id = %s", pair)

    def _change_pair(self, cursor: Any) -> None:
        cursor.execute(
            "INSERT INTO pairs VALUES (%s, %s, 1, 'v')"
            " ON DUPLICATE KEY UPDATE ver = ver + 1, v = %s",
            (*self._random.choice(self._pairs), str(self._random.random())),
        )

    def _recase_pair(self, cursor: Any) -> None:
        """Another key, and the same to the server."""
        a, b = self._random.choice(self._pairs)
        other = self._random.choice((b.upper(), b))
        cursor.execute(
            "UPDATE pairs SET ver = ver + 1, b = %s WHERE a = %s AND b = %s", (other, a, b)
        )

    def _move_pair(self, cursor: Any) -> None:
        a, b = self._random.choice(self._pairs)
        cursor.execute(
            "UPDATE pairs SET ver = ver + 1, b = CONCAT(b, '+') WHERE a = %s AND b = %s", (a, b)
        )

    def _doc(self) -> str | None:
        if self._random.random() < 0.5:
            return None
        return f"{self._random.random()}-" * 180


def check(shop: Pipeline[MysqlDatabase], *, crashed: bool = False) -> Captured:
    """All tables equal the source, nothing is there twice, no value ever went back.

    ``crashed``: the server was killed. MyISAM takes note of a row after the log has it: its table
    may lack what the log says, which no reader of the log can tell.
    """
    name = shop.database.name
    compared = [f"{name}.{table}" for table in NAMES if not (crashed and table == _ISAM)]
    captured = check_equal(shop.settings, shop.database, compared)
    versioned = [f"{name}.{table}" for table in VERSIONED]
    check_history(captured, ledger=f"{name}.ledger", versioned=versioned)
    if crashed:
        schema = captured.schemas[f"{name}.{_ISAM}"]
        left = source_rows(shop.database, schema)
        found = {key: row for key, row in captured.rows(f"{name}.{_ISAM}").items() if key in left}
        assert not compare(left, found)
    return captured
