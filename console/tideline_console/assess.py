"""``tideline assess``: shows each table's and column's warehouse form before anything runs.

The tables come from capture's own reading of the catalog; the types are those of parts and merges;
tables that no merge could take are those that the planner would skip. Nothing is changed, and no
row is read.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from tideline.contract.planning.maker import unmergeable
from tideline.contract.schema import Column
from tideline.contract.target_types import target_type
from tideline.contract.target_url import table_format_of
from tideline.settings import Settings
from tideline_capture.sources.administration import AssessedTable
from tideline_capture.sources.registry import administration_of
from tideline_console.output import say, write_document, write_text
from tideline_console.places import address_of
from tideline_console.tables import print_table

FORMATS = ("text", "json", "csv")
_CONNECTIONS, _OF_A_DUMP = 3, 2
"""Connections of a worker: the log, the catalog, and the types or watermarks; and each dump's."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Characters that begin a formula in a spreadsheet. A name can begin with them."""
_WATERMARKS_OF_A_CHUNK = _WATERMARKS_OF_A_ROUND = 2

Outcome = Literal["captured", "not-mergeable", "quarantined"]


class ColumnOutcome(msgspec.Struct, frozen=True):
    """A column's types: ``type`` is the logical one, of parts; ``warehouse_type`` the target's, by
    its name in Spark's SQL or BigQuery's."""

    name: str
    source_type: str
    type: str
    warehouse_type: str
    key: bool


class TableOutcome(msgspec.Struct, frozen=True):
    """A table's outcome: ``captured``; ``not-mergeable``: captured, but no merge can take it;
    ``quarantined``: not captured. ``reason`` is the cause and ``hint`` the remedy. ``left_out``:
    columns that the source's log does not hold. ``rows`` and ``bytes`` are the source's estimates,
    ``chunks`` the number that a dump of these rows needs; None: unknown."""

    table: str
    outcome: Outcome
    mode: str
    target: str
    reason: str | None
    hint: str | None
    columns: tuple[ColumnOutcome, ...]
    left_out: tuple[str, ...]
    rows: int | None
    bytes: int | None
    chunks: int | None


class SourceCost(msgspec.Struct, frozen=True):
    """The load on the source: once, to dump ``tables`` of ``rows`` and ``bytes`` in ``chunks``,
    each a short read between watermarks; and while a worker runs, at most ``connections`` and
    ``watermarks_per_hour``. ``unknown``: tables without an estimate."""

    tables: int
    rows: int
    bytes: int
    chunks: int
    watermarks: int = msgspec.field(name="marks")
    unknown: tuple[str, ...]
    connections: int
    watermarks_per_hour: int = msgspec.field(name="marks_per_hour")


class Assessment(msgspec.Struct, frozen=True):
    """The JSON document."""

    pipeline: str
    source: str
    tables: tuple[TableOutcome, ...]
    cost: SourceCost


def run(settings: Settings, form: str) -> None:
    """Print the assessment as ``text``, ``json`` or ``csv`` (a line per column, or per table that
    has none). Raises what connecting to the source raises."""
    found = assess(settings)
    if form == "json":
        write_document(found)
    elif form == "csv":
        write_text(as_csv(found))
    else:
        _print(found)


def assess(settings: Settings) -> Assessment:
    """Assess the source's tables under ``settings``."""
    administration = administration_of(settings)
    tables = [_outcome(settings, one) for one in administration.assess()]
    cost = _cost(settings, tables, writes=administration.writes_watermarks)
    return Assessment(settings.pipeline, settings.source.kind, tuple(tables), cost)


def _outcome(settings: Settings, one: AssessedTable) -> TableOutcome:
    mode = settings.of_table(one.table).mode
    schema, reason, hint = one.schema, one.problem, one.hint
    outcome: Outcome = "captured" if schema is not None else "quarantined"
    if schema is not None and (why := unmergeable(schema, mode)) is not None:
        outcome, reason, hint = "not-mergeable", why, None
    chunk = settings.capture.chunk_rows
    target = settings.target_url(one.table)
    return TableOutcome(
        table=str(one.table),
        outcome=outcome,
        mode=mode.value,
        target=target,
        reason=reason or ("it has no columns" if schema is None else None),
        hint=hint,
        columns=()
        if schema is None
        else tuple(_column(c, schema.key, table_format_of(target)) for c in schema.columns),
        left_out=one.left_out,
        rows=one.rows,
        bytes=one.bytes,
        chunks=None if one.rows is None else max(1, math.ceil(one.rows / chunk)),
    )


def _column(column: Column, key: Sequence[str], table_format: str) -> ColumnOutcome:
    return ColumnOutcome(
        name=column.name,
        source_type=column.source_type,
        type=column.type,
        warehouse_type=target_type(column.logical, table_format),
        key=column.name in key,
    )


def _cost(settings: Settings, tables: Sequence[TableOutcome], *, writes: bool) -> SourceCost:
    dumped = [
        one for one in tables if one.outcome != "quarantined" and settings.source.initial == "dump"
    ]
    chunks = sum(one.chunks or 0 for one in dumped)
    rounds = 3600 / settings.capture.catalog_interval_s
    return SourceCost(
        tables=len(dumped),
        rows=sum(one.rows or 0 for one in dumped),
        bytes=sum(one.bytes or 0 for one in dumped),
        chunks=chunks,
        watermarks=chunks * _WATERMARKS_OF_A_CHUNK * writes,
        unknown=tuple(one.table for one in dumped if one.rows is None),
        connections=_CONNECTIONS + _OF_A_DUMP * settings.capture.parallel_dumps_max,
        watermarks_per_hour=round(rounds * _WATERMARKS_OF_A_ROUND) * writes,
    )


def _lines(found: Assessment) -> Iterator[Sequence[object]]:
    yield ("table", "outcome", "mode", "column", "key", "source_type", "type", "warehouse_type",
           "reason", "hint", "rows", "bytes")  # fmt: skip
    for one in found.tables:
        tail = (one.reason, one.hint, one.rows, one.bytes)
        for c in one.columns:
            yield (one.table, one.outcome, one.mode, c.name, str(c.key).lower(), c.source_type,
                   c.type, c.warehouse_type, *tail)  # fmt: skip
        for name in one.left_out:
            why = ("the source's log does not hold it", *tail[1:])
            yield (one.table, "left out", one.mode, name, "false", None, None, None, *why)
        if not one.columns:
            yield (one.table, one.outcome, one.mode, *[None] * 5, *tail)


def as_csv(found: Assessment) -> str:
    """Write a line per column, or per table that has none. A text that a spreadsheet would take
    for a formula gets an apostrophe in front."""
    text = io.StringIO()
    few, all_quoted = (
        csv.writer(text, lineterminator="\n", quoting=quoting)
        for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL)
    )
    for line in _lines(found):
        cells = [
            f"'{one}" if isinstance(one, str) and one.startswith(_FORMULA) else one for one in line
        ]
        # The library leaves a carriage return bare, which other readers take for a line end.
        (all_quoted if any("\r" in str(one) for one in cells) else few).writerow(cells)
    return text.getvalue()


def _print(found: Assessment) -> None:
    print_table(
        ("table", "outcome", "mode", "columns", "rows", "MB", "chunks"),
        (
            (
                one.table,
                one.outcome,
                one.mode,
                len(one.columns) or None,
                one.rows,
                None if one.bytes is None else f"{one.bytes / 1e6:,.1f}",
                one.chunks,
            )
            for one in found.tables
        ),
    )
    for one in found.tables:
        if one.reason is not None:
            say(f"{one.table} is {one.outcome}: {one.reason}")
            if one.hint is not None:
                say(f"  hint: {one.hint}")
    for one in found.tables:
        if one.columns:
            _print_columns(one)
    _print_cost(found)


def _print_columns(one: TableOutcome) -> None:
    say()
    say(f"{one.table} → {address_of(one.target)}")
    print_table(
        ("column", "key", "in the source", "in the warehouse"),
        ((c.name, "key" if c.key else "", c.source_type, c.warehouse_type) for c in one.columns),
    )
    for name in one.left_out:
        say(f"{name} is left out: it is generated, and not in the source's log")


def _print_cost(found: Assessment) -> None:
    cost = found.cost
    counts = dict.fromkeys(("captured", "not-mergeable", "quarantined"), 0)
    for one in found.tables:
        counts[one.outcome] += 1
    counted = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    say()
    say(f"{len(found.tables)} tables: {counted}. What that costs the source:")
    say(
        f"  once, {cost.tables} dumps: {cost.rows:,} rows, {cost.bytes / 1e6:,.1f} MB, in"
        f" {cost.chunks:,} chunks, each one short read; {cost.watermarks:,} watermarks are written"
    )
    if cost.unknown:
        tables = ", ".join(cost.unknown)
        say(f"  (not in these figures, because the source has no estimate of their rows: {tables};")
        say("  ANALYZE makes one)")
    say(
        f"  for as long as a worker runs: {cost.connections} connections at most,"
        f" {cost.watermarks_per_hour:,} watermarks an hour; its log is kept until it is read"
    )
