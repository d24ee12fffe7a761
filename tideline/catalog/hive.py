"""A Hive metastore, by its Thrift interface, with calls that every Hive has from 2.3 on: 4.0.1 has
removed ``get_table`` and ``get_table_objects_by_name`` (HIVE-26537)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import groupby
from typing import Any

from pymetastore.hive_metastore import ThriftHiveMetastore, ttypes
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.protocol.TProtocol import TProtocolException
from thrift.Thrift import TException
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TTransportException

from tideline.catalog import spark_table
from tideline.catalog.base import CatalogEntry, CatalogTable, entry_of
from tideline.catalog.names import CatalogName
from tideline.contract.errors import Misconfigured, Unavailable
from tideline.settings import Settings
from tideline.settings.addresses import split_url

_PORT = 9083
# What the client's socket logs of a failure, with a traceback, is in our error, too.
logging.getLogger("thrift.transport.TSocket").setLevel(logging.CRITICAL)
_FAILURES = {
    TTransportException.NOT_OPEN: "no connection",
    TTransportException.TIMED_OUT: "no answer in time",
}
_NAMES_MAX = 300
"""Names of one request."""
_WORDS_MAX = 300
_ANSWER_MAX = 64 * 1024 * 1024
_COLUMN = "col"
_NO_STATISTICS = ttypes.EnvironmentContext(properties={"DO_NOT_UPDATE_STATS": "true"})
"""It would count the files of the placeholder."""
_CAPABLE = ttypes.ClientCapabilities([ttypes.ClientCapability.INSERT_ONLY_TABLES])
"""Without it, one such table of others among the names would be an error of the whole request."""


class HiveCatalog:
    """See `Catalog`."""

    def __init__(self, settings: Settings) -> None:
        catalog = settings.warehouse.catalog
        parts = split_url(catalog.url or "")
        self._url = parts.geturl()
        socket = TSocket(parts.hostname, parts.port or _PORT)
        socket.setTimeout(1_000 * catalog.timeout_s)
        self._transport = TBufferedTransport(socket)
        self._client = ThriftHiveMetastore.Client(_protocol(self._transport))

    def check(self) -> str:
        """See `Catalog`."""
        with self._asking():
            found = self._client.get_all_databases()
        return f"the Hive metastore at {self._url} answers, and has {len(found)} databases"

    def find(self, names: Iterable[CatalogName]) -> Mapping[CatalogName, CatalogEntry]:
        """See `Catalog`: two requests for each schema."""
        found: dict[CatalogName, CatalogEntry] = {}
        for schema, group in groupby(sorted(names), key=lambda name: name.schema):
            tables = [name.table for name in group] if self._has(schema) else []
            for at in range(0, len(tables), _NAMES_MAX):
                for one in self._tables(schema, tables[at : at + _NAMES_MAX]):
                    found[CatalogName(schema, one.tableName.lower())] = _entry(one)
        return found

    def create(self, name: CatalogName, table: CatalogTable) -> bool:
        """See `Catalog`."""
        with self._asking():
            try:
                database = self._database(name.schema)
                self._client.create_table(_hive_table(name, table, database.locationUri))
            except ttypes.AlreadyExistsException:
                return False
        return True

    def update(self, name: CatalogName, table: CatalogTable) -> None:
        """See `Catalog`. What the metastore itself has put into the entry stays."""
        with self._asking():
            request = ttypes.GetTableRequest(name.schema, name.table, _CAPABLE)
            found = self._client.get_table_req(request).table
            wanted = _hive_table(name, table, None)
            kept = spark_table.properties_of_others(found.parameters or {})
            found.parameters = {**kept, **wanted.parameters}
            found.sd.serdeInfo.parameters = {
                **(found.sd.serdeInfo.parameters or {}),
                **wanted.sd.serdeInfo.parameters,
            }
            self._client.alter_table_with_environment_context(
                name.schema, name.table, found, _NO_STATISTICS
            )

    def drop(self, name: CatalogName) -> None:
        """See `Catalog`."""
        with self._asking(), suppress(ttypes.NoSuchObjectException):
            self._client.drop_table(name.schema, name.table, False)

    def close(self) -> None:
        """See `Catalog`."""
        with suppress(TException, OSError):
            self._transport.close()

    def _tables(self, schema: str, names: list[str]) -> list[Any]:
        with self._asking():
            request = ttypes.GetTablesRequest(schema, names, _CAPABLE)
            found: list[Any] = self._client.get_table_objects_by_name_req(request).tables
        return found

    def _has(self, schema: str) -> bool:
        """Return whether the schema is there. The client does not know the error with which a
        metastore of Hive 2 answers a question about the tables of one that is not."""
        with self._asking():
            try:
                self._client.get_database(schema)
            except ttypes.NoSuchObjectException:
                return False
        return True

    def _database(self, name: str) -> Any:
        """Return the schema, made if it is not there."""
        try:
            return self._client.get_database(name)
        except ttypes.NoSuchObjectException:
            made = ttypes.Database(name=name, description="", parameters={})
            with suppress(ttypes.AlreadyExistsException):
                self._client.create_database(made)
        return self._client.get_database(name)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Connect if need be; turn the client's errors into ours."""
        try:
            if not self._transport.isOpen():
                self._transport.open()
            yield
        except (TTransportException, TProtocolException, OSError, EOFError) as error:
            self.close()
            raise Unavailable(
                f"the Hive metastore at {self._url} does not answer: {_word(error)}",
                hint="check that one runs at that address, the key url of warehouse.catalog",
            ) from None
        except TException as error:
            why = str(getattr(error, "message", "") or "")[:_WORDS_MAX]
            raise Misconfigured(
                f"the Hive metastore at {self._url} refuses: {type(error).__name__}: {why}",
                hint="check what this user may do there, and where its schemas lie",
            ) from None


def _word(error: Exception) -> str:
    """Return what became of the connection, else the name of the error."""
    kind = error.type if isinstance(error, TTransportException) else None
    return _FAILURES.get(kind, type(error).__name__)


def _protocol(transport: Any) -> TBinaryProtocol:
    """Return the protocol, with limits: what is no metastore answers with lengths of gigabytes."""
    return TBinaryProtocol(
        transport, string_length_limit=_ANSWER_MAX, container_length_limit=_ANSWER_MAX
    )


def _entry(found: Any) -> CatalogEntry:
    serde = found.sd.serdeInfo if found.sd is not None else None
    path = (serde.parameters or {}).get(spark_table.PATH) if serde is not None else None
    location = path or (found.sd.location if found.sd is not None else None)
    return entry_of(location, found.parameters or {})


def _hive_table(name: CatalogName, table: CatalogTable, folder: str | None) -> Any:
    """Return the entry. The metastore makes a folder at the address that it takes for the table's,
    and may not reach the warehouse: as with Spark, that is a placeholder next to its own tables."""
    serde = ttypes.SerDeInfo(
        serializationLib=spark_table.SERDE, parameters=spark_table.serde_properties(table)
    )
    columns = [ttypes.FieldSchema(_COLUMN, "array<string>", "from deserializer")]
    return ttypes.Table(
        tableName=name.table,
        dbName=name.schema,
        owner="tideline",
        sd=ttypes.StorageDescriptor(
            cols=columns,
            location=None if folder is None else f"{folder}/{name.table}-__PLACEHOLDER__",
            inputFormat=spark_table.INPUT_FORMAT,
            outputFormat=spark_table.OUTPUT_FORMAT,
            serdeInfo=serde,
            bucketCols=[],
            sortCols=[],
            parameters={},
            numBuckets=-1,
        ),
        partitionKeys=[],
        parameters=spark_table.table_properties(table),
        tableType=spark_table.EXTERNAL,
    )
