"""The tables of the log: from the number in a row event to the meaning of its bytes.

A TABLE_MAP comes before the first row event of every statement, nearly always with the same bytes
as before. So a table's bytes are parsed once, and whole batches of table maps are compared with
what is known. Numbers stand for other tables after the server was restarted, so they are forgotten
at the beginning of every file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto

import numpy as np

from tideline.contract.errors import TidelineError
from tideline.contract.schema import TableId, TableSchema
from tideline_capture.core.events import Int64Array
from tideline_capture.sources.key_configuration import KeyConfigurations, default_key
from tideline_capture.sources.mysql.binlog.bulk import numbers, words
from tideline_capture.sources.mysql.binlog.framing import HEADER_BYTES, Bytes
from tideline_capture.sources.mysql.binlog.table_map import parse_table_map, parse_table_name
from tideline_capture.sources.mysql.types.columns import Code, MysqlTable

_ID_BYTES = 6
_KNOWN_MAX = 20_000
_NATIVE_BYTES = (4, 16)
"""The sizes of MariaDB's INET4, and of INET6 and UUID; the log does not distinguish them from
BINARY."""

Natives = Callable[[TableId], Mapping[str, str]]


class Role(Enum):
    """The reader's use of a table's rows."""

    OURS = auto()
    """The watermark table."""
    CHOSEN = auto()
    """The settings name it."""
    OTHER = auto()


@dataclass(frozen=True, slots=True)
class Known:
    """One version of a table. ``error`` is the reason why a chosen table's rows cannot be read."""

    role: Role
    name: TableId
    table: MysqlTable | None = None
    schema: TableSchema | None = None
    error: TidelineError | None = None


class TableCache:
    """The tables by number, and those parsed so far by bytes.

    ``role_of`` gives a table's role by its name; ``natives`` looks up the columns of a table whose
    types the log does not name, ``key_configurations`` is the key configuration of a table.
    ``captures``: whether rows of a chosen table are taken now; its schema is reported again when
    that has become true.
    """

    def __init__(
        self,
        role_of: Callable[[TableId], Role],
        natives: Natives,
        captures: Callable[[str], bool],
        key_configurations: KeyConfigurations = default_key,
    ) -> None:
        self._key_configurations = key_configurations
        self._role_of = role_of
        self._natives = natives
        self._captures = captures
        self._server = ""
        self._reported: dict[TableId, Known] = {}
        self._by_id: dict[int, Known] = {}
        self._bytes_of: dict[int, Bytes] = {}
        self._parsed: dict[bytes, Known] = {}

    def get(self, table_id: int) -> Known | None:
        """Return the table that ``table_id`` stands for now."""
        return self._by_id.get(table_id)

    def is_bulk(self, table_id: int) -> bool:
        """Return whether rows of this table need no separate handling: all known ones but
        watermarks."""
        known = self._by_id.get(table_id)
        return known is not None and known.role is not Role.OURS

    def is_chosen(self, table: TableId) -> bool:
        """Return whether the settings name the table."""
        return self._role_of(table) is Role.CHOSEN

    def takes_keyless(self, table: TableId) -> bool:
        """Return whether the settings take the table without a key."""
        return self._key_configurations(table).keyless

    def begin_file(self, server: str | None = None) -> None:
        """Begin a file: a restarted ``server`` (its version) restarts its numbers, and another
        version may write other table maps."""
        self._by_id.clear()
        self._bytes_of.clear()
        if server is not None and server != self._server:
            self._server = server
            self._parsed.clear()

    def forget(self, tables: Collection[str]) -> None:
        """Forget these tables, which a statement named, maybe in other case: look their columns up
        again."""
        named = {table.lower() for table in tables}
        stale = [raw for raw, known in self._parsed.items() if str(known.name).lower() in named]
        for raw in stale:
            del self._parsed[raw]
        known_ids = list(self._by_id.items())
        for table_id in [one for one, known in known_ids if str(known.name).lower() in named]:
            del self._by_id[table_id], self._bytes_of[table_id]

    def add(self, body: bytes) -> Known:
        """Take in a TABLE_MAP's ``body`` (without its checksum)."""
        table_id = int.from_bytes(body[:_ID_BYTES], "little")
        raw = body[_ID_BYTES:]
        known = self._parsed.get(raw)
        if known is None:
            known = self._parse(body)
            if len(self._parsed) >= _KNOWN_MAX:
                self._parsed.clear()
            self._parsed[raw] = known
        self._by_id[table_id] = known
        self._bytes_of[table_id] = np.frombuffer(raw, np.uint8)
        if known.role is Role.CHOSEN and self._captures(str(known.name)):
            self._reported[known.name] = known
        return known

    def first_news(self, data: Bytes, starts: Int64Array, stops: Int64Array) -> int:
        """Return the index of the first TABLE_MAP that needs parsing, or their number when none
        does.

        ``starts`` and ``stops`` bound the events without their checksums. Numbers that are new for
        known bytes are taken in on the way.
        """
        ids = table_ids(data, starts + HEADER_BYTES)
        first = len(ids)
        for table_id in np.unique(ids):
            indices = np.flatnonzero(ids == table_id)
            first = min(first, self._first_news_of(int(table_id), indices, data, starts, stops))
        return first

    def _first_news_of(
        self,
        table_id: int,
        indices: Int64Array,
        data: Bytes,
        starts: Int64Array,
        stops: Int64Array,
    ) -> int:
        begin = starts[indices] + (HEADER_BYTES + _ID_BYTES)
        known = self._bytes_of.get(table_id)
        if known is None:
            raw = data[begin[0] : stops[indices[0]]].tobytes()
            if raw not in self._parsed:
                return int(indices[0])
            known = np.frombuffer(raw, np.uint8)
            self._by_id[table_id], self._bytes_of[table_id] = self._parsed[raw], known
        if not self._is_reported(self._by_id[table_id]):
            return int(indices[0])
        same = stops[indices] - begin == len(known)
        if same.all():
            # Word by word; the last one may lie over the one before it.
            at = np.append(np.arange(0, len(known) - 8, 8), len(known) - 8)
            same = (words(data)[begin[:, None] + at] == words(known)[at]).all(axis=1)
        return len(starts) if same.all() else int(indices[np.flatnonzero(~same)[0]])

    def _is_reported(self, known: Known) -> bool:
        """Return whether the schema was reported, if it has to be."""
        if known.role is not Role.CHOSEN or self._reported.get(known.name) is known:
            return True
        return not self._captures(str(known.name))

    def _parse(self, body: bytes) -> Known:
        name = parse_table_name(body)
        role = self._role_of(name)
        if role is Role.OTHER:
            return Known(role, name)
        try:
            table = parse_table_map(body, server=self._server).table
            natives = self._natives(name) if _may_have_natives(table) else {}
            if natives:
                table = parse_table_map(body, server=self._server, natives=natives).table
        except TidelineError as error:
            return Known(role, name, error=error)
        if role is Role.CHOSEN:
            table = replace(table, key=self._key_configurations(name).key_of(table.key))
            absent = set(table.key) - {column.name for column in table.columns}
            if absent:  # The settings are newer than this version of the table.
                table = replace(table, key=())
        return Known(role, name, table, table.schema)


def _may_have_natives(table: MysqlTable) -> bool:
    sizes = _NATIVE_BYTES
    return any(one.code == Code.STRING and one.length in sizes for one in table.columns)


def table_ids(data: Bytes, at: Int64Array) -> Int64Array:
    """Return the six-byte numbers at the offsets ``at``."""
    return numbers(data, at, _ID_BYTES)
