"""What the core knows of each table: its condition, its schema, and what to do when they change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from capture.core.events import TableFacts
from tideline.contract.manifest import TableCondition, TableState
from tideline.contract.schema import TableSchema, Verdict, difference, verdict
from tideline.contract.types import LogicalType, parse_type, widens

CATALOG = "catalog"
VALUE = "value"


@dataclass(frozen=True, slots=True)
class Adopted:
    """A schema that came into force for a table. ``before`` is None for a table's first one."""

    schema: TableSchema
    before: str | None
    verdict: Verdict
    changes: tuple[str, ...]


class Tables:
    """The state of every table, in the words of the open state, plus the schemas by fingerprint."""

    def __init__(
        self, states: Mapping[str, TableState], schemas: Mapping[str, TableSchema]
    ) -> None:
        self.states = dict(states)
        self.schemas = dict(schemas)

    def captures(self, table: str) -> bool:
        """Whether rows of ``table`` go into segments."""
        return table in self.states and self.parked(table) is None

    def cased(self, table: str) -> str:
        """The name of a table as its source has it: a log may hold it in the letters that somebody
        wrote. ``table`` itself where that is one, or several would do."""
        if table in self.states:
            return table
        alike = [name for name in self.states if name.lower() == table.lower()]
        return alike[0] if len(alike) == 1 else table

    def parked(self, table: str) -> str | None:
        """The cause for which ``table`` is parked, None when it is not.

        A blocked table that is parked stays blocked: its target must not pass the schema event.
        """
        state = self.states.get(table)
        return None if state is None else state.cause

    def schema(self, table: str) -> TableSchema | None:
        state = self.states.get(table)
        return self.schemas.get(state.schema) if state and state.schema else None

    def adopt(self, schema: TableSchema) -> Adopted | None:
        """Put ``schema`` in force; None when it already is."""
        table = schema.table
        old = self.schema(table)
        if old is not None and old.fingerprint == schema.fingerprint:
            return None
        self.schemas[schema.fingerprint] = schema
        state = self.states.get(table, TableState())
        self.states[table] = replace(state, schema=schema.fingerprint)
        if old is None:
            return Adopted(schema, None, Verdict.NEUTRAL, ())
        changes = difference(old, schema)
        texts = tuple(str(change) for change in changes)
        returned = self._drop(table, old, schema)
        if returned:
            texts = (*texts, *(f"{name} takes the name of a dropped column" for name in returned))
            return Adopted(schema, old.fingerprint, Verdict.INCOMPATIBLE, texts)
        return Adopted(schema, old.fingerprint, verdict(changes, schema), texts)

    def _drop(self, table: str, old: TableSchema, new: TableSchema) -> list[str]:
        """Note which columns ``new`` lacks: the target keeps them. The names of columns that the
        target cannot take because it has another one by that name (Delta's know no case)."""
        state, now = self.states[table], set(new.column_names)
        dropped = dict(state.dropped)
        dropped |= {column.name: column.type for column in old.columns if column.name not in now}
        returned = []
        for name in new.column_names:
            for held in [one for one in dropped if one.lower() == name.lower()]:
                was = parse_type(dropped.pop(held))
                if held != name or not _takes(was, new.column(name).logical):
                    returned.append(name)
        self.states[table] = replace(state, dropped=dropped)
        return returned

    def park(self, table: str, *, seq: int, reason: str, hint: str | None, cause: str) -> bool:
        """Stop capturing ``table`` from ``seq`` on; whether that is news."""
        state = self.states.get(table, TableState())
        if state.cause is not None and state.reason == reason:
            return False
        blocked = state.condition is TableCondition.BLOCKED
        self.states[table] = replace(
            state,
            condition=state.condition if blocked else TableCondition.PARKED,
            since_seq=state.since_seq if blocked else seq,
            reason=reason,
            hint=hint,
            cause=cause,
        )
        return True

    def unprove(self, table: str, *, since: int, reason: str) -> None:
        """Rows of ``table`` may differ since ``since``; a blocked table stays blocked."""
        state = self.states[table]
        if state.condition is TableCondition.BLOCKED:
            return
        if state.condition is TableCondition.UNPROVEN and state.since_seq is not None:
            since = min(since, state.since_seq)
        self.states[table] = replace(
            state,
            condition=TableCondition.UNPROVEN,
            since_seq=since,
            reason=reason,
            hint="a dump of the whole table makes it equal again",
            cause=None,
        )

    def block(self, table: str, *, since: int, reason: str) -> None:
        """From the schema event at ``since`` on, the target cannot follow."""
        state = self.states[table]
        if state.condition is TableCondition.BLOCKED:
            return
        self.states[table] = replace(
            state,
            condition=TableCondition.BLOCKED,
            since_seq=since,
            reason=reason,
            hint="dump the whole table: the target is then started anew with the new schema",
            cause=None,
        )

    def proven(self, table: str, *, first_low_seq: int, first_manifest: int, last_seq: int) -> None:
        """A delete-complete dump finished, with ``last_seq``, that began after everything that was
        in doubt."""
        state = self.states[table]
        if state.condition is TableCondition.BLOCKED:
            state = replace(
                state,
                generation=state.generation + 1,
                generation_seq=first_low_seq,
                generation_manifest=first_manifest,
                dropped={},
            )
        self.states[table] = replace(
            state,
            condition=TableCondition.LIVE,
            since_seq=None,
            reason=None,
            hint=None,
            cause=None,
            complete_seq=last_seq,
        )

    def begin(self, table: str, manifest_number: int) -> None:
        """``table`` has no rows in the chain before the manifest after ``manifest_number``."""
        self.states[table] = replace(self.states[table], generation_manifest=manifest_number)

    def unpark(self, table: str) -> None:
        """Capture ``table`` again; the caller says what it missed."""
        state = self.states[table]
        blocked = state.condition is TableCondition.BLOCKED
        condition = state.condition if blocked else TableCondition.LIVE
        self.states[table] = replace(state, condition=condition, cause=None)

    def restated(self, table: str) -> None:
        """The log itself said how ``table`` changed: the next look at the catalog is not compared
        with the one before."""
        self.states[table] = replace(self.states[table], catalog=None)

    def seen_equal(self, facts: TableFacts) -> bool:
        """Note the catalog's identity of a table; whether it is news."""
        state = self.states[facts.table]
        if state.catalog == facts.catalog:
            return False
        self.states[facts.table] = replace(state, catalog=facts.catalog)
        return True


def _takes(held: LogicalType, wanted: LogicalType) -> bool:
    return held == wanted or widens(held, wanted)
