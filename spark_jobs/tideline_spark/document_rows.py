"""Joins the members of an aggregate to documents: one row for each row of the root.

A row has the root's key and the columns that documents show, a column for each child (a list of
structs ordered by the child's key, or a struct, or NULL), and `OVERFLOW`. Structs are made alike.
Children are grouped by the columns that they are joined by before they are joined: no level
multiplies another one's rows. NULL joins nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tideline.contract.aggregates import Aggregate, Member
from tideline.contract.errors import Misconfigured
from tideline.contract.part import OVERFLOW
from tideline.contract.schema import TableSchema
from tideline_spark.schemas import column as col
from tideline_spark.schemas import quote

_JOINED = "_tl_of_child"
_PARENT = "_tl_of_parent"
_KEY = "_tl_key"
_OBJECT = "_tl_object"
_GROUP = "_tl_group"

Schemas = Mapping[str, TableSchema]
Rows = Mapping[str, DataFrame]


def documents(aggregate: Aggregate, rows: Rows, schemas: Schemas) -> DataFrame:
    """Return the documents of the members' ``rows``, by table.

    Raises Misconfigured where two names of one object differ in nothing but their case, which
    Spark takes for one.
    """
    root = aggregate.root
    joined = _with_children(root, rows, schemas)
    names = root_columns(root, schemas[root.table])
    fields = [child.field for child in root.children]
    _check_names(root.table, (*names, *fields))
    return joined.select(
        *(col(name) for name in names),
        *(col(_field(at)).alias(field) for at, field in enumerate(fields)),
        _overflow(names),
    )


def root_columns(root: Member, schema: TableSchema) -> tuple[str, ...]:
    """Return the root's columns in a document's row: its key, shown or not, and those shown."""
    shown = root.shown(schema)
    return (*(name for name in schema.key if name not in shown), *shown)


def _with_children(member: Member, rows: Rows, schemas: Schemas) -> DataFrame:
    """Return the member's rows with a column (`_field`) for each of its children."""
    frame = rows[member.table]
    for at, child in enumerate(member.children):
        grouped = _grouped(child, rows, schemas).withColumnRenamed(_GROUP, _field(at))
        names = [_joined(number) for number in range(len(child.joined))]
        same = [
            col(parent, of=_PARENT) == col(name, of=_JOINED)
            for parent, name in zip(child.parents, names, strict=True)
        ]
        frame = frame.alias(_PARENT).join(grouped.alias(_JOINED), same, "left").drop(*names)
        if child.many:
            frame = frame.withColumn(_field(at), F.coalesce(col(_field(at)), F.array()))
    return frame


def _grouped(child: Member, rows: Rows, schemas: Schemas) -> DataFrame:
    """Return what belongs to a parent (`_GROUP`), by the columns that it is joined by
    (`_joined`)."""
    schema = schemas[child.table]
    shown, fields = child.shown(schema), [one.field for one in child.children]
    _check_names(child.table, (*shown, *fields))
    whole = F.struct(
        *(col(name) for name in shown),
        *(col(_field(at)).alias(field) for at, field in enumerate(fields)),
        _overflow(shown),
    )
    named = [_joined(number) for number in range(len(child.joined))]
    objects = _with_children(child, rows, schemas).select(
        *(col(own).alias(name) for own, name in zip(child.own, named, strict=True)),
        F.struct(*(col(name) for name in schema.key)).alias(_KEY),
        whole.alias(_OBJECT),
    )
    for name in named:
        objects = objects.where(col(name).isNotNull())
    grouped = objects.groupBy(*(col(name) for name in named))
    if not child.many:
        return grouped.agg(F.min_by(col(_OBJECT), col(_KEY)).alias(_GROUP))
    ordered = F.sort_array(F.collect_list(F.struct(col(_KEY), col(_OBJECT))))
    return grouped.agg(ordered.getField(_OBJECT).alias(_GROUP))


def _overflow(shown: Sequence[str]) -> Column:
    """Return the texts of values that their columns' types cannot hold, by column; NULL without
    any. A list, because Spark compares no maps."""
    entries = F.filter(F.map_entries(col(OVERFLOW)), lambda one: one["key"].isin(*shown))
    listed = F.transform(
        F.array_sort(entries),
        lambda one: F.struct(one["key"].alias("column"), one["value"].alias("text")),
    )
    return F.when(F.size(entries) > 0, listed).alias(OVERFLOW)


def _check_names(table: str, names: Sequence[str]) -> None:
    twice = [name for name, count in Counter(one.lower() for one in names).items() if count > 1]
    if twice:
        raise Misconfigured(
            f"a document's object of {table} has two fields {quote(twice[0])}, which Spark takes"
            " for one whatever their case",
            hint="give the child's field another name, or list the columns that are shown",
        )


def _field(at: int) -> str:
    return f"_tl_child_{at}"


def _joined(number: int) -> str:
    return f"_tl_joined_{number}"
