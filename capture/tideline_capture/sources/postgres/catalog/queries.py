"""The statements that read PostgreSQL's catalog, for `catalog`.

Only catalogs are read, none of the functions that open a table (``pg_get_replica_identity_index``,
``pg_partition_tree``, ``pg_publication_tables``): those wait behind every ALTER TABLE and VACUUM
FULL, and fail on a table that is just being dropped.
"""

from __future__ import annotations

from tideline_capture.sources.postgres.catalog.defaults import MISSING

LIST = """
SELECT c.oid, n.nspname, c.relname FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'
"""

_TABLES = """
SELECT c.oid, n.nspname, c.relname, c.relkind, c.relpersistence, c.relreplident,
       c.relfilenode,
       coalesce((SELECT i.indexrelid FROM pg_catalog.pg_index i
                 WHERE i.indrelid = c.oid AND i.indisvalid AND i.indisunique AND i.indimmediate
                   AND i.indpred IS NULL AND CASE c.relreplident WHEN 'i' THEN i.indisreplident
                                             ELSE i.indisprimary END), 0::oid),
       coalesce(p.membership, ''), coalesce(p.narrowed, false), greatest(c.reltuples, 0)::bigint,
       c.relnatts,
       (SELECT pg_catalog.string_agg(g.attnum::text, ',' ORDER BY g.attnum)
        FROM pg_catalog.pg_attribute g
        WHERE g.attrelid = c.oid AND g.attgenerated <> '' AND NOT g.attisdropped),
       c.xmin::text::bigint,
       (SELECT d.description FROM pg_catalog.pg_description d
        WHERE d.objoid = c.oid AND d.classoid = 1259 AND d.objsubid = 0)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN LATERAL ({membership} LIMIT 1) p ON true
WHERE c.oid = ANY (%(oids)s) AND c.relkind IN ('r', 'p')
"""

_MEMBERSHIP = """
SELECT r.oid::text || '.' || b.xmin::text AS membership, {narrowed} AS narrowed
FROM pg_catalog.pg_publication_rel r JOIN pg_catalog.pg_publication b ON b.oid = r.prpubid
WHERE b.pubname = %(publication)s AND r.prrelid = c.oid
"""
_NARROWED = "r.prqual IS NOT NULL OR r.prattrs IS NOT NULL"

_SCHEMA_MEMBERSHIP = """
UNION ALL SELECT s.oid::text || '.' || b.xmin::text, false
FROM pg_catalog.pg_publication_namespace s JOIN pg_catalog.pg_publication b ON b.oid = s.pnpubid
WHERE b.pubname = %(publication)s AND s.pnnspid = c.relnamespace
"""
"""The columns of PostgreSQL 15 and newer: whole schemas, row filters and column lists."""

# 1259 is pg_class, one of the catalogs that objects are described in.
COLUMNS = f"""
SELECT a.attrelid, a.attnum, a.attname, a.atttypid, a.atttypmod, a.atthasmissing, a.attcollation,
       pg_catalog.format_type(a.atttypid, a.atttypmod), pg_catalog.format_type(a.atttypid, -1),
       {MISSING}, a.xmin::text::bigint, a.attnotnull,
       (SELECT d.description FROM pg_catalog.pg_description d
        WHERE d.objoid = a.attrelid AND d.classoid = 1259 AND d.objsubid = a.attnum)
FROM pg_catalog.pg_attribute a
WHERE a.attrelid = ANY (%(oids)s) AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
ORDER BY a.attrelid, a.attnum
"""  # noqa: S608

FILLED = f"""
SELECT a.attrelid, a.attname, {MISSING} FROM pg_catalog.pg_attribute a
WHERE a.attrelid = ANY (%(oids)s) AND a.attnum > 0 AND NOT a.attisdropped AND a.atthasmissing
"""  # noqa: S608
"""Columns of partitions: the root of a partitioned table has no rows that lack a value."""

KEYS = """
SELECT i.indexrelid, k.attnum FROM pg_catalog.pg_index i,
  LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place)
WHERE i.indexrelid = ANY (%(indexes)s) AND k.place <= i.indnkeyatts ORDER BY i.indexrelid, k.place
"""

LEAVES = """
WITH RECURSIVE tree(root, member) AS (
  SELECT r, r FROM unnest(%(oids)s::oid[]) AS roots(r)
  UNION ALL
  SELECT t.root, i.inhrelid FROM tree t JOIN pg_catalog.pg_inherits i ON i.inhparent = t.member
)
SELECT t.root, leaf.oid, leaf.relfilenode,
       leaf.relreplident, greatest(leaf.reltuples, 0)::bigint,
       (WITH RECURSIVE up(index) AS (
          SELECT i.indexrelid FROM pg_catalog.pg_index i
          WHERE i.indrelid = leaf.oid AND CASE leaf.relreplident WHEN 'i' THEN i.indisreplident
                                               ELSE i.indisprimary END
          UNION ALL
          SELECT h.inhparent FROM up JOIN pg_catalog.pg_inherits h ON h.inhrelid = up.index
        ) SELECT array_agg(index::bigint) FROM up)
FROM tree t JOIN pg_catalog.pg_class leaf ON leaf.oid = t.member
WHERE leaf.relkind <> 'p' ORDER BY 1, 2
"""
"""The last column: the index that a leaf's old rows are logged by, and what that is a part of."""

UNIQUE = """
SELECT i.indrelid, i.indexrelid, i.indisreplident,
       ARRAY(SELECT k.attnum FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place)
             WHERE k.place <= i.indnkeyatts)
FROM pg_catalog.pg_index i
WHERE i.indrelid = ANY (%(oids)s) AND i.indisunique AND i.indisvalid AND i.indimmediate
  AND i.indpred IS NULL AND i.indexprs IS NULL ORDER BY i.indrelid, i.indexrelid
"""
"""Indexes that can stand for a key, if none of their columns can be NULL."""

NOT_NULL = """
SELECT a.attrelid, a.attnum FROM pg_catalog.pg_attribute a
WHERE a.attrelid = ANY (%(oids)s) AND a.attnum > 0 AND a.attnotnull
"""

LABELS = """
SELECT enumtypid, oid, enumlabel FROM pg_catalog.pg_enum WHERE enumtypid = ANY (%(oids)s)
ORDER BY enumtypid, oid
"""


def tables_query(version: int) -> str:
    """Return the query for the tables ``oids``, and their state in ``publication``, of a server of
    that version."""
    filters = version >= 150000
    membership = _MEMBERSHIP.format(narrowed=_NARROWED if filters else "false")
    return _TABLES.format(membership=membership + (_SCHEMA_MEMBERSHIP if filters else ""))
