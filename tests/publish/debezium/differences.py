"""Each difference of our events from Debezium's, with its reason; docs/PUBLISHING.md has them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.publish.debezium.records import MISSING, Record

_SOURCE = r"value\.payload\.source\."
_ROW = r"value\.payload\.(before|after)\."
_SCHEMA = r"value\.schema\.fields\.(before|after)\.fields\."

_SNAPSHOTS = ("first", "first_in_data_collection", "true", "last_in_data_collection", "last")


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference. ``paths`` is a pattern of the paths that have it; ``holds`` tells whether the
    two values are what they are there; ``op``: of these operations only. ``reason`` is its text in
    the documentation."""

    paths: str
    reason: str
    holds: Callable[[Any, Any], bool]
    op: str = "crudt"

    def explains(self, record: Record, path: str, theirs: Any, ours: Any) -> bool:
        """Whether it is this one."""
        return (
            record.op in self.op
            and re.fullmatch(self.paths, path) is not None
            and self.holds(theirs, ours)
        )


def _numbers(theirs: Any, ours: Any) -> bool:
    return isinstance(theirs, int) and isinstance(ours, int)


def _ours_alone(theirs: Any, ours: Any) -> bool:
    return bool(theirs == MISSING and ours != MISSING)


def _is(theirs: Any, ours: Any) -> Callable[[Any, Any], bool]:
    return lambda one, other: (one, other) == (theirs, ours)


def _sequence(_theirs: Any, ours: Any) -> bool:
    return re.fullmatch(r'\["(\d+)","\1"\]', ours) is not None


EVERYWHERE = (
    Difference(
        _SOURCE + "version",
        "`source.version` is `tideline`: no version of Debezium's wrote the event.",
        lambda theirs, ours: theirs.endswith(".Final") and ours == "tideline",
    ),
    Difference(
        _SOURCE + "snapshot",
        "`source.snapshot` of dumped rows is always `incremental`: they are read in chunks between"
        " watermarks while the log is read, as Debezium's incremental snapshots are.",
        lambda theirs, ours: theirs in _SNAPSHOTS and ours == "incremental",
        op="r",
    ),
    Difference(
        _SOURCE + "sequence",
        "`source.sequence` is the sequence of the change in the chain, twice: it orders all events"
        " of a pipeline, also behind a failover.",
        _sequence,
    ),
    Difference(
        _SOURCE + r"ts_(ms|us|ns)",
        "`source.ts_ms` (`ts_us`, `ts_ns`) of a dumped row is when it was read, and of a truncate"
        " the source's time at the end of its segment, whose events have no time of their own.",
        _numbers,
        op="rt",
    ),
    Difference(
        r"value\.payload\.ts_(ms|us|ns)",
        "`ts_ms` (`ts_us`, `ts_ns`) is when the worker wrote the segment: an event that is"
        " published"
        " again is the same, byte for byte.",
        _numbers,
    ),
    Difference(
        r"value\.schema\.fields\.source\.fields\.(overflow|before_overflow|unchanged)\..*",
        "`source` has three more members where there is something to say, JSON documents as text:"
        " `unchanged` names the columns that the log left out, `overflow` and `before_overflow`"
        " have"
        " the texts of values of `after` and `before` that their type has no form of. Their fields"
        " are null.",
        _ours_alone,
    ),
    Difference(
        _SOURCE + "(overflow|unchanged)",
        "Such a value Debezium shows as null and nothing else: NaN in a `numeric`, a zero date.",
        _ours_alone,
    ),
    Difference(
        _SCHEMA + r"\w+\.optional",
        "With `schemas`, every column but the key's is optional: parts do not hold what is NOT NULL"
        " in PostgreSQL, and a value without a form is null.",
        _is(False, True),
    ),
)

POSTGRES = (
    Difference(
        _SOURCE + "lsn",
        "`source.lsn` is the end of the segment, the same for all events in it: what a part holds"
        " of"
        " a row is its sequence.",
        _numbers,
    ),
    Difference(
        _SOURCE + "txId",
        "`source.txId` of dumped rows and truncates is null.",
        lambda theirs, ours: isinstance(theirs, int) and ours is None,
        op="rt",
    ),
    Difference(
        r"value\.payload\.before\.(note|at|flag|price|big)",
        "`before` of a delete has only the key where the log has only that (replica identity"
        " `DEFAULT`), and null for every other column. Debezium makes up 0, false or an empty text"
        " for columns that are NOT NULL.",
        lambda theirs, ours: theirs in ("", 0, False, "AA==") and ours is None,
        op="d",
    ),
    Difference(
        f"{_SCHEMA}(circle|lsn)\\..*|{_ROW}(circle|lsn)",
        "Columns of types that Debezium does not know (`circle`, `pg_lsn` and others) are there, as"
        " text. Debezium leaves such columns out unless `include.unknown.datatypes` is set.",
        _ours_alone,
    ),
    Difference(
        f"{_SCHEMA}mood\\.(name|version|parameters\\.allowed)",
        "Columns of an enum are plain strings, without Debezium's `Enum` and its list of labels,"
        " and those of a domain or type of one's own that is not a number or time are text.",
        lambda theirs, ours: theirs in ("io.debezium.data.Enum", 1, "sad,ok") and ours == MISSING,
    ),
    Difference(
        f"{_SCHEMA}tens\\.parameters\\..*|{_ROW}tens",
        "A `numeric` with a negative scale has scale 0. Debezium reads the scale as a large one,"
        " and"
        " writes numbers with hundreds of bytes.",
        lambda theirs, ours: theirs != MISSING and ours != MISSING and len(str(ours)) < 8,
    ),
    Difference(
        _ROW + "day",
        "A date without an end (`infinity`) has no form, and one before Christ is the same from"
        " dump"
        " and log. Debezium has numbers for `infinity` that differ between the two, and dumps"
        " 44 BC as AD 44.",
        lambda theirs, ours: (
            (theirs, ours) in ((-703383, -735160), (-622191234, None), (-2147472692, None))
        ),
    ),
)

BINLOG = (
    Difference(
        _SOURCE + r"(server_id|row)",
        "`source.server_id` and `source.row` are 0, `source.gtid` is null: a part does not hold"
        " them.",
        lambda theirs, ours: isinstance(theirs, int) and ours == 0,
    ),
    Difference(
        _SOURCE + "gtid",
        "`source.gtid` is null (see `source.server_id`).",
        lambda theirs, ours: isinstance(theirs, str) and ours is None,
    ),
    Difference(
        _SOURCE + "pos",
        "`source.file` and `source.pos` are the end of the segment, the same for all events in it.",
        _numbers,
    ),
    Difference(
        f"{_SCHEMA}spot\\..*|{_ROW}spot\\.[xy]",
        "A `POINT` is a `Geometry`, with `wkb` and `srid` and without `x` and `y`: what a part"
        " holds"
        " of a column is that it is a geometry.",
        lambda theirs, _ours: theirs != MISSING,
    ),
    Difference(
        _ROW + "moment_ms",
        "A `TIMESTAMP(3)` has three digits of a second from dump and log. Debezium's dump leaves"
        " out"
        " zeros at the end.",
        _is("2026-11-28T17:00:00.5Z", "2026-11-28T17:00:00.500Z"),
        op="r",
    ),
    Difference(
        _ROW + "moment",
        "A zero `TIMESTAMP` has no form. Debezium shows null from a dump, and 1970 from the log.",
        _is("1970-01-01T00:00:00Z", None),
    ),
    Difference(
        _ROW + "uid",
        "A `UUID` of MariaDB's is itself. Debezium 3.5 writes another one from the log.",
        lambda theirs, ours: theirs.startswith("0000123e-") and ours.startswith("123e4567-"),
    ),
    Difference(
        _ROW + "mood",
        "A label of an `ENUM` with a comma is itself. Debezium 3.5 writes `\\,` from the log.",
        _is("a\\,b", "a,b"),
    ),
)
