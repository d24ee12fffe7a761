"""An Iceberg table through one Spark session: its metadata, and the settings that its commits
carry."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession, types

from tideline.contract.errors import InvariantBroken, Misconfigured
from tideline.contract.plan import CommitMetadata
from tideline.contract.target_url import CATALOG
from tideline.warehouse.iceberg.metadata import (
    APPLIED_KEY,
    COMMIT_KEY,
    NUMBERS_KEY,
    SCHEMA_KEY,
    IcebergMetadata,
    TableSnapshot,
    format_numbers,
)
from tideline.warehouse.iceberg.names import CATALOG_SETTING, identifier_of
from tideline_spark.formats.iceberg.connections import catalog_of
from tideline_spark.formats.iceberg.publishing import Publication, conflict
from tideline_spark.formats.iceberg.write_modes import make_writable
from tideline_spark.formats.session_settings import setting
from tideline_spark.schemas import quote

_SUMMARY = "spark.sql.iceberg.snapshot-property."
_ABSENT = ("NoSuchTableException", "NoSuchNamespaceException", "NoSuchIcebergTableException")


class Judged(NamedTuple):
    """The ids of a snapshot, and of the schema, that a run has judged; None for none."""

    snapshot: int | None
    schema: int | None

    @classmethod
    def of(cls, table: Any) -> Judged:
        """Return what Iceberg's own ``table`` has."""
        current = table.currentSnapshot()
        snapshot = None if current is None else int(current.snapshotId())
        return cls(snapshot, int(table.schema().schemaId()))


class IcebergAccess:
    """One table by its url, through its own session; made and used in one thread."""

    def __init__(self, session: SparkSession, url: str) -> None:
        self.session = session
        gateway: Any = session.sparkContext._gateway
        self.jvm = jvm = gateway.jvm
        # Iceberg's own calls look for a session in the thread; statements set it themselves.
        active = jvm.org.apache.spark.sql.classic.SparkSession
        active.setActiveSession(session._jsparkSession)
        if not session.conf.get(CATALOG_SETTING, ""):
            raise Misconfigured(
                "this Spark was started without the catalog of Iceberg tables",
                hint="run the job by `tideline` or by Airflow's tasks, which set it",
            )
        self.namespace, self.table_name = identifier_of(url)
        self._judged: Judged | None = None
        """What the run has looked at, or has made itself since; None before it has looked."""

    @property
    def name(self) -> str:
        """The table's name in SQL."""
        return ".".join(map(quote, (CATALOG, self.namespace, self.table_name)))

    @property
    def catalog(self) -> Any:
        """Iceberg's own catalog."""
        return catalog_of(self.session)

    @property
    def identifier(self) -> Any:
        """The table's name as Iceberg's own object."""
        levels = self._array(self.jvm.java.lang.String, [self.namespace])
        iceberg = self.jvm.org.apache.iceberg.catalog
        return iceberg.TableIdentifier.of(iceberg.Namespace.of(levels), self.table_name)

    def find(self) -> Any | None:
        """Return Iceberg's own table, as the catalog has it now; None without one."""
        try:
            return self.catalog.loadTable(self.identifier)
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() in _ABSENT:
                return None
            raise

    def look(self) -> Any | None:
        """Return what `find` does; what the table has counts as known from here on."""
        found = self.find()
        if found is not None:
            self._judged = Judged.of(found)
        return found

    def load(self) -> Any:
        """Return Iceberg's own table, which must be there."""
        found = self.find()
        if found is None:
            raise InvariantBroken(f"the table {self.name} is gone")
        return found

    def metadata(self) -> IcebergMetadata | None:
        """Return the table's metadata as it is now; None without a table."""
        found = self.find()
        return None if found is None else self.metadata_of(found)

    def metadata_of(self, table: Any) -> IcebergMetadata:
        """Return the metadata of Iceberg's own ``table`` as it was loaded, in one call of Java."""
        current = table.operations().current()
        return IcebergMetadata(self.jvm.org.apache.iceberg.TableMetadataParser.toJson(current))

    def own_columns(self, commit_metadata: CommitMetadata) -> None:
        """Have the columns that a commit of ``commit_metadata`` has made count as known."""
        metadata, text = self.metadata(), commit_metadata.text()
        for one in () if metadata is None else metadata.line():
            if one.summary.get(COMMIT_KEY) == text and one.judged_schema is None:
                self._judged = Judged(one.id, one.schema_id)
                return

    def check_columns(self, now: IcebergMetadata) -> None:
        """Raise a conflict where the table has other columns than the run has looked at, or another
        run has committed since: a commit that makes columns what they are would undo that, and hide
        it."""
        known = self._judged
        if known is not None and not (
            now.has_columns_of(known.schema) and now.only_others_since(known.snapshot)
        ):
            raise conflict("the columns were changed since the run looked at them")

    def commit_columns(self, table: Any, transaction: Any, commit_metadata: CommitMetadata) -> None:
        """Commit a transaction that changes columns of Iceberg's own ``table``, with an empty
        snapshot that marks them as ours."""
        before = self.metadata_of(table)
        self.check_columns(before)
        marked = transaction.newFastAppend()
        for name, value in summary(before, commit_metadata, {}).items():
            marked = marked.set(name, value)
        marked.commit()
        self.commit_on(table, transaction)
        self._judged = Judged.of(transaction.table())

    def commit_on(self, table: Any, transaction: Any) -> None:
        """Commit a transaction of Iceberg's own ``table``, if nothing was committed to that since
        the transaction began: its own commit would repeat it on what others have committed.

        A REST catalog compares what the transaction changes: columns where it changes columns, the
        snapshot where it makes one, and never properties.
        """
        operations = table.operations()
        operations.commit(operations.current(), transaction.table().operations().current())

    def make_namespace(self) -> None:
        """Make the table's namespace where it is not there; another run may be faster."""
        levels, catalog = self.identifier.namespace(), self.catalog
        if catalog.namespaceExists(levels):
            return
        try:
            catalog.createNamespace(levels)
        except Py4JJavaError:
            if not catalog.namespaceExists(levels):
                raise

    def spark_schema(self, table: Any) -> types.StructType:
        """Return the columns of Iceberg's own ``table`` as Spark has them."""
        convert = self.jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert
        return types.StructType.fromJson(json.loads(convert(table.schema()).json()))

    def iceberg_type(self, data_type: types.DataType) -> Any:
        """Return a type as Iceberg's own object."""
        known = self.jvm.org.apache.spark.sql.types.DataType.fromJson(data_type.json())
        return self.jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert(known)

    @contextmanager
    def committing(
        self, before: IcebergMetadata, commit_metadata: CommitMetadata, numbers: Mapping[str, int]
    ) -> Iterator[None]:
        """Have the one statement in the context record in its snapshot ``commit_metadata`` and the
        ``numbers`` that it sets, besides those that the table has ``before`` it, and which columns
        the run has judged. A commit of ours since ``before`` is a conflict."""
        make_writable(self, before)
        known, current = self._judged, before.current
        if known is None:
            known = Judged(*(None, None) if current is None else (current.id, current.schema_id))
        texts = summary(before, commit_metadata, numbers)
        texts |= {} if known.schema is None else {SCHEMA_KEY: str(known.schema)}
        publication = Publication(self, known.snapshot)
        publication.prepare(before)
        with setting(self.session, {**_in_summary(texts), **publication.settings}):
            yield
        published = publication.publish()
        if self._judged is not None and published is not None:
            self._judged = Judged(published, known.schema)

    @contextmanager
    def replacing(
        self,
        before: IcebergMetadata | None,
        commit_metadata: CommitMetadata,
        numbers: Mapping[str, int],
    ) -> Iterator[None]:
        """Do the same for a statement that makes the table, or replaces all that it had
        ``before``."""
        texts = summary(before, commit_metadata, numbers)
        with setting(self.session, _in_summary(texts)):
            yield

    def _array(self, java_class: Any, items: list[Any]) -> Any:
        gateway: Any = self.session.sparkContext._gateway
        found = gateway.new_array(java_class, len(items))
        for at, one in enumerate(items):
            found[at] = one
        return found


def _in_summary(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the settings by which a statement adds ``texts`` to its snapshot's summary."""
    return {f"{_SUMMARY}{name}": text for name, text in texts.items()}


def summary(
    before: IcebergMetadata | None, commit_metadata: CommitMetadata, numbers: Mapping[str, int]
) -> dict[str, str]:
    """Return what a commit of ours adds to its snapshot's summary."""
    applied = {} if before is None else before.applied()
    return {
        COMMIT_KEY: commit_metadata.text(),
        NUMBERS_KEY: format_numbers(numbers),
        APPLIED_KEY: format_numbers({**applied, **numbers}),
    }


def made_by(
    metadata: IcebergMetadata | None, commit_metadata: CommitMetadata
) -> TableSnapshot | None:
    """Return the snapshot in which ``commit_metadata`` set its number; None where another run's
    commit did, or none."""
    for one in () if metadata is None else metadata.line():
        number = one.numbers().get(commit_metadata.app_id)
        if number is not None and number <= commit_metadata.to_manifest:
            ours = one.summary.get(COMMIT_KEY) == commit_metadata.text()
            return one if number == commit_metadata.to_manifest and ours else None
    return None
