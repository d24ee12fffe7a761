"""The catalog's types: the components of domains, arrays, ranges and row types."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from tideline_capture.sources.postgres.types import PgType

_TYPES = """
SELECT t.oid, t.typtype, t.typbasetype, t.typtypmod, ARRAY(
  SELECT t.typelem::bigint WHERE t.typcategory = 'A'
  UNION SELECT r.rngsubtype::bigint FROM pg_catalog.pg_range r
        WHERE t.oid IN (r.rngtypid, r.rngmultitypid)
  UNION SELECT a.atttypid::bigint FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = t.typrelid AND t.typtype = 'c' AND a.attnum > 0 AND NOT a.attisdropped),
  (SELECT pg_catalog.string_agg(a.attnum || ':' || a.atttypid || ':' || a.atttypmod, ','
                                ORDER BY a.attnum)
   FROM pg_catalog.pg_attribute a
   WHERE a.attrelid = t.typrelid AND t.typtype = 'c' AND a.attnum > 0 AND NOT a.attisdropped)
FROM pg_catalog.pg_type t WHERE t.oid = ANY (%(oids)s)
"""
"""The last columns: the types that an array, range or row is made of; a row's attributes."""


class _CatalogType(NamedTuple):
    """One of pg_type: ``kind`` is its letter, ``base`` and ``typmod`` a domain's; ``parts`` the
    types it is made of, ``attributes`` a row type's."""

    kind: str
    base: int
    typmod: int
    parts: tuple[int, ...] = ()
    attributes: str | None = None

    @property
    def made_of(self) -> tuple[int, ...]:
        return (self.base,) if self.kind == "d" else self.parts


class TypeNames:
    """Types by oid, with what they are made of; cached, but for row types, which can change."""

    def __init__(self) -> None:
        self._known: dict[int, _CatalogType] = {}

    def load(self, cursor: Any, oids: Collection[int]) -> None:
        """Look up ``oids`` and the types that they are made of."""
        self._known = {oid: one for oid, one in self._known.items() if one.kind != "c"}
        while wanted := self._reachable(oids) - self._known.keys():
            cursor.execute(_TYPES, {"oids": sorted(wanted)})
            found = {
                oid: _CatalogType(kind, base, typmod, tuple(parts), attributes)
                for oid, kind, base, typmod, parts, attributes in cursor.fetchall()
            }
            # A type that was dropped since its rows were logged: only its text is available.
            self._known |= dict.fromkeys(wanted, _CatalogType("b", 0, -1)) | found

    def resolve(self, oid: int, typmod: int, name: str) -> PgType:
        """Return the type ``oid`` with ``typmod``; `load` must have seen it."""
        base, base_typmod = oid, typmod
        while self._known[base].kind == "d":
            domain = self._known[base]
            base = domain.base
            base_typmod = domain.typmod if base_typmod == -1 else base_typmod
        return PgType(oid, typmod, name, base, base_typmod)

    def enums(self, types: Iterable[PgType]) -> set[int]:
        """Return the enums whose labels can be in values of ``types``."""
        reachable = self._reachable(pg.base_oid for pg in types)
        return {oid for oid in reachable if self._known[oid].kind == "e"}

    def rows(self, types: Iterable[PgType]) -> list[str]:
        """Return the attributes of the row types that can be in values of ``types``."""
        reachable = self._reachable(pg.base_oid for pg in types)
        return [
            f"{oid}({self._known[oid].attributes})"
            for oid in sorted(reachable)
            if self._known[oid].kind == "c"
        ]

    def _reachable(self, oids: Iterable[int]) -> set[int]:
        """Return ``oids`` and the types they are made of, as far as known."""
        found, todo = set[int](), set(oids)
        while todo:
            oid = todo.pop()
            if oid not in found:
                found.add(oid)
                todo |= set(self._known[oid].made_of) if oid in self._known else set()
        return found
