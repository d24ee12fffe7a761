"""Replaces an Iceberg table's rows and columns as a whole, in one commit."""

from __future__ import annotations

from collections.abc import Mapping

from tideline.contract.partition_fields import PartitionField, Transform
from tideline.contract.plan import CommitMetadata
from tideline.contract.table_layout import TableLayout
from tideline.warehouse.iceberg.metadata import IcebergMetadata
from tideline_spark.formats.iceberg.access import IcebergAccess
from tideline_spark.formats.iceberg.ordering import (
    making_properties,
    set_order,
    sorted_rows,
    writing_settings,
)
from tideline_spark.formats.session_settings import setting
from tideline_spark.formats.statements import listed_properties
from tideline_spark.schemas import quote

_OWNER = "owner"
"""A property that Spark alone sets, to the user's name."""


def partitioned_by(layout: TableLayout) -> str:
    """Return the clause of a new table that is partitioned as ``layout`` says; "" for none."""
    listed = ", ".join(map(_field, layout.fields))
    return f" PARTITIONED BY ({listed})" if listed else ""


def _field(field: PartitionField) -> str:
    if field.transform is Transform.IDENTITY:
        return quote(field.column)
    size = f"{field.size}, " if field.size else ""
    return f"{field.transform.value}({size}{quote(field.column)})"


def emptied(before: IcebergMetadata | None, properties: Mapping[str, str]) -> dict[str, str]:
    """Return ``properties`` for a table that replaces another: Iceberg keeps those of the former
    one, so that those which are not among them are made empty, which counts as absent."""
    former = set() if before is None else set(before.properties) - {_OWNER}
    return {**dict.fromkeys(former, ""), **{n: v for n, v in properties.items() if n != _OWNER}}


def rewrite_as(access: IcebergAccess, columns: str, commit_metadata: CommitMetadata) -> None:
    """Replace the table by its own rows with ``columns``, a list in SQL; it keeps its properties,
    its partitions and what it has applied. One commit of ``commit_metadata``.

    A commit since the table was read is a conflict only where it is found before the rows are read;
    one that comes later is undone, and found in the log.
    """
    before = access.metadata_of(access.load())
    access.check_columns(before)
    layout = TableLayout.of_properties(before.properties)
    given = listed_properties(making_properties(layout))
    with (
        access.replacing(before, commit_metadata, {}),
        setting(access.session, writing_settings(layout)),
    ):
        made = f"CREATE OR REPLACE TABLE {access.name} USING iceberg{partitioned_by(layout)}"
        rows = f"SELECT {columns} FROM {access.name}{sorted_rows(layout)}"  # noqa: S608  quoted
        access.session.sql(f"{made} TBLPROPERTIES ({given}) AS {rows}").collect()
    access.own_columns(commit_metadata)
    set_order(access, layout)
