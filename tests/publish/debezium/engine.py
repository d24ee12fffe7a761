"""The real Debezium against a database of a test, and what it has written."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from devtools.services.debezium import MARIADB, POSTGRES, DebeziumServer
from devtools.services.kafka import KafkaServer
from tests.fixtures.capture import poll
from tests.fixtures.mysql_servers import MysqlDatabase
from tests.fixtures.services import Database
from tests.publish.debezium.records import records_of

_COMMON = {"skipped.operations": "none", "include.schema.changes": "false"}
"""It leaves out truncates where it may."""


class Engine(DebeziumServer):
    """Debezium, with ``prefix`` as its topic prefix."""

    def __init__(
        self, folder: Path, database: Database | MysqlDatabase, kafka: KafkaServer, prefix: str
    ) -> None:
        self._prefix, self._server = prefix, kafka
        if isinstance(database, Database):
            connector, own = POSTGRES, _postgres(database)
        else:
            connector, own = MARIADB, _binlog(database, folder)
        settings = {**_COMMON, **own, "topic.prefix": prefix}
        super().__init__(folder, connector, kafka.address, settings)

    def await_mark(self, count: int) -> None:
        """Return once ``count`` rows of the table ``marks`` are there."""

        def there() -> bool:
            assert self.running
            records = records_of(self._server, self._prefix)
            return sum(one.table == "marks" for one in records) >= count

        poll(f"Debezium has written {count} marks", there, pause_s=1)


def _postgres(database: Database) -> dict[str, str]:
    url = urlsplit(database.dsn)
    return {
        "database.hostname": url.hostname or "",
        "database.port": str(url.port),
        "database.user": url.username or "",
        "database.password": unquote(url.password or ""),
        "database.dbname": database.name,
        "schema.include.list": "public",
        "plugin.name": "pgoutput",
        "slot.name": "debezium",
        "publication.name": "debezium",
        "publication.autocreate.mode": "filtered",
    }


def _binlog(database: MysqlDatabase, folder: Path) -> dict[str, str]:
    return {
        "database.hostname": "127.0.0.1",
        "database.port": str(database.server.port),
        "database.user": "root",
        "database.password": database.server.password,
        "database.server.id": "7777",
        "database.include.list": database.name,
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": str(folder / "history"),
    }
