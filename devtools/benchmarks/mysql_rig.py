"""A MySQL or MariaDB server with the table of all measurements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from devtools.services.binlog_server import NOT_DURABLE, BinlogServer
from devtools.services.mariadb import MariadbServer
from devtools.services.mysql import MysqlServer
from devtools.services.valkey import ValkeyServer
from tideline.settings import Settings, make_settings

SERVERS: tuple[Literal["mariadb", "mysql"], ...] = ("mariadb", "mysql")
_LARGE = {"innodb_buffer_pool_size": "512M", "max_binlog_size": "1G", "max_allowed_packet": "1G"}
_DATABASE = "shop"
_COLUMNS = (
    "id bigint primary key",
    "customer_id int not null",
    "status smallint not null",
    "flags bigint not null",
    "amount decimal(12,2) not null",
    "weight double not null",
    "sku varchar(32) not null",
    "note varchar(64)",
    "city varchar(32)",
    "active boolean not null",
    "created_at datetime(6) not null",
    "updated_at timestamp(3) not null",
)
_ROW = """
  SELECT g, g % 50000, g % 7, g * 31 % 4294967296, (g % 1000000) / 100, g * 0.5,
    concat('SKU-', g % 9999), CASE WHEN g % 3 = 0 THEN NULL ELSE concat('note of order ', g) END,
    CASE WHEN g % 5 = 0 THEN NULL ELSE concat('city ', g % 400) END, g % 2 = 0,
    timestamp'2026-01-01 00:00:00' + interval g second,
    timestamp'2026-01-01 00:00:00' + interval g * 1000 microsecond
"""
_ONE_BY_ONE = """
CREATE PROCEDURE one_by_one(total INT, changes INT)
BEGIN
  DECLARE i INT DEFAULT 1;
  WHILE i <= changes DO
    UPDATE orders SET amount = amount + 1, updated_at = updated_at + interval 1000 microsecond
    WHERE id = (CAST(i AS SIGNED) * 7919) % total + 1;
    COMMIT;
    SET i = i + 1;
  END WHILE;
END
"""


@dataclass
class MysqlRig:
    """A source with a database ``shop``; ``cursor`` is on it, in autocommit."""

    name: str
    folder: Path
    server: BinlogServer
    valkey: ValkeyServer
    cursor: Any

    def settings(
        self,
        *,
        initial: str = "log-only",
        pipeline: str = "shop",
        tables: Sequence[str] = ("shop.orders",),
        **capture: Any,
    ) -> Settings:
        """Return settings of ``pipeline`` into a local store."""
        limits = {"heartbeat_s": 1.0, "takeover_after_s": 2.0, **capture}
        source = {"url": self.server.url(), "tables": list(tables), "initial": initial}
        return make_settings(
            {
                "pipeline": pipeline,
                "source": source,
                "store": {"url": f"file://{self.folder}/store"},
                "control": {"url": self.valkey.url()},
                "warehouse": {"url": f"file://{self.folder}/warehouse"},
                "capture": limits,
            }
        )

    def create(self) -> None:
        """Create the empty table ``orders``."""
        self.cursor.execute(f"CREATE TABLE orders ({', '.join(_COLUMNS)})")
        self.cursor.execute("CREATE TABLE numbers (n int primary key)")
        self.cursor.executemany("INSERT INTO numbers VALUES (%s)", [(n,) for n in range(1000)])
        self.cursor.execute(_ONE_BY_ONE)

    def insert_in_bulk(self, rows: int) -> None:
        """Make W1, ``rows`` inserts in transactions of 1,000."""
        for first in range(1, rows + 1, 1000):
            wanted = f"n < {min(1000, rows + 1 - first):d}"
            numbers = f"SELECT n + {first:d} AS g FROM numbers WHERE {wanted}"  # noqa: S608
            self.cursor.execute(f"INSERT INTO orders {_ROW} FROM ({numbers}) AS s")

    def update_one_by_one(self, rows: int, changes: int) -> None:
        """Make W2, ``changes`` single-row updates, each a transaction, inside the server."""
        self.cursor.execute(f"CALL one_by_one({rows:d}, {changes:d})")

    def position(self) -> tuple[str, int]:
        """Return the end of the log."""
        self.cursor.execute("SHOW MASTER STATUS")
        file, offset = self.cursor.fetchone()[:2]
        return str(file), int(offset)


@contextmanager
def mysql_rig(name: Literal["mariadb", "mysql"]) -> Iterator[MysqlRig]:
    """Start a separate server and Valkey, removed at the end."""
    with TemporaryDirectory(prefix="tideline-bench-") as folder:
        place = Path(folder)
        place.chmod(0o755)
        settings = {**NOT_DURABLE, **_LARGE}
        made: BinlogServer = (
            MariadbServer(place / "server", settings=settings)
            if name == "mariadb"
            else MysqlServer(place / "server", version="8.0", settings=settings)
        )
        with made as server, ValkeyServer(place / "valkey") as valkey:
            connection = server.connect(autocommit=True, read_timeout=3600)
            cursor = connection.cursor()
            cursor.execute("SET time_zone = '+00:00'")
            cursor.execute(f"CREATE DATABASE {_DATABASE}")
            cursor.execute(f"USE {_DATABASE}")
            yield MysqlRig(name, place, server, valkey, cursor)
            connection.close()
