"""Names the readers of warehouse tables, and the features of Delta that each of them reads right.

A table's log names the features that a reader must know. A table gets four of them at most:
`Feature`. Others never: clustering, row tracking and the like are known to writers only, and
checkpoints stay as they always were. A table that is to be read by named readers gets none that one
of them lacks.

What is not proven, by a run or by the reader's own documentation, counts as lacking: a reader that
knows more than this table says can be left out of ``readers``, and one that knows less would show
wrong rows. Names with a version mean that version or a newer one.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from tideline.contract.types import Kind, parse_type


class Feature(StrEnum):
    """A feature of tables that a reader must know, as a table's log names it.

    https://github.com/delta-io/delta/blob/master/PROTOCOL.md
    """

    DELETION_VECTORS = "deletionVectors"
    COLUMN_MAPPING = "columnMapping"
    TYPE_WIDENING = "typeWidening"
    TIMESTAMP_NTZ = "timestampNtz"

    @property
    def meaning(self) -> str:
        """Return the content of tables that need it, in words."""
        return _MEANINGS[self]


_MEANINGS = {
    Feature.DELETION_VECTORS: "deletion vectors",
    Feature.COLUMN_MAPPING: "renamed or dropped columns, or names with spaces or ,;{}()=",
    Feature.TYPE_WIDENING: "types that grew",
    Feature.TIMESTAMP_NTZ: "timestamps without a zone",
}


class Evidence(StrEnum):
    """The ground of a claim about a reader."""

    RUN = "run"
    """It read such tables here, with equal rows."""
    DOCUMENTED = "documented"
    """Its documentation, or its source, says so."""


@dataclass(frozen=True, slots=True)
class KnownReader:
    """A reader and the features that it ``reads``. ``source`` says from where that is known.
    ``mapped_partitions``: it reads partitioned tables with column mapping, too."""

    reads: frozenset[Feature]
    evidence: Evidence
    source: str
    mapped_partitions: bool = True

    def lacks(self, feature: Feature, *, partitioned: bool) -> bool:
        """Return whether it lacks ``feature``, in a table that is ``partitioned`` or not."""
        if feature is Feature.COLUMN_MAPPING and partitioned and not self.mapped_partitions:
            return True
        return feature not in self.reads


def _reads(*features: Feature) -> frozenset[Feature]:
    return frozenset(features)


_VECTORS, _MAPPING, _WIDENING, _LOCAL = Feature
READERS: dict[str, KnownReader] = {
    "athena": KnownReader(
        _reads(_VECTORS, _MAPPING, _LOCAL),
        Evidence.DOCUMENTED,
        "docs.aws.amazon.com/athena/latest/ug/delta-lake-tables.html: reader version 3, deletion"
        " vectors, column mapping, timestampNtz; it does not name type widening",
    ),
    "bigquery": KnownReader(
        _reads(_VECTORS, _MAPPING),
        Evidence.DOCUMENTED,
        "docs.delta.io/bigquery-integration: reader version 3 with these two",
    ),
    "databricks-13.3": KnownReader(
        _reads(_VECTORS, _MAPPING, _LOCAL),
        Evidence.DOCUMENTED,
        "learn.microsoft.com/azure/databricks/delta/feature-compatibility",
    ),
    "databricks-16.4": KnownReader(
        frozenset(Feature),
        Evidence.DOCUMENTED,
        "the same, and docs.databricks.com, type-widening: from 15.4; in 15.2 a preview by"
        " another name, typeWidening-preview",
    ),
    "delta-2.4": KnownReader(
        _reads(_VECTORS, _MAPPING, _LOCAL),
        Evidence.DOCUMENTED,
        "docs.delta.io, versioning.html: Delta for Spark, the release that each needs",
    ),
    "delta-4.4": KnownReader(frozenset(Feature), Evidence.RUN, "Delta 4.4.0 on Spark 4: ours"),
    "delta-rs": KnownReader(
        _reads(_LOCAL),
        Evidence.RUN,
        "deltalake 1.6.6: to_pyarrow_table and to_pandas refuse deletion vectors and widened"
        " types, and show NULL in renamed columns of older files",
    ),
    "duckdb": KnownReader(
        frozenset(Feature),
        Evidence.RUN,
        "DuckDB 1.5.5 with its extension delta of that version; of partitioned tables that were"
        " made with column mapping it shows values in other columns than theirs",
        mapped_partitions=False,
    ),
    "fabric": KnownReader(
        _reads(_VECTORS),
        Evidence.DOCUMENTED,
        "learn.microsoft.com/fabric, delta-lake-interoperability and data-warehouse/limitations:"
        " SQL endpoint and Power BI's Direct Lake; column mapping is a preview",
    ),
    "polars": KnownReader(
        _reads(_VECTORS, _LOCAL),
        Evidence.RUN,
        "polars 2.1.0 with deltalake 1.6.6: it names the other features that a table needs, and"
        " refuses it",
    ),
    "redshift-spectrum": KnownReader(
        _reads(),
        Evidence.DOCUMENTED,
        "docs.delta.io/redshift-spectrum-integration: it reads Parquet by a list of files",
    ),
    "snowflake": KnownReader(
        _reads(_VECTORS),
        Evidence.DOCUMENTED,
        "docs.snowflake.com, release notes of 2026-03-02: tables by Delta's files; they name"
        " deletion vectors only",
    ),
    "trino-480": KnownReader(
        _reads(_VECTORS, _MAPPING, _LOCAL),
        Evidence.DOCUMENTED,
        "trinodb/trino, DeltaLakeTableFeatures.java: its supported reader features. Type widening"
        " is among them, but a column whose type grew in a way that it does not know is left out"
        " of the table without an error (pull request 22458); which ways these are it does not say",
    ),
}


def check_readers(names: Iterable[str]) -> None:
    """Raise ValueError for a name that is not in `READERS`, with what it may mean and all names."""
    for name in names:
        if name not in READERS:
            near = difflib.get_close_matches(name, READERS, n=1, cutoff=0.4)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"no such reader: {name!r}{meant} Known: {', '.join(READERS)}")


NEEDS_MAPPING = frozenset(" ,;{}()\n\t=")
"""Characters that column names in Parquet files cannot have."""


def features_of_column(name: str, type_text: str) -> list[Feature]:
    """Return the features that a table with such a column needs, by the text of its type."""
    found = [Feature.COLUMN_MAPPING] if NEEDS_MAPPING & set(name) else []
    if type_text and parse_type(type_text).kind is Kind.TIMESTAMP_NTZ:
        found.append(Feature.TIMESTAMP_NTZ)
    return found


def unread(feature: Feature, readers: Iterable[str]) -> str:
    """Return the reason for which a table must not have ``feature``."""
    return f"{', '.join(readers)} cannot read {feature.meaning} (feature {feature.value})"


def lacking(
    names: Iterable[str], features: Collection[str] = tuple(Feature), *, partitioned: bool = False
) -> dict[Feature, list[str]]:
    """Return those of ``features`` that one of the readers lacks in such a table, each with who
    lacks it."""
    readers = list(dict.fromkeys(names))
    found = {
        feature: [name for name in readers if READERS[name].lacks(feature, partitioned=partitioned)]
        for feature in Feature
        if feature in features
    }
    return {feature: who for feature, who in found.items() if who}
