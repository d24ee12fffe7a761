"""Reasons why a table cannot be captured, and how to change that: judged on plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tideline.contract.schema import RESERVED_PREFIX, SPARKS_OWN, TableId, is_reserved
from tideline_capture.sources.key_configuration import KeyConfiguration, key_alternatives
from tideline_capture.sources.mysql.catalog.column_types import ColumnRow
from tideline_capture.sources.mysql.names import qualified, quoted
from tideline_capture.sources.mysql.types.charsets import is_known
from tideline_capture.sources.mysql.types.columns import Code, MysqlTable

Policy = Literal["refuse", "redump"]
"""For tables that others' changes cascade to: leave them out, or dump them after such changes."""

ENGINES = ("InnoDB", "ROCKSDB", "MyISAM", "Aria")
"""The engines that keep a table's rows in this server and log every change of them as rows. MEMORY,
for one, is empty after a restart, which the log holds as a statement."""
UNTRANSACTIONAL = ("myisam", "aria")
"""The engines without transactions, and so without snapshots."""

ASTERISK = "*"

_DOUBLE_CODES = frozenset({"armscii8", "cp932", "eucjpms", "sjis", "ujis"})
_FEW = 5
_REFUSED = "or add the table to source.exclude"

Problem = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class Key:
    """A unique key; ``firm``: its columns are whole, and none of them can be NULL."""

    name: str
    columns: tuple[str, ...]
    firm: bool


@dataclass(frozen=True, slots=True)
class Suspect:
    """The facts about a table that may not be fit. ``parents``: tables that cascade to it.
    ``key_configuration``: its key configuration in the settings."""

    table: MysqlTable
    rows: Sequence[ColumnRow]
    kind: str
    engine: str
    keys: Sequence[Key]
    parents: Sequence[TableId]
    key_configuration: KeyConfiguration
    asterisk: bool = False
    """True when it has a column `ASTERISK`, and its server reads that as all columns."""


def problem_of(suspect: Suspect) -> Problem | None:
    """Return why it cannot be captured, with the statement that changes that; None when it can."""
    return (
        _kind_problem(suspect)
        or _key_problem(suspect)
        or _columns_problem(suspect)
        or _cascade_problem(suspect)
    )


def _kind_problem(suspect: Suspect) -> Problem | None:
    name = qualified(suspect.table.table)
    if suspect.kind == "SYSTEM VERSIONED":
        return (
            "it is system-versioned: its log mixes rows that are current with rows of the past",
            f"ALTER TABLE {name} DROP SYSTEM VERSIONING; -- {_REFUSED}",
        )
    if suspect.engine.lower() not in {one.lower() for one in ENGINES}:
        return (
            f"its engine is {suspect.engine or 'not loaded'}, which does not log all changes",
            f"ALTER TABLE {name} ENGINE = InnoDB; -- {_REFUSED}",
        )
    return None


def _key_problem(suspect: Suspect) -> Problem | None:
    if suspect.key_configuration.key:
        refusal = _named_key_problem(suspect)
        if refusal is not None:
            return refusal
    if suspect.table.key:
        return _padding_problem(suspect) or _label_problem(suspect) or _double_code_problem(suspect)
    firm = next((key for key in suspect.keys if key.firm), None)
    columns = ", ".join(map(quoted, firm.columns)) if firm else "…"
    if suspect.key_configuration.keyless:
        return _uncounted_problem(suspect)
    fix = f"ALTER TABLE {qualified(suspect.table.table)} ADD PRIMARY KEY ({columns});"
    return "it has no primary key", f"{fix} -- {key_alternatives(suspect.table.table)}"


def _uncounted_problem(suspect: Suspect) -> Problem | None:
    """Return the problem of a counted table on an engine without transactions.

    A table is copied as a snapshot shows it. Such engines show it as it is when it is read: then a
    row that was just inserted is in the copy, and in the log behind it.
    """
    if not suspect.key_configuration.counted or suspect.engine.lower() not in UNTRANSACTIONAL:
        return None
    name = qualified(suspect.table.table)
    return (
        f"it has no key, and its engine {suspect.engine} has no snapshots: equal rows cannot be"
        " counted",
        f"ALTER TABLE {name} ENGINE = InnoDB; -- or give it a primary key",
    )


def _named_key_problem(suspect: Suspect) -> Problem | None:
    """Return the problem of a key that the settings name: the server must enforce it, as uniqueness
    that is not enforced is no key."""
    named = suspect.key_configuration.key
    alter = f"ALTER TABLE {qualified(suspect.table.table)}"
    named_key = f"the key that the settings name ({', '.join(named)}) is none"
    rows = {row.name: row for row in suspect.rows}
    absent = [name for name in named if name not in rows]
    if absent:
        return f"{named_key}: there is no column {', '.join(absent)}", "correct key in the settings"
    if any(key.firm and set(key.columns) == set(named) for key in suspect.keys):
        return None
    loose = [name for name in named if rows[name].nullable == "YES"]
    if loose:
        changes = ", ".join(
            f"MODIFY {quoted(name)} {rows[name].column_type} NOT NULL" for name in loose
        )
        return f"{named_key}: {', '.join(loose)} may be NULL", f"{alter} {changes};"
    columns = ", ".join(map(quoted, named))
    return (
        f"{named_key}: no unique index covers exactly these columns, each as a whole",
        f"{alter} ADD UNIQUE INDEX ({columns});",
    )


def _padding_problem(suspect: Suspect) -> Problem | None:
    """Return the problem of MariaDB's CHAR in a collation without padding.

    The index orders values with their blanks, comparisons are made without them, and a dump that
    continues behind a key would skip rows.
    """
    unsteady = [
        row
        for row in suspect.rows
        if row.name in suspect.table.key
        and row.data_type.lower() == "char"
        and "_nopad_" in (row.collation or "")
    ]
    if not unsteady:
        return None
    changes = [
        f"MODIFY {quoted(row.name)} VAR{row.column_type.upper()} CHARACTER SET {row.charset}"
        f" COLLATE {row.collation} NOT NULL"
        for row in unsteady
    ]
    return (
        "CHAR columns of its key have a collation without padding, in whose order MariaDB skips"
        f" rows: {_few([f'{row.name} ({row.collation})' for row in unsteady])}",
        f"ALTER TABLE {qualified(suspect.table.table)} {', '.join(changes)}; -- {_REFUSED}",
    )


def _double_code_problem(suspect: Suspect) -> Problem | None:
    """Return the problem of character sets in which several codes are the same character: keys that
    differ for the server would read the same, and be one row in the warehouse."""
    twofold = [
        one
        for one in suspect.table.columns
        if one.name in suspect.table.key and one.charset in _DOUBLE_CODES
    ]
    if not twofold:
        return None
    named = _few([f"{one.name} ({one.charset})" for one in twofold])
    change = f"ALTER TABLE {qualified(suspect.table.table)} CONVERT TO CHARACTER SET utf8mb4;"
    what = "columns of its key have a character set with several codes for one character"
    return f"{what}: {named}", f"{change} -- {_REFUSED}"


def _label_problem(suspect: Suspect) -> Problem | None:
    """Return the problem of empty labels: two keys that read the same would be one row in the
    warehouse."""
    twofold = [
        one for one in suspect.table.columns if one.name in suspect.table.key and "" in one.labels
    ]
    if not twofold:
        return None
    kinds = {Code.ENUM: "ENUM", Code.SET: "SET"}
    changes = [f"MODIFY {quoted(one.name)} {kinds[one.code]}(…) NOT NULL" for one in twofold]
    return (
        "ENUM and SET columns of its key have an empty label, which reads as their number 0 does:"
        f" {_few([one.name for one in twofold])}",
        f"ALTER TABLE {qualified(suspect.table.table)} {', '.join(changes)};"
        f" -- with another label for '', {_REFUSED}",
    )


def _columns_problem(suspect: Suspect) -> Problem | None:
    known = {one.name: one for one in suspect.table.columns}
    alter = f"ALTER TABLE {qualified(suspect.table.table)}"
    strange = [f"{one.name} ({one.data_type})" for one in suspect.rows if one.name not in known]
    if strange:
        return f"columns of types that are not known: {_few(strange)}", _REFUSED
    unread = [
        f"{one.name} ({one.charset})"
        for one in known.values()
        if one.charset and not is_known(one.charset)
    ]
    if unread:
        return (
            f"columns in character sets that are not known: {_few(unread)}",
            f"{alter} MODIFY … CHARACTER SET utf8mb4; -- {_REFUSED}",
        )
    kept = [name for name in known if is_reserved(name)]
    if kept:
        return (
            f"columns have names that Tideline ({RESERVED_PREFIX}…) or Spark ({SPARKS_OWN}) keeps"
            f" for itself: {_few(kept)}",
            f"{alter} RENAME COLUMN {quoted(kept[0])} TO …; -- {_REFUSED}",
        )
    if suspect.asterisk:
        return (
            f"its server reads a column named {ASTERISK} as all columns",
            f"{alter} RENAME COLUMN {quoted(ASTERISK)} TO …; -- {_REFUSED}",
        )
    return None


def _cascade_problem(suspect: Suspect) -> Problem | None:
    if not suspect.parents:
        return None
    parents = _few([qualified(one) for one in suspect.parents])
    return (
        f"foreign keys carry changes of {parents} over to it, which the server does not log",
        'set source.cascades = "redump", which dumps it after each such change;'
        " or drop ON DELETE and ON UPDATE from its foreign keys",
    )


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_FEW])
    return shown if len(names) <= _FEW else f"{shown} and {len(names) - _FEW} more"
