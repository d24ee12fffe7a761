"""Reads and writes a BigQuery table's comments, which are descriptions there.

A column of a table that exists cannot become REQUIRED, so none is declared NOT NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from tideline.contract.description import DESCRIPTION_PROPERTY, Described
from tideline.contract.errors import InvariantBroken
from tideline.warehouse.bigquery.client import asking
from tideline.warehouse.bigquery.log import CommitLog, modified_ms
from tideline_spark.formats.bigquery.access import BigQueryAccess, after
from tideline_spark.formats.bigquery.jobs import TargetOvertaken
from tideline_spark.formats.state import TableWords

_TEXT_MAX = 1024
_TABLE_TEXT_MAX = 16_384
"""The limits of BigQuery's descriptions, of columns and of tables."""


class BigQueryDescription:
    """See `TargetDescription`."""

    def __init__(self, access: BigQueryAccess) -> None:
        self._access = access

    def words(self) -> TableWords:
        """See `TargetDescription`."""
        return _words(self._access.read())

    def rewrite(self, change: Callable[[TableWords], TableWords]) -> bool:
        """See `TargetDescription`. A killed run may leave the comments of its change without the
        property: the next one changes them again."""
        log = self._access.read()
        before = _words(log)
        wanted = before.holding(change(before))
        comments = {n: _short(n, text) for n, text in wanted.comments.items()}
        after_it = TableWords(comments, frozenset(), wanted.described, before.columns)
        if after_it == before:
            return False
        modified = log.looked_ms
        if after_it.comments != before.comments:
            modified = self._describe(log, comments)
        properties = dict(log.entry.properties)
        properties.pop(DESCRIPTION_PROPERTY, None)
        if after_it.described != Described():
            properties[DESCRIPTION_PROPERTY] = after_it.described.text()
        entry = after(log, None, "SET DESCRIPTION", properties=properties, modified=modified)
        self._access.commit(log, [], entry, "to describe the table")
        return True

    def without_null(self, columns: Collection[str]) -> frozenset[str]:
        """See `TargetDescription`: no column is declared NOT NULL, so that none is looked at."""
        return frozenset()

    def _describe(self, log: CommitLog, comments: dict[str, str]) -> int:
        """Set the comments; return when that changed the table, in milliseconds."""
        # heavy: only pipelines with BigQuery tables need it
        from google.api_core.exceptions import PreconditionFailed
        from google.cloud.bigquery import SchemaField

        table: Any = log.table
        if table is None:
            raise InvariantBroken(f"the table {self._access.name} is gone")
        fields = []
        for one in table.schema:
            raw = {**one.to_api_repr(), "description": comments.get(one.name, "")}
            fields.append(SchemaField.from_api_repr(raw))
        table.schema, table.description = fields, comments.get("") or None
        if self._access.read().version != log.version:
            raise TargetOvertaken
        with asking(f"to describe {self._access.name}"):
            try:
                changed = self._access.client.update_table(table, ["schema", "description"])
            except PreconditionFailed:
                raise TargetOvertaken from None
        return modified_ms(changed)


def _words(log: CommitLog) -> TableWords:
    table = log.table
    if table is None or not log.exists:
        raise InvariantBroken("a table that is not there has no description")
    comments = {one.name: one.description for one in table.schema}
    comments[""] = table.description
    return TableWords(
        {name: text for name, text in comments.items() if text},
        frozenset(),
        Described.parse(log.entry.properties.get(DESCRIPTION_PROPERTY)),
        frozenset(one.name for one in table.schema),
    )


def _short(name: str, text: str) -> str:
    most = _TEXT_MAX if name else _TABLE_TEXT_MAX
    return text if len(text) <= most else f"{text[: most - 1]}…"
