"""Selects what a publisher publishes."""

from __future__ import annotations

from tideline.contract.open_state import TableCondition
from tideline.contract.patterns import matches
from tideline.contract.schema import TableSchema, parse_table
from tideline.settings import PublishSettings
from tideline.store.chain import Chain


class Selection:
    """The tables, operations and columns of a publisher's settings."""

    def __init__(self, settings: PublishSettings) -> None:
        self._settings = settings
        self._tables: dict[str, bool] = {}
        self.operations = settings.operations

    def has(self, table: str) -> bool:
        """Return whether events of ``table`` are published."""
        if table not in self._tables:
            include, exclude = self._settings.tables, self._settings.exclude_tables
            self._tables[table] = matches(parse_table(table), include, exclude)
        return self._tables[table]

    def columns(self, schema: TableSchema) -> tuple[str, ...]:
        """Return the columns of an event's row, in the order of the schema: the key's among
        them."""
        chosen = self._settings.columns.get(schema.table)
        if chosen is None:
            return schema.column_names
        wanted = {*chosen, *schema.key}
        return tuple(name for name in schema.column_names if name in wanted)


def uncaptured(settings: PublishSettings, chain: Chain) -> tuple[str, ...]:
    """Return the patterns of a publisher's tables and outbox that no captured table is like: a name
    that is misspelt, or a table that is quarantined. Raises like the chain."""
    tail = chain.tail()
    known = {} if tail is None else chain.open_state(tail).tables
    captured = [
        parse_table(name)
        for name, state in known.items()
        if state.condition is not TableCondition.QUARANTINED
    ]
    patterns = () if settings.aggregates else settings.tables
    if settings.outbox.table is not None:
        patterns = (*patterns, settings.outbox.table)
    return tuple(one for one in patterns if not any(matches(table, (one,)) for table in captured))
