"""The transitions of a table's state: its condition, its schema, the catalog's view of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tideline.contract.description import Description
from tideline.contract.open_state import (
    REMOVED,
    CapturedFrom,
    TableCondition,
    TableState,
)
from tideline.contract.schema import TableSchema, Verdict
from tideline.contract.steps import ColumnStep, Origin, StepKind, origins_after, steps_to
from tideline_capture.core.facts import CatalogIdentity, TableFacts
from tideline_capture.core.state import CoreState
from tideline_capture.core.tables.lineage import (
    JudgedChange,
    Lineage,
    by_name,
    by_numbers,
    by_statement,
    judge,
)


@dataclass(frozen=True, slots=True)
class Adopted:
    """A schema that came into force for a table. ``before`` is None for a table's first one."""

    schema: TableSchema
    before: str | None
    verdict: Verdict
    changes: tuple[str, ...]
    steps: tuple[ColumnStep, ...] = ()
    certain: bool = False


class TableStates:
    """Changes tables' states in the open state, one table at a time."""

    def __init__(self, state: CoreState) -> None:
        self._state = state

    def adopt(self, schema: TableSchema, facts: TableFacts | None = None) -> Adopted | None:
        """Put ``schema`` in force; None when it already is, with the very same columns.

        ``facts``: the catalog's view of just this schema, if it was read.
        """
        table = schema.table
        old = self._state.schema(table)
        if old is None:
            self._take(schema, None)
            return Adopted(schema, None, Verdict.NEUTRAL, ())
        state = self._state.tables[table]
        by_log = by_statement(old, schema, state.observed_steps) or by_numbers(
            old, schema, state, facts
        )
        lineage = by_log or by_name(old, schema)
        judged = judge(old, schema, lineage)
        if state.observed_steps is not None and by_log is None:
            words = "statements did other things to its columns"
            judged = JudgedChange(
                _at_least_doubtful(judged), judged.steps, (*judged.changes, words)
            )
        elif old.fingerprint == schema.fingerprint and not judged.steps:
            self._state.change_table(table, observed_steps=None)
            return None
        self._take(schema, facts if by_log is not None else None)
        self._drop(table, old, lineage)
        return Adopted(
            schema, old.fingerprint, judged.verdict, judged.changes, judged.steps, lineage.certain
        )

    def follows(self, facts: TableFacts) -> bool:
        """Return whether the catalog has a new schema whose columns' origins are all certain."""
        old, new = self._state.schema(facts.table), facts.schema
        if old is None or new is None or old == new:
            return False
        return by_numbers(old, new, self._state.tables[facts.table], facts) is not None

    def _take(self, schema: TableSchema, facts: TableFacts | None) -> None:
        """Note the schema.

        What else is known of its columns holds on only where that is certain: the next look at the
        catalog would else take them for others.
        """
        self._state.learn(schema)
        state = self._state.tables.get(schema.table, TableState())
        catalog = state.catalog
        if facts is not None and catalog is not None:
            catalog = CatalogIdentity.parse(catalog).with_columns_of(facts.identity).text
        numbers = None if facts is None else facts.numbers
        self._state.change_table(
            schema.table,
            schema=schema.fingerprint,
            catalog=catalog,
            numbers=numbers,
            observed_steps=None,
        )

    def describe(self, description: Description) -> bool:
        """Note the catalog's description of a known table; return whether it is new."""
        table, known = description.table, description.fingerprint
        news = self._state.tables[table].description != known
        self._state.change_table(table, description=known)
        return news

    def state_steps(self, table: str, steps: tuple[ColumnStep, ...] | None) -> bool:
        """Apply ``steps`` of a statement to the columns, in its letter case.

        False: it is no longer certain what they are, and what rows hold in them.
        """
        state, schema = self._state.tables[table], self._state.schema(table)
        now = None
        if steps is not None and schema is not None:
            columns = schema.column_names
            now = _observed(origins_after(columns, state.observed_steps or ()), steps)
            observed_steps = None if now is None else steps_to(columns, now)
        self._state.change_table(table, observed_steps=None if now is None else observed_steps)
        return now is not None or not (steps or state.observed_steps)

    def _drop(self, table: str, old: TableSchema, lineage: Lineage) -> None:
        """Note which columns are no longer there.

        The target may keep them, up to where another one takes the name (targets' names
        ignore case).
        """
        state = self._state.tables[table]
        kept = {origin.was for origin in lineage.origins.values()}
        gone = {column.name: column.type for column in old.columns if column.name not in kept}
        taken = {name.lower() for name in lineage.origins}
        dropped = {**state.dropped, **gone}
        dropped = {name: kind for name, kind in dropped.items() if name.lower() not in taken}
        self._state.change_table(table, dropped=dropped)

    def quarantine(
        self, table: str, *, seq: int, reason: str, hint: str | None, cause: str
    ) -> bool:
        """Stop capturing ``table`` from ``seq`` on; return whether that is new."""
        state = self._state.tables.get(table, TableState())
        if state.cause is not None and state.reason == reason:
            return False
        blocked = state.condition is TableCondition.SCHEMA_BLOCKED
        self._state.change_table(
            table,
            condition=state.condition if blocked else TableCondition.QUARANTINED,
            since_seq=state.since_seq if blocked else seq,
            reason=reason,
            hint=hint,
            cause=cause,
            was_removed=state.was_removed or reason == REMOVED,
            numbers=None,
            observed_steps=None,
        )
        return True

    def mark_doubted(self, table: str, *, since: int, reason: str) -> None:
        """Mark that rows of ``table`` may differ since ``since``; a blocked table stays blocked."""
        state = self._state.tables[table]
        if state.condition is TableCondition.SCHEMA_BLOCKED:
            return
        if state.condition is TableCondition.NEEDS_RESNAPSHOT and state.since_seq is not None:
            since = min(since, state.since_seq)
        self._state.change_table(
            table,
            condition=TableCondition.NEEDS_RESNAPSHOT,
            doubts=state.doubts + 1,
            since_seq=since,
            reason=reason,
            hint="a dump of the whole table makes it equal again; or `tideline verify` finds"
            " that it is",
            cause=None,
        )

    def block(self, table: str, *, since: int, reason: str, by: tuple[StepKind, ...] = ()) -> None:
        """Mark that the target cannot follow from the schema event at ``since`` on.

        Without ``by``, the reason is that the table is another one.
        """
        self._state.change_table(table, blocked_seq=since, left_blocked=False)
        state = self._state.tables[table]
        blocked = state.condition is TableCondition.SCHEMA_BLOCKED
        if blocked and by:
            if state.blocked_by:
                kinds = tuple(dict.fromkeys((*state.blocked_by, *by)))
                self._state.change_table(table, blocked_by=kinds)
            return
        self._state.change_table(
            table,
            condition=TableCondition.SCHEMA_BLOCKED,
            since_seq=state.since_seq if blocked else since,
            reason=reason,
            hint="dump the whole table: the target is then restarted with the new schema;"
            " one that keeps the past waits for `tideline rebuild` to do that",
            cause=None,
            blocked_by=by,
        )

    def resnapshotted(
        self, table: str, *, first_low_seq: int, first_manifest: int, last_seq: int
    ) -> None:
        """Take the end, at ``last_seq``, of a delete-complete dump that began after every doubt."""
        state = self._state.tables[table]
        if state.condition is TableCondition.SCHEMA_BLOCKED:
            self._state.change_table(
                table,
                generation=state.generation + 1,
                generation_seq=first_low_seq,
                generation_manifest=first_manifest,
                dropped={},
                blocked_by=(),
                blocked_seq=None,
                left_blocked=False,
            )
        self._state.change_table(
            table,
            condition=TableCondition.ACTIVE,
            since_seq=None,
            reason=None,
            hint=None,
            cause=None,
            complete_seq=last_seq,
        )

    def recapture(self, table: str, begun: CapturedFrom) -> None:
        """Capture ``table`` again; the caller records what it missed."""
        state = self._state.tables[table]
        blocked = state.condition is TableCondition.SCHEMA_BLOCKED
        condition = state.condition if blocked else TableCondition.ACTIVE
        self._state.change_table(
            table, condition=condition, cause=None, was_removed=False, captured_from=begun
        )

    def is_another(self, table: str, oid: int) -> bool:
        """Return whether ``oid`` (0: not known) is another table than the one known so far."""
        numbers = self._state.tables[table].numbers
        return numbers is not None and oid not in (0, numbers.oid)


def _at_least_doubtful(judged: JudgedChange) -> Verdict:
    return Verdict.DOUBTFUL if judged.verdict is Verdict.NEUTRAL else judged.verdict


def _observed(
    now: Mapping[str, Origin], steps: tuple[ColumnStep, ...]
) -> Mapping[str, Origin] | None:
    """Return the origins of columns after a statement, whose names all mean columns before it.

    What is dropped though it is not there, and added though it is, was done only if it was not so
    already. None where a rename is of no column that is known.
    """
    cased = {name.lower(): name for name in now}
    dropped = {cased.get(s.column.lower()) for s in steps if s.kind is StepKind.DROP}
    renamed = {cased.get(s.was.lower()): s.column for s in steps if s.kind is StepKind.RENAME}
    if None in renamed:
        return None
    found = {renamed.get(name, name): one for name, one in now.items() if name not in dropped}
    taken = {name.lower() for name in found}
    for step in steps:
        if step.kind is StepKind.ADD and step.column.lower() not in taken:
            found[step.column] = Origin(None, step.default)
    return found
