"""Copies the source's description of a table to the target: comments and NOT NULL columns.

The source's comment wins; a comment that a user wrote where the source has none stays.

NOT NULL binds every writer of the table, including us. So a column is declared NOT NULL only after
a merge, and only if no row holds NULL in it. The declaration is removed before rows are merged that
may hold NULL: when the source no longer declares it, or drops or renames the column, or when a row
lacks the value all the same (its type cannot hold it, the log did not carry it, or the row is older
than the source's declaration). The table's property records the source's declaration in any case.
A change log has rows without values (deletes, truncates): only the property is set there.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from tideline.contract.description import Described, PlannedDescription
from tideline.contract.modes import Mode
from tideline_spark.formats.base import Target
from tideline_spark.formats.registry import open_target
from tideline_spark.formats.state import TableWords, undecided
from tideline_spark.parquet import comment_text


def loosen(target: Target, planned: PlannedDescription) -> None:
    """Remove NOT NULL, before a merge, from columns that the source does not declare so."""
    wanted = frozenset(planned.not_null)
    target.description.rewrite(
        lambda now: TableWords(now.comments, now.firm & wanted, now.described)
    )


def give_way(target: Target) -> TableWords:
    """Remove every NOT NULL, because a row lacks such a value; return the previous description.

    NOT NULL is decided again after this merge or, if it is killed, by the next plan.
    """
    table = target.description
    before = table.words()
    table.rewrite(lambda now: TableWords(now.comments, frozenset(), undecided(now.described)))
    return before


def declare_again(target: Target, before: TableWords) -> None:
    """Declare columns without NULL again, after a merge that `give_way` let pass."""
    table = target.description

    def change(now: TableWords) -> TableWords:
        clean = table.without_null(before.firm & now.columns - now.firm)
        return TableWords(now.comments, now.firm | clean, before.described)

    table.rewrite(change)


def describe(target: Target, planned: PlannedDescription, mode: Mode) -> None:
    """Set comments and NOT NULL as ``planned``, after a merge or without one."""
    table = target.description
    wanted = frozenset() if mode is Mode.APPEND else frozenset(planned.not_null)

    def change(now: TableWords) -> TableWords:
        clean = table.without_null((wanted - now.firm) & now.columns)
        return _described(now, planned, (now.firm & wanted) | clean)

    table.rewrite(change)


def describe_idle(session: SparkSession, planned: PlannedDescription) -> None:
    """Describe a target that nothing is merged into; skip one of another build."""
    target = open_target(session.newSession(), planned.target)
    snapshot = target.snapshot()
    if snapshot.exists and snapshot.build == planned.build:
        describe(target, planned, snapshot.mode)


def carry_over(target: Target, live: TableWords, shadow: TableWords) -> None:
    """Set, after a swap, the rebuilt table's description, which its rows alone do not bring along,
    and keep the comments that users wrote on the live one."""
    theirs = {n: text for n, text in live.comments.items() if n not in live.described.comments}
    target.description.rewrite(
        lambda now: TableWords({**theirs, **shadow.comments}, shadow.firm, shadow.described)
    )


def _described(now: TableWords, planned: PlannedDescription, firm: frozenset[str]) -> TableWords:
    columns = {name: comment_text(text) for name, text in planned.columns.items()}
    source = {**columns, **({"": planned.comment} if planned.comment else {})}
    theirs = {n: text for n, text in now.comments.items() if n not in now.described.comments}
    described = Described(planned.fingerprint, tuple(sorted(source)), planned.not_null)
    return TableWords({**theirs, **source}, firm, described)
