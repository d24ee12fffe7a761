"""The sort order of an Iceberg table: rows are written in it, and rewritten by it.

The order is the table's own (``WRITE ORDERED BY``), by column ids: other writers follow it, and it
survives renames. A table is made by one statement, which cannot give it an order; that is set right
behind it, and by the next maintenance where a run was killed in between. No row depends on it.
"""

from __future__ import annotations

from typing import Any

from tideline.contract.table_layout import TableLayout
from tideline_spark.formats.iceberg.access import IcebergAccess
from tideline_spark.partition_values import partition_value
from tideline_spark.schemas import quote

FANOUT = "write.spark.fanout.enabled"
"""The property by which a table is written in the order in which rows come: otherwise Spark brings
those of a partition together again, in no order."""
MERGE_DISTRIBUTION = "write.merge.distribution-mode"
"""The property by which merges bring rows together before they write them. In a sorted table that
would be by ranges of its order, for which Spark first takes a sample of the merge's rows."""
UNSHUFFLED = "spark.sql.iceberg.distribution-mode"
"""The setting of Spark by which it does not shuffle rows to write them."""


def sorted_rows(layout: TableLayout) -> str:
    """Return the clause that sorts the rows of a whole table, partition by partition; "" for a
    layout without an order."""
    if not layout.cluster_by:
        return ""
    listed = (*map(partition_value, layout.fields), *map(quote, layout.cluster_by))
    return f" ORDER BY {', '.join(listed)}"


def writing_settings(layout: TableLayout) -> dict[str, str]:
    """Return the settings of Spark for a statement that writes `sorted_rows`."""
    return {UNSHUFFLED: "none"} if layout.cluster_by else {}


def making_properties(layout: TableLayout) -> dict[str, str]:
    """Return the properties with which a table is made that is written by `sorted_rows`, and merged
    into as one without an order."""
    fanout = {FANOUT: "true"} if layout.cluster_by and layout.partition_by else {}
    return {**merge_distribution(layout), **fanout}


def merge_distribution(layout: TableLayout) -> dict[str, str]:
    """Return how merges distribute rows: as Iceberg has it for a table without an order. It is
    always given, because an empty one, as a replaced table's would be, is an error."""
    return {MERGE_DISTRIBUTION: "hash" if layout.partition_by else "none"}


def set_order(access: IcebergAccess, layout: TableLayout) -> None:
    """Give the table the order of ``layout``, where it has another; metadata alone. A layout
    without one leaves the table what others gave it."""
    if not layout.cluster_by:
        return
    table = access.load()
    if _order_of(table) == list(layout.cluster_by):
        return
    transaction = table.newTransaction()
    order = transaction.replaceSortOrder()
    iceberg = access.jvm.org.apache.iceberg
    for name in layout.cluster_by:
        term = iceberg.expressions.Expressions.ref(name)
        order = order.asc(term, iceberg.NullOrder.NULLS_FIRST)
    order.commit()
    if layout.partition_by:
        transaction.updateProperties().remove(FANOUT).commit()
    transaction.commitTransaction()


def _order_of(table: Any) -> list[str]:
    """Return the columns that Iceberg's own ``table`` is sorted by."""
    schema = table.schema()
    return [schema.findColumnName(one.sourceId()) for one in table.sortOrder().fields()]
