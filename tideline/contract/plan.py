"""The merge plan: document (d). Made here, purely, from manifests and what is applied.

A plan says exactly which parts bring which table from manifest ``a`` to manifest ``b``. It is
stored before it is run, so that a retry reads the same input.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tideline.contract.schema import TableSchema

PLAN_VERSION = 1


class PlannedPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part to read, at ``{store_url}/{key}``; the counts are checked against what is read."""

    key: str
    schema: str
    rows: int
    operations: Mapping[str, int]
    bytes: int
    first_seq: int
    last_seq: int
    unchanged_rows: int = 0
    before_rows: int = 0


class TablePlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """Brings ``target`` from applied manifest ``a`` (its last seq: ``a_seq``) to ``b`` (``b_seq``).

    ``schema`` is the table's schema at ``b``; ``schemas`` has every fingerprint the parts use.
    ``floor``: target rows with ``_tl_seq <= floor`` that the plan does not write again are deleted,
    and folded rows with ``_tl_seq <= floor`` dropped. It is the largest of the ``first_low_seq`` of
    full dumps finished in (a, b] and of (truncate seq - 1); None without either.
    ``truncates`` are the sequences of truncates in the range, ascending: no value is filled across.
    ``replace``: the target is started anew (a new generation); whatever it holds is dropped.
    ``key_min``/``key_max``: bounds of the first key column over all parts, None when unknown.
    ``app_id``: Delta's transaction id, ``pipeline/incarnation/table/generation``.
    """

    table: str
    target: str
    schema: TableSchema
    schemas: Mapping[str, TableSchema]
    parts: tuple[PlannedPart, ...]
    a: int
    a_seq: int
    b: int
    b_seq: int
    app_id: str
    generation: int = 0
    floor: int | None = None
    truncates: tuple[int, ...] = ()
    replace: bool = False
    key_min: str | None = None
    key_max: str | None = None
    complete_through_us: int | None = None


class Plan(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one merge run does. ``held``: tables left out (parked, blocked), with the reason."""

    plan_id: str
    pipeline: str
    incarnation: str
    store_url: str
    b: int
    tables: tuple[TablePlan, ...]
    held: Mapping[str, str] = msgspec.field(default_factory=dict)
    version: int = PLAN_VERSION
    requires: tuple[str, ...] = ()
